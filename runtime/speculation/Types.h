//===- Types.h - words of speculation -----------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/artifact/Program.h"
#include "lathe/base/Status.h"
#include <array>
#include <cstdint>
#include <numeric>
#include <string_view>

namespace lathe::runtime {

/// Who drafts the tokens of a request (docs/speculation.md).
enum class Speculation : uint8_t {
  off,
  automatic, ///< of all drafters the one that is expected to be worth the most
  draft,     ///< the artifact's draft program
  ngram,     ///< what followed the last occurrence of the last 2 to 5 tokens (prompt lookup)
  suffix,    ///< what mostly followed the longest suffix that the sequence or its tenant has seen before
  suffixTree, ///< the same, as a tree: also what followed less often
  medusa,     ///< the artifact's draft program, which must be Medusa's heads
  eagle,      ///< the same, which must be EAGLE's first layer, in chains
  eagle2,     ///< the same, in trees
  eagle3,     ///< the same, which must be EAGLE-3's layer
};
const char *toString(Speculation method);
/// Whether the artifact's draft program is asked, and nothing else.
constexpr bool asksProgramOnly(Speculation method) { return method == Speculation::draft || method >= Speculation::medusa; }
/// "off", "auto", "draft", "ngram", "suffix", "suffix-tree", "medusa", "eagle", "eagle2" or "eagle3". Error: invalidArgument, naming them.
Result<Speculation> parseSpeculation(std::string_view name);

using lathe::maxDraftTokens;

/// Where a draft came from.
enum class DraftSource : uint8_t { ngram, copy, suffix, shared, program };
constexpr uint32_t draftSources = 5;
const char *toString(DraftSource source);

/// Counters since the start. accepted + rejected = drafted; tokens emitted by rounds = accepted + rounds.
struct SpeculationStats {
  uint64_t rounds = 0;  ///< verifications: pieces of a step that held drafts
  uint64_t emitted = 0; ///< tokens that came of them, the stop token that may end one included
  std::array<uint64_t, draftSources> drafted{}, accepted{};
  std::array<std::array<uint64_t, maxDraftTokens>, draftSources> draftedAt{}, acceptedAt{}; ///< by source and position in the draft, 0 the first
  uint64_t programRuns = 0, programRows = 0; ///< of the draft program
  uint64_t programTrees = 0; ///< rounds whose drafts were a tree of the draft program's, more than a chain
  uint64_t draftedAll() const { return std::accumulate(drafted.begin(), drafted.end(), uint64_t(0)); }
  uint64_t acceptedAll() const { return std::accumulate(accepted.begin(), accepted.end(), uint64_t(0)); }
};

} // namespace lathe::runtime
