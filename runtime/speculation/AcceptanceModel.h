//===- AcceptanceModel.h - how often drafts are right -------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/speculation/Types.h"

namespace lathe::runtime {

/// What is known of a draft token before it is verified, as a small number: its source, how much of the text before it
/// agrees (2-3, 4-7, 8-15, 16 or more tokens), how sure the source is (share below 0.5, below 0.9, above), and its
/// position in the draft (first, second or third, later).
/// Of a tree also whether it is the first choice of its source at that place or another.
using DraftKind = uint8_t;
constexpr uint32_t draftKinds = (draftSources + 1) * 4 * 3 * 3;
DraftKind draftKind(DraftSource source, uint32_t matched, float share, uint32_t position, bool other = false);

/// Whether |kind| is of another choice than the first.
constexpr bool isOtherChoice(DraftKind kind) { return kind / 36 == draftSources; }

/// Running estimate, for each kind, of the probability that a draft token is accepted when all before it were. A model
/// with a |base| starts from its estimates: that of a request from the engine's, and the engine's from a table.
/// Evidence fades. No heap memory.
class AcceptanceModel {
public:
  explicit AcceptanceModel(const AcceptanceModel *base = nullptr) : base(base) {}
  float rate(DraftKind kind) const;
  void observe(DraftKind kind, bool accepted);
  /// The table's value: what is assumed when nothing has been seen.
  static float assumed(DraftKind kind);

private:
  struct Seen {
    float accepted = 0, all = 0;
  };
  const AcceptanceModel *base;
  std::array<Seen, draftKinds> seen{};
};

} // namespace lathe::runtime
