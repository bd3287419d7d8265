//===- ModelMetrics.cpp ---------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/metrics/ModelMetrics.h"

namespace lathe::metrics {
using namespace runtime;
using Bounds = prometheus::Histogram::BucketBoundaries;

namespace {

// vLLM's bounds for the time to the first token; the other times get finer ones than its 0.3 s, since small models
// answer within milliseconds.
const Bounds ttftBounds = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1,
                           2.5,  5,    7.5, 10,  20,  40,  80,  160, 640, 2560};
const Bounds gapBounds = {.0005, .001, .0025, .005, .01, .015, .02, .025, .03, .04, .05, .075,
                          .1,    .15,  .2,    .3,   .4,  .5,   .75, 1,    2.5, 5,   10};
const Bounds secondsBounds = {.001, .005, .01, .025, .05, .1, .2, .3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60,
                              120,  240,  480, 960,  1920};
const Bounds stepBounds = {.0001, .00025, .0005, .001, .002, .003, .005, .0075, .01, .015, .02, .03, .05, .1, .25, .5, 1};
const Bounds tokenBounds = {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};
const Bounds rowBounds = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048};
const Bounds smallBounds = {1, 2, 5, 10, 20};
const Bounds countBounds = {0, 1, 2, 3, 5, 10};
constexpr double rateSeconds = 5;

} // namespace

ModelMetrics::ModelMetrics(std::string model, double readLimit)
    : model(std::move(model)), readLimit(readLimit), ttft(ttftBounds), gap(gapBounds), perToken(gapBounds),
      total(secondsBounds), queue(secondsBounds), prefill(secondsBounds), decode(secondsBounds),
      inference(secondsBounds), promptTokens(tokenBounds), newTokens(tokenBounds), stepRows(rowBounds),
      stepSeconds(stepBounds), paramN(smallBounds), paramMaxTokens(tokenBounds), preemptions(countBounds) {}

void ModelMetrics::step(uint32_t rows, double seconds) {
  stepRows.Observe(rows);
  stepSeconds.Observe(seconds);
}

void ModelMetrics::firstToken(const std::string &, double seconds) { ttft.Observe(seconds); }
void ModelMetrics::tokenGap(const std::string &, double seconds) { gap.Observe(seconds); }

void ModelMetrics::requestDone(const std::string &tenant, EndReason reason, const RequestUsage &usage) {
  if (reason == EndReason::rejected) return; // as those that submit() refuses: admission_rejections counts them
  {
    std::lock_guard lock(mutex);
    TenantCounts &counts = tenants[tenant];
    ++counts.requests;
    counts.promptTokens += usage.promptTokens;
    counts.newTokens += usage.newTokens;
  }
  total.Observe(usage.totalSeconds);
  queue.Observe(usage.queueSeconds);
  inference.Observe(usage.totalSeconds - usage.queueSeconds);
  promptTokens.Observe(usage.promptTokens);
  newTokens.Observe(usage.newTokens);
  preemptions.Observe(usage.preemptions);
  if (!usage.newTokens) return; // no token: there is neither a prefill nor a decode time
  prefill.Observe(usage.ttftSeconds - usage.queueSeconds);
  decode.Observe(usage.totalSeconds - usage.ttftSeconds);
  // Choices get their tokens side by side: the longest one's time is the request's.
  if (usage.longestTokens > 1) perToken.Observe((usage.totalSeconds - usage.ttftSeconds) / (usage.longestTokens - 1));
}

void ModelMetrics::submitted(uint32_t choices, uint32_t maxTokens) {
  paramN.Observe(choices);
  paramMaxTokens.Observe(maxTokens);
}

