//===- Log.h - lines for people and for machines -------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/base/Status.h"
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace lathe::server {

/// Writes lines on a thread of its own, so that a full disk or a stalled pipe never stops the server. When more than 10,000
/// lines wait, new ones are dropped and counted. Thread-safe.
class LineWriter {
public:
  /// |path| "-": standard output; otherwise lines are appended to the file. Errors: failedPrecondition.
  static Result<std::unique_ptr<LineWriter>> open(const std::string &path);
  /// Lines to |file|, which stays open.
  explicit LineWriter(std::FILE *file, bool owned = false);
  /// Writes what waits.
  ~LineWriter();
  void write(std::string line);

private:
  void work();
  std::FILE *file;
  bool owned;
  std::mutex mutex;
  std::condition_variable ready;
  std::deque<std::string> lines;
  uint64_t dropped = 0;
  bool stopping = false;
  std::thread thread;
};

} // namespace lathe::server
