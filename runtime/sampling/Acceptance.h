//===- Acceptance.h - which draft tokens count --------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Rules for places where tokens were drafted (docs/speculation.md, "Acceptance"). Pure functions of laws, drafts and seeds.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/base/Status.h"
#include <cstdint>
#include <span>
#include <string_view>

namespace lathe {

/// What makes a draft token count.
enum class Acceptance : uint8_t {
  exact,     ///< it is the model's own choice: no token changes
  rejection, ///< rejection sampling: other tokens, the same law
  typical,   ///< it is likely enough: other tokens and another law
};
const char *toString(Acceptance acceptance);
/// "exact", "rejection" or "typical". Error: invalidArgument, naming them.
Result<Acceptance> parseAcceptance(std::string_view name);

/// Keys the chance of one place of one sequence.
struct PlaceSeed {
  uint64_t seed = 0;
  uint32_t choice = 0, position = 0;
};

/// A place's outcome: the draft that counts, or the token said instead.
struct Decision {
  int32_t draft = -1; ///< index into the drafts; -1: none of them
  int32_t token = -1; ///< then always; -1 when |typical| leaves it to the model's own choice
};

/// Rejection sampling. |p|: the model's law of the place, by token, summing to about 1; changed. |drafts|: different tokens that may follow.
/// |q|: the law that the one draft was drawn from, with numbers of another purpose; empty: drafts were chosen without chance, and are tried in turn.
/// The token said has law |p|, whatever |q| is (Leviathan, Kalman, Matias: "Fast Inference from Transformers via Speculative Decoding", 2023; several
/// drafts: Miao and others, "SpecInfer", 2024).
Decision acceptByRejection(std::span<double> p, std::span<const int32_t> drafts, std::span<const float> q, const PlaceSeed &place);

/// Medusa's rule (Cai and others, 2024): the first draft whose probability is above min(0.09, 0.3 e^-H), H the entropy of |p|.
Decision acceptTypical(std::span<const double> p, std::span<const int32_t> drafts);

} // namespace lathe
