//===- WaitPolicy.cpp -----------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/device/cpu/WaitPolicy.h"
#include <algorithm>

namespace lathe::runtime {

// Four preemptions in 50 ms may be a crowd (a quiet machine has a few a second).
static constexpr double window = 0.05;
static constexpr uint64_t manyPreemptions = 4;
// A trial takes six runs, or two if sleeping is clearly worse, since each makes somebody wait; and 0.1 s when nothing can be compared.
static constexpr uint32_t trialRuns = 6, fewestRuns = 2;
static constexpr double clearlyWorse = 1.1, longestTrial = 0.1;
// What a trial said holds for 0.1 s, and for twice as long each time that the hint comes back, up to 3 s.
static constexpr double firstPause = 0.1, lastPause = 3;

void WaitPolicy::measure(uint64_t name, double seconds) {
  if (!name || !(seconds > 0)) return;
  Kind &kind = kinds[(name * 0x9e3779b97f4a7c15u) >> 58];
  if (kind.name != name) kind = {name, seconds};
  kind.undisturbed = std::min(seconds, kind.undisturbed * 1.002);
  Pace &pace = mode == Mode::trial ? sleeping : spinning;
  pace.seconds += seconds;
  pace.undisturbed += kind.undisturbed;
  ++pace.runs;
}

void WaitPolicy::decide(double now) {
  bool compared = spinning.runs && sleeping.runs;
  mode = !compared || sleeping.slowdown() < spinning.slowdown() ? Mode::sleep : Mode::spin;
  pause = pause == 0 ? firstPause : std::min(2 * pause, lastPause);
  until = now + pause;
  windowStart = now;
  inWindow = 0;
  spinning = {};
}

void WaitPolicy::report(double now, uint64_t kind, double seconds, uint64_t preemptions) {
  if (mode == Mode::sleep) {
    if (now < until) return;
    mode = Mode::spin; // the run was one of sleepers: not measured
    windowStart = now;
    inWindow = 0;
    spinning = {};
    return;
  }
  measure(kind, seconds);
  if (mode == Mode::trial) {
    bool worse =
        spinning.runs && sleeping.runs >= fewestRuns && sleeping.slowdown() > clearlyWorse * spinning.slowdown();
    if (worse || sleeping.runs >= trialRuns || now > until) decide(now);
    return;
  }
  if (now - windowStart > window) {
    // A long quiet time makes it forget.
    if (now - until > 2 * lastPause) pause = 0;
    windowStart = now;
    inWindow = 0;
    spinning = {};
    measure(kind, seconds); // the run belongs to the new window
  }
  inWindow += preemptions;
  if (inWindow < manyPreemptions || now < until) return;
  mode = Mode::trial;
  sleeping = {};
  until = now + longestTrial;
}

} // namespace lathe::runtime
