//===- Events.h - from the engine's thread to the server's ---------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/engine/RequestEngine.h"
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace lathe::server {

/// One call of a RequestListener.
struct EngineEvent {
  enum class Kind { accepted, promptDone, piece, choiceDone, embedding, finished };
  Kind kind = Kind::piece;
  uint32_t prompt = 0; ///< which of the engine's requests of this HTTP request
  uint32_t choice = 0;
  uint64_t seed = 0;
  Sample sample;
  std::string text; ///< of a piece, or the stop string
  runtime::EndReason reason = runtime::EndReason::stop;
  int32_t stopToken = -1;
  std::vector<runtime::PromptLogprob> promptLogprobs;
  std::vector<float> values;
  runtime::RequestUsage usage;
  Status error;
};

/// What an engine said and the server has not read yet. The engine only appends: it never waits for a socket.
class EventQueue {
public:
  /// |wake| is called, on the engine's thread, whenever the queue stops being empty.
  explicit EventQueue(std::function<void()> wake) : wake(std::move(wake)) {}
  void push(EngineEvent event);
  /// All of them, in order. Thread-safe.
  std::vector<EngineEvent> take();

private:
  std::function<void()> wake;
  std::mutex mutex; ///< held for a push or a swap
  std::vector<EngineEvent> events;
};

/// Listens to one request of the engine.
std::shared_ptr<runtime::RequestListener> listenInto(std::shared_ptr<EventQueue> queue, uint32_t prompt);

} // namespace lathe::server
