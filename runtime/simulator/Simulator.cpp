//===- Simulator.cpp ------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/simulator/Simulator.h"
#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace lathe::runtime {

Result<StepTimes> StepTimes::parse(std::string_view text) {
  StepTimes times;
  times.points.clear();
  size_t number = 0;
  while (!text.empty()) {
    size_t end = std::min(text.find('\n'), text.size());
    std::string line(text.substr(0, std::min(text.substr(0, end).find('#'), end)));
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    char *rest = nullptr;
    double rows = std::strtod(line.c_str(), &rest), seconds = std::strtod(rest, &rest);
    std::string after(rest);
    bool rising = times.points.empty() || rows > times.points.back().first;
    if (after.find_first_not_of(" \t\r") != std::string::npos || !(rows > 0) || !(seconds > 0) ||
        !std::isfinite(rows) || !std::isfinite(seconds) || !rising)
      return makeError(StatusCode::dataLoss, "line %zu of the step times: expected rising 'ROWS SECONDS', found '%s'",
                       number, line.substr(0, 60).c_str());
    times.points.emplace_back(rows, seconds);
  }
  if (times.points.size() < 2)
    return makeError(StatusCode::dataLoss, "expected step times for at least 2 numbers of rows, found %zu",
                     times.points.size());
  return times;
}

double StepTimes::seconds(double rows) const {
  size_t i = 1;
  while (i + 1 < points.size() && points[i].first < rows)
    ++i;
  auto [x0, y0] = points[i - 1];
  auto [x1, y1] = points[i];
  return std::max(1e-9, y0 + (y1 - y0) * (rows - x0) / (x1 - x0));
}

double SimReport::percentile(const std::vector<double> &sorted, double p) const {
  if (sorted.empty()) return 0;
  auto index = static_cast<size_t>(std::ceil(p / 100 * static_cast<double>(sorted.size())));
  return sorted[std::clamp<size_t>(index, 1, sorted.size()) - 1];
}

double SimReport::goodput(std::span<const SimRequest> requests) const {
  size_t good = 0;
  for (size_t i = 0; i < outcomes.size(); ++i) {
    const SimOutcome &o = outcomes[i];
    const ScheduledRequest &spec = requests[i].spec;
    if (o.state != SimOutcome::State::ended || (o.end != EndReason::stop && o.end != EndReason::length)) continue;
    if (spec.ttftTarget > 0 && o.firstToken - requests[i].arrival > spec.ttftTarget) continue;
    if (spec.tpotTarget > 0 && o.tpot() > spec.tpotTarget) continue;
    ++good;
  }
  return static_cast<double>(good) / std::max(seconds, 1e-9);
}

namespace {

class Run {
public:
  Run(std::span<const SimRequest> list, const SimOptions &o) : requests(list), options(o), random(o.seed) {}

  Result<SimReport> run() {
    Program program = options.program;
    if (program.kvGroups.empty()) program.kvGroups.push_back({0, 0, 16, 30, 16 * 23040});
    const SchedulerOptions &s = options.scheduler;
    KVShape shape{s.maxSequences, s.contextTokens, options.kvTokens, s.stepTokens};
    LATHE_ASSIGN_OR_RETURN(scheduler, Scheduler::create(program, kvBlocksFor(program, shape), s, options.trace));
    report.outcomes.resize(requests.size());
    emitted.resize(requests.size());
    last.resize(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      order.push_back(i);
      if (requests[i].abortAfter > 0) aborts.emplace_back(requests[i].arrival + requests[i].abortAfter, i);
      emitted[i].resize(requests[i].spec.choices);
      last[i].resize(requests[i].spec.choices, -1);
    }
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return requests[a].arrival != requests[b].arrival ? requests[a].arrival < requests[b].arrival : a < b;
    });
    std::sort(aborts.begin(), aborts.end());
    while (nextArrival < order.size() || !scheduler->idle()) {
      LATHE_RETURN_IF_ERROR(events());
      LATHE_RETURN_IF_ERROR(step());
    }
    (void)scheduler->plan(now); // ends of the last cancellations
    report.seconds = now;
    report.stats = scheduler->stats();
    report.occupancy = saturated > 0 ? occupied / saturated : 0;
    std::sort(report.ttft.begin(), report.ttft.end());
    std::sort(report.gaps.begin(), report.gaps.end());
    return std::move(report);
  }

