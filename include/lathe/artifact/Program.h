//===- Program.h - a compiled step: launches over an arena ---------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// The PROGRAM section of an artifact: what the runtime executes. It knows kernels by symbol, buffers
// by offset and shares by count; no op, layer or model family. Serialised by ProgramCodec
// (bounds-checked); in memory it is this struct.
//===----------------------------------------------------------------------===//
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace lathe {

/// Where a kernel argument lives.
enum class ArgKind : uint32_t {
  arena = 0,  ///< offset bytes into the step arena
  weight = 1, ///< offset bytes into the WEIGHTS section
  kv = 2,     ///< pool of KV group |group|, plus offset (the layer's place in a block)
};

struct Arg {
  ArgKind kind = ArgKind::arena;
  uint32_t group = 0;
  uint64_t offset = 0;
};

/// How the number of items of a launch follows from the step.
enum class ItemKind : uint32_t {
  fixed = 0,     ///< items
  perRow = 1,    ///< items * step.rows
  perOutRow = 2, ///< items * step.outRows
  /// items * ceil(step.rows / itemRows): row blocks
  perRowBlock = 3,
  /// items * sum over rows of ceil((slot + 1) / itemRows): (row, KV chunk) pairs, see docs/exactness.md
  perRowChunk = 4,
};

/// How items are dealt to n threads.
enum class ShareKind : uint32_t {
  contiguous = 0,  ///< thread t: [items*t/n, items*(t+1)/n)
  interleaved = 1, ///< thread t: t, t+n, ...
};

/// What a launch's multiply-adds are made of: sets the limit that `explain` predicts with.
enum class Arithmetic : uint32_t {
  int8 = 0, ///< 8-bit dot products, scaled per group of 32
  bf16 = 1, ///< bfloat16 dot products
  f32 = 2,  ///< float32 fma
};

struct Launch {
  uint32_t kernel = 0;   ///< index into Program.kernels
  uint32_t firstArg = 0; ///< into Program.args
  uint32_t argCount = 0;
  ItemKind itemKind = ItemKind::fixed;
  ShareKind shareKind = ShareKind::contiguous;
  uint32_t itemRows = 1;
  uint64_t items = 0;
  uint32_t barrier = 1; ///< all threads wait after it; a GPU runs launches one after the other
  uint32_t name = 0;    ///< index into Program.names: layer and op, for profiles ("blk.3.attn_q+k+v")
  /// For explain: bytes of weights read, and multiply-adds per row.
  uint64_t weightBytes = 0;
  uint64_t macsPerRow = 0;
  uint64_t bytesPerRow = 0; ///< activation bytes read and written per row
  /// The same for each (row, KV entry that it sees): attention's work grows with the history.
  uint64_t bytesPerEntry = 0;
  uint64_t macsPerEntry = 0;
  Arithmetic arithmetic = Arithmetic::int8;
};

/// Launches for at most |maxRows| rows; the runtime takes the first bucket that is wide enough.
struct Bucket {
  uint32_t maxRows = 0;
  uint32_t firstLaunch = 0;
  uint32_t launchCount = 0;
};

/// "step": all rows up to the last hidden state, KV appended. "head": logits of step.outRows rows
/// (at most Program.maxOutRows a call), reading what the last "step" left in the arena. "embed", which a program may lack: the
/// hidden states of step.outRows rows behind the last norm, from the same. "draft" and "draft_head", both or neither: what "step" and "head" are, of a
/// program that guesses what the step would say (docs/speculation.md). It shares the arena: a run of the draft overwrites what the step left there.
/// "head_choices", which a program may lack: what the sampler needs of the logits where it takes the largest, from the same as "head".
struct Entry {
  std::string name;
  std::vector<Bucket> buckets;
};

/// One group of layers that share a block table (docs/design.md, "KV specification").
struct KVGroup {
  uint32_t kind = 0;   ///< 0 full attention, 1 sliding window
  uint32_t window = 0; ///< tokens, for kind 1
  uint32_t pageTokens = 16;
  uint32_t layers = 0;
  uint64_t blockBytes = 0; ///< all layers of the group, K and V
  uint32_t draft = 0; ///< 1: only the entry "draft" appends to it and reads it; such groups follow the step's own
};

/// Where K or V entries of a layer, or their scales, lie in a block of a KV group, so that an entry can be copied without knowing
/// what it means. Head h < heads, piece i < pieces of entry t is at
/// offset + h * headStride + t / 16 * groupBytes + i * pieceStride + t % 16 * bytes.
struct KVPlane {
  uint32_t group = 0; ///< index into Program.kvGroups
  uint32_t heads = 1;
  uint64_t offset = 0, headStride = 0, groupBytes = 0;
  uint32_t pieces = 1, pieceStride = 0;
  uint32_t bytes = 0; ///< of a piece
};

/// How a GPU kernel is launched: one block an item.
struct BlockShape {
  uint32_t threads = 0;
  uint32_t sharedBytes = 0; ///< dynamic shared memory
};

/// What made a draft program that takes rows of the step (docs/speculation.md, "Heads").
enum class DraftMethod : uint32_t {
  program = 0, ///< another model, or the first layers: it takes tokens alone
  medusa = 1,  ///< heads over one row of the step, one for each token that follows
  eagle = 2,   ///< a layer over features of the step and its own rows, which drafts a chain
  eagle2 = 3,  ///< the same, which drafts a tree
  eagle3 = 4,  ///< the same over rows of three layers
};
/// Whether the rows that such a draft takes are [own | features]: one part is zeros (docs/speculation.md, "EAGLE").
constexpr bool goesOnFromItself(DraftMethod method) { return method >= DraftMethod::eagle; }

/// Launches of a bucket as one launch, of a GPU's program that was compiled for it (docs/ptx.md, "Megakernel"). Kernels that are no bodies are launched by
/// themselves between.
struct Megakernel {
  uint32_t kernel = 0;            ///< index into Program.kernels and Program.blocks; takes what lathe/artifact/Megakernel.h says
  uint32_t entry = 0, bucket = 0; ///< whose launches: indices
  uint32_t maxArgs = 0;           ///< of a launch
  std::vector<uint32_t> bodies;   ///< index into Program.kernels: a launch of it is done by the body of this number
};

/// Draft tokens of one sequence in one step at most, and so heads of a draft program.
inline constexpr uint32_t maxDraftTokens = 16;

struct Program {
  uint32_t maxRows = 0;    ///< rows a step may have
  uint32_t maxOutRows = 0; ///< rows a "head" call may have
  uint32_t maxSeq = 0;     ///< positions the model was compiled for
  uint32_t vocabulary = 0;
  uint32_t hiddenSize = 0;
  uint64_t arenaBytes = 0;
  uint64_t scratchBytes = 0; ///< per thread
  uint64_t logitsOffset = 0; ///< in the arena: float32 [maxOutRows][logitsStride]
  uint32_t logitsStride = 0; ///< floats
  uint64_t hiddenOffset =
      0; ///< in the arena: float32 [maxRows][hiddenStride], after the last layer, before the last norm
  uint32_t hiddenStride = 0;
  uint64_t embeddingOffset = 0; ///< in the arena: float32 [maxOutRows][embeddingStride], what "embed" leaves
  uint32_t embeddingStride = 0; ///< floats; 0: there is no entry "embed"
  uint32_t draftMaxSeq = 0; ///< positions that the draft program was made for; 0: there is none
  uint64_t draftLogitsOffset = 0; ///< in the arena: float32 [maxOutRows][draftLogitsStride], what "draft_head" leaves
  uint32_t draftLogitsStride = 0; ///< floats
  DraftMethod draftMethod = DraftMethod::program;
  uint64_t draftInputOffset = 0; ///< in the arena: float32 [maxRows][draftInputStride], rows that the caller writes before a run of "draft"
  uint32_t draftInputStride = 0; ///< floats; 0: the draft takes none
  uint32_t draftInputSize = 0;   ///< floats of such a row: hiddenSize, a hidden row of the step; or 1 + (features or 1) times as many, see goesOnFromItself()
  std::vector<uint64_t> draftMoreLogits; ///< as draftLogitsOffset: where heads behind the first leave theirs
  uint64_t choicesOffset = 0; ///< in the arena: float32 [maxOutRows][choicesStride], what "head_choices" leaves: the token as a float32, its logit
  uint32_t choicesStride = 0; ///< floats; 0: there is no entry "head_choices"
  uint64_t draftOwnOffset = 0; ///< in the arena, of a draft that goes on from itself: float32 [maxRows][hiddenStride], its own rows
  std::vector<uint64_t> draftFeatures; ///< the same for the step's rows that it takes; empty: the hidden rows
  std::vector<uint32_t> draftTokens; ///< what the draft's tokens are in the vocabulary; empty: the same
  uint32_t draftVocabulary() const { return draftTokens.empty() ? vocabulary : static_cast<uint32_t>(draftTokens.size()); }
  uint32_t draftFeatureSize() const { return goesOnFromItself(draftMethod) ? draftInputSize - hiddenSize : draftInputSize; }
  /// Heads of the draft program, whose tokens follow each other.
  uint32_t draftHeads() const { return draftMaxSeq ? 1 + static_cast<uint32_t>(draftMoreLogits.size()) : 0; }
  /// Not 0: the artifact has no WEIGHTS section and the runtime makes this many bytes up from the seed (for
  /// benchmarks; every 16-bit word is a small positive float16, so that no scale is infinite).
  uint64_t syntheticWeightBytes = 0;
  uint64_t syntheticSeed = 0;
  std::vector<std::string> kernels; ///< symbols in the code sections
  std::vector<std::string> names;
  std::vector<Arg> args;
  std::vector<Launch> launches;
  std::vector<Entry> entries;
  std::vector<KVGroup> kvGroups;
  std::vector<BlockShape> blocks; ///< a GPU's program: one per kernel; else empty
  std::vector<Megakernel> megakernels; ///< by ascending entry and bucket
  /// All bytes of entries. Empty: the kernels know no draft trees (LatheStep.parent).
  std::vector<KVPlane> kvPlanes;

  /// Groups that the step appends to: the first of kvGroups.
  size_t stepGroups() const {
    size_t count = kvGroups.size();
    while (count && kvGroups[count - 1].draft)
      --count;
    return count;
  }
};

} // namespace lathe
