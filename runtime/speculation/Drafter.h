//===- Drafter.h - draft tokens of one sequence -------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Most drafts cost no run of a model: they are looked up in what the sequence, and earlier answers to its tenant, have said. Others
// come from a draft program; the drafter knows how much they are worth.
// A wrong draft costs time and never a token (docs/speculation.md).
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/speculation/AcceptanceModel.h"
#include "runtime/speculation/CopyCursor.h"
#include "runtime/speculation/DynamicTree.h"
#include "runtime/speculation/NgramIndex.h"
#include "runtime/speculation/SuffixAutomaton.h"
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lathe::runtime {

/// Tokens proposed for the positions behind a sequence.
struct Draft {
  uint32_t count = 0;
  DraftSource source = DraftSource::ngram;
  std::array<int32_t, maxDraftTokens> tokens{};
  std::array<float, maxDraftTokens> chance{};   ///< that this token and all that lead to it are accepted; never rises
  bool tree = false;                            ///< |parent| says what leads to a token; else all before it
  std::array<int8_t, maxDraftTokens> parent{};  ///< an earlier token, or -1: the text itself
  std::span<const int8_t> parents() const { return std::span(parent).first(tree ? count : 0); }
  std::array<DraftKind, maxDraftTokens> kind{}; ///< of the estimate
  float expected() const {
    float sum = 0;
    for (uint32_t i = 0; i < count; ++i)
      sum += chance[i];
    return sum;
  }
};

/// What one tenant's ended answers said, in two generations: when the newer one is full, the older one is forgotten.
class SharedSuffixes {
public:
  explicit SharedSuffixes(uint32_t tokens) : tokens(tokens) {}
  void add(std::span<const int32_t> text);
  /// The automaton of generation 0 or 1, or null; |number| changes when it is forgotten.
  const SuffixAutomaton *generation(uint32_t index) const { return generations[index].get(); }
  uint64_t number(uint32_t index) const { return numbers[index]; }

private:
  uint32_t tokens, newer = 0;
  std::unique_ptr<SuffixAutomaton> generations[2];
  uint64_t numbers[2] = {};
};

/// What the drafters of an engine share: acceptance seen so far, and suffixes by tenant and cache salt. The tenants
/// used last are kept, at most |maxTenants|. One thread at a time.
class SharedDrafts {
public:
  static constexpr uint32_t maxTenants = 8, tokensPerGeneration = 1 << 15;
  std::shared_ptr<SharedSuffixes> suffixesOf(const std::string &tenant, const std::string &salt);
  AcceptanceModel acceptance;

private:
  struct Entry {
    std::string key;
    std::shared_ptr<SharedSuffixes> suffixes;
    uint64_t used = 0;
  };
  std::vector<Entry> entries;
  uint64_t uses = 0;
};

/// Bytes that |drafters| drafters for sequences of at most |contextTokens| tokens and what they share take at most.
uint64_t draftingBytes(Speculation method, uint32_t drafters, uint32_t contextTokens);

/// Drafts for one sequence. After construction push() and propose() allocate nothing. One thread at a time.
class Drafter {
public:
  /// |fresh|: tokens that will be pushed at most. Long texts are looked up in their last 32 Ki tokens. |shared| must
  /// outlive this.
  Drafter(Speculation method, std::span<const int32_t> prompt, uint32_t fresh, SharedDrafts &shared,
          std::shared_ptr<SharedSuffixes> suffixes);

  /// The sequence goes on with |token|, verified. Chains that were looked up for its place, proposed or not, were right or wrong there, and that is learned.
  void push(int32_t token);
  /// At most |most| tokens for the positions behind the last one pushed; valid until the next call. A long prompt
  /// is indexed by and by: until then there are no drafts.
  const Draft &propose(uint32_t most);
  /// The first |drafted| tokens of the last proposal were verified; those whose bit in |right| is set were right, with all that
  /// lead to them: what is learned of trees and of the program. Without this call the next propose() takes it that the tree was not worth its cost.
  void verified(uint32_t drafted, uint32_t right);
  DraftSource source() const { return best.source; } ///< of the last proposal
  std::span<const int32_t> tokens() const { return text; } ///< prompt and answer so far

  // Drafts of a program, for methods `draft` and `automatic`: what is put takes the place of what propose() found.

  /// The chance expected of the token at |place| of a draft of the program, if all before it are right.
  float programChance(uint32_t place) const;
  /// Whether the program is to be asked, as far as this sequence's past says: off for a while when what it said was not used.
  bool programReady();
  /// The program will not be asked, for it would not pay. True: it is time to try all the same, with at most 2 tokens. It is not before |steps|
  /// steps, which make the cost of the try small.
  bool programDeclined(double steps);
  void beginProgram();
  /// Adds |token|, whose probability by the program is |share|. False: it is not added, being too unlikely to be right. |assume|: as if nothing
  /// was known of what became of such tokens.
  bool putProgram(int32_t token, float share, bool assume = false);
  /// The kind of a token of a program's tree: its probability is |share|, |depth| tokens lead to it, and it is its place's first choice or an |other|.
  static DraftKind programKind(float share, uint32_t depth, bool other);
  float programRate(DraftKind kind, bool assume) const { return rateOf(kind, assume || program.probing); }
  /// The program's draft is the tree |nodes|, the likeliest first, whose tags are kinds; as far as they are likely enough (|all|: whatever they are). How many.
  uint32_t putProgramTree(std::span<const TreeNode> nodes, bool all = false);
  const Draft &programDraft() const { return best; }
  /// The program has said what it says: if that is nothing, what propose() found is the draft again. Which it is.
  const Draft &endProgram();
  /// Gives what the sequence said to its tenant.
  void finish();

private:
  enum Slot : uint32_t { atNgram, atCopy, atSuffix, atShared, slots = atShared + 2 };
  void index(uint32_t most);
  void follow(Slot slot, const SuffixAutomaton &automaton, SuffixAutomaton::Match match, uint32_t most);
  void branch(Slot slot, const SuffixAutomaton &automaton, SuffixAutomaton::Match match, uint32_t most);
  float rateOf(DraftKind kind, bool assumed) const;
  void repeatNgram(uint32_t most);
  void goOnCopying(uint32_t most);
  bool put(DraftSource source, int32_t token, uint32_t matched, float share);
  void weigh();
  void keep(Slot slot);

  SharedDrafts &shared;
  std::shared_ptr<SharedSuffixes> suffixes;
  std::vector<int32_t> text;
  uint32_t promptTokens, indexed = 0;
  std::optional<NgramIndex> ngrams;
  CopyCursor cursor;
  std::optional<SuffixAutomaton> local;
  SuffixAutomaton::State last = SuffixAutomaton::root;
  SuffixAutomaton::Match match[2]; ///< in the tenant's generations
  uint64_t number[2] = {};
  AcceptanceModel acceptance;
  PairRates pairs;
  std::array<Draft, slots> found;       ///< chains, each of the last propose() that looked there
  std::array<uint32_t, slots> agreed{}; ///< tokens said since
  uint32_t fresh = 0;                   ///< bits of those that the current propose() found
  Draft draft, best, aside; ///< aside: what was looked up for the place that the program drafts for
  uint32_t unused = 0, probeAfter;
  bool open = false, lookedUpOpen = false, probing = false, trees = false;
  struct {
    uint32_t declined = 0, probeAfter, ignored = 0, pause = 0, rest; ///< rest: the next pause, in steps
    bool open = false, probing = false;
  } program;
};

} // namespace lathe::runtime
