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
/// Whether every row of |table| that a sequence can reach is what the ropes of |config| say, if it is a table of cosines and sines. The reason when it is not.
std::string checkTable(const ModelConfig &config, const Known &table, bool sixteenBits);

} // namespace lathe::raise
