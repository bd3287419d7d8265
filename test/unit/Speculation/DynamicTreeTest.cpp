//===- DynamicTreeTest.cpp - EAGLE-2's rule against brute force -----------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/speculation/DynamicTree.h"
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <map>
#include <random>

using namespace lathe::runtime;

namespace {

using Path = std::vector<int32_t>;

/// A made-up language: what follows depends on the whole path.
struct Toy {
  uint32_t vocabulary, seed;
  std::vector<TreeCandidate> next(const Path &path) const {
    std::mt19937 random(seed);
    for (int32_t token : path)
      random.seed(static_cast<uint32_t>(random()) + static_cast<uint32_t>(token) * 7919u);
    std::vector<TreeCandidate> out;
    double sum = 0;
    for (uint32_t v = 0; v < vocabulary; ++v) {
      double x = std::exp(3.0 * static_cast<double>(random()) / 4294967296.0);
      sum += x;
      out.push_back({static_cast<int32_t>(v), static_cast<float>(x)});
    }
    for (TreeCandidate &c : out)
      c.probability /= static_cast<float>(sum);
    return out;
  }
};

std::map<Path, float> grow(const Toy &toy, uint32_t depth, uint32_t count, DynamicTree &tree) {
  tree.clear();
  auto pathOf = [](const std::vector<TreeNode> &nodes, int32_t node) {
    Path path;
    for (; node >= 0; node = nodes[static_cast<size_t>(node)].parent)
      path.insert(path.begin(), nodes[static_cast<size_t>(node)].token);
    return path;
  };
  do {
    for (uint32_t i = 0; i < tree.frontier().size(); ++i)
      tree.expand(i, toy.next(pathOf(tree.nodes(), tree.frontier()[i])));
  } while (tree.advance());
  std::map<Path, float> result;
  auto best = tree.best(count);
  for (size_t i = 0; i < best.size(); ++i) {
    EXPECT_LT(best[i].parent, static_cast<int32_t>(i));
    EXPECT_EQ(best[i].depth, pathOf(best, static_cast<int32_t>(i)).size());
    EXPECT_LE(best[i].depth, depth);
    if (i) EXPECT_LE(best[i].chance, best[i - 1].chance);
    result[pathOf(best, static_cast<int32_t>(i))] = best[i].chance;
  }
  EXPECT_EQ(result.size(), best.size()) << "a path twice";
  return result;
}

/// All paths of at most |depth| tokens with their chances.
void enumerate(const Toy &toy, Path &path, float chance, uint32_t depth, std::vector<std::pair<float, Path>> &out) {
  if (path.size() == depth) return;
  for (const TreeCandidate &c : toy.next(path)) {
    path.push_back(c.token);
    out.push_back({chance * c.probability, path});
    enumerate(toy, path, chance * c.probability, depth, out);
    path.pop_back();
  }
}

std::vector<std::pair<float, Path>> likeliest(std::vector<std::pair<float, Path>> all, size_t count) {
  std::sort(all.begin(), all.end(), [](auto &a, auto &b) { return a.first > b.first; });
  if (all.size() > count) all.resize(count);
  return all;
}

} // namespace

// As wide as the tree is large, nothing that belongs to it can be missed: an ancestor of one of the N best is one of the N best.
TEST(DynamicTree, IsTheBestOfAllPathsWhenWideEnough) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    Toy toy{5, seed};
    std::vector<std::pair<float, Path>> all;
    Path path;
    enumerate(toy, path, 1, 4, all);
    ASSERT_EQ(all.size(), 5u + 25 + 125 + 625);
    for (uint32_t count : {1u, 7u, 30u}) {
      DynamicTree tree(4, count);
      auto found = grow(toy, 4, count, tree);
      auto expected = likeliest(all, count);
      ASSERT_EQ(found.size(), expected.size());
      for (auto &[chance, way] : expected) {
        ASSERT_TRUE(found.count(way)) << "seed " << seed << " count " << count;
        EXPECT_EQ(found[way], chance);
      }
    }
  }
}

// Narrow: brute force over what the rule lets it see. A layer holds the best followers of the layer's best nodes.
TEST(DynamicTree, FollowsTheRuleWhenNarrow) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    Toy toy{6, 100 + seed};
    const uint32_t depth = 5, width = 3, count = 12;
    std::vector<std::pair<float, Path>> seen, layer{{1.0f, {}}};
    for (uint32_t d = 0; d < depth; ++d) {
      std::vector<std::pair<float, Path>> next;
      for (auto &[chance, path] : layer) {
        std::vector<std::pair<float, Path>> followers;
        for (const TreeCandidate &c : toy.next(path)) {
          Path longer = path;
          longer.push_back(c.token);
          followers.push_back({chance * c.probability, longer});
        }
        followers = likeliest(followers, width);
        next.insert(next.end(), followers.begin(), followers.end());
      }
      seen.insert(seen.end(), next.begin(), next.end());
      layer = likeliest(next, width);
    }
    DynamicTree tree(depth, width);
    auto found = grow(toy, depth, count, tree);
    auto expected = likeliest(seen, count);
    ASSERT_EQ(found.size(), count);
    for (auto &[chance, way] : expected)
      EXPECT_TRUE(found.count(way)) << "seed " << seed;
  }
}

TEST(DynamicTree, TakesNothingThatCannotFollow) {
  DynamicTree tree(3, 4);
  tree.expand(0, std::vector<TreeCandidate>{{1, 0.0f}, {2, std::nanf("")}, {3, -1.0f}});
  EXPECT_TRUE(tree.nodes().empty());
  EXPECT_FALSE(tree.advance());
  EXPECT_TRUE(tree.best(5).empty());
  tree.clear();
  tree.expand(0, std::vector<TreeCandidate>{{4, 0.5f}, {9, 0.5f}}); // equals keep their order
  tree.expand(7, std::vector<TreeCandidate>{{5, 0.5f}});            // no such node
  ASSERT_TRUE(tree.advance());
  ASSERT_EQ(tree.frontier().size(), 2u);
  EXPECT_EQ(tree.nodes()[static_cast<size_t>(tree.frontier()[0])].token, 4);
  EXPECT_EQ(tree.best(1).size(), 1u);
}
