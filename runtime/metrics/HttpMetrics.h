//===- HttpMetrics.h - what the server itself counts ---------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/metrics/MetricSet.h"
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>

namespace lathe::metrics {

/// Counters of the HTTP side. Thread-safe.
class HttpMetrics {
public:
  /// |path| must come from a fixed list: it becomes a label.
  void answered(const std::string &path, int status, double seconds);
  void collect(MetricSet &set) const;

  std::atomic<int64_t> connections{0}, inFlight{0};
  std::atomic<uint64_t> accepted{0};       ///< connections
  std::atomic<uint64_t> refused{0};        ///< connections above the bound
  std::atomic<uint64_t> disconnected{0};   ///< clients that left before their answer ended
  std::atomic<uint64_t> slowReaders{0};    ///< streams ended because the client did not read
  std::atomic<uint64_t> headerTimeouts{0}; ///< requests whose header or body did not come in time

private:
  mutable std::mutex mutex;
  std::map<std::pair<std::string, int>, uint64_t> answers;
  prometheus::Histogram seconds{{.001, .005, .01, .05, .1, .5, 1, 5, 10, 60, 300}};
};

} // namespace lathe::metrics
