//===- Workers.h - a few threads for work that takes long ----------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace lathe::server {

/// Runs jobs in the order they came, on a fixed number of threads. What waits is bounded by the caller: the server posts
/// at most one job a connection.
class Workers {
public:
  explicit Workers(unsigned threads);
  /// Drops the jobs that have not begun and joins.
  ~Workers();
  /// Thread-safe.
  void post(std::function<void()> job);

private:
  void work();
  std::mutex mutex;
  std::condition_variable ready;
  std::deque<std::function<void()>> jobs;
  bool stopping = false;
  std::vector<std::thread> threads;
};

} // namespace lathe::server
