//===- Synthetic.h - values of synthetic weights --------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include <cmath>
#include <cstdint>
#include <span>

namespace lathe {

/// Row |row| of the matrix that `#llm.synthetic<seed, ...>` stands for, before it is rounded to its storage: independent values,
/// uniform with variance 1 / columns, so that a linear keeps the size of its input. Any row can be made
/// alone. Vectors: see syntheticRows.
inline void syntheticRow(uint64_t seed, int64_t row, std::span<float> out) {
  float range = std::sqrt(3.0f / float(out.size()));
  for (size_t i = 0; i < out.size(); ++i) {
    uint64_t z = seed * 0xd1342543de82ef95u + (uint64_t(row) << 32) + i;
    for (int round = 0; round < 2; ++round) { // the finalizer of splitmix64, twice
      z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
      z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
      z ^= z >> 31;
    }
    out[i] = (float(z >> 40) * 0x1p-23f - 1.0f) * range;
  }
}

/// Rows begin .. begin + count - 1 of a weight with |columns| columns (0: a vector, whose |count| elements are rows of one
/// column: of size 1, not 1 / sqrt(length)). The one place that says so: the interpreter and the packer both call it.
inline void syntheticRows(uint64_t seed, int64_t columns, int64_t begin, int64_t count, float *out) {
  int64_t width = columns ? columns : 1;
  for (int64_t i = 0; i < count; ++i)
    syntheticRow(seed, begin + i, std::span<float>(out + i * width, width));
}

} // namespace lathe
