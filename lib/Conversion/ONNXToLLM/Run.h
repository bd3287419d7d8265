//===- Run.h - one pass over a graph for chosen sizes ---------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "Layout.h"
#include "Terms.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include <set>

namespace lathe::raise {

/// What the inputs of a graph are. buffer: a past that TensorScatter writes into, from writeIndex on; pair: keys and values in one tensor
/// [2, batch, heads, past, size]; all: of how many tokens logits are wanted.
enum class Role { tokens, positions, mask, past, buffer, pair, writeIndex, totalLength, one, all };
/// The number of the values' half of a past of Role::pair; that of its keys is its argument's.
constexpr int64_t pairValues = int64_t(1) << 32;

struct Sizes {
  int64_t batch, step, past;
  int64_t total() const { return past + step; }
};

/// A value of the graph in a run.
struct Abstract {
  enum Is { unknown, absent, number, weight, term, tokens } is = unknown;
  DataType type = DataType::float32;
  Shape shape;
  std::shared_ptr<const Known> known; ///< of number; of weight: when small
  Weight of;                          ///< of weight; of number: what it was read from, when nothing else was done to it
  bool swapped = false;               ///< of weight: the two axes are those of the stored matrix in reverse
  TermId id = -1;
  Layout layout;
  bool fixed = false;  ///< of number: computed from stored ones alone, whatever the sizes are
  bool stored = false; ///< the same, but the sizes may have chosen which
  bool mixed = false;  ///< of number: some elements of a stored list, and what depends on the sizes, went into each other
  std::string why; ///< of unknown: what was not recognised, and where
  mlir::Operation *at = nullptr;
};

/// What a run found.
struct RunResult {
  TermId logits = -1;
  /// (past input, history term) in the order of the outputs.
  llvm::SmallVector<std::pair<int64_t, TermId>> presents;
  llvm::SmallVector<std::string, 1> unused; ///< outputs that are neither, beside some that are named logits
  std::string why;                          ///< empty: everything was recognised
  mlir::Operation *at = nullptr;
};

/// A stored table, or one that is computed from stored ones, of which something was looked up that depends on the sizes.
struct StoredTable {
  mlir::Operation *at = nullptr;
  std::shared_ptr<const Known> values;
  llvm::SmallVector<int64_t, 2> axes; ///< along which; empty: any
};

class GraphRun {
public:
  GraphRun(mlir::func::FuncOp main, llvm::ArrayRef<Role> roles, Sizes sizes, int64_t pastHeadSize, ParamReader &params);
  RunResult run();
  Terms terms;
  const Sizes sizes;
  DataType own = DataType::float32; ///< float type of most of the weights
  /// By how many positions the run is longer than the shortest table that it reads; 0: no table ends before it. Of a run that fails, this may be why.
  int64_t beyond = 0;
  /// Numbers among the small known values: those that are the same in runs of other sizes may be where the graph changes what it does.
  std::set<int64_t> numbers;
  /// Numbers among those that small results are compared with or computed from: at such a number of tokens the graph may change what it does, however small it is.
  std::set<int64_t> thresholds;
  /// Whole numbers that few were divided or rounded to: those that differ between runs put lengths into buckets.
  std::map<mlir::Operation *, std::vector<double>> quotients;
  /// Which branch every If took, in order.
  std::vector<bool> branches;
  /// What |branches| are behind a past. A run without one that takes another looks at both, which have to give the same; null: no run was before.
  const std::vector<bool> *usual = nullptr;
  std::vector<StoredTable> tables;

private:
  /// Entries stay where they are when others are added.
  struct Values {
    Abstract &operator[](mlir::Value v) { return map[v.getAsOpaquePointer()]; }
    std::unordered_map<const void *, Abstract> map;
  };
  using In = llvm::ArrayRef<Abstract *>;
  using Out = llvm::MutableArrayRef<Abstract>;

  Abstract argument(mlir::BlockArgument arg, Role role);
  void constant(onnx::ConstantOp op);
  void weight(onnx::WeightOp op);
  void node(NodeOp op);
  void runIf(NodeOp op, In in);
  /// Whether |first|, of a branch behind an empty past, is what |cached| is.
  bool sameAtStart(const Abstract &cached, const Abstract &first) const;
  /// Counts the numbers of |x|, which |value| becomes; those that too many others are held beside are unknown.
  void hold(mlir::Value value, Abstract x);
  /// |op| has used its inputs: numbers that nobody else uses are let go.
  void release(NodeOp op);
  void block(mlir::Block &block);

