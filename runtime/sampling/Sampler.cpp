//===- Sampler.cpp - from logits to a token ---------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Steps and arithmetic: docs/sampling.md. All loops over the vocabulary are written so that the
// compiler can vectorise them without changing a bit: maxima and sums go through 16 lanes in a fixed
// order.
//===----------------------------------------------------------------------===//
#include "Sampler.h"
#include "Noise.h"
#include <algorithm>
#include <cmath>
#include <limits>

// The same arithmetic with wider registers; not under sanitizers, which run too late for ifuncs.
#if defined(__x86_64__) && defined(__linux__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#if defined(__has_feature)
#if !__has_feature(thread_sanitizer) && !__has_feature(address_sanitizer) && !__has_feature(memory_sanitizer)
#define LATHE_WIDE __attribute__((target_clones("avx2", "default")))
#endif
#endif
#endif
#ifndef LATHE_WIDE
#define LATHE_WIDE
#endif

namespace lathe {

using namespace sampling;

namespace {

constexpr int lanes = 16;
constexpr float minusInfinity = -std::numeric_limits<float>::infinity();
/// Below this a temperature is taken for 0, as in vLLM.
constexpr float smallestTemperature = 1e-5f;
/// Selection sorts tokens into buckets of 1/64 nat below the best one.
constexpr int bucketCount = 4096;
constexpr double bucketsPerNat = 64;

/// The largest of |x|; |bad| when one is NaN or +inf.
LATHE_WIDE float largest(const float *x, int32_t n, bool &bad) {
  float best[lanes];
  uint32_t wrong[lanes] = {};
  for (float &b : best)
    b = minusInfinity;
  int32_t i = 0;
  for (; i + lanes <= n; i += lanes)
    for (int j = 0; j < lanes; ++j) {
      float v = x[i + j];
      best[j] = v > best[j] ? v : best[j];
      wrong[j] |= !(v <= std::numeric_limits<float>::max());
    }
  for (; i < n; ++i) {
    best[0] = x[i] > best[0] ? x[i] : best[0];
    wrong[0] |= !(x[i] <= std::numeric_limits<float>::max());
  }
  bad = false;
  for (int j = 0; j < lanes; ++j) {
    best[0] = best[j] > best[0] ? best[j] : best[0];
    bad |= wrong[j] != 0;
  }
  return best[0];
}

LATHE_WIDE int32_t firstOf(const float *x, int32_t n, float value) {
  for (int32_t i = 0; i < n; i += 256) {
    int32_t end = std::min(n, i + 256), hits = 0;
    for (int32_t k = i; k < end; ++k)
      hits |= x[k] == value;
    if (!hits) continue;
    while (x[i] != value)
      ++i;
    return i;
  }
  return -1;
}

/// Sum of e^(x - top).
LATHE_WIDE double sumOfExp(const float *x, int32_t n, double top) {
  double sum[lanes] = {};
  int32_t i = 0;
  for (; i + lanes <= n; i += lanes)
    for (int j = 0; j < lanes; ++j)
      sum[j] += expOf(static_cast<double>(x[i + j]) - top);
  for (int j = 0; i < n; ++i, ++j)
    sum[j] += expOf(static_cast<double>(x[i]) - top);
  for (int half = lanes / 2; half > 0; half /= 2)
    for (int j = 0; j < half; ++j)
      sum[j] += sum[j + half];
  return sum[0];
}

/// How far |n| scores lie below the top one, and e to the power of that.
LATHE_WIDE void weigh(const float *x, int n, double top, double inverseT, double *below, double *weight) {
  for (int j = 0; j < n; ++j) {
    below[j] = (top - static_cast<double>(x[j])) * inverseT;
    weight[j] = expOf(-below[j]);
  }
}

/// The high words of the draws of |n| tokens from |first| on (a multiple of 4).
LATHE_WIDE void highWords(const NoiseKey &key, uint32_t first, uint32_t *out, int groups) {
  for (int base = 0; base < groups; base += lanes) {
    uint32_t w0[lanes], w1[lanes], w2[lanes], w3[lanes];
    for (int j = 0; j < lanes; ++j) {
      w0[j] = first / 4 + static_cast<uint32_t>(base + j);
      w1[j] = key.position;
      w2[j] = key.choice;
      w3[j] = key.purpose * 2;
    }
    uint32_t k0 = static_cast<uint32_t>(key.seed), k1 = static_cast<uint32_t>(key.seed >> 32);
    for (int round = 0; round < 10; ++round) {
      for (int j = 0; j < lanes; ++j) {
        uint64_t a = uint64_t(0xD2511F53u) * w0[j], b = uint64_t(0xCD9E8D57u) * w2[j];
        w0[j] = static_cast<uint32_t>(b >> 32) ^ w1[j] ^ k0;
        w1[j] = static_cast<uint32_t>(b);
        w2[j] = static_cast<uint32_t>(a >> 32) ^ w3[j] ^ k1;
        w3[j] = static_cast<uint32_t>(a);
      }
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    for (int j = 0; j < lanes; ++j) {
      uint32_t *o = out + 4 * (base + j);
      o[0] = w0[j];
      o[1] = w1[j];
      o[2] = w2[j];
      o[3] = w3[j];
    }
  }
}

} // namespace

double gumbelNoise(uint64_t seed, uint32_t choice, uint32_t position, uint32_t token, DrawPurpose purpose) {
  return noiseOf({seed, choice, position, static_cast<uint32_t>(purpose)}, token);
}

Status SamplingParams::validate(int32_t vocabSize) const {
  auto range = [](const char *field, const char *allowed, double found) {
    return makeError(StatusCode::invalidArgument, "%s: expected %s, found %g", field, allowed, found);
  };
  if (!(temperature >= 0) || !std::isfinite(temperature)) return range("temperature", "a number >= 0", temperature);
  if (topK < -1) return range("top_k", "-1, 0 or a positive number", topK);
  if (!(topP > 0 && topP <= 1)) return range("top_p", "a number in (0, 1]", topP);
  if (!(minP >= 0 && minP <= 1)) return range("min_p", "a number in [0, 1]", minP);
  if (!(repetitionPenalty > 0) || !std::isfinite(repetitionPenalty))
    return range("repetition_penalty", "a number > 0", repetitionPenalty);
  if (!(presencePenalty >= -2 && presencePenalty <= 2))
    return range("presence_penalty", "a number in [-2, 2]", presencePenalty);
  if (!(frequencyPenalty >= -2 && frequencyPenalty <= 2))
    return range("frequency_penalty", "a number in [-2, 2]", frequencyPenalty);
  if (minTokens < 0) return range("min_tokens", "a number >= 0", minTokens);
  if (logprobs < -1 || logprobs > vocabSize)
    return makeError(StatusCode::invalidArgument, "logprobs: expected -1 to %d, found %d", vocabSize, logprobs);
  for (const auto &[token, bias] : logitBias) {
    if (token < 0 || token >= vocabSize)
      return makeError(StatusCode::invalidArgument, "logit_bias: expected token ids below %d, found %d", vocabSize,
                       token);
    if (!(bias >= -100 && bias <= 100)) return range("logit_bias", "numbers in [-100, 100]", bias);
  }
  for (int32_t token : stopTokenIds)
    if (token < 0 || token >= vocabSize)
      return makeError(StatusCode::invalidArgument, "stop_token_ids: expected token ids below %d, found %d", vocabSize,
                       token);
  return Status();
}

Sampler::Sampler(int32_t vocab) : vocabSize(vocab), work(vocab), spread(vocab) {
  candidates.reserve(vocab);
  edge.reserve(vocab);
  laws.reserve(vocab);
  counts.resize(bucketCount);
  sums.resize(bucketCount);
}

static bool penalizes(const SamplingParams &p) { return p.repetitionPenalty != 1.0f || p.presencePenalty != 0 || p.frequencyPenalty != 0; }
static bool holdsBack(const SamplingParams &p, const TokenHistory &history) { return history.outputTokens() < p.minTokens && !p.stopTokenIds.empty(); }
static bool draws(const SamplingParams &p) { return p.temperature >= smallestTemperature && p.topK != 1; }
static Status damaged(uint32_t position, int32_t token, float logit) {
  return makeError(StatusCode::internal, "logits at position %u: token %d has %f", position, token, static_cast<double>(logit));
}
static Status noneLeft(uint32_t position) { return makeError(StatusCode::failedPrecondition, "no token may be chosen at position %u", position); }

const float *Sampler::adjust(const float *logits, const SamplingParams &params, const TokenHistory &history,
                             std::span<const uint32_t> allowed) {
  bool penalties = penalizes(params), tooShort = holdsBack(params, history);
  if (allowed.empty() && !penalties && !tooShort && params.logitBias.empty()) return logits;
  std::copy(logits, logits + vocabSize, work.begin());
  if (!allowed.empty())
    for (int32_t i = 0; i < vocabSize; ++i)
      if (!(allowed[i / 32] >> (i % 32) & 1)) work[i] = minusInfinity;
  if (tooShort)
    for (int32_t token : params.stopTokenIds)
      work[token] = minusInfinity;
  for (const auto &[token, bias] : params.logitBias)
    work[token] += bias;
  if (penalties) {
    for (const TokenHistory::Entry &e : history.entries()) {
      if (e.token < 0 || e.token >= vocabSize) continue;
      float x = work[e.token];
      if (e.inPrompt > 0 || e.inOutput > 0) x = x > 0 ? x / params.repetitionPenalty : x * params.repetitionPenalty;
      x -= params.frequencyPenalty * static_cast<float>(e.inOutput);
      if (e.inOutput > 0) x -= params.presencePenalty;
      work[e.token] = x;
    }
  }
  return work.data();
}

void Sampler::keepTopK(const float *x, double top, int32_t k) {
  auto bucketOf = [&](int32_t i) {
    double b = (top - static_cast<double>(x[i])) * bucketsPerNat;
    return b < bucketCount - 1 ? static_cast<int>(b) : bucketCount - 1;
  };
  std::fill(counts.begin(), counts.end(), 0);
  for (int32_t i : candidates)
    ++counts[bucketOf(i)];
  int32_t above = 0, border = 0;
  while (above + counts[border] < k)
    above += counts[border++];
  // All of the buckets before the border stay; of the border's the best.
  edge.clear();
  size_t kept = 0;
  for (int32_t i : candidates) {
    int b = bucketOf(i);
    if (b < border)
      candidates[kept++] = i;
    else if (b == border)
      edge.push_back(i);
  }
  auto better = [&](int32_t a, int32_t b) { return x[a] != x[b] ? x[a] > x[b] : a < b; };
  std::nth_element(edge.begin(), edge.begin() + (k - above - 1), edge.end(), better);
  candidates.resize(kept);
  candidates.insert(candidates.end(), edge.begin(), edge.begin() + (k - above));
}

void Sampler::keepTopP(const float *x, double top, double inverseT, double p) {
  auto below = [&](int32_t i) { return (top - static_cast<double>(x[i])) * inverseT; };
  auto bucketOf = [&](double d) {
    double b = d * bucketsPerNat;
    return b < bucketCount - 1 ? static_cast<int>(b) : bucketCount - 1;
  };
  std::fill(sums.begin(), sums.end(), 0.0);
  constexpr size_t chunk = 256;
  float scores[chunk];
  double distance[chunk], weight[chunk];
  for (size_t first = 0; first < candidates.size(); first += chunk) {
    size_t n = std::min(chunk, candidates.size() - first);
    for (size_t j = 0; j < n; ++j)
      scores[j] = x[candidates[first + j]];
    weigh(scores, static_cast<int>(n), top, inverseT, distance, weight);
    for (size_t j = 0; j < n; ++j)
      sums[bucketOf(distance[j])] += weight[j];
  }
  double total = 0;
  for (double s : sums)
    total += s;
  double target = p * total, reached = 0;
  int border = 0;
  while (border < bucketCount - 1 && reached + sums[border] < target)
    reached += sums[border++];
  edge.clear();
  size_t kept = 0;
  for (int32_t i : candidates) {
    int b = bucketOf(below(i));
    if (b < border)
      candidates[kept++] = i;
    else if (b == border)
      edge.push_back(i);
  }
  std::sort(edge.begin(), edge.end(), [&](int32_t a, int32_t b) { return x[a] != x[b] ? x[a] > x[b] : a < b; });
  size_t n = 0;
  while (n < edge.size() && (reached < target || (kept == 0 && n == 0)))
    reached += expOf(-below(edge[n++]));
  candidates.resize(kept);
  candidates.insert(candidates.end(), edge.begin(), edge.begin() + n);
}

/// The largest of score + noise among all tokens, by way of bounds: only few need the noise itself.
static int32_t drawAll(const float *x, int32_t n, int32_t best, double inverseT, const NoiseKey &key) {
  double record = static_cast<double>(x[best]) * inverseT + noiseOf(key, best);
  int32_t winner = best;
  constexpr int groups = 64;
  uint32_t high[4 * groups];
  for (int32_t first = 0; first < n; first += 4 * groups) {
    highWords(key, first, high, groups);
    int32_t end = std::min(n - first, 4 * groups);
    for (int32_t j = 0; j < end; ++j) {
      double score = static_cast<double>(x[first + j]) * inverseT;
      if (score + noiseBound(high[j]) < record) continue;
      int32_t token = first + j;
      if (x[token] == minusInfinity || token == best) continue;
      double value = score + noiseOf(key, token);
      if (value > record || (value == record && token < winner)) {
        record = value;
        winner = token;
      }
    }
  }
  return winner;
}

static int32_t drawAmong(const float *x, std::span<const int32_t> tokens, double inverseT, const NoiseKey &key) {
  double record = 0;
  int32_t winner = -1;
  for (int32_t token : tokens) {
    double score = static_cast<double>(x[token]) * inverseT;
    if (winner >= 0 && score + noiseBound(key.block(token / 4, 0).word[token % 4]) < record) continue;
    double value = score + noiseOf(key, token);
    if (winner < 0 || value > record || (value == record && token < winner)) {
      record = value;
      winner = token;
    }
  }
  return winner;
}

void Sampler::addLogprobs(const float *logits, float top, int32_t count, Sample &sample) {
  double logTotal = logOf(sumOfExp(logits, vocabSize, top)) + top;
  auto logprob = [&](int32_t i) { return static_cast<float>(static_cast<double>(logits[i]) - logTotal); };
  sample.logprob = logprob(sample.token);
  if (count <= 0) return;
  auto better = [&](int32_t a, int32_t b) { return logits[a] != logits[b] ? logits[a] > logits[b] : a < b; };
  edge.clear();
  for (int32_t i = 0; i < vocabSize; ++i) {
    // A heap of the best so far, the worst of them in front.
    if (static_cast<int32_t>(edge.size()) < count) {
      edge.push_back(i);
      std::push_heap(edge.begin(), edge.end(), better);
    } else if (better(i, edge.front())) {
      std::pop_heap(edge.begin(), edge.end(), better);
      edge.back() = i;
      std::push_heap(edge.begin(), edge.end(), better);
    }
  }
  std::sort(edge.begin(), edge.end(), better);
  for (int32_t i : edge)
    sample.top.push_back({i, logprob(i)});
}

Result<Sample> Sampler::sample(std::span<const float> logits, const SamplingParams &params, const TokenHistory &history,
                               uint32_t position, std::span<const uint32_t> allowed) {
  Sample out;
  LATHE_RETURN_IF_ERROR(sample(logits, params, history, position, allowed, params.choice, out));
  return out;
}

bool Sampler::takesLargest(const SamplingParams &p, const TokenHistory &history) {
  return !draws(p) && p.logprobs < 0 && p.logitBias.empty() && !penalizes(p) && !holdsBack(p, history);
}

Status Sampler::take(float token, float logit, uint32_t position, Sample &out) const {
  if (!(token >= 0 && token < static_cast<float>(vocabSize)))
    return makeError(StatusCode::internal, "sampler: expected a token below %d at position %u, found %f", vocabSize, position, static_cast<double>(token));
  if (!(logit <= std::numeric_limits<float>::max())) return damaged(position, static_cast<int32_t>(token), logit);
  if (logit == minusInfinity) return noneLeft(position);
  out.token = static_cast<int32_t>(token);
  out.logprob = 0;
  out.top.clear();
  return Status();
}

/// The largest logit. Errors: the wrong number of them, NaN or +inf.
Status Sampler::largestOf(std::span<const float> logits, uint32_t position, float &top) const {
  if (logits.size() != static_cast<size_t>(vocabSize))
    return makeError(StatusCode::internal, "sampler: expected %d logits, found %zu", vocabSize, logits.size());
  bool bad;
  top = largest(logits.data(), vocabSize, bad);
  if (!bad) return Status();
  int32_t at = 0;
  while (logits[at] <= std::numeric_limits<float>::max())
    ++at;
  return damaged(position, at, logits[at]);
}

Status Sampler::score(std::span<const float> logits, int32_t token, int32_t count, uint32_t position, Sample &out) {
  float top;
  LATHE_RETURN_IF_ERROR(largestOf(logits, position, top));
  out.token = token;
  out.top.clear();
  addLogprobs(logits.data(), top, count, out);
  return Status();
}

Status Sampler::keep(std::span<const float> logits, const SamplingParams &params, const TokenHistory &history, uint32_t position,
                     std::span<const uint32_t> allowed, Kept &kept) {
  if (!allowed.empty() && allowed.size() * 32 < logits.size())
    return makeError(StatusCode::internal, "sampler: expected a mask of %zu words, found %zu",
                     (logits.size() + 31) / 32, allowed.size());
  bool bad = false;
  LATHE_RETURN_IF_ERROR(largestOf(logits, position, kept.rawTop));
  const float *x = kept.x = adjust(logits.data(), params, history, allowed);
  float top = kept.top = x == logits.data() ? kept.rawTop : largest(x, vocabSize, bad);
  if (bad)
    return makeError(StatusCode::invalidArgument, "repetition_penalty: %g makes a logit at position %u overflow",
                     static_cast<double>(params.repetitionPenalty), position);
  if (top == minusInfinity)
    return noneLeft(position);

  kept.inverseT = draws(params) ? 1.0 / static_cast<double>(params.temperature) : 0;
  bool cutK = params.topK > 0 && params.topK < vocabSize, cutP = params.topP < 1, cutMin = params.minP > 0;
  kept.all = !cutK && !cutP && !cutMin;
  if (kept.inverseT == 0 || kept.all) return Status();
  // Scores are compared in the logits' own unit: x >= top + T log(min_p).
  double floor = cutMin ? static_cast<double>(top) +
                              logOf(static_cast<double>(params.minP)) * static_cast<double>(params.temperature)
                        : -std::numeric_limits<double>::infinity();
  candidates.clear();
  for (int32_t i = 0; i < vocabSize; ++i)
    if (x[i] > minusInfinity && static_cast<double>(x[i]) >= floor) candidates.push_back(i);
  if (cutK && static_cast<size_t>(params.topK) < candidates.size()) keepTopK(x, top, params.topK);
  if (cutP) keepTopP(x, top, kept.inverseT, static_cast<double>(params.topP));
  return Status();
}

Status Sampler::sample(std::span<const float> logits, const SamplingParams &params, const TokenHistory &history,
                       uint32_t position, std::span<const uint32_t> allowed, uint32_t choice, Sample &out) {
  Kept kept;
  LATHE_RETURN_IF_ERROR(keep(logits, params, history, position, allowed, kept));
  out.logprob = 0;
  out.top.clear();
  int32_t best = firstOf(kept.x, vocabSize, kept.top);
  NoiseKey key{params.seed, choice, position, static_cast<uint32_t>(DrawPurpose::token)};
  if (kept.inverseT == 0) {
    out.token = best;
  } else if (kept.all) {
    out.token = drawAll(kept.x, vocabSize, best, kept.inverseT, key);
  } else if (candidates.size() > static_cast<size_t>(vocabSize) / 16) {
    // Many candidates are drawn from faster in the order of the vocabulary.
    std::fill(spread.begin(), spread.end(), minusInfinity);
    for (int32_t i : candidates)
      spread[i] = kept.x[i];
    int32_t first = firstOf(spread.data(), vocabSize, kept.top);
    out.token = drawAll(spread.data(), vocabSize, first, kept.inverseT, key);
  } else {
    out.token = drawAmong(kept.x, candidates, kept.inverseT, key);
  }
  if (params.logprobs >= 0) addLogprobs(logits.data(), kept.rawTop, params.logprobs, out);
  return Status();
}

Status Sampler::law(std::span<const float> logits, const SamplingParams &params, const TokenHistory &history, uint32_t position, std::vector<double> &out,
                    std::span<const uint32_t> allowed) {
  Kept kept;
  LATHE_RETURN_IF_ERROR(keep(logits, params, history, position, allowed, kept));
  out.assign(static_cast<size_t>(vocabSize), 0.0);
  if (kept.inverseT == 0) {
    out[static_cast<size_t>(firstOf(kept.x, vocabSize, kept.top))] = 1;
    return Status();
  }
  double sum = 0;
  auto weigh = [&](int32_t i) {
    if (kept.x[i] > minusInfinity) sum += out[static_cast<size_t>(i)] = expOf((static_cast<double>(kept.x[i]) - static_cast<double>(kept.top)) * kept.inverseT);
  };
  if (kept.all)
    for (int32_t i = 0; i < vocabSize; ++i)
      weigh(i);
  else
    for (int32_t i : candidates)
      weigh(i);
  for (double &v : out)
    v /= sum;
  return Status();
}

} // namespace lathe
