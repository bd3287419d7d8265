//===- AcceptanceModel.h - how often drafts are right -------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/speculation/Types.h"

namespace lathe::runtime {

/// What is known of a draft token before it is verified, as a small number: its source, how much of the text before it
/// agrees (fewer than 4, 4-7, 8-15, 16 or more tokens), how sure the source is (share below 0.5, below 0.9, above), and |third|: of chains that are
/// looked up what the others say there, of what else is drafted its place.
/// Of a tree also whether it is the first choice of its source at that place or another.
using DraftKind = uint8_t;
constexpr uint32_t draftKinds = (draftSources + 1) * 4 * 3 * 3;
DraftKind draftKind(DraftSource source, uint32_t matched, float share, uint32_t third, bool other = false);

/// The third feature by the place in the draft: first, second or third, later.
constexpr uint32_t placeClass(uint32_t place) { return place == 0 ? 0 : place < 3 ? 1 : 2; }
/// The same by what other chains have at the place behind the same tokens: |same| of them the same token, |otherwise| another. 0: most say
/// otherwise; 2: two at least say the same.
constexpr uint32_t supportClass(uint32_t same, uint32_t otherwise) { return same < otherwise ? 0 : same < 2 ? 1 : 2; }
constexpr DraftKind withThird(DraftKind kind, uint32_t third) { return static_cast<DraftKind>(kind - kind % 3 + third); }

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

/// The same by the token in front of the draft's, and by both: where a text is to be copied, some places of it are copied always and some never
/// (digits, names). It corrects a rate; pairs that share a place in the table are taken for one. Evidence fades. No heap memory.
class PairRates {
public:
  float corrected(float rate, int32_t before, int32_t token) const;
  void observe(int32_t before, int32_t token, bool accepted);

private:
  static constexpr int32_t anyToken = -1;
  struct Seen {
    float accepted = 0, all = 0;
    void add(bool right, float most);
  };
  static uint32_t placeOf(int32_t before, int32_t token);
  std::array<Seen, 2048> seen{};
};

} // namespace lathe::runtime
