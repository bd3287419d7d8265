//===- AcceptanceModel.cpp ------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/speculation/AcceptanceModel.h"

namespace lathe::runtime {

// The base counts as so many observations; more than so many own ones are halved.
static constexpr float baseWeight = 4, mostSeen = 32;
// The same of pairs, and of what follows a token, where the estimate without it counts more: it says less of one draft.
static constexpr float mostSeenOfPair = 16, behindWeight = 32, mostSeenBehind = 64;

DraftKind draftKind(DraftSource source, uint32_t matched, float share, uint32_t third, bool other) {
  uint32_t length = matched < 4 ? 0 : matched < 8 ? 1 : matched < 16 ? 2 : 3;
  uint32_t sure = share < 0.5f ? 0 : share < 0.9f ? 1 : 2;
  return static_cast<DraftKind>((((other ? draftSources : static_cast<uint32_t>(source)) * 4 + length) * 3 + sure) * 3 + third);
}

float AcceptanceModel::assumed(DraftKind kind) {
  static constexpr float byLength[] = {0.4f, 0.6f, 0.8f, 0.9f}, bySure[] = {0.5f, 0.8f, 1.0f};
  if (isOtherChoice(kind)) return 0.15f;
  return byLength[kind / 9 % 4] * bySure[kind / 3 % 3];
}

float AcceptanceModel::rate(DraftKind kind) const {
  const Seen &s = seen[kind];
  float prior = base ? base->rate(kind) : assumed(kind);
  return (s.accepted + baseWeight * prior) / (s.all + baseWeight);
}

void AcceptanceModel::observe(DraftKind kind, bool accepted) {
  Seen &s = seen[kind];
  s.accepted += accepted ? 1 : 0;
  s.all += 1;
  if (s.all < (base ? mostSeen : 8 * mostSeen)) return;
  s.accepted /= 2;
  s.all /= 2;
}

uint32_t PairRates::placeOf(int32_t before, int32_t token) {
  uint64_t pair = uint64_t(static_cast<uint32_t>(before)) << 32 | static_cast<uint32_t>(token);
  return static_cast<uint32_t>((pair * 0x9e3779b97f4a7c15u) >> 53); // 11 bits
}

float PairRates::corrected(float rate, int32_t before, int32_t token) const {
  const Seen &behind = seen[placeOf(before, anyToken)], &pair = seen[placeOf(before, token)];
  rate = (behind.accepted + behindWeight * rate) / (behind.all + behindWeight);
  return (pair.accepted + baseWeight * rate) / (pair.all + baseWeight);
}

void PairRates::observe(int32_t before, int32_t token, bool accepted) {
  seen[placeOf(before, anyToken)].add(accepted, mostSeenBehind);
  seen[placeOf(before, token)].add(accepted, mostSeenOfPair);
}

void PairRates::Seen::add(bool right, float most) {
  accepted += right ? 1 : 0;
  all += 1;
  if (all < most) return;
  accepted /= 2;
  all /= 2;
}

} // namespace lathe::runtime
