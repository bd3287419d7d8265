//===- Raiser.h - an ONNX graph to the step ----------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "Assemble.h"
#include <set>

namespace lathe::raise {

constexpr int64_t assumedPositions = 4096;     ///< of a model of which nothing says how many it was trained for
constexpr int64_t furthest = int64_t(1) << 20; ///< position at which a graph is looked at

/// Runs the graph @main of |module| for many sizes, which all have to be one language model, and makes its step. Not thread-safe; used once.
/// Raise.cpp: what inputs are, and the whole; RaiseLook.cpp: the runs; RaiseWeights.cpp: references to weights.
class Raiser {
public:
  Raiser(mlir::ModuleOp module, mlir::func::FuncOp main, int64_t maxSeq) : module(module), main(main), maxSeq(maxSeq) {}
  /// The step's module, or null with why() and at().
  mlir::OwningOpRef<mlir::ModuleOp> run();
  std::string why;
  std::string damaged; ///< what is wrong with a file beside the model
  mlir::Operation *at = nullptr;
  std::optional<mlir::Location> where; ///< instead of at()
  std::vector<std::string> remarks;
  std::vector<std::string> warnings; ///< of a graph that is raised
  size_t layers = 0;

private:
  using Roles = llvm::SmallVector<Role>;
  std::vector<Roles> assignments();
  bool attempt(const Roles &roles, Parts &parts);
  std::vector<int64_t> headSizes();
  bool runOnce(const Roles &roles, Sizes sizes, Parts &parts);
  bool agree(Parts &parts, const Parts &other);
  bool lookAt(const Roles &roles, Sizes sizes, Parts &parts);
  bool lookFurther(const Roles &roles, Parts &parts);
  bool hinted(const ModelConfig &config) const;
  int64_t positionsOf(const Parts &parts) const;
  void readHints();
  void adopt(Parts &parts);
  bool sameMatrix(const Weight &a, const Weight &b);
  std::optional<WeightRef> reference(const Weight &weight);
  std::optional<WeightRef> blocks(const Weight &weight, WeightRef ref);
  std::optional<WeightRef> dequantized(const Weight &weight, WeightRef ref);
  std::optional<bool> fitHalf(onnx::ParamOp scales, llvm::ArrayRef<double> numbers, double most);
  bool lookAround(const Roles &roles, std::set<int64_t> places, Parts &parts);
  bool lookIntoTables(const Roles &roles, Parts &parts, const ModelConfig &config);
  bool finish(const Roles &roles, Parts &parts, WeightMap &weights);

  mlir::ModuleOp module;
  mlir::func::FuncOp main;
  int64_t maxSeq;
  ParamReader params;
  std::optional<ModelConfig> hint;
  int64_t contextLength = 0, genaiHeadSize = 0;
  int widened = 0; ///< weights that became f32
  double scaleChange = 0; ///< largest relative change of a scale that is rounded to f16
  int64_t headSize = 0; ///< of pasts whose type does not say
  int64_t beyond = 0;   ///< of the last run: by how many positions it was longer than a table of the graph; 0: by none
  bool sixteenBits = false; ///< the graph's own type is float16 or bfloat16
  int64_t reach = 0;    ///< positions up to which the graph was looked at
  std::vector<Term> seen;    ///< of the first run
  std::optional<mlir::Location> differs; ///< the first node of the last run that computes something else than in the first
  std::vector<StoredTable> tables; ///< that runs looked into, each once
  std::vector<bool> branches; ///< that the first run took at every If
  std::set<int64_t> numbers;    ///< that all runs computed whatever their sizes: where a graph may change what it does
  std::map<mlir::Operation *, std::vector<double>> quotients; ///< of the runs so far
  bool buckets = false;                    ///< two runs had others
  std::set<int64_t> thresholds; ///< those among them that single numbers are compared with
};

} // namespace lathe::raise
