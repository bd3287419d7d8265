//===- WeightMap.h - which tensor plays which part in a model ------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/artifact/Packing.h"
#include "lathe/import/GGUF.h"
#include "lathe/import/ModelConfig.h"
#include "lathe/import/Safetensors.h"
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lathe {

/// The parts that weights play in a decoder-only model.
enum class Role {
  embedding,
  positions,
  finalNorm,
  head, // of the model
  attentionNorm,
  q,
  k,
  v,
  o,
  qNorm,
  kNorm,
  postAttentionNorm, // of a layer
  feedForwardNorm,
  gate,
  up,
  down,
  postFeedForwardNorm,
};
/// "embedding", "q", ...: names of the IR's params are "layers.3.q" and "layers.3.q.bias".
const char *roleName(Role role);

/// A tensor in a file, not read yet.
struct TensorRef {
  std::string path, name;
  int64_t offset = 0;
  StorageType storage = StorageType::f32;
  std::vector<int64_t> shape; ///< outermost first, 1 or 2 sizes
  /// A block-quantized matrix (#llm.nbits): |path| and |offset| are those of the codes.
  struct Blocks {
    int bits = 0; ///< 0: not one
    int64_t block = 0;
    std::string scales, zeros; ///< paths; zeros empty: none
    int64_t scalesOffset = 0, zerosOffset = 0;
    StorageType scaleStorage = StorageType::f32;
  } blocks{};
  /// A matrix behind DequantizeLinear (#llm.qdq): |path| and |offset| are those of the codes, |storage| is what rows are made in.
  struct QDQ {
    std::string code; ///< type of the codes; empty: not one
    bool transposed = false;
    int64_t block[2] = {1, 1};
    std::string scales, zeros; ///< paths; empty: the values
    int64_t scalesOffset = 0, zerosOffset = 0;
    StorageType scaleStorage = StorageType::f32;
    std::vector<float> scaleValues;
    std::vector<int64_t> zeroValues;
  } qdq{};
  /// A matrix of e4m3 (#llm.scaled): |path| and |offset| are those of the codes.
  struct Scaled {
    std::string name, path; ///< of the tensor of scales; empty: not one
    int64_t offset = 0;
    StorageType storage = StorageType::f32;
    bool perRow = false;
  } scaled{};
  std::vector<float> values{}; ///< instead of a place in a file: a small f32 tensor that has none
};

/// A weight made of a tensor: transposed, then rows begin .. end - 1, then GGUF's rotary row order
/// undone, then 1 + w.
struct WeightRef {
  TensorRef tensor;
  bool transpose = false;
  int64_t begin = 0, end = 0; ///< end 0: all rows
  int64_t unropeHeads = 0;    ///< 0: rows are in order
  bool plusOne = false;
  std::vector<int64_t> shape; ///< of the result
};

/// Where every weight that a configuration calls for comes from.
class WeightMap {
public:
  /// Finds all weights, checks their shapes and types. Errors: notFound (names the tensor that was
  /// expected), invalidArgument (shape, with both), unsupported (a type, or a tensor that the family
  /// does not use, so that nothing of a model is left out in silence).
  static Result<WeightMap> fromGGUF(const ModelConfig &config, const gguf::File &file);
  static Result<WeightMap> fromSafetensors(const ModelConfig &config, const safetensors::Model &model);

  /// |layer| is -1 for parts of the model. Null when the configuration has no such weight.
  const WeightRef *find(Role role, int layer, bool bias = false) const;
  /// For importers that find weights by their use in a graph.
  void set(Role role, int layer, bool bias, WeightRef weight) { weights[{role, layer, bias}] = std::move(weight); }

private:
  friend class WeightMapBuilder;
  std::map<std::tuple<Role, int, bool>, WeightRef> weights;
};

} // namespace lathe