  void noteNumbers(const Known &value);
  void noteTable(NodeOp op, In in);
  void noteThresholds(NodeOp op, In in);
  /// Whether |op| sums over, or picks from, a long axis of a stored list after sizes have marked some of its entries: a lookup by other means.
  static bool picks(NodeOp op, In in);
  void noteQuotient(NodeOp op, In in, const Known &result);
  /// Reads the numbers of a stored table that is too long to be read for what it may be alone.
  void load(Abstract &x);

  // Makers.
  static Abstract known(Known value);
  Abstract term(TermId id, Layout layout, DataType type = DataType::float32);

  // Each handles the operators it knows: true when |out| is filled; a reason in |why| when it is known but does not fit.
  bool shapes(NodeOp op, In in, Out out);
  bool movement(NodeOp op, In in, Out out);
  bool joins(NodeOp op, In in, Out out);
  bool scatter(NodeOp op, In in, Out out);
  bool elementwise(NodeOp op, In in, Out out);
  bool linears(NodeOp op, In in, Out out);
  bool quantized(NodeOp op, In in, Out out);
  bool dequantized(NodeOp op, In in, Out out);
  bool norms(NodeOp op, In in, Out out);
  bool rotary(NodeOp op, In in, Out out);
  bool attention(NodeOp op, In in, Out out);

  bool refuse(const llvm::Twine &reason);
  /// Whether a cast from |from| to |to| leaves values as they are, or rounds them to the type that the graph's weights have. Values of tokens and
  /// weights are not rounded then; any other narrower type is a part of what the graph computes.
  bool keepsValues(DataType from, DataType to) const;
  // Pieces.
  bool sliceAxis(const Abstract &x, int64_t axis, int64_t begin, int64_t end, Abstract &out);
  bool concat(In in, int64_t axis, Abstract &out);
  bool binary(NodeOp op, const Abstract &x, const Abstract &y, Abstract &out);
  bool termNumber(llvm::StringRef name, const Abstract &x, const Abstract &y, bool reversed, Abstract &out);
  bool termTerm(llvm::StringRef name, const Abstract &x, const Abstract &y, Abstract &out);
  /// |hidden|: what a boolean mask puts where it does not hold.
  bool maskScores(const Abstract &scores, const Known &mask, bool boolean, double hidden, Abstract &out);
  /// The positions of |mask| that a row may see as a window: 0 all, W the last W. Refuses what is not causal.
  /// |least|: the largest number that stands for what is not seen.
  bool windowOf(const Known &mask, const Layout &layout, bool boolean, int64_t &window, double &least);
  bool product(const Abstract &x, const Abstract &y, Abstract &out);
  bool vectorOf(const Abstract &w, Weight &out);
  bool matrixOf(const Abstract &w, bool transposed, Weight &out);
  bool fullFeatures(const Abstract &x, Layout &rows);
  bool tokenRows(llvm::ArrayRef<int64_t> shape, Layout &layout) const;
  mlir::FailureOr<int> tableOf(const Known &value, const Layout &layout, llvm::ArrayRef<int64_t> shape);
  mlir::FailureOr<int> cacheTable(const std::shared_ptr<const Known> &stored, const Known *positions);
  bool isPositions(const Known &value, llvm::ArrayRef<int64_t> shape) const;
  /// Heads of [B, S, H * D] or [B, H, S, D] rows.
  bool headsOf(const Abstract &x, int64_t heads, int64_t &size, bool &fourD);
  struct AttentionCall {
    Abstract q, k, v; ///< terms of this step
    int64_t heads, kvHeads, headSize, valueSize;
    const Abstract *pastKey = nullptr, *pastValue = nullptr;
    double scale = 0, softcap = 0;
    int64_t window = 0;
    bool causal = false;
    const Abstract *mask = nullptr;
  };
  bool attend(const AttentionCall &call, TermId &result, TermId &key, TermId &value);
  bool selfAttention(NodeOp op, In in, Out out);

  mlir::func::FuncOp main;
  int64_t pastHeadSize; ///< where the type of a past leaves it open
  llvm::SmallVector<Role> roles;
  ParamReader &params;
  mlir::SymbolTable symbols;
  Values values;
  int64_t held = 0; ///< elements of numbers and of weights' numbers in |values|
  llvm::DenseMap<mlir::Value, int64_t> uses; ///< of what nodes computed, that are still to come
  std::string why;
  int depth = 0;
};

} // namespace lathe::raise
