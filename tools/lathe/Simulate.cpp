//===- Simulate.cpp - lathe simulate and lathe replay ---------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Commands.h"
#include "runtime/scheduler/Replay.h"
#include "runtime/simulator/Simulator.h"
#include <cinttypes>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

namespace lathe::tool {
using namespace runtime;
using Json = nlohmann::ordered_json;

namespace {

Result<std::string> readText(const std::string &path) {
  std::unique_ptr<FILE, int (*)(FILE *)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file) return makeError(StatusCode::notFound, "cannot open '%s'", path.c_str());
  std::string text;
  char buffer[1 << 16];
  while (size_t n = std::fread(buffer, 1, sizeof buffer, file.get()))
    text.append(buffer, n);
  if (std::ferror(file.get())) return makeError(StatusCode::dataLoss, "cannot read '%s'", path.c_str());
  return text;
}

class FileSink : public TraceSink {
public:
  explicit FileSink(FILE *file) : file(file, std::fclose) {}
  void write(std::string_view lines) override {
    good &= std::fwrite(lines.data(), 1, lines.size(), file.get()) == lines.size();
  }
  bool close() {
    good &= std::fflush(file.get()) == 0;
    return good;
  }

private:
  std::unique_ptr<FILE, int (*)(FILE *)> file;
  bool good = true;
};

struct SimulateFlags {
  uint64_t requests = 1000, sequences = 64, context = 4096, kv = 0, step = 256, groups = 0, shared = 1024, tenants = 1,
           choices = 1, saved = 0, page = 16, seed = 1, queue = 1u << 20;
  std::optional<double> rate, prompt, output, spread, burst, aborts, ttft, tpot, itl, noise, hot;
  std::string policy = "fcfs", preemption = "automatic", cost, trace;
  bool noPrefixCache = false, maxTokens = false, json = false, check = false;
};

Json percentiles(const SimReport &report, const std::vector<double> &sorted) {
  Json out;
  for (double p : {50.0, 90.0, 99.0, 100.0})
    out["p" + std::to_string(static_cast<int>(p))] = report.percentile(sorted, p);
  return out;
}

} // namespace

