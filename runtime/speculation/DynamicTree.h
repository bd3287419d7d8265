//===- DynamicTree.h - which draft tokens make the best tree ------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// The dynamic draft tree of EAGLE-2 (Li, Wei, Zhang, Zhang: "EAGLE-2: Faster Inference of Language Models with Dynamic Draft
// Trees", 2024): layer by layer the nodes that are most probably reached are expanded, and of all nodes ever made the
// most probable ones are verified.
//===----------------------------------------------------------------------===//
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace lathe::runtime {

/// A token that may follow, and the drafter's probability that it does.
struct TreeCandidate {
  int32_t token;
  float probability;
  uint8_t tag = 0; ///< for the caller, kept with the node
};

struct TreeNode {
  int32_t token;
  int32_t parent; ///< index of an earlier node, -1: the text itself
  uint32_t depth; ///< 1: directly behind the text
  float chance;   ///< product of the probabilities on the way to it
  uint8_t tag = 0;
};

/// Grows one tree: frontier(), expand() for each of its nodes (so that a model may compute all of them in one step), advance(),
/// and again until advance() says no; then best(). One thread at a time.
class DynamicTree {
public:
  /// |depth| layers; |width| nodes of a layer are expanded, each by its |width| likeliest followers. All at least 1.
  DynamicTree(uint32_t depth, uint32_t width);
  /// Forgets all nodes.
  void clear();

  const std::vector<TreeNode> &nodes() const { return all; }
  /// The nodes to be expanded now, the likeliest first; -1: the text.
  std::span<const int32_t> frontier() const { return now; }
  /// What follows frontier()[index], in any order; of equals the first count.
  void expand(uint32_t index, std::span<const TreeCandidate> followers);
  /// Goes on to the next layer; false if there is none or nothing to expand in it.
  bool advance();

  /// The |count| nodes with the largest chance, the likeliest first (of equals the older), so that parents come before their
  /// children and every beginning is a tree. |parent| is an index into the result.
  std::vector<TreeNode> best(uint32_t count) const;
  /// The same into |result|, with memory that is used again.
  void best(uint32_t count, std::vector<TreeNode> &result);

private:
  uint32_t depth, width, layer = 1;
  std::vector<TreeNode> all;
  std::vector<int32_t> now, made; ///< of this layer; of the next one
  std::vector<uint32_t> order; ///< of followers
  std::vector<int32_t> sorted, place; ///< of best()
  bool likelier(int32_t a, int32_t b) const;
};

} // namespace lathe::runtime