private:
  Status check() {
    if (!options.checkEvery || ++checks % options.checkEvery) return Status();
    return scheduler->checkInvariants();
  }
  Status events() {
    while (nextArrival < order.size() && requests[order[nextArrival]].arrival <= now) {
      size_t i = order[nextArrival++];
      ScheduledRequest spec = requests[i].spec;
      spec.id = i + 1;
      if (!scheduler->add(now, std::move(spec)).ok()) report.outcomes[i].state = SimOutcome::State::refused;
      LATHE_RETURN_IF_ERROR(check());
    }
    while (nextAbort < aborts.size() && aborts[nextAbort].first <= now) {
      scheduler->cancel(now, aborts[nextAbort++].second + 1);
      LATHE_RETURN_IF_ERROR(check());
    }
    return Status();
  }
  void noteEnds(std::span<const PlannedEnd> ends) {
    for (const PlannedEnd &e : ends) {
      SimOutcome &o = report.outcomes[e.request - 1];
      o.end = e.end;
      if (e.last) o.state = SimOutcome::State::ended;
    }
  }
  void token(size_t request, uint32_t choice) {
    SimOutcome &o = report.outcomes[request];
    ++o.tokens;
    if (o.firstToken < 0) {
      o.firstToken = now;
      report.ttft.push_back(now - requests[request].arrival);
    }
    double &before = last[request][choice];
    if (before >= 0) {
      report.gaps.push_back(now - before);
      o.longestGap = std::max(o.longestGap, now - before);
    }
    before = o.lastToken = now;
    if (options.onToken) options.onToken(request, choice, now);
  }
  Status step() {
    const StepPlan &plan = scheduler->plan(now);
    noteEnds(plan.ended);
    for (const PlannedPreemption &p : plan.preempted)
      report.maxPreemptions = std::max(report.maxPreemptions, ++report.outcomes[p.request - 1].preemptions);
    for (const PlannedAdmission &a : plan.admitted)
      if (a.first) {
        SimOutcome &o = report.outcomes[a.request - 1];
        o.queued = now;
        o.cached = a.cachedTokens;
        report.promptTokens += requests[a.request - 1].spec.prompt.size();
        if (options.onAdmitted) options.onAdmitted(a.request - 1, now);
      }
    SchedulerStats stats = scheduler->stats();
    report.maxRunning = std::max(report.maxRunning, stats.running);
    LATHE_RETURN_IF_ERROR(check());
    if (!plan.rows) {
      double next = plan.wakeAt;
      if (nextArrival < order.size()) next = std::min(next, requests[order[nextArrival]].arrival);
      if (nextAbort < aborts.size()) next = std::min(next, aborts[nextAbort].first);
      if (!scheduler->idle() && (stats.running || !(next < 1e300)))
        return makeError(StatusCode::internal, "a plan without progress at %.6f: %u run, %u wait, %u preempted", now,
                         stats.running, stats.waiting, stats.preempted);
      if (next < 1e300) now = std::max(now, next);
      return Status();
    }
    double work = plan.rows;
    for (const StepPiece &piece : plan.pieces)
      work += options.historyWeight * StepCostModel::historyOf(piece.first, piece.tokens);
    double seconds = options.times.seconds(work) * std::max(0.2, 1 + options.noise * random.normal());
    if (options.stallsPerSecond > 0)
      for (double at = random.exponential(1 / options.stallsPerSecond), planned = seconds; at < planned;
           at += random.exponential(1 / options.stallsPerSecond))
        seconds += random.exponential(options.stallSeconds);
    seconds += options.restoreSecondsPerBlock * static_cast<double>(plan.saves.size() + plan.restores.size());
    now += seconds;
    report.busySeconds += seconds;
    if (stats.waiting || stats.preempted) {
      saturated += seconds;
      occupied += seconds * stats.running / options.scheduler.maxSequences;
    }
    results.clear();
    choices.clear();
    choices.reserve(plan.pieces.size() * options.scheduler.maxSequences);
    for (const StepPiece &piece : plan.pieces) {
      size_t request = piece.request - 1, first = choices.size();
      for (uint32_t s = 0; s < piece.samples; ++s) {
        uint32_t choice = piece.samples > 1 ? s : piece.choice, count = ++emitted[request][choice];
        ChoiceResult result;
        result.token = static_cast<int32_t>((piece.request * 7919 + choice * 104729 + count * 31) % 32000);
        result.ended = count >= requests[request].outputs[choice];
        choices.push_back(result);
        token(request, choice);
      }
      results.push_back({{choices.data() + first, choices.size() - first}, false});
    }
    noteEnds(scheduler->commit(now, seconds, results));
    LATHE_RETURN_IF_ERROR(check());
    if (options.afterStep) options.afterStep(*scheduler, plan, now);
    return Status();
  }

  std::span<const SimRequest> requests;
  const SimOptions &options;
  SimRandom random;
  std::unique_ptr<Scheduler> scheduler;
  SimReport report;
  double now = 0, saturated = 0, occupied = 0;
  std::vector<size_t> order;
  size_t nextArrival = 0, nextAbort = 0, checks = 0;
  std::vector<std::pair<double, size_t>> aborts;
  std::vector<std::vector<uint32_t>> emitted; ///< [request][choice]
  std::vector<std::vector<double>> last;
  std::vector<PieceResult> results;
  std::vector<ChoiceResult> choices;
};

} // namespace

Result<SimReport> simulate(std::span<const SimRequest> requests, const SimOptions &options) {
  return Run(requests, options).run();
}

} // namespace lathe::runtime
