//===- GraphSection.h - a general graph's tensors by role ----------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// The GRAPH section of an artifact whose step is one general graph (docs/artifact-format.md, "GRAPH"): what each input of
// lathe_graph is, and each result. Written and read as JSON.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/base/Status.h"
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lathe {

enum class GraphRole : uint32_t {
  tokens,    ///< ids of the new tokens, [1, n]
  mask,      ///< 1 for every token of the sequence, [1, past + n]
  positions, ///< positions of the new tokens, [1, n]
  past,      ///< key or value cache of a layer: what the result |peer| was in the step before
  weight,    ///< bytes of WEIGHTS at |offset|
  logits,    ///< result: [1, n, vocabulary] or, of the last token only, [1, 1, vocabulary]
  present,   ///< result: the cache after the step
  unused,    ///< result that no step needs
};

/// Element types that a run converts from or to.
enum class GraphType : uint32_t { f32, f16, bf16, i64, i32, other };

struct GraphPort {
  GraphRole role = GraphRole::unused;
  GraphType type = GraphType::other;
  uint32_t elementBytes = 4;
  std::vector<int64_t> dims; ///< -1: the tokens of the step or of the cache, by role
  std::string name;          ///< of the model
  uint32_t axis = 0;         ///< past, present: which dimension is the sequence
  uint32_t peer = 0;         ///< past: index of the result it comes from
  uint64_t offset = 0;       ///< weight
};

struct GraphSection {
  std::vector<GraphPort> inputs, outputs;
  std::vector<std::string> checks; ///< texts of lathe_graph's failures
};

std::string encodeGraphSection(const GraphSection &graph);
/// Checks everything that a run relies on: one logits, at most one of tokens, mask and positions each and tokens there, pasts with peers of the same type, ranks of at most
/// 8, weights within |weightBytes|. dataLoss names the port.
Result<GraphSection> decodeGraphSection(std::span<const uint8_t> bytes, uint64_t weightBytes, uint64_t vocabulary);

/// Whether lathe_graph may be called with the tensors of |graph|: |words| is its lathe_graph_interface (Graph.h). dataLoss names the port.
Status checkGraphInterface(const GraphSection &graph, std::span<const int64_t> words);

} // namespace lathe
