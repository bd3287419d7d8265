//===- Bench.cpp - lathe bench --------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Predict.h"
#include "Session.h"
#include "Speculate.h"
#include <algorithm>
#include <cstdio>

namespace lathe::tool {
using namespace runtime;
using Json = nlohmann::ordered_json;

namespace {

struct BenchFlags {
  EngineFlags engine;
  uint64_t prompt = 512, fresh = 128, depth = 0, repeat = 5;
  std::vector<uint64_t> batches = {1};
  bool json = false, greedy = false;
};

double seconds(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Feeds pseudo-random tokens and measures; one row of the report.
class Bench {
public:
  Bench(Engine &engine, uint32_t batch, bool greedy) : engine(engine), sequences(batch), greedy(greedy) {}

  Status open() {
    for (SequenceId &s : sequences) {
      LATHE_ASSIGN_OR_RETURN(s, engine.open());
    }
    return Status();
  }
  void close() {
    for (SequenceId s : sequences)
      engine.close(s);
  }
  /// Appends |tokens| to every sequence, all in one call.
  Status feed(uint64_t tokens, OutputRows output) {
    std::vector<std::vector<int32_t>> ids(sequences.size());
    std::vector<Work> work;
    for (size_t i = 0; i < sequences.size(); ++i) {
      for (uint64_t t = 0; t < tokens; ++t)
        ids[i].push_back(draw());
      work.push_back({sequences[i], ids[i], output});
    }
    auto drop = [](size_t, size_t, std::span<const float>) { return Status(); };
    return greedy ? engine.forward(work, nullptr, nullptr, drop) : engine.forward(work, drop);
  }
  Status toDepth(uint64_t depth) {
    for (SequenceId s : sequences)
      engine.truncate(s, static_cast<uint32_t>(depth));
    uint64_t have = depth; // a sliding window may have emptied a sequence: all start again then
    for (SequenceId s : sequences)
      have = std::min<uint64_t>(have, engine.length(s));
    if (have == depth) return Status();
    for (SequenceId s : sequences)
      engine.truncate(s, 0);
    return feed(depth, OutputRows::none);
  }

private:
  int32_t draw() {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int32_t>((state >> 33) % engine.program().vocabulary);
  }
  Engine &engine;
  std::vector<SequenceId> sequences;
  bool greedy;
  uint64_t state = 1;
};

Result<Json> measure(Session &session, const BenchFlags &f, uint64_t batch, const MachineLimits &limits) {
  Progress progress; // shown between measurements
  Engine &engine = *session.engine;
  Bench bench(engine, static_cast<uint32_t>(batch), f.greedy);
  LATHE_RETURN_IF_ERROR(bench.open());
  std::vector<double> prompt, decode;
  for (uint64_t round = 0; round <= f.repeat; ++round) { // round 0 warms up
    progress.show(("batch " + std::to_string(batch) + ": round").c_str(), round + 1, f.repeat + 1);
    if (f.prompt) {
      LATHE_RETURN_IF_ERROR(bench.toDepth(f.depth));
      auto begin = std::chrono::steady_clock::now();
      LATHE_RETURN_IF_ERROR(bench.feed(f.prompt, OutputRows::last));
      if (round) prompt.push_back(static_cast<double>(f.prompt * batch) / seconds(begin));
    }
    if (f.fresh) {
      LATHE_RETURN_IF_ERROR(bench.toDepth(f.depth));
      auto begin = std::chrono::steady_clock::now();
      for (uint64_t i = 0; i < f.fresh; ++i)
        LATHE_RETURN_IF_ERROR(bench.feed(1, OutputRows::last));
      if (round) decode.push_back(static_cast<double>(f.fresh * batch) / seconds(begin));
    }
  }
  bench.close();
  double decodeRate = median(decode);
  double weights = static_cast<double>(
      weightBytesOfStep(engine.program(), static_cast<uint32_t>(batch), static_cast<uint32_t>(batch)));
  double bytes = decodeRate / static_cast<double>(batch) * weights;
  auto perSecond = [&](uint64_t tokens, uint64_t depth) {
    double predicted = predictSeconds(engine.program(), tokens, batch, depth, limits, f.greedy);
    return predicted > 0 ? static_cast<double>(tokens * batch) / predicted : 0;
  };
  return Json{{"prompt", f.prompt},
              {"new", f.fresh},
              {"depth", f.depth},
              {"greedy", f.greedy},
              {"batch", batch},
              {"prompt_tokens_per_second", median(prompt)},
              {"decode_tokens_per_second", decodeRate},
              {"prompt_predicted_tokens_per_second", f.prompt ? perSecond(f.prompt, f.depth) : 0},
              {"decode_predicted_tokens_per_second", f.fresh ? perSecond(1, f.depth + f.fresh / 2) : 0},
              {"weight_bytes_per_second", bytes},
              {"read_limit_bytes_per_second", limits.readBytesPerSecond},
              {"int8_limit_macs_per_second", limits.int8MacsPerSecond},
              {"threads", engine.executable().threads()},
              {"variant", artifact::toString(session.artifact->variant())}};
}

} // namespace

Result<int> benchCommand(const Args &args) {
  BenchFlags f;
  Options o("lathe bench FILE.lathe [options]",
            "Measures tokens per second of prompts and of generation; each figure is the median of the repeats.");
  o.number("-p, --prompt", "N", "tokens of the prompt, 0: none (default 512)", f.prompt, 0, 1u << 26);
  o.number("-n, --new", "N", "tokens to generate, 0: none (default 128)", f.fresh, 0, 1u << 26);
  o.number("-d, --depth", "N", "tokens in the context before each measurement (default 0)", f.depth, 0, 1u << 26);
  o.numbers("-b, --batch", "N,...", "sequences at one time (default 1)", f.batches, 1, 1024);
  o.number("-r, --repeat", "N", "repeats (default 5)", f.repeat, 1, 1000);
  o.flag("--greedy", "the largest logit of each row instead of its logits, as where all are sampled greedily", f.greedy);
  o.flag("--json", "one line of JSON a row", f.json);
  o.heading("Speculation: plain and speculated answers in turns, which must be the same");
  SpeculationBench s;
  std::optional<double> acceptance;
  std::string rule = "exact", draftCost = "measured";
  o.text("--speculate", "M", "auto, draft, medusa, eagle, eagle2, eagle3, ngram, suffix, suffix-tree, or synthetic: drafts of a given quality", s.method);
  o.text("--draft-acceptance", "R", "which drafts count: exact, or rejection and typical, with which answers differ (default: exact)", rule);
  o.text("--draft-cost", "C", "which drafts are verified: those that pay by the measured cost of their rows (measured), or all that there are and have room (none), to compare drafters (default: measured)", draftCost);
  o.text("--prompt-file", "FILE", "the prompt's text (default: pseudo-random tokens)", s.promptFile);
  o.real("--acceptance", "P", "synthetic: share of the draft tokens that are right (default 0.7)", acceptance, 0, 1);
  o.number("--drafts", "N", "synthetic: tokens of a draft (default 4)", s.drafts, 1, maxDraftTokens);
  s.sampling.declare(o);
  f.engine.declare(o, "tokens the context holds (default: what the measurement needs)");
  Args positional;
  LATHE_ASSIGN_OR_RETURN(bool go, parseOptions(o, args, positional));
  if (!go) return 0;
  LATHE_ASSIGN_OR_RETURN(std::string path, onePositional(positional, "an artifact"));

  LATHE_ASSIGN_OR_RETURN(s.rule, acceptanceOption(rule));
  LATHE_ASSIGN_OR_RETURN(s.freeDrafts, draftCostOption(draftCost));
  if (!s.method.empty()) {
    if (f.greedy)
      return Status(StatusCode::invalidArgument, "option '--greedy': expected without '--speculate', whose steps take the largest logit where that is all they need, found both");
    s.acceptance = acceptance.value_or(s.acceptance);
    if (f.fresh < 2)
      return makeError(StatusCode::invalidArgument, "option '-n': expected at least 2 new tokens to compare answers by, found %llu",
                       static_cast<unsigned long long>(f.fresh));
    if (!f.engine.context && s.promptFile.empty()) f.engine.context = f.prompt + f.fresh; // refused if the model's is shorter
    s.prompt = f.prompt, s.fresh = f.fresh, s.repeat = f.repeat;
    s.batches = f.batches, s.json = f.json;
    return benchSpeculation(path, f.engine, s);
  }
  if (s.sampling.temperature)
    return Status(StatusCode::invalidArgument, "option '--temp': expected with '--speculate' only, as plain answers are measured without sampling");
  uint64_t widest = *std::max_element(f.batches.begin(), f.batches.end());
  if (!f.engine.context) f.engine.context = f.depth + std::max({f.prompt, f.fresh, uint64_t(1)});
  LATHE_ASSIGN_OR_RETURN(Session session, Session::open(path, f.engine, static_cast<uint32_t>(widest)));
  session.engine->close(session.sequence);
  if (f.greedy) LATHE_RETURN_IF_ERROR(needChoices(session));
  MachineLimits limits = measureLimits(session.engine->executable().threads(), session.artifact->variant());
  if (!f.json)
    std::printf(
        "%s, %u threads, %s; this machine reads %.1f GB/s and does %.0f billion 8-bit multiply-adds a second\n\n"
        "prompt     new   depth  batch   prompt tokens/s  (limit)   new tokens/s  (limit)   weights GB/s\n",
        path.c_str(), session.engine->executable().threads(), artifact::toString(session.artifact->variant()),
        limits.readBytesPerSecond / 1e9, limits.int8MacsPerSecond / 1e9);
  for (uint64_t batch : f.batches) {
    LATHE_ASSIGN_OR_RETURN(Json row, measure(session, f, batch, limits));
    if (f.json)
      std::printf("%s\n", dumpLine(row).c_str());
    else
      std::printf(
          "%6llu  %6llu  %6llu  %5llu   %15.1f %8.0f   %12.1f %8.0f   %12.1f\n",
          static_cast<unsigned long long>(f.prompt), static_cast<unsigned long long>(f.fresh),
          static_cast<unsigned long long>(f.depth), static_cast<unsigned long long>(batch),
          row["prompt_tokens_per_second"].get<double>(), row["prompt_predicted_tokens_per_second"].get<double>(),
          row["decode_tokens_per_second"].get<double>(), row["decode_predicted_tokens_per_second"].get<double>(),
          row["weight_bytes_per_second"].get<double>() / 1e9);
    std::fflush(stdout);
  }
  return 0;
}

} // namespace lathe::tool
