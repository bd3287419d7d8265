//===- ThreadTeam.h - the persistent threads of a process ---------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/device/cpu/WaitPolicy.h"
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace lathe::runtime {

inline constexpr unsigned maxThreads = 256;

/// A barrier without read-modify-write: each thread publishes its own epoch on its own cache line and
/// reads the others'. Waiting spins, then sleeps on a futex; a system call is made only when somebody sleeps.
class FlagBarrier {
public:
  FlagBarrier() : slots(maxThreads) {}
  /// Before any thread enters, for a run of |n| threads.
  void reset(unsigned n, int spinPauses);
  /// |epoch| is the thread's own count of waits, starting at 0.
  void wait(unsigned me, uint32_t &epoch);

private:
  struct alignas(64) Slot {
    std::atomic<uint32_t> epoch{0}, sleeping{0};
  };
  std::vector<Slot> slots;
  unsigned count = 1;
  int spin = 0;
};

/// Threads that sleep between runs and work together on one run at a time. The caller is thread 0.
/// One team per process: acquire() gives every executable the same one; it ends with its last user.
class ThreadTeam {
public:
  /// Called on every thread of a run.
  using Body = void (*)(void *context, unsigned thread, unsigned threads, FlagBarrier &barrier);

  static std::shared_ptr<ThreadTeam> acquire();
  ThreadTeam();
  ~ThreadTeam();

  /// Runs |body| on threads 0 .. threads-1 and returns when all are done. Concurrent callers take turns.
  /// Starts missing threads (the only allocation; see grow). |pin| binds threads to CPUs. |kind|: see WaitPolicy.
  void run(unsigned threads, bool pin, Body body, void *context, uint64_t kind = 0);
  /// Starts threads ahead of time, so that run() need not.
  void grow(unsigned threads);

private:
  struct alignas(64) Worker {
    std::atomic<uint32_t> go{0}, sleeping{0};
    std::thread thread;
    bool pinned = false; ///< touched by the thread itself only
  };
  void work(Worker &self, unsigned index);
  void growLocked(unsigned threads);

  std::mutex mutex;
  std::vector<std::unique_ptr<Worker>> workers; ///< thread t is workers[t - 1]
  FlagBarrier barrier;
  WaitPolicy policy;
  std::vector<int> cpus;
  unsigned usableCpus = 1;
  // The current run; written before |go| is raised.
  Body body = nullptr;
  void *context = nullptr;
  unsigned threads = 0;
  int idleSpin = 0;
  bool pin = false, stop = false;
  alignas(64) std::atomic<uint32_t> running{0};
  std::atomic<uint32_t> callerSleeps{0};
  std::atomic<uint64_t> preemptions{0}; ///< of workers, in the current run
};

} // namespace lathe::runtime
