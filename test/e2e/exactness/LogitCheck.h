//===- LogitCheck.h - rows of logits against a reference --------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>

namespace lathe::test {

/// Two limits, both from one documented error E. Every logit: at most E of the largest logit of all rows away. A row's choice: the reference's, wherever
/// the reference's first two are more than E of the row's own largest logit apart. Errors of two logits within the first limit can exchange choices
/// up to twice as far apart, of rows with small logits more, so the second is a check of its own.
class LogitCheck {
public:
  explicit LogitCheck(double tolerance) : tolerance(tolerance) {}

  void add(std::span<const float> reference, std::span<const float> row) {
    ++rows;
    double most = 0;
    size_t best = 0;
    for (size_t i = 0; i < row.size(); ++i) {
      double difference = std::fabs(double(row[i]) - reference[i]);
      worst = std::isfinite(difference) ? std::max(worst, difference) : double(INFINITY);
      most = std::max(most, std::fabs(double(reference[i])));
      if (reference[i] > reference[best]) best = i;
    }
    largest = std::max(largest, most);
    size_t choice = size_t(std::max_element(row.begin(), row.end()) - row.begin());
    double second = -INFINITY;
    for (size_t i = 0; i < row.size(); ++i)
      if (i != best) second = std::max(second, double(reference[i]));
    if (!(reference[best] - second > tolerance * most)) return;
    ++decided;
    unequal += choice != best;
  }

  double error() const { return worst / largest; }
  bool passes() const { return error() <= tolerance && unequal == 0; }

  size_t rows = 0;
  size_t decided = 0; ///< rows whose choice the reference leaves no doubt of
  size_t unequal = 0; ///< those of them that chose something else

private:
  const double tolerance;
  double worst = 0, largest = 0;
};

} // namespace lathe::test
