//===- JsonRope.cpp - RoPE parameters of a config.json ---------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Two forms: rope_parameters (transformers 5; for Gemma 3 one object per layer type), and rope_theta with an
// optional rope_scaling.
//===----------------------------------------------------------------------===//
#include "JsonRope.h"
#include "Fields.h"
#include <cmath>

namespace lathe {
namespace {
using nlohmann::json;

const json empty = json::object();

/// |own| is the object with the kind's parameters, |top| the whole config.
Result<RopeParameters> readParameters(const json &own, const std::string &where, const json &top,
                                      const ModelConfig &config, double theta) {
  Fields fields(own, where), all(top, "");
  RopeParameters p;
  LATHE_ASSIGN_OR_RETURN(std::string oldKind, fields.string("type", "default"));
  LATHE_ASSIGN_OR_RETURN(p.kind, fields.string("rope_type", oldKind));
  // Its names in the first Phi-3 files; transformers, too, knows no other yarn for this family.
  if (p.kind == "su" || (config.family == Family::phi3 && p.kind == "yarn")) p.kind = "longrope";
  LATHE_ASSIGN_OR_RETURN(p.theta, fields.number("rope_theta", theta));
  LATHE_ASSIGN_OR_RETURN(double partial, all.number("partial_rotary_factor", 1));
  LATHE_ASSIGN_OR_RETURN(partial, fields.number("partial_rotary_factor", partial));
  if (!(partial > 0) || !(partial <= 1)) return fields.wrong("partial_rotary_factor", "a number above 0 and at most 1");
  // The other families' models in transformers rotate whole heads: they ignore the factor or fail.
  if (partial != 1 && config.family != Family::phi3)
    return Status(StatusCode::unsupported, where + "'partial_rotary_factor' other than 1 is supported for phi3 only");
  p.rotarySize = static_cast<int64_t>(static_cast<double>(config.headSize) * partial);
  auto positions = static_cast<double>(config.modelPositions);
  // A value beside the parameters wins over one among them; Phi-3 always has one.
  LATHE_ASSIGN_OR_RETURN(p.originalPositions, fields.number("original_max_position_embeddings", positions));
  if (config.family == Family::phi3 || all.find("original_max_position_embeddings")) {
    LATHE_ASSIGN_OR_RETURN(p.originalPositions, all.number("original_max_position_embeddings", 4096));
  }
  std::optional<double> factor;
  if (p.kind == "default") factor = 1;
  if (p.kind == "yarn" || p.kind == "longrope") factor = positions / p.originalPositions;
  LATHE_ASSIGN_OR_RETURN(p.factor, fields.number("factor", p.kind == "dynamic" ? 1 : factor));
  LATHE_ASSIGN_OR_RETURN(p.attentionFactor, fields.number("attention_factor", 0));
  if (p.kind == "llama3") {
    LATHE_ASSIGN_OR_RETURN(p.lowFrequencyFactor, fields.number("low_freq_factor", std::nullopt));
    LATHE_ASSIGN_OR_RETURN(p.highFrequencyFactor, fields.number("high_freq_factor", std::nullopt));
  } else if (p.kind == "yarn") {
    LATHE_ASSIGN_OR_RETURN(p.betaFast, fields.number("beta_fast", 32));
    LATHE_ASSIGN_OR_RETURN(p.betaSlow, fields.number("beta_slow", 1));
    LATHE_ASSIGN_OR_RETURN(p.mscale, fields.number("mscale", 0));
    LATHE_ASSIGN_OR_RETURN(p.mscaleAllDim, fields.number("mscale_all_dim", 0));
    LATHE_ASSIGN_OR_RETURN(p.truncate, fields.boolean("truncate", true));
  } else if (p.kind == "longrope") {
    LATHE_ASSIGN_OR_RETURN(p.shortFactors, fields.numbers("short_factor"));
    LATHE_ASSIGN_OR_RETURN(p.longFactors, fields.numbers("long_factor"));
  }
  return p;
}

Status addRope(const json &own, const std::string &where, const json &top, ModelConfig &config, double theta) {
  LATHE_ASSIGN_OR_RETURN(RopeParameters parameters, readParameters(own, where, top, config, theta));
  LATHE_ASSIGN_OR_RETURN(Rope rope, makeRope(parameters, config.maxSequence));
  config.ropes.push_back(std::move(rope));
  return Status();
}

} // namespace

Status readRopes(const json &top, ModelConfig &config) {
  Fields fields(top, "");
  const json *parameters = fields.find("rope_parameters"), *scaling = fields.find("rope_scaling");
  if (parameters && !parameters->is_object()) return fields.wrong("rope_parameters", "an object");
  if (scaling && !scaling->is_object()) return fields.wrong("rope_scaling", "an object");
  bool gemma = config.family == Family::gemma3;
  LATHE_ASSIGN_OR_RETURN(double theta, fields.number("rope_theta", gemma ? 1e6 : 1e4));
  std::string where = parameters ? "'rope_parameters': " : "'rope_scaling': ";
  const json &flat = parameters ? *parameters : scaling ? *scaling : empty;
  auto nested = [&](const char *type) -> const json * {
    const json *found = Fields(flat, "").find(type);
    return found && found->is_object() ? found : nullptr;
  };
  if (!gemma) {
    if (nested("full_attention") || nested("sliding_attention"))
      return Status(StatusCode::unsupported, where + "parameters for each layer type are supported for gemma3 only");
    return addRope(flat, where, top, config, theta);
  }
  // Gemma 3: layers with a window have a base of their own and no scaling.
  LATHE_ASSIGN_OR_RETURN(double localTheta, fields.number("rope_local_base_freq", 1e4));
  const json *full = nested("full_attention"), *sliding = nested("sliding_attention");
  bool isNested = full || sliding;
  LATHE_RETURN_IF_ERROR(addRope(isNested ? (full ? *full : empty) : flat, where, top, config, theta));
  LATHE_RETURN_IF_ERROR(addRope(sliding ? *sliding : empty, where, top, config, localTheta));
  return Status();
}

} // namespace lathe
