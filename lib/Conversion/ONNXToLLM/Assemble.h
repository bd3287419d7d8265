//===- Assemble.h - terms to the parts of a language model ----------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "Run.h"
#include "lathe/import/ModelConfig.h"
#include "lathe/import/WeightMap.h"

namespace lathe::raise {

/// Cosines and sines of one rotary embedding, as one run saw them.
struct Observation {
  int64_t past = 0;
  Table cosines, sines;
};
struct RopeParts {
  int64_t rotated = 0;
  std::vector<Observation> seen;
  std::optional<mlir::Location> loc{}; ///< of the first rotation
};

/// What one run says about the model. |config| has no ropes yet: layers index |ropes|.
struct Parts {
  ModelConfig config;
  std::vector<RopeParts> ropes;
  std::map<std::tuple<lathe::Role, int, bool>, Weight> weights;
  int64_t longest = 0; ///< most tokens that a row saw or could have seen
  std::string why; ///< empty: the whole graph is a language model
  std::vector<std::string> layers; ///< what each layer was recognised as, or why not
};

/// The parts of layers among the terms of a graph that is no decoder, in the order in which the graph computes them, for people.
std::vector<std::string> recognised(const Terms &terms);
/// Matches the terms of a finished run against a decoder: embedding, layers of attention and feed-forward around a residual, head.
Parts assemble(const Terms &terms, const RunResult &result, Sizes sizes);
/// Adds what another run saw. The reason when the two disagree.
std::string merge(Parts &parts, const Parts &other);

/// Makes ropes of observations: frequencies that give all of them. |hints| are formulas to try first, from a configuration. |sixteenBits|: values that have no
/// more may be off by their rounding, as everything that the graph computes is. Remarks say which formula a table became. The reason when no formula gives the values.
std::string fitRopes(Parts &parts, const std::vector<Rope> &hints, bool sixteenBits, std::vector<std::string> &remarks);
/// Values of float32 and angles of stored tables are within so many units in the last place of their formula.
constexpr int ropeTolerance = 4;
constexpr double ulpOfOne = 1.1920928955078125e-07;
/// What rounding to 16 bits may have done to a value of all these, relative to it: 2^-11 of f16, 2^-8 of bf16. 0 for tables of float32.
double grainOf(llvm::ArrayRef<llvm::ArrayRef<double>> lists);
/// Whether every row of |table| that a sequence can reach is what the ropes of |config| say: empty, or the reason when it is not. None: |table| is none of
/// cosines and sines of theirs.
std::optional<std::string> checkTable(const ModelConfig &config, const Known &table, bool sixteenBits);
/// Of a table that is none of cosines and sines: the reason when what lengths and positions up to |last| choose from it follows no simple rule, so that runs of some
/// sizes do not tell what others would see. Adds lengths to |places| at which even a simple one changes.
std::optional<std::string> checkChoices(const StoredTable &table, int64_t last, std::set<int64_t> &places);

} // namespace lathe::raise
