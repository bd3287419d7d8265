//===- Workers.cpp --------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/server/Workers.h"

namespace lathe::server {

Workers::Workers(unsigned count) {
  for (unsigned i = 0; i < count; ++i)
    threads.emplace_back([this] { work(); });
}

Workers::~Workers() {
  {
    std::lock_guard lock(mutex);
    stopping = true;
  }
  ready.notify_all();
  for (std::thread &thread : threads)
    thread.join();
}

void Workers::post(std::function<void()> job) {
  {
    std::lock_guard lock(mutex);
    jobs.push_back(std::move(job));
  }
  ready.notify_one();
}

void Workers::work() {
  std::unique_lock lock(mutex);
  while (true) {
    ready.wait(lock, [&] { return stopping || !jobs.empty(); });
    if (stopping) return;
    std::function<void()> job = std::move(jobs.front());
    jobs.pop_front();
    lock.unlock();
    job();
    job = nullptr; // what it holds is freed outside the lock
    lock.lock();
  }
}

} // namespace lathe::server
