//===- ModelConfig.h - what a decoder-only model's file says about it -*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Everything the graph builder needs besides the weights, independent of the family and of the file
// format. Filled from a config.json or from GGUF metadata; whatever cannot be represented is an
// error that names it and lists what is supported.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/base/Status.h"
#include "lathe/import/GGUF.h"
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace lathe {

enum class Family { llama, mistral, qwen2, qwen3, gemma3, phi3, gpt2 };
const char *familyName(Family family);
/// "llama, mistral, ..."
std::string familyNames();

enum class NormKind { rms, layer };
enum class ActivationKind { silu, geluTanh, geluErf, relu };

/// A rotary embedding with everything but the position folded in.
struct Rope {
  std::string kind;                       ///< "default", "linear", "llama3", "yarn", "longrope"
  std::vector<double> inverseFrequencies; ///< half of the rotated size
  double attentionFactor = 1;             ///< multiplies cosines and sines
  std::string factors;                    ///< which of longrope's were chosen: "short" or "long"; empty for other kinds
};

struct LayerConfig {
  int64_t heads = 0, kvHeads = 0;
  int64_t feedForward = 0;
  int64_t window = 0; ///< tokens a row sees, itself included; 0: all
  int rope = 0;       ///< index into ropes; -1: none
  double attentionScale = 1;
};

struct ModelConfig {
  Family family = Family::llama;
  std::string name; ///< for people
  int64_t hidden = 0, vocabulary = 0, headSize = 0;
  int64_t maxSequence = 0;    ///< positions the module is made for
  int64_t modelPositions = 0; ///< positions the model was trained for
  std::vector<LayerConfig> layers;
  std::vector<Rope> ropes;

  NormKind norm = NormKind::rms;
  double normEpsilon = 1e-6;
  bool normPlusOne = false; ///< stored norm weights are w of 1 + w
  bool postNorms = false;   ///< a norm after attention and one after the feed-forward (Gemma)
  bool headNorms = false;   ///< norms of each head of q and k
  bool gated = true;        ///< activation(gate) * up, else activation(up)
  ActivationKind activation = ActivationKind::silu;
  bool qkvBias = false, outputBias = false, feedForwardBias = false, headBias = false;
  bool learnedPositions = false;
  bool tiedHead = false;
  double embeddingScale = 1;
  double finalSoftcap = 0;     ///< of logits; 0: none
  double attentionSoftcap = 0; ///< of attention scores; 0: none
};

struct ImportOptions {
  /// Positions to make the module for; 0: the model's own. Fixes longrope's short or long factors.
  int64_t maxSequence = 0;
};

/// |config| is the parsed config.json. Both rope_parameters (transformers 5) and
/// rope_theta/rope_scaling are read.
Result<ModelConfig> readModelConfig(const nlohmann::json &config, const ImportOptions &options);
Result<ModelConfig> readModelConfig(const gguf::File &file, const ImportOptions &options);

/// Checks ranges and that sizes fit each other; a window that no sequence can outgrow becomes none. |where| begins the message.
Status validateConfig(ModelConfig &config, const std::string &where);

/// Parameters of a rotary embedding as files give them; makeRope computes the rest.
struct RopeParameters {
  std::string kind = "default";
  double theta = 10000;
  int64_t rotarySize = 0; ///< elements of a head that are rotated
  double factor = 1;
  double attentionFactor = 0; ///< 0: what the kind prescribes
  double originalPositions = 0;
  double lowFrequencyFactor = 1, highFrequencyFactor = 4; ///< llama3
  double betaFast = 32, betaSlow = 1;                     ///< yarn
  double mscale = 0, mscaleAllDim = 0;                    ///< yarn; both 0: from the factor alone
  bool truncate = true;                                   ///< yarn
  std::vector<double> shortFactors, longFactors;          ///< longrope
  std::vector<double> divisors;                           ///< GGUF's rope_freqs: one per frequency, or empty
};
/// unsupported for other kinds ('dynamic' depends on the sequence's length, which exact tokens
/// exclude); invalidArgument for parameters out of range.
Result<Rope> makeRope(const RopeParameters &parameters, int64_t maxSequence);

} // namespace lathe
