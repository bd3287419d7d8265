//===- MetricsTest.cpp - what a scrape says ---------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/metrics/HttpMetrics.h"
#include "runtime/metrics/ModelMetrics.h"
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <set>

using namespace lathe;
using namespace lathe::metrics;
using namespace lathe::runtime;

namespace {

constexpr const char *letters = "abcdefghijklmnopqrstuvwxyz0123456789_";

/// One of each event, as a server tells them.
std::string scrape(bool vllm) {
  ModelMetrics model("toy", 1e9);
  HttpMetrics http;
  model.submitted(1, 16);
  model.step(4, 0.01);
  model.firstToken("t", 0.1);
  model.tokenGap("t", 0.01);
  RequestUsage usage;
  usage.promptTokens = 5;
  usage.newTokens = 2;
  model.requestDone("t", EndReason::stop, usage);
  http.answered("/v1/completions", 200, 0.2);
  EngineStats stats;
  stats.kvBlocks = 100;
  stats.kvTimes.lifetime.add(3);
  stats.kvTimes.lifetime.add(7);
  stats.kvTimes.reuseGap.add(1e6);
  EngineLimits limits;
  limits.pageTokens = 16;
  limits.prefixCache = true;
  MetricSet set(vllm);
  model.collect(stats, limits, 100, set);
  http.collect(set);
  return "\n" + set.text();
}

bool has(const std::string &text, const std::string &name) {
  return text.find("\n" + name + "{") != std::string::npos || text.find("\n" + name + " ") != std::string::npos;
}

std::string read(const char *path) {
  std::ifstream file(std::string(LATHE_SOURCE_DIR) + path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

} // namespace

TEST(Metrics, TheDashboardAsksForWhatThereIs) {
  std::string text = scrape(false), dashboard = read("/examples/grafana/lathe.json");
  std::set<std::string> names;
  for (size_t at = 0; (at = dashboard.find("lathe:", at)) != std::string::npos;) {
    size_t end = dashboard.find_first_not_of(letters, at + 6);
    names.insert(dashboard.substr(at, end - at));
    at = end;
  }
  EXPECT_GE(names.size(), 25u);
  for (const std::string &name : names)
    EXPECT_TRUE(has(text, name)) << name;
}

// The table under "Metrics": names in back quotes at the beginning of its lines, 'v' behind those that vLLM has too.
TEST(Metrics, TheDocumentListsWhatThereIs) {
  std::string text = scrape(true), document = read("/docs/serving.md");
  size_t begin = document.find("\n## Metrics"), end = document.find("\n## ", begin + 4);
  ASSERT_NE(begin, std::string::npos);
  document = document.substr(begin, end - begin);
  std::set<std::string> listed;
  for (size_t line = document.find("\n| `"); line != std::string::npos; line = document.find("\n| `", line + 1)) {
    std::string cell = document.substr(line + 3, document.find(" |", line + 3) - line - 3);
    for (size_t at = 0; (at = cell.find('`', at)) != std::string::npos;) {
      size_t stop = cell.find_first_not_of(letters, at + 1), close = cell.find('`', at + 1);
      ASSERT_NE(close, std::string::npos) << cell;
      listed.insert(cell.substr(at + 1, stop - at - 1));
      at = close + 1;
    }
  }
  EXPECT_GE(listed.size(), 50u);
  for (const std::string &name : listed)
    EXPECT_TRUE(has(text, "lathe:" + name) || has(text, "lathe:" + name + "_bucket")) << name;
  // And nothing is there that it does not list.
  for (size_t at = 0; (at = text.find("\n# TYPE lathe:", at)) != std::string::npos;) {
    at += 14;
    std::string name = text.substr(at, text.find_first_not_of(letters, at) - at);
    EXPECT_TRUE(listed.count(name)) << name;
  }
}

TEST(Metrics, TheKvCache) {
  std::string text = scrape(true);
  for (const char *line :
       {"cache_config_info{model_name=\"toy\",block_size=\"16\",num_gpu_blocks=\"100\",enable_prefix_caching=\"True\"} 1\n",
        "kv_block_lifetime_seconds_count{model_name=\"toy\"} 2\n", "kv_block_lifetime_seconds_sum{model_name=\"toy\"} 10\n",
        "kv_block_lifetime_seconds_bucket{model_name=\"toy\",le=\"1\"} 0\n",
        "kv_block_lifetime_seconds_bucket{model_name=\"toy\",le=\"5\"} 1\n",
        "kv_block_lifetime_seconds_bucket{model_name=\"toy\",le=\"10\"} 2\n",
        "kv_block_reuse_gap_seconds_bucket{model_name=\"toy\",le=\"3600\"} 0\n",
        "kv_block_reuse_gap_seconds_bucket{model_name=\"toy\",le=\"+Inf\"} 1\n",
        "kv_block_idle_before_evict_seconds_count{model_name=\"toy\"} 0\n"})
    for (const char *prefix : {"\nlathe:", "\nvllm:"})
      EXPECT_NE(text.find(std::string(prefix) + line), std::string::npos) << prefix << line;
}
