//===- Events.cpp ---------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/server/Events.h"

namespace lathe::server {
using namespace runtime;

void EventQueue::push(EngineEvent event) {
  bool first;
  {
    std::lock_guard lock(mutex);
    first = events.empty();
    events.push_back(std::move(event));
  }
  if (first) wake();
}

std::vector<EngineEvent> EventQueue::take() {
  std::lock_guard lock(mutex);
  return std::exchange(events, {});
}

namespace {

class Listener final : public RequestListener {
public:
  Listener(std::shared_ptr<EventQueue> queue, uint32_t prompt) : queue(std::move(queue)), prompt(prompt) {}

  void accepted(uint64_t seed) override {
    EngineEvent e = make(EngineEvent::Kind::accepted);
    e.seed = seed;
    queue->push(std::move(e));
  }
  void promptDone(std::span<const PromptLogprob> logprobs) override {
    EngineEvent e = make(EngineEvent::Kind::promptDone);
    e.promptLogprobs.assign(logprobs.begin(), logprobs.end());
    queue->push(std::move(e));
  }
  void piece(uint32_t choice, const Sample &sample, std::string_view text) override {
    EngineEvent e = make(EngineEvent::Kind::piece, choice);
    e.sample = sample;
    e.text = text;
    queue->push(std::move(e));
  }
  void choiceDone(uint32_t choice, EndReason reason, std::string_view stopText, int32_t stopToken) override {
    EngineEvent e = make(EngineEvent::Kind::choiceDone, choice);
    e.reason = reason;
    e.text = stopText;
    e.stopToken = stopToken;
    queue->push(std::move(e));
  }
  void embedding(std::span<const float> values) override {
    EngineEvent e = make(EngineEvent::Kind::embedding);
    e.values.assign(values.begin(), values.end());
    queue->push(std::move(e));
  }
  void finished(const RequestUsage &usage, const Status &error) override {
    EngineEvent e = make(EngineEvent::Kind::finished);
    e.usage = usage;
    e.error = error;
    queue->push(std::move(e));
  }

private:
  EngineEvent make(EngineEvent::Kind kind, uint32_t choice = 0) const {
    EngineEvent e;
    e.kind = kind;
    e.prompt = prompt;
    e.choice = choice;
    return e;
  }
  std::shared_ptr<EventQueue> queue;
  uint32_t prompt;
};

} // namespace

std::shared_ptr<RequestListener> listenInto(std::shared_ptr<EventQueue> queue, uint32_t prompt) {
  return std::make_shared<Listener>(std::move(queue), prompt);
}

} // namespace lathe::server
