//===- MetricsTest.cpp - what a scrape says ---------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/metrics/HttpMetrics.h"
#include "runtime/metrics/ModelMetrics.h"
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <set>
#include <tuple>

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

/// The value behind |series|, a name with its labels; NaN: there is none.
double number(const std::string &text, const std::string &series) {
  size_t at = text.find("\n" + series + " ");
  return at == std::string::npos ? std::nan("") : std::strtod(text.c_str() + at + series.size() + 2, nullptr);
}

bool has(const std::string &text, const std::string &name) {
  return text.find("\n" + name + "{") != std::string::npos || text.find("\n" + name + " ") != std::string::npos;
}

std::string read(const char *path) {
  std::ifstream file(std::string(LATHE_SOURCE_DIR) + path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

} // namespace

// Each number is another, so that one in another's place shows.
TEST(Metrics, EveryValueIsUnderItsName) {
  ModelMetrics model("toy", 77);
  model.submitted(3, 90);
  model.step(4, 0.25);
  model.firstToken("red", 0.5);
  model.tokenGap("red", 0.75);
  RequestUsage u;
  u.promptTokens = 300, u.newTokens = 20, u.longestTokens = 15, u.preemptions = 6;
  u.queueSeconds = 1, u.ttftSeconds = 8, u.totalSeconds = 64;
  model.requestDone("red", EndReason::stop, u);
  u.totalSeconds = 1e6; // shows nowhere
  model.requestDone("red", EndReason::rejected, u);
  EngineStats s;
  s.running = 101, s.waiting = 102, s.preempted = 103, s.waitingTokens = 104;
  s.kvBlocks = 1000, s.kvBlocksUsed = 250, s.kvBlocksCached = 200, s.savedKvBytes = 105;
  s.steps = 106, s.rows = 107, s.promptTokens = 108, s.newTokens = 109, s.prefixQueried = 110, s.prefixHit = 111;
  s.preemptedRecompute = 112, s.preemptedSave = 113, s.preemptedBlocks = 114, s.preemptedPriority = 115;
  s.rejectedQueue = 116, s.rejectedDeadline = 117;
  s.endedStop = 118, s.endedLength = 119, s.endedCancelled = 120, s.endedTimeout = 121, s.endedFailed = 122, s.corrupted = 123;
  s.weightBytes = 124, s.busySeconds = 125, s.schedulerSeconds = 126, s.samplerSeconds = 127, s.drafterSeconds = 128;
  s.broken = true, s.choiceSteps = 137;
  s.speculation.rounds = 129, s.speculation.programRuns = 130, s.speculation.programRows = 131, s.speculation.programTrees = 138;
  s.speculation.drafted[0] = 132, s.speculation.accepted[0] = 133;
  s.speculation.draftedAt[2][1] = 134, s.speculation.acceptedAt[2][1] = 135;
  EngineLimits limits;
  limits.kvTokens = 136;
  MetricSet set(false);
  model.collect(s, limits, 100, set);
  std::string text = "\n" + set.text();
  for (auto [name, label, value] : {std::tuple{"num_requests_running", "", 101.0},
                                    {"num_requests_waiting", "", 102},
                                    {"num_requests_preempted", "", 103},
                                    {"num_waiting_tokens", "", 104},
                                    {"kv_cache_usage_perc", "", 0.25},
                                    {"kv_cache_blocks", ",state=\"owned\"", 250},
                                    {"kv_cache_blocks", ",state=\"cached\"", 200},
                                    {"kv_cache_blocks", ",state=\"free\"", 550},
                                    {"kv_cache_saved_bytes", "", 105},
                                    {"kv_cache_tokens_limit", "", 136},
                                    {"prefix_cache_queries_total", "", 110},
                                    {"prefix_cache_hits_total", "", 111},
                                    {"num_preemptions_total", "", 225},
                                    {"preemptions_by_kind_total", ",kind=\"recompute\"", 112},
                                    {"preemptions_by_kind_total", ",kind=\"save\"", 113},
                                    {"preemptions_by_reason_total", ",reason=\"blocks\"", 114},
                                    {"preemptions_by_reason_total", ",reason=\"priority\"", 115},
                                    {"prompt_tokens_total", "", 108},
                                    {"generation_tokens_total", "", 109},
                                    {"request_success_total", ",finished_reason=\"stop\"", 118},
                                    {"request_success_total", ",finished_reason=\"length\"", 119},
                                    {"request_success_total", ",finished_reason=\"abort\"", 120},
                                    {"request_success_total", ",finished_reason=\"timeout\"", 121},
                                    {"request_success_total", ",finished_reason=\"error\"", 122},
                                    {"corrupted_requests_total", "", 123},
                                    {"engine_invariant_broken", "", 1},
                                    {"admission_rejections_total", ",reason=\"queue_full\"", 116},
                                    {"admission_rejections_total", ",reason=\"deadline\"", 117},
                                    {"steps_total", "", 106},
                                    {"steps_without_logits_total", "", 137},
                                    {"step_rows_computed_total", "", 107},
                                    {"device_busy_seconds_total", "", 125},
                                    {"scheduler_seconds_total", "", 126},
                                    {"sampler_seconds_total", "", 127},
                                    {"drafter_seconds_total", "", 128},
                                    {"weight_bytes_read_total", "", 124},
                                    {"machine_bytes_per_second_limit", "", 77},
                                    {"spec_decode_num_drafts_total", "", 129},
                                    {"draft_program_runs_total", "", 130},
                                    {"draft_program_rows_computed_total", "", 131},
                                    {"draft_program_trees_total", "", 138},
                                    {"spec_decode_num_draft_tokens_per_pos_total", ",position=\"1\",drafter=\"suffix\"", 134},
                                    {"spec_decode_num_accepted_tokens_per_pos_total", ",position=\"1\",drafter=\"suffix\"", 135},
                                    {"time_to_first_token_seconds_sum", "", 0.5},
                                    {"inter_token_latency_seconds_sum", "", 0.75},
                                    {"request_time_per_output_token_seconds_sum", "", 4},
                                    {"e2e_request_latency_seconds_sum", "", 64},
                                    {"request_queue_time_seconds_sum", "", 1},
                                    {"request_prefill_time_seconds_sum", "", 7},
                                    {"request_decode_time_seconds_sum", "", 56},
                                    {"request_inference_time_seconds_sum", "", 63},
                                    {"request_prompt_tokens_sum", "", 300},
                                    {"request_generation_tokens_sum", "", 20},
                                    {"request_num_preemptions_sum", "", 6},
                                    {"request_params_n_sum", "", 3},
                                    {"request_params_max_tokens_sum", "", 90},
                                    {"iteration_tokens_total_sum", "", 4},
                                    {"step_seconds_sum", "", 0.25},
                                    {"tenant_requests_total", ",tenant=\"red\"", 1},
                                    {"tenant_prompt_tokens_total", ",tenant=\"red\"", 300},
                                    {"tenant_generation_tokens_total", ",tenant=\"red\"", 20}})
    EXPECT_EQ(number(text, std::string("lathe:") + name + "{model_name=\"toy\"" + label + "}"), value) << name << label;
  std::string drafter = std::string(",drafter=\"") + toString(static_cast<DraftSource>(0)) + "\"}";
  EXPECT_EQ(number(text, "lathe:spec_decode_num_draft_tokens_total{model_name=\"toy\"" + drafter), 132);
  EXPECT_EQ(number(text, "lathe:spec_decode_num_accepted_tokens_total{model_name=\"toy\"" + drafter), 133);
}

// A server that has worked for an hour before the first scrape.
TEST(Metrics, SharesAreOfTheLastSeconds) {
  ModelMetrics model("toy", 0);
  auto look = [&](double now, double busy, uint64_t bytes) {
    EngineStats s;
    s.busySeconds = busy;
    s.weightBytes = bytes;
    MetricSet set(false);
    model.collect(s, {}, now, set);
    std::string text = "\n" + set.text();
    return std::pair(number(text, "lathe:device_busy_share{model_name=\"toy\"}"),
                     number(text, "lathe:weight_bytes_per_second{model_name=\"toy\"}"));
  };
  EXPECT_EQ(look(5000, 3600, 7000), std::pair(0.0, 0.0));
  EXPECT_EQ(look(5002, 3601, 7800), std::pair(0.5, 400.0));
  EXPECT_EQ(look(5010, 3602, 8000), std::pair(0.2, 100.0));
  EXPECT_EQ(look(5014, 3609, 8000), std::pair(9.0 / 14, 1000.0 / 14)); // since the scrape at 5000
  EXPECT_EQ(look(5020, 3612, 9000), std::pair(1.0, 100.0)); // since the one at 5010
}

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

// The table under "Metrics": names in back quotes at the beginning of its lines, ' v' behind one or several that vLLM has too.
TEST(Metrics, TheDocumentListsWhatThereIs) {
  std::string text = scrape(true), document = read("/docs/serving.md");
  size_t begin = document.find("\n## Metrics"), end = document.find("\n## ", begin + 4);
  ASSERT_NE(begin, std::string::npos);
  document = document.substr(begin, end - begin);
  std::set<std::string> listed, mirrored;
  for (size_t line = document.find("\n| `"); line != std::string::npos; line = document.find("\n| `", line + 1)) {
    std::string cell = document.substr(line + 3, document.find(" |", line + 3) - line - 3);
    for (size_t at = 0; (at = cell.find('`', at)) != std::string::npos;) {
      size_t stop = cell.find_first_not_of(letters, at + 1), close = cell.find('`', at + 1);
      ASSERT_NE(close, std::string::npos) << cell;
      listed.insert(cell.substr(at + 1, stop - at - 1));
      if (cell.find("` v", close) != std::string::npos) mirrored.insert(cell.substr(at + 1, stop - at - 1));
      at = close + 1;
    }
  }
  EXPECT_GE(listed.size(), 50u);
  for (const std::string &name : listed)
    EXPECT_TRUE(has(text, "lathe:" + name) || has(text, "lathe:" + name + "_bucket")) << name;
  for (const std::string &name : listed)
    EXPECT_EQ(has(text, "vllm:" + name) || has(text, "vllm:" + name + "_bucket"), mirrored.count(name) > 0) << name;
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
