//===- Explain.cpp - lathe explain --------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Predict.h"
#include "Probe.h"
#include "Session.h"
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>

namespace lathe::tool {
using namespace runtime;
using Json = nlohmann::ordered_json;

namespace {

struct ExplainFlags {
  EngineFlags engine;
  uint64_t rows = 1, batch = 1, depth = 0, repeat = 20;
  bool each = false, json = false, greedy = false;
};

/// The name with every number as '*', so that the launches of all layers fall together.
std::string allLayers(const std::string &name) {
  std::string out;
  for (size_t i = 0; i < name.size(); ++i) {
    bool digit = name[i] >= '0' && name[i] <= '9', begins = digit && (i == 0 || name[i - 1] == '.');
    if (begins) {
      while (i + 1 < name.size() && name[i + 1] >= '0' && name[i + 1] <= '9')
        ++i;
      out += '*';
    } else {
      out += name[i];
    }
  }
  return out;
}

struct Observed {
  uint32_t launch = 0;
  std::vector<double> seconds; ///< of each step
};

/// The launches in the order of the step. Memory may be faster at one time than at another, and a small model lies in the caches by half: weights are
/// read in turns with the steps, and both are judged by their medians.
Result<std::vector<Observed>> profileSteps(Session &session, const ExplainFlags &f, KernelProbe &probe, Progress &progress) {
  std::vector<Observed> all;
  std::vector<uint32_t> launches;
  Engine &engine = *session.engine;
  std::vector<SequenceId> sequences = {session.sequence};
  while (sequences.size() < f.batch) {
    LATHE_ASSIGN_OR_RETURN(SequenceId s, engine.open());
    sequences.push_back(s);
  }
  std::vector<int32_t> ids(std::max(f.depth, f.rows));
  for (size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<int32_t>((i * 2654435761u + 17) % engine.program().vocabulary);
  RowSink drop = [](size_t, size_t, std::span<const float>) { return Status(); };
  for (uint64_t round = 0; round < f.repeat + 2; ++round) { // the first two warm up
    progress.show("step", round + 1, f.repeat + 2);
    std::vector<Work> fill, step;
    for (SequenceId s : sequences) {
      if (engine.truncate(s, static_cast<uint32_t>(f.depth)) < f.depth)
        fill.push_back(
            {s, std::span<const int32_t>(ids).subspan(engine.length(s), f.depth - engine.length(s)), OutputRows::none});
      step.push_back({s, std::span<const int32_t>(ids).first(f.rows), OutputRows::last});
    }
    if (!fill.empty()) {
      engine.executable().setProfiling(false);
      LATHE_RETURN_IF_ERROR(engine.forward(fill, nullptr));
      engine.executable().setProfiling(true);
    }
    engine.executable().setProfiling(true); // anew
    LATHE_RETURN_IF_ERROR(f.greedy ? engine.forward(step, nullptr, nullptr, drop) : engine.forward(step, drop));
    std::vector<LaunchProfile> now = engine.executable().profile();
    if (launches.empty())
      for (const LaunchProfile &one : now)
        launches.push_back(one.launch);
    probe.readWeights(launches);
    if (round < 2) continue;
    for (const LaunchProfile &one : now) {
      auto known = std::ranges::find(all, one.launch, &Observed::launch);
      if (known == all.end()) known = all.insert(all.end(), {one.launch, {}});
      known->seconds.push_back(one.seconds);
    }
  }
  return all;
}

/// What a decoding step costs with |k| drafts of each sequence against one without, and so how many of them must be right: pairs
/// {k, factor}, of as many k as the program and the context allow.
Result<std::vector<std::pair<uint32_t, double>>> breakEven(Session &session, const ExplainFlags &f) {
  Engine &engine = *session.engine;
  engine.executable().setProfiling(false);
  RowSink drop = [](size_t, size_t, std::span<const float>) { return Status(); };
  std::vector<int32_t> ids(f.depth + 16);
  for (size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<int32_t>((i * 2654435761u + 17) % engine.program().vocabulary);
  auto tokens = std::span<const int32_t>(ids);
  const uint32_t counts[] = {1, 2, 4, 8, 16}; // rows of a sequence
  std::vector<double> fastest(std::size(counts), INFINITY);
  for (uint64_t round = 0; round < std::min<uint64_t>(f.repeat, 5) + 1; ++round)
    for (size_t c = 0; c < std::size(counts); ++c) {
      if (f.batch * counts[c] > engine.program().maxRows || f.depth + counts[c] > engine.contextTokens()) continue;
      std::vector<Work> fill, step;
      for (SequenceId s = 0; s < f.batch; ++s) {
        if (engine.truncate(s, static_cast<uint32_t>(f.depth)) < f.depth)
          fill.push_back({s, tokens.subspan(engine.length(s), f.depth - engine.length(s)), OutputRows::none});
        step.push_back({s, tokens.subspan(f.depth, counts[c]), OutputRows::all});
      }
      if (!fill.empty()) LATHE_RETURN_IF_ERROR(engine.forward(fill, nullptr));
      auto begin = std::chrono::steady_clock::now();
      LATHE_RETURN_IF_ERROR(engine.forward(step, drop));
      double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      if (round) fastest[c] = std::min(fastest[c], seconds); // the first round warms up
    }
  std::vector<std::pair<uint32_t, double>> points;
  for (size_t c = 1; c < std::size(counts); ++c)
    if (fastest[c] < INFINITY) points.emplace_back(counts[c] - 1, fastest[c] / fastest[0]);
  return points;
}

} // namespace

Result<int> explainCommand(const Args &args) {
  ExplainFlags f;
  Options o(
      "lathe explain FILE.lathe [options]",
      "Where the time of a step goes, kernel by kernel: bytes, operations, and the time they take against a prediction, whose\n"
      "parts are measured now: the same threads read the weights from memory, and run each matmul and attention by itself on\n"
      "what lies in their caches (docs/runtime.md, \"Reading `lathe explain`\").");
  o.number("--rows", "N", "tokens of each sequence in the step (default 1; a prompt: 512)", f.rows, 1, 1u << 16);
  o.number("-b, --batch", "N", "sequences in the step (default 1)", f.batch, 1, 1024);
  o.number("-d, --depth", "N", "tokens before them (default 0)", f.depth, 0, 1u << 26);
  o.number("-r, --repeat", "N", "steps to take the median of (default 20)", f.repeat, 1, 100000);
  o.flag("--greedy", "the head that says the largest logit of each row, as where all are sampled greedily", f.greedy);
  o.flag("--each", "one line a launch, not one a kernel", f.each);
  o.flag("--json", "one line of JSON a row", f.json);
  f.engine.declare(o, "tokens the context holds (default: what the step needs)");
  Args positional;
  LATHE_ASSIGN_OR_RETURN(bool go, parseOptions(o, args, positional));
  if (!go) return 0;
  LATHE_ASSIGN_OR_RETURN(std::string path, onePositional(positional, "an artifact"));
  const bool free = !f.engine.context;
  if (free) f.engine.context = f.depth + std::max<uint64_t>(f.rows, 16); // 16: with 15 drafts, see breakEven()
  auto opened = Session::open(path, f.engine, static_cast<uint32_t>(f.batch));
  if (!opened.ok() && free && f.rows < 16) { // the model's context may end there
    f.engine.context = f.depth + f.rows;
    opened = Session::open(path, f.engine, static_cast<uint32_t>(f.batch));
  }
  LATHE_RETURN_IF_ERROR(opened.status());
  Session session = *std::move(opened);
  if (artifact::isGpu(session.artifact->variant()))
    return makeError(StatusCode::unsupported, "'explain' compares with limits of the CPU: expected device 'cpu', found '%s'", session.device->name());
  if (session.artifact->graph())
    return Status(StatusCode::unsupported, "'explain' tells of kernels: expected a model raised to llm ops, found a general graph");
  if (f.greedy) LATHE_RETURN_IF_ERROR(needChoices(session));
  const Program &p = session.engine->program();
  if (f.rows * f.batch > p.maxRows)
    return makeError(StatusCode::invalidArgument, "expected at most %u rows in a step, found %zu", p.maxRows,
                     size_t(f.rows * f.batch));
  Progress progress;
  MachineLimits limits = measureLimits(session.engine->executable().threads(), session.artifact->variant());
  LATHE_ASSIGN_OR_RETURN(auto probe, KernelProbe::create(session.artifact, session.engine->executable().threads()));
  LATHE_ASSIGN_OR_RETURN(auto profile, profileSteps(session, f, *probe, progress));
  // Without the barrier behind each read, which the prediction counts by itself.
  auto readRate = [&](uint32_t launch) {
    double rate = probe->readRate(launch), seconds = static_cast<double>(p.launches[launch].weightBytes) / rate;
    return rate > 0 ? rate * seconds / std::max(seconds - limits.barrierSeconds, seconds / 8) : 0;
  };
  // Of all weights together; history, which has no place of its own to be read at, is given this rate too.
  double weightBytes = 0, readSeconds = 0;
  for (const Observed &one : profile)
    if (double rate = readRate(one.launch); rate > 0) {
      auto bytes = static_cast<double>(p.launches[one.launch].weightBytes);
      weightBytes += bytes, readSeconds += bytes / rate;
    }
  if (readSeconds > 0) limits.readBytesPerSecond = weightBytes / readSeconds;
  probe->setStep(static_cast<uint32_t>(f.batch), static_cast<uint32_t>(f.rows), static_cast<uint32_t>(f.depth), static_cast<uint32_t>(f.batch));

  // Launches of the head entry work on the rows with results, one a sequence.
  std::vector<bool> inHead(p.launches.size());
  for (const Entry &e : p.entries)
    for (const Bucket &b : e.buckets)
      for (uint32_t i = 0; (e.name == "head" || e.name == "head_choices") && i < b.launchCount; ++i)
        inHead[b.firstLaunch + i] = true;
  std::map<uint32_t, double> fromCache; // by kernel: launches of all layers share one
  for (int pass = 0; pass < 4; ++pass) {
    progress.show("kernels from cache: pass", static_cast<uint64_t>(pass) + 1, 4);
    std::set<uint32_t> seen;
    for (const Observed &one : profile)
      if (seen.insert(p.launches[one.launch].kernel).second) fromCache[p.launches[one.launch].kernel] = probe->fromCache(one.launch);
  }
  auto rows = static_cast<double>(f.rows * f.batch);
  double entries = rows * (static_cast<double>(f.depth) + (static_cast<double>(f.rows) + 1) / 2);
  std::vector<std::pair<std::string, Figures>> lines;
  std::map<std::string, size_t> index;
  Figures total;
  for (const Observed &launch : profile) {
    const Launch &l = p.launches[launch.launch];
    double own = inHead[launch.launch] ? static_cast<double>(f.batch) : rows;
    MachineLimits then = limits;
    if (double rate = readRate(launch.launch); rate > 0) then.readBytesPerSecond = rate;
    Figures one = workOf(l, own, static_cast<double>(f.rows), entries, then, fromCache[l.kernel]);
    one.measured = median(launch.seconds);
    one.fastest = *std::ranges::min_element(launch.seconds);
    std::string name = f.each ? p.names[l.name] : allLayers(p.names[l.name]) + " (" + p.kernels[l.kernel] + ")";
    auto [at, fresh] = index.try_emplace(f.each ? std::to_string(launch.launch) : name, lines.size());
    if (fresh) lines.emplace_back(name, Figures());
    for (Figures *sum : {&lines[at->second].second, &total}) {
      sum->launches += one.launches;
      sum->bytes += one.bytes;
      sum->macs += one.macs;
      sum->memory += one.memory;
      sum->compute += one.compute;
      sum->exchange += one.exchange;
      sum->predicted += one.predicted;
      sum->measured += one.measured;
      sum->fastest += one.fastest;
    }
  }
  if (!f.each)
    std::sort(lines.begin(), lines.end(), [](auto &a, auto &b) { return a.second.measured > b.second.measured; });
  lines.emplace_back("total", total);
  progress.clear();
  const double int8Limit = rows >= 16 ? limits.int8TileGroupMacsPerSecond : limits.int8GroupMacsPerSecond;
  if (!f.json)
    std::printf("%s: %llu x %llu rows at depth %llu, %u threads, %s; limits: %.1f GB/s, %.0f billion 8-bit "
                "multiply-adds/s in groups of 32, "
                "barrier %.2f us\n\n%-44s %8s %10s %10s %9s %9s %6s %6s %7s\n",
                path.c_str(), static_cast<unsigned long long>(f.batch), static_cast<unsigned long long>(f.rows),
                static_cast<unsigned long long>(f.depth), session.engine->executable().threads(),
                artifact::toString(session.artifact->variant()), limits.readBytesPerSecond / 1e9,
                int8Limit / 1e9, limits.barrierSeconds * 1e6, f.each ? "launch" : "kernel",
                "launches", "KB", "k mul-add", "predicted", "measured", "ratio", "share", "GB/s");
  for (const auto &[name, v] : lines) {
    if (f.json) {
      Json row = {{f.each ? "launch" : "kernel", name},
                  {"launches", v.launches},
                  {"bytes", v.bytes},
                  {"macs", v.macs},
                  {"memory_seconds", v.memory},
                  {"compute_seconds", v.compute},
                  {"exchange_seconds", v.exchange},
                  {"predicted_seconds", v.predicted},
                  {"measured_seconds", v.measured},
                  {"fastest_seconds", v.fastest},
                  {"share", v.measured / total.measured},
                  {"read_limit_bytes_per_second", limits.readBytesPerSecond},
                  {"int8_limit_macs_per_second", int8Limit}};
      std::printf("%s\n", dumpLine(row).c_str());
    } else {
      std::printf("%-44s %8llu %10.1f %10.1f %6.1f us %6.1f us %6.2f %5.1f%% %7.1f\n", name.c_str(),
                  static_cast<unsigned long long>(v.launches), v.bytes / 1e3, v.macs / 1e3, v.predicted * 1e6,
                  v.measured * 1e6, v.measured / v.predicted, 100 * v.measured / total.measured,
                  v.bytes / v.measured / 1e9);
    }
  }
  LATHE_ASSIGN_OR_RETURN(auto points, breakEven(session, f));
  if (points.empty()) return 0;
  if (f.json) {
    Json row;
    for (auto [k, factor] : points)
      row["break_even"].push_back({{"drafts", k}, {"step_factor", factor}, {"accepted_needed", factor - 1}});
    std::printf("%s\n", dumpLine(row).c_str());
    return 0;
  }
  std::printf("\nspeculation pays (docs/speculation.md) with:");
  for (auto [k, factor] : points)
    std::printf(" %u drafts (step x%.2f) %.2f right;", k, factor, factor - 1);
  std::printf("\n");
  return 0;
}

} // namespace lathe::tool
