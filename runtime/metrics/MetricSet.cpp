//===- MetricSet.cpp ------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/metrics/MetricSet.h"
#include <limits>
#include <prometheus/text_serializer.h>

namespace lathe::metrics {
using namespace prometheus;

void MetricSet::add(const std::string &name, const char *help, const Labels &labels, MetricType type,
                    ClientMetric metric, Mirror mirror) {
  for (const auto &[label, value] : labels)
    metric.label.push_back({label, value});
  auto into = [&](const std::string &full) {
    MetricFamily &family = families[full];
    family.name = full;
    family.help = help;
    family.type = type;
    family.metric.push_back(metric);
  };
  into("lathe:" + name);
  if (vllm && mirror == Mirror::yes) into("vllm:" + name);
}

void MetricSet::counter(const std::string &name, const char *help, const Labels &labels, double value, Mirror mirror) {
  ClientMetric metric;
  metric.counter.value = value;
  add(name + "_total", help, labels, MetricType::Counter, std::move(metric), mirror);
}

void MetricSet::gauge(const std::string &name, const char *help, const Labels &labels, double value, Mirror mirror) {
  ClientMetric metric;
  metric.gauge.value = value;
  add(name, help, labels, MetricType::Gauge, std::move(metric), mirror);
}

void MetricSet::histogram(const std::string &name, const char *help, const Labels &labels, const Histogram &values,
                          Mirror mirror) {
  add(name, help, labels, MetricType::Histogram, values.Collect(), mirror);
}

void MetricSet::histogram(const std::string &name, const char *help, const Labels &labels, std::span<const double> bounds,
                          std::span<const uint64_t> counts, double sum, Mirror mirror) {
  ClientMetric metric;
  uint64_t below = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    ClientMetric::Bucket bucket;
    bucket.cumulative_count = below += counts[i];
    bucket.upper_bound = i < bounds.size() ? bounds[i] : std::numeric_limits<double>::infinity();
    metric.histogram.bucket.push_back(bucket);
  }
  metric.histogram.sample_count = below;
  metric.histogram.sample_sum = sum;
  add(name, help, labels, MetricType::Histogram, std::move(metric), mirror);
}

std::string MetricSet::text() const {
  std::vector<MetricFamily> list;
  for (const auto &[name, family] : families)
    list.push_back(family);
  return TextSerializer().Serialize(list);
}

} // namespace lathe::metrics
