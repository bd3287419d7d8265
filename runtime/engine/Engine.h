//===- Engine.h - sequences on a device ---------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/artifact/Loader.h"
#include "runtime/device/Device.h"
#include "runtime/kv/KVCache.h"
#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace lathe::runtime {

struct EngineOptions {
  unsigned threads = 0;       ///< 0: one per available core
  bool pin = false;           ///< bind threads to cores
  uint32_t contextTokens = 0; ///< of one sequence; 0: as many as the model was compiled for
  uint32_t maxSequences = 1;
  uint64_t kvTokens = 0;         ///< of all sequences together; 0: contextTokens * maxSequences
  uint64_t memoryBudget = 0;     ///< bytes for KV cache, arena and scratch; 0: no limit
  uint32_t chunkRows = 0;        ///< rows of one step at most; 0: as many as the program allows
  uint64_t shuffleBlocks = 0;    ///< test hook: not 0 places blocks at random
  bool poisonFreeBlocks = false; ///< test hook: free KV blocks hold NaN
};

using SequenceId = uint32_t;

/// Of which rows a result is wanted.
enum class OutputRows { none, last, all };

/// Tokens to append to a sequence.
struct Work {
  SequenceId sequence = 0;
  std::span<const int32_t> tokens;
  OutputRows output = OutputRows::last;
  /// Not empty: |tokens| are a draft tree, computed in one step: of each token but the first the index of the one before it.
  /// The first, -1, goes on from the sequence. All tokens are in the sequence until keepPath() says which path stays.
  std::span<const int32_t> parents = {};
};

/// Receives one row of results: which Work, which of its tokens, and the values (valid during the call).
using RowSink = std::function<Status(size_t work, size_t token, std::span<const float> values)>;

/// Runs a program for a number of sequences. Any mixture of prompts, pieces of prompts and single tokens of different
/// sequences goes through one call; it is cut into steps of at most chunkRows rows. How it is cut, and
/// what else is in the batch, shows in no bit of the results. One thread at a time.
class Engine {
public:
  /// Errors: invalidArgument (context longer than compiled for), resourceExhausted (budget too small: names what fits).
  static Result<std::unique_ptr<Engine>> create(std::shared_ptr<LoadedArtifact> artifact, const EngineOptions &options,
                                                Device *device = nullptr);

  /// An empty sequence; resourceExhausted when maxSequences are open.
  Result<SequenceId> open();
  void close(SequenceId sequence);
  bool isOpen(SequenceId sequence) const { return sequence < slots.size() && slots[sequence].open; }
  /// Tokens in the sequence.
  uint32_t length(SequenceId sequence) const { return slots[sequence].length; }
  /// Drops the tokens from |length| on. A sequence with a sliding window that has passed it starts again from 0;
  /// returns the length that is left.
  uint32_t truncate(SequenceId sequence, uint32_t length);
  /// Of the tree that was appended last to |sequence| only |path| stays: indexes of its tokens, from the first one on, each
  /// the parent of the next. Their KV entries move together. Errors: invalidArgument (no tree, no path in it).
  Status keepPath(SequenceId sequence, std::span<const uint32_t> path);
  /// The tokens in the sequence; valid until it changes.
  std::span<const int32_t> tokens(SequenceId sequence) const { return slots[sequence].tokens; }
  /// Truncates the sequence to what it has in common with |prompt|, short of |prompt|'s last token (whose logits are
  /// wanted); returns how many tokens of |prompt| need not be computed again.
  uint32_t keepPrefix(SequenceId sequence, std::span<const int32_t> prompt);

  /// Appends tokens and hands out logits of the rows asked for, in order. Logits are computed in slices of at most 16
  /// MB. |hidden|, if given, receives hidden states after the last layer of the same rows; without |logits| no logits
  /// are computed. |choices| instead of |logits|: receives Executable::choice() of the rows, of a program with choicesStride. Errors: invalidArgument (token outside the vocabulary, unknown sequence, parents that are no tree or of more rows than a step or maxTreeSlots have), resourceExhausted (context
  /// or KV cache full: steps before it have been done, length() says how far). An error of a sink ends the call.
  Status forward(std::span<const Work> work, const RowSink &logits, const RowSink &hidden = nullptr, const RowSink &choices = nullptr);

  /// While |flag| is set, forward() ends between two steps with the status cancelled; null: never. The flag may be set
  /// from any thread or a signal handler.
  void cancelOn(const std::atomic<bool> *flag) { cancelled = flag; }

  const Program &program() const { return artifact->program(); }
  const LoadedArtifact &loaded() const { return *artifact; }
  Executable &executable() { return *device; }
  uint32_t contextTokens() const { return shape.contextTokens; }
  uint32_t maxSequences() const { return shape.maxSequences; }
  uint32_t availableTokens() const { return kv->availableTokens(); }
  uint64_t memoryBytes() const { return device->memoryBytes(); }

private:
  struct Slot {
    bool open = false;
    uint32_t length = 0;
    std::vector<int32_t> tokens; ///< capacity contextTokens
    std::vector<int32_t> tree;   ///< parents of the last tokens, of which keepPath() has to choose
  };
  struct Row {
    uint32_t work, token;
  };
  explicit Engine(std::shared_ptr<LoadedArtifact> loaded) : artifact(std::move(loaded)) {}
  Status checkWork(std::span<const Work> work) const;
  struct Sinks {
    const RowSink &logits, &hidden, &choices;
    explicit operator bool() const { return logits || hidden || choices; }
  };
  Status runStep(const Sinks &sinks);
  void poisonReleased();

  std::shared_ptr<LoadedArtifact> artifact;
  KVShape shape;
  std::unique_ptr<KVCache> kv;
  std::unique_ptr<Executable> device;
  std::vector<Slot> slots;
  bool poison = false;
  const std::atomic<bool> *cancelled = nullptr;
  // The step being built; capacity maxRows.
  uint32_t chunkRows = 1, rows = 0;
  std::vector<int32_t> token, position, slot, sequence, parent;
  bool trees = false; ///< some row has a parent
  std::vector<int32_t> outRow;
  std::vector<Row> outOrigin;
};

} // namespace lathe::runtime
