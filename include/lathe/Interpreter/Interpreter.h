//===- Interpreter.h - the reference interpreter of the llm dialect -*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Says what a module means: runs its step function in float32 or float64 with plain loops. It is the oracle of
// every pass and every kernel, and shares no code with the emitters. Roundings that the IR names
// (activation formats, KV formats) are executed; sums have the interpreter's own order, which depends on
// widths only. Errors are diagnostics at the op that could not be run.
//===----------------------------------------------------------------------===//
#pragma once
#include "mlir/IR/BuiltinOps.h"
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lathe::llm {

struct InterpreterOptions {
  bool float64 = false;           ///< arithmetic of everything but the roundings
  int threads = 2;                ///< results do not depend on it
  std::string function = "step";
  std::string weightDirectory;    ///< where relative paths of #llm.file start; empty: the working directory
  int64_t weightCacheBytes = int64_t(3) << 30; ///< dequantized weights kept; others are read again for every step
};

struct StepRow {
  int64_t token = 0;
  int64_t position = 0;
  int64_t sequence = 0;
  int64_t slot = 0;             ///< KV entry that the row writes
  std::vector<float> embedding; ///< not empty: stands for the token's embedding
  /// -1: the row's history are the entries 0 .. slot. Else an earlier row of the batch and of the sequence, in a draft tree:
  /// the row's history is that row's and its own entry.
  int64_t parent = -1;
};

/// A ragged batch: the rows of one step in any mix of sequences; |outRows| are the rows that need an output.
struct StepBatch {
  std::vector<StepRow> rows;
  std::vector<int64_t> outRows;
};

/// [rows, cols], row-major.
struct RowValues {
  int64_t rows = 0, cols = 0;
  std::vector<double> values;
};

/// A value of the step at the moment it was computed, ops inside llm.fused included. Quantized
/// activations are given as the numbers they stand for.
using TraceCallback = std::function<void(mlir::Operation *op, unsigned result, const RowValues &values)>;

/// Holds the KV cache of all sequences between steps. Not thread-safe.
class Interpreter {
public:
  /// |module| must outlive the interpreter and stay as it is. Fails when there is no such function or its
  /// signature is not a step's. A function whose last argument are rows, a draft over hidden rows, gets those that the llm.select_rows of the
  /// module's `@step` reads: the step runs before it, with a KV cache of its own. Where rows are wider (docs/speculation.md, "EAGLE"), each is zeros and behind them the
  /// features of the row before it in its sequence: what the step returns behind its logits, or those rows; of a sequence's first row zeros.
  static mlir::FailureOr<std::unique_ptr<Interpreter>> create(mlir::ModuleOp module, InterpreterOptions options = {});
  virtual ~Interpreter() = default;
  /// Runs one step; returns the tensor results of the function in order (the KV result is kept). After
  /// a failure the cache is empty.
  virtual mlir::FailureOr<std::vector<RowValues>> step(const StepBatch &batch) = 0;
  /// Forgets all sequences.
  virtual void reset() = 0;

  TraceCallback trace;
};

/// The step of tokens begin .. begin + chunk (as far as they exist) of every sequence; sequence i has number i. Every row is an output row.
StepBatch chunkOf(const std::vector<std::vector<int64_t>> &sequences, int64_t begin, int64_t chunk);

/// Runs |sequences| from position 0 in steps of at most |chunk| tokens of each (0: all at once) and returns the
/// rows of result |result| (the last one at most) for every token, sequence by sequence; only each sequence's last with |lastOnly|.
mlir::FailureOr<std::vector<RowValues>> runSequences(Interpreter &interpreter, const std::vector<std::vector<int64_t>> &sequences,
                                                     int64_t chunk = 0, bool lastOnly = false, unsigned result = 0);

} // namespace lathe::llm
