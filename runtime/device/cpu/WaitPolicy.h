//===- WaitPolicy.h - whether waiting threads spin or sleep -------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include <array>
#include <cstdint>

namespace lathe::runtime {

/// Decides whether threads that wait for each other spin or sleep. Spinning is several times faster when each thread
/// has a processor of its own, and several times slower when other programs want it too: then a spinning thread uses up
/// its time slice and the one it waits for does not run. Threads that are preempted often are a hint, no proof: a
/// program that wakes up every few milliseconds for a moment preempts as often as one that never rests. So on the hint
/// sleeping is tried for a few runs, and what made runs of the same kind faster is kept until the next try.
/// Deterministic.
class WaitPolicy {
public:
  bool spins() const { return mode == Mode::spin; }
  /// A run ended |now|, took |seconds|, and its threads were preempted |preemptions| times. Runs of one |kind| take
  /// about the same time on a quiet machine; 0: unlike all others, nothing is learned from its time.
  void report(double now, uint64_t kind, double seconds, uint64_t preemptions);

private:
  enum class Mode { spin, trial, sleep };
  /// Runs against how long they take undisturbed.
  struct Pace {
    double seconds = 0, undisturbed = 0;
    uint32_t runs = 0;
    double slowdown() const { return seconds / undisturbed; }
  };
  struct Kind {
    uint64_t name = 0;
    double undisturbed = 0; ///< the shortest run; forgotten by 0.2 % with each longer one
  };
  void measure(uint64_t kind, double seconds);
  void decide(double now);

  Mode mode = Mode::spin;
  Pace spinning, sleeping; ///< of the current window, of the current trial
  double windowStart = 0, until = 0, pause = 0;
  uint64_t inWindow = 0;
  std::array<Kind, 64> kinds{};
};

} // namespace lathe::runtime
