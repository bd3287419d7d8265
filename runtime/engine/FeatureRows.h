//===- FeatureRows.h - the step's rows for a draft over features --*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

namespace lathe::runtime {

/// The features of the last tokens of one sequence, as far as there is room: what the step computed for them and a draft program takes
/// (docs/speculation.md, "EAGLE"). A feature depends on the tokens up to its own alone, so it stays right whatever becomes of the sequence's KV. Memory is
/// allocated with the first row, of all rows. One thread at a time.
class FeatureRows {
public:
  /// What is kept of one sequence at most: |bytes| as features go, but of 16 tokens at least and of |contextTokens| at most.
  static constexpr uint64_t mostBytes = 4 << 20;
  static uint32_t mostRows(uint32_t width, uint32_t contextTokens) {
    uint64_t rows = mostBytes / (std::max<uint64_t>(1, width) * sizeof(float));
    return static_cast<uint32_t>(std::min<uint64_t>(std::max<uint64_t>(rows, 16), std::max(contextTokens, 1u)));
  }

  /// Tokens whose features are there: begin() .. end() - 1, by their positions.
  uint32_t begin() const { return last - count; }
  uint32_t end() const { return last; }
  bool holds(uint32_t position) const { return position < last && position >= begin(); }
  std::span<const float> row(uint32_t position) const { return {at(position), width}; }

  /// Where the feature of token |position| is to be written, |floats| of them, of at most |most| tokens. Null: it was there before. What does not go
  /// on from the last token makes the rows begin anew.
  float *put(uint32_t position, uint32_t floats, uint32_t most) {
    if (!values) {
      width = floats, capacity = most;
      values = std::make_unique_for_overwrite<float[]>(size_t(width) * capacity);
    }
    if (count && position < last) return nullptr;
    if (position != last) count = 0;
    last = position + 1;
    count = std::min(count + 1, capacity);
    return at(position);
  }
  /// Takes the rows of the sequence that this one goes on from.
  void copy(const FeatureRows &other) {
    if (!other.values) return;
    if (!values) width = other.width, capacity = other.capacity, values = std::make_unique_for_overwrite<float[]>(size_t(width) * capacity);
    last = other.last, count = other.count;
    for (uint32_t p = begin(); p < last; ++p) std::memcpy(at(p), other.at(p), width * sizeof(float));
  }

private:
  float *at(uint32_t position) const { return values.get() + size_t(position % capacity) * width; }
  std::unique_ptr<float[]> values; ///< [position % capacity][width]
  uint32_t width = 0, capacity = 0, last = 0, count = 0;
};

} // namespace lathe::runtime
