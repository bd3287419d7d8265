//===- Validate.cpp -------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Validate.h"
#include <cmath>

namespace lathe {
namespace {
const struct {
  Family family;
  const char *name;
} families[] = {{Family::llama, "llama"}, {Family::mistral, "mistral"}, {Family::qwen2, "qwen2"},
                {Family::qwen3, "qwen3"}, {Family::gemma3, "gemma3"},   {Family::phi3, "phi3"},
                {Family::gpt2, "gpt2"}};
} // namespace

const char *familyName(Family family) { return families[static_cast<int>(family)].name; }

std::string familyNames() {
  std::string list;
  for (const auto &entry : families)
    list += (list.empty() ? "" : ", ") + std::string(entry.name);
  return list;
}

Status validateConfig(ModelConfig &config, const std::string &where) {
  auto bad = [&](const std::string &what) { return Status(StatusCode::invalidArgument, where + ": " + what); };
  auto inRange = [&](const char *what, int64_t value, int64_t most) {
    if (value >= 1 && value <= most) return Status();
    return bad(std::string("expected a ") + what + " of 1 to " + std::to_string(most) + ", found " +
               std::to_string(value));
  };
  LATHE_RETURN_IF_ERROR(inRange("hidden size", config.hidden, 1 << 20));
  LATHE_RETURN_IF_ERROR(inRange("vocabulary size", config.vocabulary, 1 << 28));
  LATHE_RETURN_IF_ERROR(inRange("maximum sequence length", config.maxSequence, 1 << 28));
  LATHE_RETURN_IF_ERROR(inRange("number of layers", static_cast<int64_t>(config.layers.size()), 4096));
  if (config.headSize < 2 || config.headSize > 256 || config.headSize % 2)
    return Status(StatusCode::unsupported, where + ": head size " + std::to_string(config.headSize) +
                                               " is not supported, only even sizes of 2 to 256 are");
  if (!(config.normEpsilon >= 0) || !(config.normEpsilon < 1))
    return bad("expected a norm epsilon of 0 to 1, found " + std::to_string(config.normEpsilon));
  if (!(config.finalSoftcap >= 0) || !std::isfinite(config.finalSoftcap))
    return bad("expected a positive soft cap, found " + std::to_string(config.finalSoftcap));
  if (config.learnedPositions && config.maxSequence > config.modelPositions)
    return bad("the model has learned " + std::to_string(config.modelPositions) +
               " positions, a maximum sequence length of " + std::to_string(config.maxSequence) + " is beyond them");
  for (LayerConfig &layer : config.layers) {
    LATHE_RETURN_IF_ERROR(inRange("number of heads", layer.heads, 65536));
    LATHE_RETURN_IF_ERROR(inRange("number of KV heads", layer.kvHeads, layer.heads));
    LATHE_RETURN_IF_ERROR(inRange("feed-forward size", layer.feedForward, 1 << 22));
    if (layer.heads % layer.kvHeads)
      return bad("expected heads that are a multiple of the KV heads, found " + std::to_string(layer.heads) + " and " +
                 std::to_string(layer.kvHeads));
    if (!std::isfinite(layer.attentionScale) || layer.attentionScale <= 0)
      return bad("expected a positive attention scale, found " + std::to_string(layer.attentionScale));
    if (layer.window < 0) return bad("expected a positive sliding window, found " + std::to_string(layer.window));
    // A window that no sequence can outgrow needs no block table of its own.
    if (layer.window >= config.maxSequence) layer.window = 0;
  }
  for (const Rope &rope : config.ropes)
    if (static_cast<int64_t>(2 * rope.inverseFrequencies.size()) > config.headSize)
      return bad("expected at most " + std::to_string(config.headSize) + " rotated elements (the head size), found " +
                 std::to_string(2 * rope.inverseFrequencies.size()));
  return Status();
}

} // namespace lathe
