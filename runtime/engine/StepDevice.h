//===- StepDevice.h - a planned step on a device ------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/device/Device.h"
#include "runtime/scheduler/StepPlan.h"
#include <memory>
#include <span>
#include <vector>

namespace lathe::runtime {

/// Host memory for saved KV blocks: address space for all slots at once, pages when they are first used.
class SavedBlocks {
public:
  SavedBlocks() = default;
  ~SavedBlocks();
  SavedBlocks(const SavedBlocks &) = delete;
  SavedBlocks &operator=(const SavedBlocks &) = delete;
  /// Error: resourceExhausted.
  Status reserve(const Program &program, uint64_t budgetBytes);
  /// The bytes of one slot; empty for one that does not exist.
  std::span<uint8_t> slot(uint32_t group, uint32_t index) const;

private:
  struct Group {
    uint8_t *data = nullptr;
    uint64_t blockBytes = 0;
    uint32_t slots = 0;
  };
  std::vector<Group> groups;
};

/// Carries out plans: transfers of blocks, rows, results in slices. All memory is allocated by create(). One thread at
/// a time.
class StepDevice {
public:
  /// |stepTokens| rows at most in a plan. Errors: those of Device::prepare.
  static Result<std::unique_ptr<StepDevice>> create(std::shared_ptr<LoadedArtifact> artifact, Device &device,
                                                    const ExecutableOptions &options, uint32_t stepTokens,
                                                    uint64_t savedBytes);

  /// Saves, NaN into blocks that nobody reads any more (if |poison|), copies, restores: in this order, before the rows.
  Status transfer(const StepPlan &plan, KVCache &kv, bool poison);
  /// Runs the rows of |plan| through the entry "step".
  Status run(const StepPlan &plan, const KVCache &kv);
  /// Moves the KV entries of the drafts of |piece| that were right (ascending indexes of drafts in a tree) together, behind the token
  /// before them all.
  Status keepPath(const StepPiece &piece, std::span<const uint8_t> path, const KVCache &kv);
  /// Computes results of some of |rows| of the last step, from |rows|[first] on: logits (EntryKind::head), the largest of them (EntryKind::headChoices, see
  /// Executable::choice) or the normed hidden states (EntryKind::embed), at most 16 MB at once. Returns how many; result(kind, i) is that of rows[first +
  /// i].
  Result<uint32_t> results(EntryKind kind, std::span<const int32_t> rows, size_t first);
  std::span<const float> result(EntryKind kind, uint32_t index);

  /// Runs |rows| rows of an unused sequence and one row of logits; returns the seconds. Overwrites KV blocks, from
  /// block 0 on: for use before anything is in them. |history|, a multiple of every page, is how many tokens stand
  /// before them; they are read from the blocks that |rows| rows fill, over and over. |kind|: step, or draft of a program that has it.
  Result<double> measure(uint32_t rows, uint32_t history = 0, EntryKind kind = EntryKind::step);

  /// Copies 16 MB of blocks of each KV group, or as many as there are, to the host and back; returns bytes a second, 0 if there is no host memory for
  /// saved blocks. Leaves the blocks as they were.
  Result<double> measureTransfer();

  /// Positions that |kind|, step or draft, was compiled for.
  uint32_t positions(EntryKind kind) const { return kind == EntryKind::draft ? program().draftMaxSeq : program().maxSeq; }
  /// Runs |step| through an entry and waits.
  Status runEntry(EntryKind kind, const LatheStep &step);

  Executable &executable() { return *device; }
  /// Bytes of weights that all runs so far have read.
  uint64_t weightBytes() const { return weightsRead; }
  const Program &program() const { return artifact->program(); }

private:
  StepDevice() = default;
  LatheStep stepOf(uint32_t rows, const int32_t *const *tables, const uint32_t *strides, uint32_t sequences) const;

  std::shared_ptr<LoadedArtifact> artifact;
  std::unique_ptr<Executable> device;
  SavedBlocks saved;
  std::vector<uint32_t> blocks;
  std::vector<int32_t> token, position, slot, sequence, parent; ///< rows of the step
  LatheStep step{};                                     ///< the last one
  struct BucketBytes {
    uint32_t maxRows;
    uint64_t weightBytes;
  };
  std::vector<BucketBytes> perBucket[entryKinds]; ///< by EntryKind
  uint64_t weightsRead = 0;
};

} // namespace lathe::runtime
