//===- HttpMetrics.cpp ----------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/metrics/HttpMetrics.h"

namespace lathe::metrics {

void HttpMetrics::answered(const std::string &path, int status, double time) {
  seconds.Observe(time);
  std::lock_guard lock(mutex);
  ++answers[{path, status}];
}

void HttpMetrics::collect(MetricSet &set) const {
  constexpr auto no = MetricSet::Mirror::no;
  auto d = [](auto value) { return static_cast<double>(value); };
  set.gauge("http_connections", "Open connections.", {}, d(connections.load()), no);
  set.gauge("http_requests_in_flight", "Requests without a complete answer.", {}, d(inFlight.load()), no);
  set.counter("http_connections_accepted", "Connections taken.", {}, d(accepted.load()), no);
  set.counter("http_connections_refused", "Connections above the bound.", {}, d(refused.load()), no);
  set.counter("http_disconnects", "Clients that left before their answer ended.", {}, d(disconnected.load()), no);
  set.counter("http_slow_readers", "Streams ended because the client did not read.", {}, d(slowReaders.load()), no);
  set.counter("http_timeouts", "Requests whose header or body did not come in time.", {}, d(headerTimeouts.load()), no);
  set.histogram("http_request_seconds", "From the header to the end of the answer.", {}, seconds, no);
  std::lock_guard lock(mutex);
  for (const auto &[key, count] : answers)
    set.counter("http_requests", "Answers by path and status.",
                {{"path", key.first}, {"status", std::to_string(key.second)}}, d(count), no);
}

} // namespace lathe::metrics
