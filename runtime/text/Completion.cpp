//===- Completion.cpp -----------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/text/Completion.h"
#include <optional>

namespace lathe::runtime {
namespace {

/// The way from tokens to shown text of one answer.
class Stream {
public:
  Stream(const CompletionRequest &request, const TextModel *text, Completion &out)
      : request(request), out(out), stops(request.stops) {
    if (text) decoder.emplace(text->tokenizer(), request.keepSpecial, request.continues);
  }

  bool token(int32_t id) {
    bool more = show(id, decoder ? stops.push(decoder->push(id)) : std::string());
    return more && !stops.stopped();
  }
  void finish() {
    if (stops.stopped()) out.reason = FinishReason::stop;
    if (!decoder || stops.stopped()) return;
    std::string rest = stops.push(decoder->flush());
    if (!stops.stopped()) rest += stops.finish();
    if (!rest.empty()) show(-1, rest);
  }

private:
  bool show(int32_t id, const std::string &piece) {
    out.text += piece;
    return !request.onPiece || request.onPiece(id, piece);
  }
  const CompletionRequest &request;
  Completion &out;
  std::optional<StreamDecoder> decoder;
  StopMatcher stops;
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
    streams[i]->finish();
  }
  return answers;
}

} // namespace lathe::runtime
