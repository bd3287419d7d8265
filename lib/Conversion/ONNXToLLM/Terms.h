//===- Terms.h - what a graph computes on token rows ----------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// A term is a function of token rows, without the layout in which a graph holds it: equal terms are one, so that names, node order
// and reshapes play no part. Constructors rewrite what they recognise (norms, rotations, activations) bottom-up.
//
// Features of a term are numbered 0 .. width - 1. Where an operation works on groups (heads), |group| is a group's size: a feature is
// group * g + position.
//===----------------------------------------------------------------------===//
#pragma once
#include "Known.h"
#include <limits>
#include <string>
#include <unordered_map>

namespace lathe::raise {

/// A weight as the graph uses it. Matrices are [out, in] once |transpose| is applied to what is stored.
struct Weight {
  onnx::ParamOp param;      ///< null: none
  bool transpose = false;
  bool plusOne = false;
  int64_t begin = 0, end = 0; ///< rows of [out, in]; end 0: all
  int64_t unropeHeads = 0;    ///< rows of so many heads go from interleaved pairs to halves; 0: stay
  /// Block-quantized weights (MatMulNBits and its kin): scales and zero points beside the codes.
  onnx::ParamOp scales, zeros;
  int64_t bits = 0, block = 0;
  /// A matrix behind DequantizeLinear: |param| are its codes, |qdqBlock| codes along each of their axes share a scale. Scales and zero points are
  /// |scales| and |zeros| or, where those are null, numbers.
  bool qdq = false;
  int64_t qdqBlock[2] = {1, 1};
  std::vector<double> scaleNumbers, zeroNumbers;
  int64_t rows = 0, columns = 0; ///< of [out, in]; columns 0: a vector
  explicit operator bool() const { return static_cast<bool>(const_cast<onnx::ParamOp &>(param)); }
  std::string key() const;
};

enum class Kind {
  embed,       ///< weight
  positions,   ///< weight: a row for the position
  past,        ///< the past of input |a|; b = 0
  history,     ///< in: rows; past of input |a| before them
  linear,      ///< in: x; weight, bias
  add, mul,    ///< in: x, y
  mulGroup,    ///< in: x, y of one feature for a group of x
  addGroup,
  scale,       ///< x * number
  addNumber,   ///< x + number
  mulWeight,   ///< x * weight of |group| elements
  addWeight,
  mulTable,    ///< x * table [tokens][group]
  addTable,
  unary,       ///< |name|: neg, sigmoid, tanh, erf, sqrt, reciprocal, exp, square, cube, isnan, pow (number)
  lastRow,     ///< x of a step's last token
  mean,        ///< of each group
  slice,       ///< positions |a| .. |b| - 1 of each group
  concat,      ///< groups one after the other: sizes in |sizes|
  normalize,   ///< x / sqrt(mean(x^2) + number) in groups
  centre,      ///< x - mean(x) in groups
  rmsNorm,     ///< weight
  layerNorm,   ///< weight, bias
  activation,  ///< |name|: silu, gelu_tanh, gelu_erf, relu
  rope,        ///< in: x; |a| elements of each group are rotated by the tables; b: interleaved
  scores,      ///< in: q, k history; number: scale, |a| window seen (0 none, -1: no mask yet), number2: softcap
  capped,      ///< tanh(scores / c) on its way to a soft cap
  probabilities, ///< in: scores
  attention,   ///< in: q, k, v; a: window, b: query heads, group: size of a head; number: scale, number2: softcap
};

/// Cosines or sines for the tokens of a run.
struct Table {
  int64_t tokens = 0, columns = 0;
  std::vector<double> values;
  std::vector<double> angles; ///< when the graph computed the values from them; else empty
  std::shared_ptr<const Known> cache{}; ///< a stored [positions, columns] that the values are rows of
};

using TermId = int;
struct Term {
  Kind kind;
  llvm::SmallVector<TermId, 3> in{};
  int64_t width = 0; ///< features; of scores: query heads
  int64_t group = 0;
  int64_t a = 0, b = 0;
  double number = 0, number2 = 0;
  double hidden = -std::numeric_limits<double>::infinity(); ///< of scores with a mask: at most this is in what a row does not see
  std::string name{};
  Weight weight{}, bias{};
  int table = -1, table2 = -1;
  llvm::SmallVector<int64_t, 3> sizes{};
  mlir::Location loc;
};

/// All terms of a run.
class Terms {
public:
  explicit Terms(mlir::MLIRContext *context) : loc(mlir::UnknownLoc::get(context)) {}
  const Term &operator[](TermId id) const { return terms[id]; }
  int64_t width(TermId id) const { return terms[id].width; }
  size_t size() const { return terms.size(); }
  /// Where the next terms come from.
  mlir::Location loc;