Result<int> simulateCommand(const Args &args) {
  SimulateFlags f;
  Options options("lathe simulate [options]", "Runs the scheduler and the KV manager on a simulated clock: made-up "
                                              "requests, and a device that only takes time.");
  options.heading("requests:");
  options.number("--requests", "N", "how many (default 1000)", f.requests, 1, 10000000);
  options.real("--rate", "R", "arrivals a second, Poisson (default: all at once)", f.rate, 1e-3, 1e6);
  options.real("--burstiness", "B", "shape of a gamma distribution of gaps; below 1 comes in bursts (default 1)",
               f.burst, 0.01, 100);
  options.real("--prompt", "N", "mean prompt tokens, log-normal (default 230)", f.prompt, 1, 1e6);
  options.real("--output", "N", "mean answer tokens, log-normal (default 270)", f.output, 1, 1e6);
  options.real("--spread", "S", "standard deviation of the logarithm of both (default 0.9)", f.spread, 0, 3);
  options.number("--groups", "N", "groups of requests that share a prefix (default 0)", f.groups, 0, 1000000);
  options.number("--shared", "N", "tokens of such a prefix (default 1024)", f.shared, 1, 1000000);
  options.real("--hot", "S", "share of requests that belong to a group (default 1)", f.hot, 0.001, 1);
  options.real("--aborts", "S", "share of clients that go before the end (default 0)", f.aborts, 0, 1);
  options.number("--choices", "N", "answers to each prompt (default 1)", f.choices, 1, 64);
  options.number("--tenants", "N", "tenants, in turn (default 1)", f.tenants, 1, 100000);
  options.flag("--max-tokens", "clients say how long their answers will be", f.maxTokens);
  options.real("--ttft", "S", "target: seconds to the first token", f.ttft, 1e-6, 1e6);
  options.real("--tpot", "S", "target: seconds a token", f.tpot, 1e-6, 1e6);
  options.number("--seed", "N", "of the requests (default 1)", f.seed, 0, UINT64_MAX);
  options.heading("engine:");
  options.text("--policy", "NAME", "fcfs, priority, fair or deadline (default fcfs)", f.policy);
  options.number("--max-seqs", "N", "sequences at once (default 64)", f.sequences, 1, 4096);
  options.number("--ctx", "N", "tokens of a sequence (default 4096)", f.context, 1, 1u << 24);
  options.number("--kv-tokens", "N", "KV cache, all sequences together (default: every sequence its context)", f.kv, 1,
                 1ull << 32);
  options.number("--page", "N", "tokens of a KV block (default 16)", f.page, 1, 4096);
  options.number("--step-tokens", "N", "rows of a step (default 256)", f.step, 1, StepCostModel::maxRows);
  options.number("--max-queue", "N", "waiting requests (default 1048576)", f.queue, 1, 1u << 30);
  options.text("--preemption", "MODE", "automatic, recompute or save (default automatic)", f.preemption);
  options.number("--saved-kv", "BYTES", "host memory for saved blocks (default 0)", f.saved, 0, 1ull << 50);
  options.real("--itl", "S",
               "seconds between tokens to keep while prompts run (default: a prompt adds a decode-only step at most)",
               f.itl, 1e-6, 1e6);
  options.flag("--no-prefix-cache", "compute every prompt", f.noPrefixCache);
  options.heading("device:");
  options.text("--cost", "FILE", "lines 'ROWS SECONDS' of measured steps (default: 2.6 ms and 0.55 ms a row)", f.cost);
  options.real("--noise", "S", "standard deviation of a step's time, as a share of it (default 0)", f.noise, 0, 1);
  options.heading("output:");
  options.text("--trace", "FILE", "write events and decisions, for lathe replay", f.trace);
  options.flag("--check", "check every invariant after every event", f.check);
  options.flag("--json", "print JSON", f.json);
  Args positional;
  LATHE_ASSIGN_OR_RETURN(bool go, parseOptions(options, args, positional));
  if (!go) return 0;
  if (!positional.empty())
    return makeError(StatusCode::invalidArgument, "unexpected argument '%s'", positional[0].c_str());

  WorkloadOptions w;
  w.requests = static_cast<uint32_t>(f.requests);
  w.rate = f.rate.value_or(0), w.burstiness = f.burst.value_or(1);
  w.promptMean = f.prompt.value_or(230), w.outputMean = f.output.value_or(270), w.spread = f.spread.value_or(0.9);
  w.groups = static_cast<uint32_t>(f.groups), w.sharedTokens = static_cast<uint32_t>(f.shared);
  if (f.hot && *f.hot < 1) w.hotShare = *f.hot;
  uint64_t longest = f.context - std::min<uint64_t>(f.context - 1, w.groups ? f.shared : 0);
  w.promptMax = static_cast<uint32_t>(std::max<uint64_t>(1, longest / 2));
  w.outputMax = static_cast<uint32_t>(std::max<uint64_t>(1, longest / 2));
  w.abortShare = f.aborts.value_or(0);
  w.choices = static_cast<uint32_t>(f.choices), w.tenants = static_cast<uint32_t>(f.tenants);
  w.sayMaxTokens = f.maxTokens, w.seed = f.seed;
  w.ttftTarget = f.ttft.value_or(0), w.tpotTarget = f.tpot.value_or(0);
  if (w.groups && f.shared >= f.context)
    return makeError(StatusCode::invalidArgument,
                     "--shared: expected less than the context of %" PRIu64 " tokens, found %" PRIu64, f.context,
                     f.shared);

  SimOptions o;
  SchedulerOptions &s = o.scheduler;
  s.maxSequences = static_cast<uint32_t>(f.sequences), s.contextTokens = static_cast<uint32_t>(f.context);
  s.stepTokens = static_cast<uint32_t>(f.step), s.maxQueued = static_cast<uint32_t>(f.queue);
  s.savedKvBytes = f.saved, s.prefixCache = !f.noPrefixCache, s.itlTarget = f.itl.value_or(0);
  LATHE_ASSIGN_OR_RETURN(s.policy, parsePolicy(f.policy));
  if (f.preemption == "recompute")
    s.preemption = PreemptionMode::recompute;
  else if (f.preemption == "save")
    s.preemption = PreemptionMode::save;
  else if (f.preemption != "automatic")
    return makeError(StatusCode::invalidArgument, "--preemption: expected automatic, recompute or save, found '%s'",
                     f.preemption.substr(0, 64).c_str());
  o.program.kvGroups.push_back({0, 0, static_cast<uint32_t>(f.page), 30, f.page * 23040});
  o.kvTokens = f.kv ? std::max(f.kv, f.context) : 0;
  o.noise = f.noise.value_or(0), o.seed = f.seed, o.checkEvery = f.check;
  o.restoreSecondsPerBlock = static_cast<double>(f.page * 23040) / s.saveBytesPerSecond;
  if (!f.cost.empty()) {
    LATHE_ASSIGN_OR_RETURN(std::string text, readText(f.cost));
    Result<StepTimes> times = StepTimes::parse(text);
    if (!times.ok()) return times.status().at(f.cost);
    o.times = *times;
  }
  std::unique_ptr<FileSink> sink;
  if (!f.trace.empty()) {
    FILE *file = std::fopen(f.trace.c_str(), "wb");
    if (!file) return makeError(StatusCode::notFound, "cannot write '%s'", f.trace.c_str());
    sink = std::make_unique<FileSink>(file);
    o.trace = sink.get();
  }
  std::vector<SimRequest> requests = makeWorkload(w);
  LATHE_ASSIGN_OR_RETURN(SimReport report, simulate(requests, o));
  if (sink && !sink->close()) return makeError(StatusCode::dataLoss, "cannot write '%s'", f.trace.c_str());

  const SchedulerStats &stats = report.stats;
  size_t answered = 0, refused = 0;
  for (const SimOutcome &outcome : report.outcomes) {
    answered += outcome.state == SimOutcome::State::ended &&
                (outcome.end == EndReason::stop || outcome.end == EndReason::length);
    refused += outcome.state == SimOutcome::State::refused || outcome.end == EndReason::rejected;
  }
  double hits = stats.prefixQueried ? double(stats.prefixHit) / double(stats.prefixQueried) : 0;
  double again = stats.rows ? double(stats.recomputedRows) / double(stats.rows) : 0;
  if (f.json) {
    Json out{{"requests", requests.size()},
             {"answered", answered},
             {"refused", refused},
             {"seconds", report.seconds},
             {"busy_seconds", report.busySeconds},
             {"steps", stats.steps},
             {"rows", stats.rows},
             {"new_tokens", stats.newTokens},
             {"tokens_per_second", double(stats.newTokens) / report.seconds},
             {"goodput", report.goodput(requests)},
             {"ttft", percentiles(report, report.ttft)},
             {"gap", percentiles(report, report.gaps)},
             {"occupancy_saturated", report.occupancy},
             {"max_running", report.maxRunning},
             {"prefix_hit_share", hits},
             {"recomputed_share", again},
             {"preempted_recompute", stats.preemptedRecompute},
             {"preempted_save", stats.preemptedSave},
             {"max_preemptions", report.maxPreemptions}};
    for (uint32_t r = 0; r + 1 < reasonCount; ++r)
      if (stats.reasons[r]) out["reasons"][toString(static_cast<Reason>(r))] = stats.reasons[r];
    std::printf("%s\n", out.dump(2).c_str());
    return 0;
  }
  std::printf("requests        %zu, %zu answered, %zu refused\n", requests.size(), answered, refused);
  std::printf("time            %.1f s, busy %.1f s, %" PRIu64 " steps of %.1f rows\n", report.seconds,
              report.busySeconds, stats.steps, stats.steps ? double(stats.rows) / double(stats.steps) : 0);
  std::printf("tokens          %.1f new tokens/s, goodput %.2f requests/s\n", double(stats.newTokens) / report.seconds,
              report.goodput(requests));
  for (auto [name, list] : {std::pair{"first token", &report.ttft}, {"token gap  ", &report.gaps}})
    std::printf("%s     p50 %.1f ms, p90 %.1f ms, p99 %.1f ms, longest %.1f ms\n", name,
                1e3 * report.percentile(*list, 50), 1e3 * report.percentile(*list, 90),
                1e3 * report.percentile(*list, 99), 1e3 * report.percentile(*list, 100));
  std::printf("sequences       at most %u at once, %.1f %% of the rows while requests wait\n", report.maxRunning,
              100 * report.occupancy);
  std::printf("prefix cache    %.1f %% of the prompt tokens\n", 100 * hits);
  std::printf("preemptions     %" PRIu64 " by recompute, %" PRIu64
              " by saving, at most %u of one request; %.1f %% of the rows again\n",
              stats.preemptedRecompute, stats.preemptedSave, report.maxPreemptions, 100 * again);
  std::printf("reasons        ");
  for (uint32_t r = 0; r + 1 < reasonCount; ++r)
    if (stats.reasons[r]) std::printf(" %s %" PRIu64, toString(static_cast<Reason>(r)), stats.reasons[r]);
  std::printf("\n");
  return 0;
}

Result<int> replayCommand(const Args &args) {
  Options options("lathe replay TRACE",
                  "Feeds the events of a trace to the scheduler again and compares every decision. "
                  "Exit status 1 if one differs.");
  Args positional;
  LATHE_ASSIGN_OR_RETURN(bool go, parseOptions(options, args, positional));
  if (!go) return 0;
  LATHE_ASSIGN_OR_RETURN(std::string path, onePositional(positional, "a trace"));
  LATHE_ASSIGN_OR_RETURN(std::string text, readText(path));
  Result<ReplayResult> result = replayTrace(text);
  if (!result.ok()) return result.status().at(path);
  if (!result->same) {
    std::printf("line %" PRIu64 " differs\n  trace:  %s\n  replay: %s\n", result->line, result->expected.c_str(),
                result->found.c_str());
    return 1;
  }
  std::printf("%" PRIu64 " events, %" PRIu64 " steps, %" PRIu64 " lines of decisions: all the same\n", result->events,
              result->steps, result->decisions);
  return 0;
}

} // namespace lathe::tool
