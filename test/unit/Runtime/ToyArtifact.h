//===- ToyArtifact.h - a tiny model as an artifact ----------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Two layers, the second with a sliding window, written by hand as a Program over the kernels of ToyKernels.cpp.
// The arithmetic is simple and depends on the order of the history, so that any mistake
// of placement, batching or dealing shows in the bits.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/artifact/GraphSection.h"
#include "lathe/artifact/Program.h"
#include "lathe/artifact/Writer.h"
#include <string>
#include <vector>

namespace lathe::test {

inline constexpr int toyWidth = 8, toyStride = 16, toyVocabulary = 50, toyTile = 7;

/// Read by the kernels, at the start of the weights.
struct ToyParams {
  int32_t page[2] = {16, 32};
  int32_t window[2] = {0, 24};
  int32_t blockBytes[2] = {};
};

struct ToyOptions {
  uint32_t pages[2] = {16, 32};
  uint32_t window = 24;
  uint32_t maxRows = 64, maxOutRows = 8, maxSeq = 256;
  uint32_t seed = 1;
  bool words = false; ///< with tokenizer, chat template and generation defaults
  std::string chatTemplate = {}; ///< instead of the toy's own
  uint32_t heads = 0; ///< with a draft program of so many heads over hidden rows, each of which says what the model's own does
  bool choices = true; ///< with the entry "head_choices"
  bool layer = false; ///< with a draft program that goes on from its own rows and drafts trees, with a KV group that it does not use
  bool draft = false; ///< with a draft program that is the model itself, on the step's KV groups
};

/// Float weights: embedding [vocabulary][width], then head [vocabulary][width].
std::vector<float> toyWeights(const ToyOptions &options);
Program toyProgram(const ToyOptions &options);
/// Adds what the program needs to |writer|: program, code for all variants, weights.
Status addToySections(artifact::ArtifactWriter &writer, const ToyOptions &options, const Program &program);
/// Writes the artifact to |path|.
Status writeToyArtifact(const std::string &path, const ToyOptions &options = {});
/// Pieces: letters, punctuation, the two bytes of U+00E9, digits, and the control tokens below.
inline constexpr int toyEnd = 48, toyUser = 49;
/// The bytes of the kernels' shared object.
std::vector<uint8_t> toyCode();

/// What the model says, computed directly: logits after each of |tokens|.
std::vector<std::vector<float>> toyLogits(const ToyOptions &options, const std::vector<int32_t> &tokens);
/// Its hidden states: rows of toyWidth.
std::vector<std::vector<float>> toyHidden(const ToyOptions &options, const std::vector<int32_t> &tokens);
/// The draft layer's own row of |token| behind |input|, toyWidth floats of its own and as many of features.
std::vector<float> toyOwn(const ToyOptions &options, int32_t token, const std::vector<float> &input);
/// Its hidden states behind the "norm" (x / (1 + x.x)): rows of toyWidth.
std::vector<std::vector<float>> toyEmbeddings(const ToyOptions &options, const std::vector<int32_t> &tokens);

/// A general graph with a cache of 2 heads of 4 (ToyGraph.cpp), and ways for it to go wrong.
enum class ToyGraphMode : int32_t {
  whole,
  lastRow,  ///< logits of the last token of a step only
  stuck,    ///< gives back its past as its cache
  borrowed, ///< gives the embedding's memory as its cache
  hungry,   ///< asks for more memory than there is
  nameless, ///< fails a check that the section does not name
};
inline constexpr int toyGraphBadToken = 41; ///< fails the first check
GraphSection toyGraphSection();
Status writeToyGraph(const std::string &path, ToyGraphMode mode = ToyGraphMode::whole, const GraphSection &section = toyGraphSection(),
                     const std::vector<uint8_t> &code = toyCode(), artifact::Variant variant = artifact::Variant::avx2);
/// What it says, computed directly: logits after each of |tokens|.
std::vector<std::vector<float>> toyGraphLogits(const std::vector<int32_t> &tokens);

} // namespace lathe::test
