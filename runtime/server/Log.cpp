//===- Log.cpp ------------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/server/Log.h"
#include <cerrno>
#include <cstring>

namespace lathe::server {

Result<std::unique_ptr<LineWriter>> LineWriter::open(const std::string &path) {
  if (path == "-") return std::make_unique<LineWriter>(stdout);
  std::FILE *file = std::fopen(path.c_str(), "ae");
  if (!file)
    return makeError(StatusCode::failedPrecondition, "access log '%s': %s", path.c_str(),
                     std::strerror(errno));
  return std::make_unique<LineWriter>(file, true);
}

LineWriter::LineWriter(std::FILE *file, bool owned) : file(file), owned(owned), thread([this] { work(); }) {}

LineWriter::~LineWriter() {
  {
    std::lock_guard lock(mutex);
    stopping = true;
  }
  ready.notify_one();
  thread.join();
  if (owned) std::fclose(file);
}

void LineWriter::write(std::string line) {
  constexpr size_t most = 10000;
  {
    std::lock_guard lock(mutex);
    if (lines.size() >= most) {
      ++dropped;
      return;
    }
    lines.push_back(std::move(line));
  }
  ready.notify_one();
}

void LineWriter::work() {
  std::unique_lock lock(mutex);
  while (true) {
    ready.wait(lock, [&] { return stopping || !lines.empty(); });
    if (lines.empty()) return;
    std::deque<std::string> batch = std::exchange(lines, {});
    uint64_t lost = std::exchange(dropped, 0);
    lock.unlock();
    for (const std::string &line : batch) {
      std::fwrite(line.data(), 1, line.size(), file);
      std::fputc('\n', file);
    }
    if (lost) std::fprintf(stderr, "lathe: %llu log lines were dropped\n", static_cast<unsigned long long>(lost));
    std::fflush(file);
    lock.lock();
  }
}

} // namespace lathe::server
