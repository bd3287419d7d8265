//===- DynamicTree.cpp ----------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/speculation/DynamicTree.h"
#include <algorithm>
#include <numeric>

namespace lathe::runtime {

DynamicTree::DynamicTree(uint32_t depth, uint32_t width) : depth(std::max(depth, 1u)), width(std::max(width, 1u)) {
  clear();
  for (auto *list : {&sorted, &place}) list->reserve(size_t(this->depth) * this->width * this->width);
  for (auto *list : {&now, &made}) list->reserve(size_t(this->width) * this->width);
  all.reserve(size_t(this->depth) * this->width * this->width);
}

void DynamicTree::clear() {
  all.clear();
  made.clear();
  now.assign(1, -1);
  layer = 1;
}

void DynamicTree::expand(uint32_t index, std::span<const TreeCandidate> followers) {
  if (index >= now.size()) return;
  int32_t parent = now[index];
  float chance = parent < 0 ? 1.0f : all[static_cast<size_t>(parent)].chance;
  order.clear();
  for (uint32_t i = 0; i < followers.size(); ++i)
    if (followers[i].probability > 0) order.push_back(i); // no NaN either
  std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    float x = followers[a].probability, y = followers[b].probability;
    return x != y ? x > y : a < b;
  });
  if (order.size() > width) order.resize(width);
  for (uint32_t i : order) {
    const TreeCandidate &c = followers[i];
    made.push_back(static_cast<int32_t>(all.size()));
    all.push_back({c.token, parent, layer, chance * std::min(c.probability, 1.0f), c.tag});
  }
}

bool DynamicTree::likelier(int32_t a, int32_t b) const {
  float x = all[static_cast<size_t>(a)].chance, y = all[static_cast<size_t>(b)].chance;
  return x != y ? x > y : a < b;
}

bool DynamicTree::advance() {
  std::sort(made.begin(), made.end(), [&](int32_t a, int32_t b) { return likelier(a, b); });
  if (made.size() > width) made.resize(width);
  now.swap(made);
  made.clear();
  return layer++ < depth && !now.empty();
}

std::vector<TreeNode> DynamicTree::best(uint32_t count) const {
  DynamicTree copy = *this;
  std::vector<TreeNode> result;
  copy.best(count, result);
  return result;
}

void DynamicTree::best(uint32_t count, std::vector<TreeNode> &result) {
  sorted.resize(all.size());
  place.assign(all.size(), -1);
  std::iota(sorted.begin(), sorted.end(), 0);
  // A child is younger than its parent and no likelier: it never comes before it.
  std::sort(sorted.begin(), sorted.end(), [&](int32_t a, int32_t b) { return likelier(a, b); });
  if (sorted.size() > count) sorted.resize(count);
  result.clear();
  for (int32_t node : sorted) {
    TreeNode n = all[static_cast<size_t>(node)];
    if (n.parent >= 0) n.parent = place[static_cast<size_t>(n.parent)];
    place[static_cast<size_t>(node)] = static_cast<int32_t>(result.size());
    result.push_back(n);
  }
}

} // namespace lathe::runtime
