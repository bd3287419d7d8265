//===- MetricSet.h - one scrape ------------------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include <map>
#include <prometheus/histogram.h>
#include <prometheus/metric_family.h>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lathe::metrics {

using Labels = std::vector<std::pair<std::string, std::string>>;

/// Collects the values of one scrape, of several models, and prints them in Prometheus' text format. Names are given
/// without a prefix: they appear as lathe:NAME and, where |mirror| says so, as vllm:NAME.
class MetricSet {
public:
  explicit MetricSet(bool vllm) : vllm(vllm) {}
  /// Whether the name is one of vLLM's.
  enum class Mirror { no, yes };
  void counter(const std::string &name, const char *help, const Labels &labels, double value, Mirror mirror);
  void gauge(const std::string &name, const char *help, const Labels &labels, double value, Mirror mirror);
  void histogram(const std::string &name, const char *help, const Labels &labels, const prometheus::Histogram &values,
                 Mirror mirror);
  /// |counts|: of values at most |bounds|[i] and above the bound before, then of those above all.
  void histogram(const std::string &name, const char *help, const Labels &labels, std::span<const double> bounds,
                 std::span<const uint64_t> counts, double sum, Mirror mirror);
  /// The text of all of them.
  std::string text() const;

private:
  void add(const std::string &name, const char *help, const Labels &labels, prometheus::MetricType type,
           prometheus::ClientMetric metric, Mirror mirror);
  bool vllm;
  std::map<std::string, prometheus::MetricFamily> families;
};

} // namespace lathe::metrics
