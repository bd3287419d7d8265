//===- Operators.cpp - table of operators ----------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "lathe/ONNX/Operators.h"
#include "lathe/import/Quote.h"
#include <algorithm>
#include <map>

namespace lathe::onnx {
namespace {

struct Row {
  const char *domain, *name;
  int64_t since;
  int minInputs, maxInputs, minOutputs, maxOutputs;
  bool deprecated;
  const char *attributes;
};

// Attributes: name:kind, then ! when required, or =default.
const Row rows[] = {
#define OPERATOR(name, since, minIn, maxIn, minOut, maxOut, deprecated, attributes)                                     \
  {"", name, since, minIn, maxIn, minOut, maxOut, deprecated, attributes},
#include "Operators.inc"
#undef OPERATOR
    // Contrib operators of ONNX Runtime that its exporters and optimizers write (its ContribOperators.md). The first is in the
    // standard's domain by a slip of theirs.
    {"", "SimplifiedLayerNormalization", 1, 2, 2, 1, 2, false, "axis:int=-1 epsilon:float=1e-05 stash_type:int=1"},
    {"com.microsoft", "SimplifiedLayerNormalization", 1, 2, 2, 1, 2, false, "axis:int=-1 epsilon:float=1e-05 stash_type:int=1"},
    {"com.microsoft", "SkipSimplifiedLayerNormalization", 1, 3, 4, 1, 4, false, "epsilon:float"},
    {"com.microsoft", "SkipLayerNormalization", 1, 3, 5, 1, 4, false, "epsilon:float"},
    {"com.microsoft", "RotaryEmbedding", 1, 4, 4, 1, 1, false,
     "interleaved:int=0 is_packed_batching:int=0 num_heads:int=0 rotary_embedding_dim:int=0 scale:float=1"},
    {"com.microsoft", "GroupQueryAttention", 1, 7, 17, 1, 4, false,
     "causal:int=1 do_rotary:int=0 k_norm_epsilon:float k_quant_type:string=NONE kv_cache_bit_width:int=0 kv_num_heads:int! local_window_size:int=-1 num_heads:int! "
     "q_norm_epsilon:float qk_norm_epsilon:float=1e-06 qk_output:int=0 rotary_interleaved:int=0 scale:float sliding_window_cache:int=0 smooth_softmax:int=-1 "
     "softcap:float v_quant_type:string=NONE"},
    {"com.microsoft", "MultiHeadAttention", 1, 1, 10, 1, 4, false,
     "mask_filter_value:float num_heads:int! scale:float unidirectional:int=0"},
    {"com.microsoft", "Attention", 1, 3, 7, 1, 2, false,
     "do_rotary:int=0 mask_filter_value:float num_heads:int! past_present_share_buffer:int qkv_hidden_sizes:ints "
     "rotary_embedding_dim:int scale:float unidirectional:int=0"},
    {"com.microsoft", "MatMulNBits", 1, 3, 6, 1, 1, false,
     "K:int! N:int! accuracy_level:int=0 bits:int=4 block_size:int! weight_prepacked:int=0"},
    {"com.microsoft", "GatherBlockQuantized", 1, 3, 4, 1, 1, false,
     "bits:int=4 block_size:int=128 gather_axis:int=0 quantize_axis:int=1"},
    {"com.microsoft", "DequantizeLinear", 1, 2, 3, 1, 1, false, "axis:int=1 block_size:int=0"},
    {"com.microsoft", "QuantizeLinear", 1, 2, 3, 1, 1, false, "axis:int=1 block_size:int=0 output_dtype:int=0 saturate:int=1"},
    {"com.microsoft", "Gelu", 1, 1, 1, 1, 1, false, ""},
    {"com.microsoft", "FastGelu", 1, 1, 2, 1, 1, false, ""},
    {"com.microsoft", "QuickGelu", 1, 1, 1, 1, 1, false, "alpha:float=1.702"},
    {"com.microsoft", "BiasGelu", 1, 2, 2, 1, 1, false, ""},
    {"com.microsoft", "FusedMatMul", 1, 2, 2, 1, 1, false,
     "alpha:float=1 transA:int=0 transB:int=0 transBatchA:int=0 transBatchB:int=0"},
};

AttributeSchema::Kind kindOf(const std::string &text) {
  using A = AttributeSchema;
  static const std::map<std::string, A::Kind> kinds = {
      {"float", A::number},   {"int", A::integer},   {"string", A::string},   {"tensor", A::tensor},
      {"graph", A::graph},    {"floats", A::numbers}, {"ints", A::integers}, {"strings", A::strings}};
  auto it = kinds.find(text);
  return it == kinds.end() ? A::other : it->second;
}

Operator makeOperator(const Row &row) {
  Operator out{row.domain, row.name, row.since, row.minInputs, row.maxInputs, row.minOutputs, row.maxOutputs, row.deprecated, {}};
  std::string_view text = row.attributes;
  while (!text.empty()) {
    size_t end = std::min(text.find(' '), text.size());
    std::string_view entry = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    AttributeSchema schema;
    size_t colon = entry.find(':'), equal = std::min(entry.find('='), entry.size());
    schema.name = std::string(entry.substr(0, colon));
    std::string kind(entry.substr(colon + 1, equal - colon - 1));
    if (!kind.empty() && kind.back() == '!') {
      schema.required = true;
      kind.pop_back();
    }
    schema.kind = kindOf(kind);
    if (equal < entry.size()) schema.fallback = std::string(entry.substr(equal + 1));
    out.attributes.push_back(std::move(schema));
  }
  return out;
}

/// Versions by (domain, name), newest last.
using Table = std::map<std::pair<std::string, std::string>, std::vector<Operator>, std::less<>>;
const Table &table() {
  static const Table all = [] {
    Table out;
    for (const Row &row : rows)
      out[{row.domain, row.name}].push_back(makeOperator(row));
    for (auto &[key, versions] : out)
      std::sort(versions.begin(), versions.end(), [](const Operator &a, const Operator &b) { return a.since < b.since; });
    return out;
  }();
  return all;
}

} // namespace

const AttributeSchema *Operator::attribute(std::string_view wanted) const {
  for (const AttributeSchema &schema : attributes)
    if (schema.name == wanted) return &schema;
  return nullptr;
}

std::vector<std::string> Operator::graphs() const {
  std::vector<std::string> names;
  for (const AttributeSchema &schema : attributes)
    if (schema.kind == AttributeSchema::graph) names.push_back(schema.name);
  if (name == "If") std::reverse(names.begin(), names.end());
  return names;
}

Result<const Operator *> findOperator(std::string_view domain, std::string_view name, int64_t opset) {
  auto unsupported = [](const std::string &what) { return Status(StatusCode::unsupported, what); };
  if (!domain.empty() && domain != "com.microsoft")
    return unsupported("operators of domain " + quoteName(domain) + " are not supported, only those of the standard and of com.microsoft are");
  int64_t newest = domain.empty() ? newestOpset : 1;
  if (opset < 1) return unsupported("the model imports no operator set for domain " + quoteName(domain));
  if (opset > newest)
    return unsupported("operator set " + std::to_string(opset) + " of domain " + quoteName(domain) + " is newer than " + std::to_string(newest) +
                       ", the newest that is supported");
  auto it = table().find(std::pair<std::string, std::string>(domain, name));
  if (it == table().end()) return unsupported("no operator of this name is supported in domain " + quoteName(domain));
  const Operator *best = nullptr;
  for (const Operator &version : it->second)
    if (version.since <= opset) best = &version;
  if (!best)
    return unsupported("the operator is supported from operator set " + std::to_string(it->second.front().since) + " on, found " + std::to_string(opset));
  if (best->deprecated)
    return unsupported("the operator is deprecated since operator set " + std::to_string(best->since) + ", found " + std::to_string(opset));
  return best;
}

} // namespace lathe::onnx
