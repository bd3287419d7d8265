//===- ApiCall.h - one request on its way --------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/server/Api.h"
#include <chrono>

namespace lathe::server {

/// Parses on a worker, submits, collects or streams what the engine says, answers, and is counted and logged. All members
/// run on the I/O thread but what is said to run on a worker.
class ApiCall final : public Call, public std::enable_shared_from_this<ApiCall> {
public:
  ApiCall(Api &api, const Api::Admission &admission, HttpHead head, std::shared_ptr<Transport> transport, uint64_t bodyBytes);
  void begin(std::string body);
  void disconnected() override;
  /// Cancels because the server ends.
  void shutDown();
  int key() const { return admission.key; }
  /// Whether it counts against its key's concurrency.
  bool worksForKey() const { return admission.key >= 0 && admission.route.kind == Route::Kind::work; }

private:
  /// What a worker makes of a body.
  struct Prepared {
    std::optional<ApiError> error;
    const ServedModel *model = nullptr;
    ApiRequest request;
    std::vector<runtime::Request> engineRequests;
    std::string body; ///< an answer without the engine
  };
  void prepareOnWorker(const std::string &body, Prepared &out) const;
  void prepared(std::shared_ptr<Prepared> result);
  std::optional<ApiError> submit();
  void takeEvents();
  void handle(EngineEvent &event, std::string &out);
  void firstChunk(PromptState &prompt, ChoiceState &choice, uint32_t index, std::string &out);
  void allFinished(std::string &out);
  void cancelEngine();
  void replyWith(HttpReply reply);
  void replyError(const ApiError &error);
  void finish(int status);
  void releaseBody() { api.bodyBytes -= std::exchange(bodyBytes, 0); }

  Api &api;
  Api::Admission admission;
  HttpHead head;
  std::shared_ptr<Transport> transport;
  uint64_t bodyBytes;
  std::chrono::steady_clock::time_point begun;
  std::shared_ptr<Prepared> work;
  AnswerHead answer;
  std::shared_ptr<EventQueue> queue;
  std::vector<runtime::RequestId> ids;
  std::vector<PromptState> prompts;
  std::vector<bool> begunChoices; ///< their first chunk is sent
  std::optional<ChunkWriter> chunks;
  std::optional<ApiError> failure;
  size_t unfinished = 0;
  bool gone = false, done = false, ending = false;
};

} // namespace lathe::server
