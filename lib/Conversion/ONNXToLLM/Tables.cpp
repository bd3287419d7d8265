//===- Tables.cpp - stored tables that runs saw some rows of ----------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Assemble.h"
#include <cmath>

namespace lathe::raise {

std::optional<std::string> checkTable(const ModelConfig &config, const Known &table, bool sixteenBits) {
  int64_t rows = 1, columns = 1;
  for (int64_t size : table.shape) // the first axis of more than one element is that of the positions
    (rows == 1 ? rows : columns) *= size;
  if (rows < 2 || columns < 1 || !table.isFloat()) return std::nullopt;
  struct Wave {
    const Rope *rope;
    size_t pair;
    double scale;
    int kind; ///< 0: cosine, 1: sine, 2: sine of the other sign
  };
  std::vector<Wave> waves;
  std::set<double> starts = {0, 1};
  for (const Rope &rope : config.ropes) {
    auto count = static_cast<int64_t>(rope.inverseFrequencies.size());
    if (columns != count && columns != 2 * count) continue;
    starts.insert(rope.attentionFactor);
    for (double scale : std::set<double>{1, rope.attentionFactor})
      for (size_t k = 0; k < rope.inverseFrequencies.size(); ++k)
        for (int kind : {0, 1, 2})
          waves.push_back({&rope, k, scale, kind});
  }
  if (waves.empty()) return std::nullopt;
  auto last = std::min(rows, config.maxSequence);
  double grain = !sixteenBits ? 0 : grainOf(std::vector<llvm::ArrayRef<double>>{table.f});
  // Cosines and sines of angle 0; another table of such a size begins otherwise.
  for (int64_t j = 0; j < columns; ++j)
    if (llvm::none_of(starts, [&](double start) { return std::fabs(table.f[j] - start) <= ropeTolerance * ulpOfOne + grain; })) return std::nullopt;
  auto fits = [&](const Wave &wave, int64_t column, int64_t p) {
    double value = table.f[p * columns + column];
    float angle = static_cast<float>(p) * static_cast<float>(wave.rope->inverseFrequencies[wave.pair]);
    double wanted = wave.kind == 0 ? std::cos(double(angle)) : wave.kind == 1 ? std::sin(double(angle)) : -std::sin(double(angle));
    double allowed = ropeTolerance * ulpOfOne * (1 + angle) * wave.scale + grain * std::fabs(value) + (grain ? std::ldexp(1.0, -24) : 0);
    return std::fabs(value - wanted * wave.scale) <= allowed;
  };
  for (int64_t j = 0; j < columns; ++j) {
    int64_t furthest = 0;
    for (const Wave &wave : waves) {
      int64_t p = 0;
      while (p < last && fits(wave, j, p))
        ++p;
      furthest = std::max(furthest, p);
      if (p == last) break;
    }
    if (furthest < last) return "a stored table of cosines and sines follows no frequency at position " + std::to_string(furthest);
  }
  return "";
}

/// Adds the places along |axis| of |table|, below |last|, at which its rows stop going on as they did.
static void addBreaks(const Known &table, size_t axis, int64_t last, std::set<int64_t> &places) {
  int64_t outer = 1, inner = 1, rows = table.shape[axis];
  for (auto [k, size] : llvm::enumerate(table.shape))
    if (k != axis) (k < axis ? outer : inner) *= size;
  // Along which other axis rows may be shifted: masks are tables of distances.
  std::optional<size_t> other;
  for (auto [k, size] : llvm::enumerate(table.shape))
    if (k != axis && size > 1) other = other ? table.shape.size() : k;
  // What enters at column 0 is in the last rows still, where a run sees it.
  bool matrix = other && *other < table.shape.size() && table.shape[*other] >= std::min(rows, last);
  int64_t columns = outer * inner;
  auto at = [&](int64_t row, int64_t column) { return table.number((column / inner * rows + row) * inner + column % inner); };
  auto goesOn = [&](int64_t p, auto rule) {
    for (int64_t j = 0; j < columns; ++j)
      if (!rule(p, j)) return false;
    return true;
  };
  auto same = [&](int64_t p, int64_t j) { return at(p, j) == at(p - 1, j); };
  auto line = [&](int64_t p, int64_t j) { return at(p, j) - at(p - 1, j) == at(p - 1, j) - at(p - 2, j); };
  auto shifted = [&](int64_t p, int64_t j) { return j == 0 || at(p, j) == at(p - 1, j - 1); };
  for (int64_t p = 2; p < std::min(rows, last); ++p)
    if (!goesOn(p, same) && !goesOn(p, line) && !(matrix && goesOn(p, shifted))) places.insert(p);
}

std::set<int64_t> breaksOf(const Known &table, int64_t last) {
  std::set<int64_t> places;
  for (size_t axis = 0; axis < table.shape.size(); ++axis)
    addBreaks(table, axis, last, places);
  return places;
}

} // namespace lathe::raise
