//===- Completion.cpp -----------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/text/Completion.h"
#include "runtime/text/AnswerText.h"

namespace lathe::runtime {
namespace {

/// The way from tokens to shown text of one answer.
class Stream {
public:
  Stream(const CompletionRequest &request, const TextModel *model, Completion &out)
      : request(request), out(out),
        text(model ? &model->tokenizer() : nullptr, {request.stops, false, request.keepSpecial, request.continues}) {}

  bool token(int32_t id) { return show(id, text.push(id)) && !text.stopped(); }
  void finish() {
    std::string_view rest = text.finish();
    if (!rest.empty()) show(-1, rest);
    if (text.stopped()) out.reason = FinishReason::stop;
  }

private:
  bool show(int32_t id, std::string_view piece) {
    out.text += piece;
    return !request.onPiece || request.onPiece(id, piece);
  }
  const CompletionRequest &request;
  Completion &out;
  AnswerText text;
};

} // namespace

Result<std::vector<Completion>> complete(Engine &engine, const TextModel *text,
                                         std::span<const CompletionRequest> requests, GenerateTimings *timings) {
  std::vector<Completion> answers(requests.size());
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<GenerateRequest> generating(requests.size());
  std::vector<GenerateResult> results(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    const CompletionRequest &r = requests[i];
    streams.push_back(std::make_unique<Stream>(r, text, answers[i]));
    GenerateRequest &g = generating[i];
    g.sequence = r.sequence;
    g.prompt = r.prompt;
    g.sampling = r.sampling;
    g.maxTokens = r.maxTokens;
    if (text && !r.ignoreEnd) g.stopTokens = text->stopTokens();
    g.onToken = [stream = streams[i].get()](const Sample &sample) { return stream->token(sample.token); };
  }
  LATHE_RETURN_IF_ERROR(generate(engine, generating, results, timings));
  for (size_t i = 0; i < requests.size(); ++i) {
    answers[i].ids = std::move(results[i].ids);
    answers[i].reason = results[i].reason;
    answers[i].cachedTokens = results[i].cachedTokens;
    answers[i].error = std::move(results[i].error);
    streams[i]->finish();
  }
  return answers;
}

} // namespace lathe::runtime
