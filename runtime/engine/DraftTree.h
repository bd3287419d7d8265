//===- DraftTree.h - a draft tree while a draft program makes it --*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/speculation/DynamicTree.h"
#include <algorithm>
#include <array>
#include <vector>

namespace lathe::runtime {

/// The tree of one sequence that a draft program grows, layer by layer. Heads make all layers of one run. A draft over features computes in each run the last
/// known token and all nodes that were expanded, as rows with parents, so that the nodes expanded last see their ancestors; what those rows leave is what
/// their followers start from. After construction nothing allocates. One thread at a time.
class DraftTree {
public:
  static constexpr uint32_t width = 4, depth = 6;           ///< nodes of a layer that are expanded, and their followers; layers
  static constexpr uint32_t mostRows = 1 + width * (depth - 1); ///< of a run
  /// Bytes of one tree over rows of |hidden| floats; 0 of heads, which have none.
  static uint64_t bytes(uint32_t hidden) { return uint64_t(mostRows) * hidden * sizeof(float); }

  explicit DraftTree(uint32_t hidden) : nodes(depth, width), hidden(hidden), own(size_t(mostRows) * hidden) {
    for (auto *list : {&token, &parent, &node}) list->reserve(mostRows);
  }
  /// Begins with the last known token |last|, which is the only row.
  void begin(int32_t last) {
    nodes.clear();
    token.assign(1, last);
    parent.assign(1, -1);
    node.assign(1, -1);
    fresh = 1;
  }

  // Rows of the next run, in order; of the last |freshRows()| of them the logits are wanted.
  std::span<const int32_t> tokens() const { return token; }
  std::span<const int32_t> parents() const { return parent; } ///< rows before; -1: none, which is the first row alone
  uint32_t freshRows() const { return fresh; }
  /// What a row takes of the one before it in its path.
  std::span<const float> input(uint32_t row) const { return {own.data() + size_t(parent[row]) * hidden, hidden}; }

  /// How many drafted tokens lead to fresh row |index|, itself included; and what they are, the first in front.
  uint32_t depthOf(uint32_t index) const {
    int32_t at = nodeOf(index);
    return at < 0 ? 0 : nodes.nodes()[static_cast<size_t>(at)].depth;
  }
  using Path = std::array<int32_t, depth>;
  uint32_t path(uint32_t index, Path &tokens) const {
    uint32_t count = depthOf(index), at = count;
    for (int32_t n = nodeOf(index); n >= 0; n = nodes.nodes()[static_cast<size_t>(n)].parent) tokens[--at] = nodes.nodes()[static_cast<size_t>(n)].token;
    return count;
  }
  float chanceOf(uint32_t index) const {
    int32_t at = nodeOf(index);
    return at < 0 ? 1.0f : nodes.nodes()[static_cast<size_t>(at)].chance;
  }
  /// What the run made of fresh row |index|: its own row, and what may follow it.
  void expand(uint32_t index, std::span<const float> ownRow, std::span<const TreeCandidate> followers) {
    std::copy(ownRow.begin(), ownRow.end(), own.begin() + static_cast<ptrdiff_t>((token.size() - fresh + index) * hidden));
    nodes.expand(index, followers);
  }
  /// Goes on to the next layer, whose rows are the fresh ones. False: there is none.
  bool advance() {
    if (!nodes.advance()) return false;
    fresh = 0;
    for (int32_t at : nodes.frontier()) {
      const TreeNode &n = nodes.nodes()[static_cast<size_t>(at)];
      auto row = std::find(node.begin(), node.end(), n.parent); // it was expanded
      parent.push_back(static_cast<int32_t>(row - node.begin()));
      token.push_back(n.token);
      node.push_back(at);
      ++fresh;
    }
    return true;
  }
  /// DynamicTree::best.
  void best(uint32_t count, std::vector<TreeNode> &result) { nodes.best(count, result); }

private:
  int32_t nodeOf(uint32_t index) const { return node[token.size() - fresh + index]; }
  DynamicTree nodes;
  uint32_t hidden, fresh = 1;
  std::vector<int32_t> token, parent, node; ///< [row]; node: -1 of the first
  std::vector<float> own;                   ///< [row][hidden]
};

} // namespace lathe::runtime
