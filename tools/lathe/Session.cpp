//===- Session.cpp --------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Session.h"
#include <cstdio>
#include <random>

namespace lathe::tool {
using Json = nlohmann::ordered_json;

void SamplingFlags::declare(Options &o) {
  o.real("--temp", "T", "temperature; 0 takes the likeliest token (default: the model's own, else 0)", temperature, 0,
         100);
  o.number("--top-k", "K", "sample from the K likeliest tokens; 0: all", topK, 0, 1u << 24);
  o.real("--top-p", "P", "sample from the fewest tokens whose probabilities reach P", topP, 0, 1);
  o.real("--min-p", "P", "drop tokens below P times the likeliest one's probability", minP, 0, 1);
  o.real("--repeat-penalty", "X", "divide the logits of tokens that occurred by X", repetitionPenalty, 0.01, 100);
  o.real("--presence-penalty", "X", "subtract X from the logits of tokens already generated", presencePenalty, -2, 2);
  o.real("--frequency-penalty", "X", "the same, for each time they occurred", frequencyPenalty, -2, 2);
  o.amounts("--logit-bias", "ID:X,...", "add X, of -100..100, to the logit of token ID; may be given several times", logitBias, -100, 100);
  o.number("--seed", "S", "of the random numbers (default: a random one, which is reported)", seed, 0, UINT64_MAX);
}

Status SamplingFlags::check(uint32_t vocabulary) const {
  for (const auto &[id, amount] : logitBias)
    if (static_cast<uint32_t>(id) >= vocabulary)
      return makeError(StatusCode::invalidArgument, "option '--logit-bias': expected token ids in 0..%u, found %d", vocabulary - 1, id);
  return Status();
}

SamplingParams SamplingFlags::apply(SamplingParams p) const {
  auto set = [](float &to, const std::optional<double> &from) {
    if (from) to = static_cast<float>(*from);
  };
  set(p.temperature, temperature);
  set(p.topP, topP);
  set(p.minP, minP);
  set(p.repetitionPenalty, repetitionPenalty);
  set(p.presencePenalty, presencePenalty);
  set(p.frequencyPenalty, frequencyPenalty);
  if (topK) p.topK = static_cast<int32_t>(*topK);
  if (!logitBias.empty()) p.logitBias = logitBias;
  std::random_device random;
  p.seed = seed ? *seed : (uint64_t(random()) << 32 | random()) >> 11; // exact in JSON's doubles
  return p;
}

Result<Session> Session::open(const std::string &path, const EngineFlags &flags, uint32_t sequences) {
  Session s;
  LATHE_ASSIGN_OR_RETURN(s.device, openDevice(flags));
  LATHE_ASSIGN_OR_RETURN(s.artifact, openModel(path, flags, *s.device));
  auto begin = std::chrono::steady_clock::now();
  if (s.artifact->view().find(artifact::SectionKind::tokenizer)) {
    LATHE_ASSIGN_OR_RETURN(s.text, runtime::TextModel::create(*s.artifact));
  }
  if (sequences) {
    runtime::EngineOptions options = flags.engineOptions();
    options.maxSequences = sequences;
    LATHE_ASSIGN_OR_RETURN(s.engine, runtime::Engine::create(s.artifact, options, s.device.get()));
    LATHE_ASSIGN_OR_RETURN(s.sequence, s.engine->open());
    s.engine->cancelOn(&interrupted);
  }
  s.loadSeconds =
      s.artifact->loadSeconds() + std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return s;
}

Result<const runtime::TextModel *> Session::needText() const {
  if (text) return &*text;
  return makeError(StatusCode::failedPrecondition, "'%s' has no tokenizer; give token ids with '--prompt-ids'",
                   artifact->path().c_str());
}

Status needChoices(const Session &session) {
  if (session.artifact->program().choicesStride) return Status();
  return makeError(StatusCode::failedPrecondition, "option '--greedy': expected an artifact with the entry 'head_choices', which '%s' lacks; compile it with llm-fuse-head",
                   session.artifact->path().c_str());
}

uint64_t weightBytesOfStep(const Program &program, uint32_t rows, uint32_t outRows) {
  uint64_t bytes = 0;
  for (const Entry &entry : program.entries) {
    uint32_t wanted = entry.name == "step" ? rows : entry.name == "head" ? outRows : 0;
    if (!wanted) continue;
    for (const Bucket &bucket : entry.buckets) {
      if (bucket.maxRows < wanted) continue;
      for (uint32_t i = 0; i < bucket.launchCount; ++i)
        bytes += program.launches[bucket.firstLaunch + i].weightBytes;
      break;
    }
  }
  return bytes;
}

static double rate(double count, double seconds) { return seconds > 0 ? count / seconds : 0; }

Json timingsJson(const Session &session, const runtime::GenerateTimings &t) {
  uint64_t decoded = t.newTokens - std::min<uint64_t>(t.newTokens, 1); // the first token belongs to the prompt
  return {{"load_seconds", session.loadSeconds},
          {"prompt_tokens", t.promptTokens},
          {"prompt_seconds", t.promptSeconds},
          {"prompt_tokens_per_second", rate(static_cast<double>(t.promptTokens), t.promptSeconds)},
          {"new_tokens", t.newTokens},
          {"decode_seconds", t.decodeSeconds},
          {"decode_tokens_per_second", rate(static_cast<double>(decoded), t.decodeSeconds)},
          {"weight_bytes_per_second",
           rate(static_cast<double>(t.steps * weightBytesOfStep(session.engine->program(), 1, 1)), t.decodeSeconds)},
          {"threads", session.engine->executable().threads()},
          {"variant", artifact::toString(session.artifact->variant())},
          {"peak_memory_bytes", peakMemory()}};
}

std::string timingsLine(const Session &session, const runtime::GenerateTimings &t) {
  char line[256];
  uint64_t decoded = t.newTokens - std::min<uint64_t>(t.newTokens, 1);
  double weights = static_cast<double>(t.steps * weightBytesOfStep(session.engine->program(), 1, 1));
  std::snprintf(line, sizeof line,
                "load %.0f ms | prompt %llu tokens, %.0f tokens/s | generated %llu tokens, %.1f tokens/s, %.1f GB/s of "
                "weights | peak memory %.0f MB",
                session.loadSeconds * 1e3, static_cast<unsigned long long>(t.promptTokens),
                rate(static_cast<double>(t.promptTokens), t.promptSeconds),
                static_cast<unsigned long long>(t.newTokens), rate(static_cast<double>(decoded), t.decodeSeconds),
                rate(weights, t.decodeSeconds) / 1e9, static_cast<double>(peakMemory()) / 1e6);
  return line;
}

std::string dumpLine(const Json &value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

} // namespace lathe::tool
