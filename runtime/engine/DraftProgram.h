//===- DraftProgram.h - the artifact's draft program at work ------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// A draft program computes logits from tokens as the step does, with KV groups of its own, or with the step's groups
// (docs/speculation.md, "A draft program"). It never writes a block that the scheduler knows.
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/engine/DraftTree.h"
#include "runtime/engine/FeatureRows.h"
#include "runtime/engine/KVBudget.h"
#include "runtime/engine/StepDevice.h"
#include "runtime/speculation/Types.h"
#include <array>

namespace lathe::runtime {

/// The draft program's KV cache and runs. A sequence is named by its row in the step's block tables and by its owner. All memory
/// is allocated at creation. One thread at a time.
class DraftProgram {
public:
  struct Owner {
    uint64_t request = 0;
    uint32_t choice = 0;
    bool operator==(const Owner &) const = default;
  };
  /// Consecutive tokens of one sequence to be computed.
  struct Piece {
    uint32_t row = 0, first = 0; ///< position of the first
    std::span<const int32_t> tokens;
    uint32_t results = 0; ///< logits behind so many of the last ones are wanted
    /// Of heads: the row of the token before the piece's only one. Of a draft that goes on from itself: its own row of the token before, if
    /// |features| has none.
    std::span<const float> input;
    const FeatureRows *features = nullptr; ///< the step's for the tokens before
    const DraftTree *tree = nullptr;       ///< |tokens| are its rows, the first one the last known token
  };

  /// |blocks|: of all groups, as the device has them, tails included. |shape| is that of the step's cache.
  DraftProgram(StepDevice &device, const Program &program, const KVShape &shape, std::span<const uint32_t> blocks,
               DraftBlocks extra, bool poison);
  /// Fills what no sequence holds with NaN, for tests.
  Status poisonAll();

  /// Tokens that begin() would find not computed, of |known|; the last one is always among them. (Of heads over rows of
  /// the step, which have no KV: the last one alone.)
  uint32_t lag(uint32_t row, Owner owner, uint32_t known, uint32_t earliest = 0) const;
  /// Begins a round for the sequence in |row|, whose tokens are |text|: how many of them are computed. Those that the last
  /// round guessed count as far as they were right; not of a draft that goes on from itself, which has rows of the step for them now. |earliest|: the first
  /// token that can still be computed. A sequence that lacks one before it begins anew with it.
  uint32_t begin(uint32_t row, Owner owner, std::span<const int32_t> text, uint32_t earliest = 0);
  /// Gives the sequence slots for |tokens| tokens, taking those of sequences that do not draft now if need be. False: there are
  /// none, and it cannot draft in this round.
  bool reserve(uint32_t row, uint32_t tokens);
  /// For programs that read the step's KV: gives drafts behind |known| tokens blocks of their own, the last one with what the step has in it.
  /// At most maxSequences() calls a round.
  Status shareWith(uint32_t row, uint32_t known, const KVCache &step);
  /// Computes |pieces| (at most Program.maxRows rows in all, of which at most maxOutRows have results). logits(i): of the i-th
  /// row that wanted one, in the order of pieces, until the next run. Of a tree's rows none counts as computed but the first.
  Status run(std::span<const Piece> pieces, const KVCache &step);
  std::span<const float> logits(uint32_t index, uint32_t head = 0);
  /// Of a draft that goes on from itself: its own row of the same token, until the next run.
  std::span<const float> own(uint32_t index) const { return {ownRows.data() + size_t(index) * program.hiddenSize, program.hiddenSize}; }
  /// What was guessed behind the tokens that begin() was told of.
  void guessed(uint32_t row, std::span<const int32_t> tokens);
  void endRound();
  /// Gives up what |owner| holds.
  void forget(Owner owner);

  uint32_t maxSequences() const { return extra.sequences; } ///< of one round
  uint32_t heads() const { return program.draftHeads(); } ///< tokens that one run guesses
  bool goesOn() const { return !program.draftInputStride || overFeatures(); } ///< another run guesses what follows
  bool overFeatures() const { return goesOnFromItself(program.draftMethod); } ///< it takes the step's features and its own rows
  uint32_t most() const { return goesOn() ? maxDraftTokens : heads(); } ///< tokens that a round guesses
  bool readsStep() const { return reads; } ///< the KV of all tokens but the last is the step's: nothing to catch up
  uint32_t positions() const { return program.draftMaxSeq; }
  uint64_t blocksUsed() const;

private:
  struct Sequence {
    Owner owner;
    bool used = false;
    bool drafts = false;   ///< in this round
    uint32_t base = 0;     ///< the first token that has KV: token t is entry t - base
    uint32_t computed = 0; ///< tokens up to this one have their KV
    uint32_t known = 0;    ///< of these, those up to here are final
    uint32_t guesses = 0;
    std::array<int32_t, maxDraftTokens> guess{};
  };
  Status takeRow(uint32_t row, const Piece &piece, uint32_t index);
  void drop(uint32_t row);
  void truncate(Sequence &sequence, uint32_t row, uint32_t length);

  StepDevice &device;
  const Program &program;
  DraftBlocks extra;
  uint32_t firstTail[64] = {}; ///< [step group]
  bool reads = false;
  KVCache cache;
  std::vector<Sequence> sequences; ///< by row
  std::vector<uint32_t> began;     ///< rows of this round
  uint32_t shared = 0;             ///< of them, those that have tails
  std::vector<std::vector<int32_t>> tails; ///< [step group that is read] tables [row][stride]
  std::vector<const int32_t *> tables;
  std::vector<uint32_t> strides;
  std::vector<int32_t> token, position, slot, sequence, outRow, parent;
  std::vector<float> taken;   ///< a row of the draft's input
  std::vector<float> ownRows; ///< [result][hiddenSize] of the last run
};

} // namespace lathe::runtime
