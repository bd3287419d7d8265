//===- Sampler.h - from logits to a token -------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Chooses the next token of one sequence from one row of logits. The choice is a pure function of
// the row, the parameters, the history and the position: no state, no dependence on other rows,
// the same bits on every machine (docs/sampling.md has the order of the steps and the arithmetic).
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/base/Status.h"
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace lathe {

/// What a request asks for. The defaults change nothing: the model's own distribution.
struct SamplingParams {
  float temperature = 1.0f;                         ///< >= 0; 0 takes the largest logit
  int32_t topK = 0;                                 ///< keep the k largest; 0 or -1 keeps all
  float topP = 1.0f;                                ///< (0, 1]; keep the fewest tokens whose probabilities reach it
  float minP = 0.0f;                                ///< [0, 1]; drop tokens below minP times the largest probability
  float repetitionPenalty = 1.0f;                   ///< > 0; counts the prompt and the output
  float presencePenalty = 0.0f;                     ///< [-2, 2]; counts the output
  float frequencyPenalty = 0.0f;                    ///< [-2, 2]; counts the output
  std::vector<std::pair<int32_t, float>> logitBias = {}; ///< token id, amount added to its logit
  int32_t minTokens = 0;                            ///< no stop token before this many output tokens
  std::vector<int32_t> stopTokenIds;                ///< the tokens that minTokens holds back
  uint64_t seed = 0;
  uint32_t choice = 0;   ///< index of the choice for n > 1; each draws its own numbers
  int32_t logprobs = -1; ///< how many of the likeliest tokens to report; -1: none, not even the chosen one

  /// invalidArgument naming the field, its range and the value found.
  Status validate(int32_t vocabSize) const;
};

/// How often each token has occurred in a sequence. Kept by the caller, one per sequence; removing
/// what was added restores it, which is what taking back rejected draft tokens needs.
class TokenHistory {
public:
  struct Entry {
    int32_t token;
    int32_t inPrompt;
    int32_t inOutput;
  };
  void addPrompt(int32_t token);
  void addOutput(int32_t token);
  /// Undoes the latest addOutput of |token|.
  void removeOutput(int32_t token);
  int32_t outputTokens() const { return outputs; }
  /// Makes room for |distinct| different tokens, so that adding allocates nothing.
  void reserve(size_t distinct);

  /// One entry a token that has occurred, in no particular order.
  std::span<const Entry> entries() const { return list; }

private:
  Entry &entryOf(int32_t token);
  size_t slotOf(int32_t token) const;
  void grow(size_t slots);
  std::vector<Entry> list;
  std::vector<int32_t> table; ///< open addressing: index into list, or -1
  int32_t outputs = 0;
};

struct TokenLogprob {
  int32_t token;
  float logprob; ///< natural logarithm
};

struct Sample {
  int32_t token = -1;
  float logprob = 0;             ///< of the raw logits, before bias, penalties and temperature; if asked for
  std::vector<TokenLogprob> top; ///< the likeliest by the raw logits, best first, lowest id first among equals
};

/// What the random numbers are for. Two purposes never share a number.
enum class DrawPurpose : uint32_t { token = 0, acceptance = 1, residual = 2 };

/// The noise that is added to the logarithm of |token|'s probability: standard Gumbel, a pure
/// function of its arguments. A draft model that adds the same noise proposes what the target takes.
double gumbelNoise(uint64_t seed, uint32_t choice, uint32_t position, uint32_t token, DrawPurpose purpose);

/// Buffers that one caller reuses from call to call, so that a step allocates nothing once warm.
/// Not thread-safe; one per thread.
class Sampler {
public:
  explicit Sampler(int32_t vocabSize);

  /// Chooses the token at |position| (0 is the first token of the prompt).
  ///
  /// |logits|: vocabSize values; -inf marks an impossible token. |allowed|: empty, or one bit a token
  /// (bit i % 32 of word i / 32), set when it may be chosen. |params| must have passed validate().
  /// Errors: internal for NaN or +inf logits, failedPrecondition when no token is left.
  Result<Sample> sample(std::span<const float> logits, const SamplingParams &params, const TokenHistory &history,
                        uint32_t position, std::span<const uint32_t> allowed = {});
  /// The same for |choice| instead of params.choice, into |out|, whose memory is used again.
  Status sample(std::span<const float> logits, const SamplingParams &params, const TokenHistory &history,
                uint32_t position, std::span<const uint32_t> allowed, uint32_t choice, Sample &out);
  /// Whether sample() takes the largest raw logit, whatever the logits are; |history| as for sample(). Stays true when output is added.
  static bool takesLargest(const SamplingParams &params, const TokenHistory &history);
  /// What sample() says then, of a row whose largest logit is |logit|, that of |token| (of equals the lowest; NaN and +inf are larger than all others, the
  /// first of them counts). Errors as of sample(), and internal for no token of the vocabulary.
  Status take(float token, float logit, uint32_t position, Sample &out) const;
  /// The law that sample() draws from: fills |out| with vocabSize probabilities, behind everything that |params| ask for; a single 1 where nothing is
  /// drawn. Errors as of sample().
  Status law(std::span<const float> logits, const SamplingParams &params, const TokenHistory &history, uint32_t position, std::vector<double> &out,
             std::span<const uint32_t> allowed = {});
  /// For law(): memory that is used again.
  std::vector<double> &lawBuffer() { return laws; }
  /// How likely |token| was: fills |out| with it, its logprob and the |count| likeliest tokens, all by the raw logits.
  /// |position| is for messages. Errors: internal for NaN or +inf logits.
  Status score(std::span<const float> logits, int32_t token, int32_t count, uint32_t position, Sample &out);

private:
  Status largestOf(std::span<const float> logits, uint32_t position, float &top) const;
  /// Mask, min_tokens, bias and penalties: |logits| itself when there is nothing to do.
  const float *adjust(const float *logits, const SamplingParams &params, const TokenHistory &history,
                      std::span<const uint32_t> allowed);
  /// Steps 1 to 8 of docs/sampling.md.
  struct Kept {
    const float *x = nullptr; ///< adjusted logits
    float rawTop = 0, top = 0;
    double inverseT = 0; ///< 0: the largest is taken
    bool all = false;    ///< no token was cut; else |candidates| are what is left
  };
  Status keep(std::span<const float> logits, const SamplingParams &params, const TokenHistory &history, uint32_t position,
              std::span<const uint32_t> allowed, Kept &kept);
  void keepTopK(const float *x, double top, int32_t k);
  void keepTopP(const float *x, double top, double inverseT, double p);
  void addLogprobs(const float *logits, float top, int32_t count, Sample &sample);

  int32_t vocabSize;
  std::vector<float> work;         ///< adjusted logits
  std::vector<float> spread;       ///< the tokens kept, when they are many
  std::vector<int32_t> candidates; ///< tokens kept
  std::vector<int32_t> edge;       ///< tokens of the bucket that a cut goes through
  std::vector<int32_t> counts;     ///< per bucket
  std::vector<double> sums, laws;
};

} // namespace lathe
