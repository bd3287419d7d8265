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
    if (columns != count && columns != 2 * count && columns != 4 * count) continue;
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

/// Whether rows of |table| along |axis| are all the same, as far as |last|.
static bool constantAlong(const Known &table, size_t axis, int64_t last) {
  int64_t inner = 1, size = table.shape[axis];
  for (size_t k = axis + 1; k < table.shape.size(); ++k)
    inner *= table.shape[k];
  for (int64_t at = 0, n = table.elements(); at < n; ++at)
    if (int64_t row = at / inner % size; row > 0 && row <= last && table.number(at) != table.number(at - row * inner)) return false;
  return true;
}

std::optional<std::string> checkChoices(const StoredTable &stored, int64_t last, std::set<int64_t> &places) {
  const Known &table = *stored.values;
  llvm::SmallVector<size_t> chosen, large;
  for (auto [k, size] : llvm::enumerate(table.shape)) {
    if (size > 1) large.push_back(k);
    if (size > 1 && (stored.axes.empty() || llvm::is_contained(stored.axes, static_cast<int64_t>(k))) && !constantAlong(table, k, last)) chosen.push_back(k);
  }
  if (chosen.empty()) return std::nullopt;
  if (large.size() == 1) { // positions
    bool same = true;
    for (int64_t p = 0, n = std::min(table.elements(), last + 1); p < n && same; ++p)
      same = table.number(p) == static_cast<double>(p);
    if (same) return std::nullopt;
  } else if (large.size() == 2 && large[1] == table.shape.size() - 1) { // a mask: one value for the last |window| columns up to a row's own, another for all others
    int64_t rows = std::min(table.shape[large[0]], last + 1), columns = table.shape[large[1]], wide = std::min(columns, last + 1), window = 0;
    double seen = table.number(0);
    while (window < rows && table.number(window * columns) == seen)
      ++window;
    std::optional<double> hidden;
    bool same = true;
    for (int64_t i = 0; i < rows && same; ++i)
      for (int64_t j = 0; j < wide && same; ++j) {
        double value = table.number(i * columns + j);
        bool shows = j <= i && i - j < window;
        if (!shows && !hidden) hidden = value;
        same = value == (shows ? seen : *hidden);
      }
    if (same) {
      places.insert(window);
      return std::nullopt;
    }
  }
  return "a stored table follows no rule by which lengths and positions choose: expected cosines and sines, one value, positions or a causal mask, found a tensor of " + shapeText(table.shape);
}

} // namespace lathe::raise
