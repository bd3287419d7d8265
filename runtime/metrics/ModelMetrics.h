//===- ModelMetrics.h - what one model's engine reports ------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/engine/RequestEngine.h"
#include "runtime/metrics/MetricSet.h"
#include <mutex>

namespace lathe::metrics {

/// Histograms and counters of one model; docs/serving.md lists them. All members are thread-safe.
class ModelMetrics final : public runtime::EngineObserver {
public:
  /// |readLimit|: bytes a second that this machine can read, or 0 when it was not measured.
  ModelMetrics(std::string model, double readLimit);

  void step(uint32_t rows, double seconds) override;
  void firstToken(const std::string &tenant, double seconds) override;
  void tokenGap(const std::string &tenant, double seconds) override;
  void requestDone(const std::string &tenant, runtime::EndReason reason, const runtime::RequestUsage &usage) override;
  /// A request was taken in.
  void submitted(uint32_t choices, uint32_t maxTokens);

  /// Adds all values. |now|: seconds of any steady clock, not 0; shares and rates are over the time since a scrape at least 5
  /// seconds ago, and 0 at the first one.
  void collect(const runtime::EngineStats &stats, const runtime::EngineLimits &limits, double now, MetricSet &set);

private:
  struct TenantCounts {
    uint64_t requests = 0, promptTokens = 0, newTokens = 0;
  };
  struct Mark { ///< the counters at some time, for rates
    double time = 0, busy = 0, weightBytes = 0;
  };
  std::string model;
  double readLimit;
  prometheus::Histogram ttft, gap, perToken, total, queue, prefill, decode, inference, promptTokens, newTokens,
      stepRows, stepSeconds, paramN, paramMaxTokens, preemptions;
  std::mutex mutex; ///< of what follows
  std::map<std::string, TenantCounts> tenants;
  Mark marks[2]; ///< the older is the base of rates
};

} // namespace lathe::metrics