void ModelMetrics::collect(const EngineStats &s, const EngineLimits &limits, double now, MetricSet &set) {
  const Labels me = {{"model_name", model}};
  auto with = [&](const char *label, const char *value) { return Labels{{"model_name", model}, {label, value}}; };
  constexpr auto yes = MetricSet::Mirror::yes, no = MetricSet::Mirror::no;
  auto d = [](auto value) { return static_cast<double>(value); };

  set.gauge("num_requests_running", "Requests that are being computed.", me, s.running, yes);
  set.gauge("num_requests_waiting", "Requests in the queue.", me, s.waiting, yes);
  set.gauge("num_requests_preempted", "Requests that were stopped and wait to go on.", me, s.preempted, no);
  set.gauge("num_waiting_tokens", "Prompt tokens in the queue.", me, d(s.waitingTokens), no);
  set.gauge("kv_cache_usage_perc", "Share of the KV blocks that requests own, 0 to 1.", me,
            s.kvBlocks ? d(s.kvBlocksUsed) / d(s.kvBlocks) : 0, yes);
  set.gauge("kv_cache_blocks", "KV blocks by state.", with("state", "owned"), d(s.kvBlocksUsed), no);
  set.gauge("kv_cache_blocks", "KV blocks by state.", with("state", "cached"), d(s.kvBlocksCached), no);
  set.gauge("kv_cache_blocks", "KV blocks by state.", with("state", "free"),
            d(s.kvBlocks) - d(s.kvBlocksUsed) - d(s.kvBlocksCached), no);
  set.gauge("kv_cache_saved_bytes", "Host memory of preempted requests' KV blocks.", me, d(s.savedKvBytes), no);
  set.gauge("kv_cache_tokens_limit", "Tokens that the KV cache holds.", me, d(limits.kvTokens), no);
  set.gauge("cache_config_info", "The KV cache as it was made; always 1.",
            {{"model_name", model},
             {"block_size", std::to_string(limits.pageTokens)},
             {"num_gpu_blocks", std::to_string(s.kvBlocks)},
             {"enable_prefix_caching", limits.prefixCache ? "True" : "False"}},
            1, yes);
  auto durations = [&](const char *name, const char *help, const DurationCounts &counts) {
    set.histogram(name, help, me, DurationCounts::bounds, counts.counts, counts.sum, yes);
  };
  durations("kv_block_lifetime_seconds", "From a block's allocation to its eviction from the prefix cache.",
            s.kvTimes.lifetime);
  durations("kv_block_idle_before_evict_seconds", "From a block's last use to its eviction.", s.kvTimes.idleBeforeEvict);
  durations("kv_block_reuse_gap_seconds", "From a cached block's last use to the next hit.", s.kvTimes.reuseGap);
  set.counter("prefix_cache_queries", "Prompt tokens looked up in the prefix cache.", me, d(s.prefixQueried), yes);
  set.counter("prefix_cache_hits", "Prompt tokens found in the prefix cache.", me, d(s.prefixHit), yes);
  set.counter("num_preemptions", "Requests stopped to make room.", me, d(s.preemptedRecompute + s.preemptedSave), yes);
  set.counter("preemptions_by_kind", "Requests stopped to make room, by how they go on.", with("kind", "recompute"),
              d(s.preemptedRecompute), no);
  set.counter("preemptions_by_kind", "Requests stopped to make room, by how they go on.", with("kind", "save"),
              d(s.preemptedSave), no);
  set.counter("preemptions_by_reason", "Requests stopped to make room, by who needed it.", with("reason", "blocks"),
              d(s.preemptedBlocks), no);
  set.counter("preemptions_by_reason", "Requests stopped to make room, by who needed it.", with("reason", "priority"),
              d(s.preemptedPriority), no);
  set.counter("prompt_tokens", "Prompt tokens computed.", me, d(s.promptTokens), yes);
  set.counter("generation_tokens", "Tokens generated.", me, d(s.newTokens), yes);
  for (auto [reason, count] : {std::pair{"stop", s.endedStop}, {"length", s.endedLength}, {"abort", s.endedCancelled},
                               {"timeout", s.endedTimeout}, {"error", s.endedFailed}})
    set.counter("request_success", "Choices that ended, by reason.", with("finished_reason", reason), d(count), yes);
  set.counter("corrupted_requests", "Requests that met logits or hidden states that are not finite.", me, d(s.corrupted), yes);
  set.gauge("engine_invariant_broken", "1: the engine's own checks failed, see its log.", me, s.broken, no);
  set.counter("admission_rejections", "Requests refused at once, by reason.", with("reason", "queue_full"),
              d(s.rejectedQueue), yes);
  set.counter("admission_rejections", "Requests refused at once, by reason.", with("reason", "deadline"),
              d(s.rejectedDeadline), yes);
  set.counter("steps", "Steps of the engine.", me, d(s.steps), no);
  set.counter("steps_without_logits", "Steps all of whose rows took their largest logit, so that no logits were written.", me, d(s.choiceSteps), no);
  set.counter("step_rows_computed", "Rows of all steps.", me, d(s.rows), no);
  set.counter("device_busy_seconds", "Time that the device worked.", me, s.busySeconds, no);
  set.counter("scheduler_seconds", "Time spent on scheduling.", me, s.schedulerSeconds, no);
  set.counter("sampler_seconds", "Time spent on sampling.", me, s.samplerSeconds, no);
  // vLLM's names; a label more says which drafter it was.
  const SpeculationStats &spec = s.speculation;
  set.counter("spec_decode_num_drafts", "Verifications of draft tokens.", me, d(spec.rounds), yes);
  for (uint32_t i = 0; i < draftSources; ++i) {
    const char *source = toString(static_cast<DraftSource>(i));
    set.counter("spec_decode_num_draft_tokens", "Draft tokens verified, by drafter.", with("drafter", source),
                d(spec.drafted[i]), yes);
    set.counter("spec_decode_num_accepted_tokens", "Draft tokens accepted, by drafter.", with("drafter", source),
                d(spec.accepted[i]), yes);
  }
  for (uint32_t i = 0; i < draftSources; ++i)
    for (uint32_t place = 0; place < maxDraftTokens; ++place) {
      const Labels here{{"model_name", model}, {"position", std::to_string(place)}, {"drafter", toString(static_cast<DraftSource>(i))}};
      set.counter("spec_decode_num_draft_tokens_per_pos", "Draft tokens verified, by place in the draft and drafter.", here, d(spec.draftedAt[i][place]), no);
      set.counter("spec_decode_num_accepted_tokens_per_pos", "Draft tokens accepted, by place in the draft and drafter.", here, d(spec.acceptedAt[i][place]), yes);
    }
  set.counter("draft_program_runs", "Runs of the draft program.", me, d(spec.programRuns), no);
  set.counter("draft_program_rows_computed", "Rows of all runs of the draft program.", me, d(spec.programRows), no);
  set.counter("draft_program_trees", "Verifications of trees of the draft program, more than chains.", me, d(spec.programTrees), no);
  set.counter("drafter_seconds", "Time spent on drafting.", me, s.drafterSeconds, no);
  set.counter("weight_bytes_read", "Bytes of weights that the steps read.", me, d(s.weightBytes), no);

  set.histogram("time_to_first_token_seconds", "From submission to the first token.", me, ttft, yes);
  set.histogram("inter_token_latency_seconds", "Between two tokens of a choice.", me, gap, yes);
  set.histogram("request_time_per_output_token_seconds", "Mean time between a request's tokens.", me, perToken, yes);
  set.histogram("e2e_request_latency_seconds", "From submission to the end.", me, total, yes);
  set.histogram("request_queue_time_seconds", "From submission until first scheduled.", me, queue, yes);
  set.histogram("request_prefill_time_seconds", "From first scheduled to the first token.", me, prefill, yes);
  set.histogram("request_decode_time_seconds", "From the first token to the end.", me, decode, yes);
  set.histogram("request_inference_time_seconds", "From first scheduled to the end.", me, inference, yes);
  set.histogram("request_prompt_tokens", "Prompt tokens of a request.", me, promptTokens, yes);
  set.histogram("request_generation_tokens", "Generated tokens of a request.", me, newTokens, yes);
  set.histogram("iteration_tokens_total", "Rows of a step.", me, stepRows, yes);
  set.histogram("step_seconds", "Time of a step.", me, stepSeconds, no);
  set.histogram("request_params_n", "The n of requests.", me, paramN, yes);
  set.histogram("request_params_max_tokens", "The token limit of requests.", me, paramMaxTokens, yes);
  set.histogram("request_num_preemptions", "Preemptions of a request.", me, preemptions, yes);

  std::lock_guard lock(mutex);
  for (const auto &[tenant, counts] : tenants) {
    Labels labels = {{"model_name", model}, {"tenant", tenant}};
    set.counter("tenant_requests", "Requests that ended, by tenant.", labels, d(counts.requests), no);
    set.counter("tenant_prompt_tokens", "Prompt tokens of requests that ended, by tenant.", labels,
                d(counts.promptTokens), no);
    set.counter("tenant_generation_tokens", "Tokens generated for requests that ended, by tenant.", labels,
                d(counts.newTokens), no);
  }
  if (marks[0].time == 0) marks[0] = marks[1] = {now, s.busySeconds, d(s.weightBytes)};
  if (now - marks[1].time >= rateSeconds) {
    marks[0] = marks[1];
    marks[1] = {now, s.busySeconds, d(s.weightBytes)};
  }
  double passed = now - marks[0].time;
  auto rate = [&](double value, double before) { return passed > 0 ? (value - before) / passed : 0; };
  set.gauge("device_busy_share", "Share of the last seconds that the device worked, 0 to 1.", me,
            rate(s.busySeconds, marks[0].busy), no);
  set.gauge("weight_bytes_per_second", "Bytes of weights read a second, over the last seconds.", me,
            rate(d(s.weightBytes), marks[0].weightBytes), no);
  if (readLimit > 0)
    set.gauge("machine_bytes_per_second_limit", "Bytes a second that this machine can read, measured at start.", me,
              readLimit, no);
}

} // namespace lathe::metrics
