//===- StepPlan.h - what one step does ----------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// The scheduler's decisions for one step, each with a reason (docs/engine.md lists them).
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/kv/KVCache.h"
#include "runtime/scheduler/Types.h"
#include <cstdint>
#include <span>
#include <vector>

namespace lathe::runtime {

/// Why the scheduler decided so. The text of toString() is what traces and metrics show.
enum class Reason : uint8_t {
  // pieces
  decode,           ///< one token of a running sequence
  prefill,          ///< the rest of a prompt
  prefillChunk,     ///< as much of a prompt as the step's rows allow
  prefillContended, ///< a smaller piece: running sequences must keep their gap between tokens
  // admissions
  admitFirst,    ///< next in the policy's order
  admitHit,      ///< the same, and the prefix cache holds a part of it
  admitAgain,    ///< preempted before, computed again
  admitRestored, ///< preempted before, its KV blocks come back from host memory
  admitGuarded,  ///< preempted three times: admitted with every block it can ever need, never preempted again
  admitNext,     ///< one in front of it waits for a prefix that a running request computes
  // waiting (counted in stats and traced when the head of the queue changes its reason)
  waitRows,      ///< no free sequence row
  waitBlocks,    ///< too few KV blocks for its tokens and a block of new ones
  waitHeadroom,  ///< blocks are kept for the growth of what runs
  waitBudget,    ///< the step's rows are used up
  waitPrefix,    ///< a running request computes its prefix
  waitPreempted, ///< this step preempted: nothing new is admitted in it
  waitTpot,      ///< one sequence more would miss a running request's time per token
  // preemptions
  preemptBlocks,   ///< a running sequence needs a KV block and there is none
  preemptPriority, ///< a better priority waits
  // endings
  endStop,
  endLength,
  endCancelled,
  endTimeout,
  endFailed,
  // refusals: at add(), the first two also when its turn comes
  rejectTtft,    ///< the time to its first token cannot be met
  rejectTpot,    ///< the time per token that it asks for cannot be met
  rejectQueue,   ///< so many requests wait already
  rejectTokens,  ///< so many prompt tokens wait already
  rejectInvalid, ///< a field is wrong, or the context does not hold its prompt
  none,
};
constexpr uint32_t reasonCount = static_cast<uint32_t>(Reason::none) + 1;
const char *toString(Reason reason);

/// Consecutive tokens of one sequence.
struct StepPiece {
  RequestId request = 0;
  uint32_t choice = 0;
  uint32_t row = 0;    ///< of the block tables: LatheStep.sequence
  uint32_t first = 0;  ///< position (and slot) of the first token
  uint32_t tokens = 0; ///< rows of the step
  uint32_t drafts = 0; ///< the last so many tokens are drafts to be verified: results are wanted of all rows
  uint32_t resultFrom =
      0; ///< results (logits or hidden states) are wanted of tokens resultFrom .. tokens-1; = tokens: none
  /// Choices to sample from the last row: 0 (prompt not at its end, or an embedding), 1, or, when a prompt with n > 1
  /// is complete, n (choices 0 .. n-1; the others fork from this sequence at commit).
  uint32_t samples = 0;
  bool promptDone = false; ///< the last row is the prompt's last token, computed for the first time
  Reason reason = Reason::decode;
  const int32_t *ids = nullptr; ///< [tokens] valid until commit() or rollback()
  /// [drafts] of a tree: which draft each goes on from, an earlier one or -1, the token before them all. Null: a chain.
  const int8_t *parents = nullptr;

  int32_t parentOf(int32_t draft) const { return parents ? parents[draft] : draft - 1; }
  /// The draft behind draft |at| (-1: the token before them all) that is |token|, or -1.
  int32_t next(int32_t at, int32_t token) const {
    for (int32_t d = at + 1; d < static_cast<int32_t>(drafts); ++d)
      if (parentOf(d) == at && ids[tokens - drafts + static_cast<uint32_t>(d)] == token) return d;
    return -1;
  }
  /// How many drafts lead to draft |draft|, itself included.
  uint32_t depth(int32_t draft) const {
    uint32_t count = 0;
    for (; draft >= 0; draft = parentOf(draft))
      ++count;
    return count;
  }
  /// The place of token |index| behind |first|: not its index if it is a draft in a tree.
  uint32_t place(uint32_t index) const {
    uint32_t known = tokens - drafts;
    return index < known ? index : known - 1 + depth(static_cast<int32_t>(index - known));
  }
};

struct PlannedAdmission {
  RequestId request;
  uint32_t choice, row;
  uint32_t cachedTokens; ///< found in the prefix cache, or restored
  bool first;            ///< not after a preemption: queue time ends, and cachedTokens is what usage reports
  Reason reason;
};

struct PlannedPreemption {
  RequestId request;
  uint32_t choice, row;
  bool saved;      ///< false: computed again later
  uint32_t tokens; ///< whose KV it gives up
  Reason reason;
};

struct PlannedEnd {
  RequestId request;
  uint32_t choice;
  EndReason end;
  Reason reason;
  bool last; ///< no choice of the request is left
};

/// Work for one step, in the order in which the engine must do it: saves, (poison of released blocks), copies and
/// restores, the rows. Spans of the scheduler's own memory, valid until the next call that is not const.
struct StepPlan {
  uint64_t step = 0;             ///< counts plans that have rows
  uint32_t rows = 0;             ///< sum of the pieces' tokens; 0: nothing to run, commit() is not called
  uint32_t results = 0;          ///< rows whose result is wanted
  std::vector<PlannedEnd> ended; ///< since the last plan, and by this one
  std::vector<PlannedPreemption> preempted;
  std::vector<PlannedAdmission> admitted;
  std::vector<KVTransfer> saves;    ///< device block to host slot; valid also when rows is 0
  std::vector<KVCopy> copies;       ///< copy on write
  std::vector<KVTransfer> restores; ///< host slot to device block
  std::vector<StepPiece> pieces;
  /// rows is 0: the time at which something changes by itself (a deadline); infinity: only an event changes anything.
  double wakeAt = 0;
};

/// A token that the engine sampled for one choice of a piece.
struct ChoiceResult {
  int32_t token = -1; ///< -1: none (it failed, or the stop token is no part of the sequence)
  bool ended = false; ///< the engine found an end: |reason|. Ends by length are the scheduler's.
  EndReason reason = EndReason::stop;
};

/// What became of a piece: as many results as the piece has samples; with drafts 1 .. 1 + drafts. A piece whose request failed as a whole has
/// |failed| set and needs no results.
struct PieceResult {
  std::span<const ChoiceResult> choices;
  bool failed = false;
};

} // namespace lathe::runtime
