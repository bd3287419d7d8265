//===- ThreadTeam.cpp -----------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/device/cpu/ThreadTeam.h"
#include "lathe/base/Topology.h"
#include <algorithm>
#include <chrono>
#include <csignal>
#include <immintrin.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace lathe::runtime {
namespace {

void futexWait(std::atomic<uint32_t> &word, uint32_t seen) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
}
void futexWake(std::atomic<uint32_t> &word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, 1 << 30, nullptr, nullptr, 0);
}

/// Waits until ready(word). |sleeping| tells the one who changes |word| that a wake call is needed: its store of
/// the word and load of |sleeping|, and our two here, are all sequentially consistent, so one of us sees the other.
template <typename Ready>
uint32_t await(std::atomic<uint32_t> &word, std::atomic<uint32_t> &sleeping, int spin, Ready ready) {
  uint32_t value;
  for (int i = 0; !ready(value = word.load(std::memory_order_acquire)); ++i) {
    if (i < spin) {
      _mm_pause();
      continue;
    }
    sleeping.fetch_add(1);
    if (!ready(value = word.load())) futexWait(word, value);
    sleeping.fetch_sub(1);
  }
  return value;
}

void bindTo(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof set, &set);
}

/// The exactness rules keep denormals and round to nearest, whatever the embedding program set.
class FloatMode {
public:
  FloatMode() : saved(_mm_getcsr()) { _mm_setcsr(0x1f80); }
  ~FloatMode() { _mm_setcsr(saved); }

private:
  unsigned saved;
};

/// How often this thread has been preempted since the last call.
uint64_t takePreemptions() {
  thread_local uint64_t before = 0;
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  uint64_t total = static_cast<uint64_t>(usage.ru_nivcsw), fresh = total - before;
  before = total;
  return fresh;
}

// About 0.1 ms and 1 ms of pauses: a barrier is seldom longer away than the first, the next token than the second.
constexpr int barrierSpin = 4000, jobSpin = 20000, sleepySpin = 20;

} // namespace

void FlagBarrier::reset(unsigned n, int spinPauses) {
  for (unsigned i = 0; i < n; ++i)
    slots[i].epoch.store(0, std::memory_order_relaxed);
  count = n;
  spin = spinPauses;
}

void FlagBarrier::wait(unsigned me, uint32_t &epoch) {
  uint32_t mine = ++epoch;
  slots[me].epoch.store(mine);
  if (slots[me].sleeping.load()) futexWake(slots[me].epoch);
  for (unsigned i = 0; i < count; ++i)
    if (i != me)
      await(slots[i].epoch, slots[i].sleeping, spin,
            [mine](uint32_t seen) { return static_cast<int32_t>(seen - mine) >= 0; });
}

std::shared_ptr<ThreadTeam> ThreadTeam::acquire() {
  static std::mutex guard;
  static std::weak_ptr<ThreadTeam> current;
  std::lock_guard lock(guard);
  std::shared_ptr<ThreadTeam> team = current.lock();
  if (!team) current = team = std::make_shared<ThreadTeam>();
  return team;
}

ThreadTeam::ThreadTeam() {
  Topology topology = Topology::detect();
  cpus = topology.cpus;
  usableCpus = topology.usableCpus();
}

ThreadTeam::~ThreadTeam() {
  stop = true;
  for (auto &worker : workers) {
    worker->go.fetch_add(1);
    futexWake(worker->go);
  }
  for (auto &worker : workers)
    worker->thread.join();
}

void ThreadTeam::grow(unsigned wanted) {
  std::lock_guard lock(mutex);
  growLocked(std::min(wanted, maxThreads));
}

void ThreadTeam::growLocked(unsigned wanted) {
  if (workers.size() + 1 >= wanted) return;
  // Workers leave signals to the program's own threads, except those a fault raises in place.
  sigset_t all, before;
  sigfillset(&all);
  for (int fault : {SIGBUS, SIGSEGV, SIGFPE, SIGILL, SIGTRAP, SIGABRT})
    sigdelset(&all, fault);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  while (workers.size() + 1 < wanted) {
    workers.push_back(std::make_unique<Worker>());
    unsigned index = static_cast<unsigned>(workers.size());
    Worker &worker = *workers.back();
    worker.thread = std::thread([this, &worker, index] { work(worker, index); });
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void ThreadTeam::work(Worker &self, unsigned index) {
  pthread_setname_np(pthread_self(), ("lathe-" + std::to_string(index)).c_str());
  FloatMode mode;
  uint32_t seen = 0;
  int spin = 0;
  while (true) {
    seen = await(self.go, self.sleeping, spin, [seen](uint32_t v) { return v != seen; });
    if (stop) return;
    if (pin && !self.pinned) {
      bindTo(cpus[index % cpus.size()]);
      self.pinned = true;
    }
    spin = idleSpin;
    body(context, index, threads, barrier);
    if (uint64_t n = takePreemptions()) preemptions.fetch_add(n);
    if (running.fetch_sub(1) == 1 && callerSleeps.load()) futexWake(running);
  }
}

void ThreadTeam::run(unsigned wanted, bool pinThreads, Body newBody, void *newContext, uint64_t kind) {
  std::lock_guard lock(mutex);
  wanted = std::clamp(wanted, 1u, maxThreads);
  growLocked(wanted);
  auto clock = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  };
  bool spins = wanted <= usableCpus && policy.spins();
  double begin = clock();
  preemptions = 0;
  barrier.reset(wanted, spins ? barrierSpin : sleepySpin);
  body = newBody;
  context = newContext;
  threads = wanted;
  pin = pinThreads && wanted <= usableCpus;
  idleSpin = spins ? jobSpin : sleepySpin;
  running.store(wanted - 1);
  for (unsigned i = 1; i < wanted; ++i) {
    Worker &worker = *workers[i - 1];
    worker.go.fetch_add(1);
    if (worker.sleeping.load()) futexWake(worker.go);
  }
  FloatMode mode;
  body(context, 0, wanted, barrier);
  await(running, callerSleeps, spins ? barrierSpin : sleepySpin, [](uint32_t v) { return v == 0; });
  if (wanted == 1 || wanted > usableCpus) return;
  double end = clock();
  policy.report(end, kind, end - begin, preemptions.load() + takePreemptions());
}

} // namespace lathe::runtime