  int intern(Table table);
  const Table &table(int id) const { return tables[id]; }

  TermId leaf(Kind kind, int64_t width, int64_t a = 0, const Weight &weight = {});
  TermId history(TermId rows, int64_t past);
  TermId linear(TermId x, const Weight &weight, const Weight &bias = {});
  TermId add(TermId x, TermId y);
  TermId mul(TermId x, TermId y);
  TermId mulGroup(TermId x, TermId y, int64_t group);
  TermId addGroup(TermId x, TermId y, int64_t group);
  TermId scale(TermId x, double c);
  TermId addNumber(TermId x, double c);
  TermId mulWeight(TermId x, const Weight &w);
  TermId addWeight(TermId x, const Weight &w);
  TermId mulTable(TermId x, int table);
  TermId addTable(TermId x, int table);
  TermId unary(llvm::StringRef name, TermId x, double number = 0);
  /// Operations on rows are done before a row is selected: what is left on top of a term is at most one selection.
  TermId lastRow(TermId x);
  TermId mean(TermId x, int64_t group);
  TermId slice(TermId x, int64_t group, int64_t begin, int64_t end);
  TermId concat(llvm::ArrayRef<TermId> parts, llvm::ArrayRef<int64_t> sizes);
  TermId rmsNorm(TermId x, const Weight &w, double eps);
  TermId layerNorm(TermId x, const Weight &w, const Weight &b, double eps);
  TermId activation(llvm::StringRef name, TermId x);
  TermId rope(TermId x, int64_t group, int64_t rotated, int cosines, int sines, bool interleaved);
  TermId scores(TermId q, TermId k, int64_t heads, int64_t headSize);
  /// |hidden|: what the mask puts, or adds, where a row does not see.
  TermId masked(TermId scores, int64_t window, double hidden);
  TermId softmax(TermId scores);
  TermId attend(TermId probabilities, TermId v, int64_t valueSize);
  bool isLast(TermId x) const { return terms[x].kind == Kind::lastRow; }
  bool isScores(TermId x) const { return terms[x].kind == Kind::scores || terms[x].kind == Kind::capped; }

  /// A line a term, for messages and tests.
  std::string text(TermId id, int depth = 4) const;

private:
  TermId make(Term term);
  Term start(Kind kind, llvm::ArrayRef<TermId> in, int64_t width);
  // Recognisers. -1: not this.
  TermId asGelu(TermId product);
  TermId asNormalize(TermId x, TermId factor, int64_t group);
  TermId asRotation(TermId x, TermId y);
  TermId asRotatedHalves(llvm::ArrayRef<TermId> parts, llvm::ArrayRef<int64_t> sizes);
  bool is(TermId id, Kind kind, llvm::StringRef name = "") const { return terms[id].kind == kind && (name.empty() || terms[id].name == name); }
  int halfOf(int table, bool pairs);

  std::vector<Term> terms;
  std::vector<Table> tables;
  std::unordered_map<std::string, TermId> known;
};

} // namespace lathe::raise
