//===- Probe.h - an artifact's kernels by themselves --------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// What a matmul takes follows from two things: how fast its weights come from memory, and how fast its instructions run once
// they are there. The first is a property of the machine and of the pages that the weights lie in, the second of the kernel (its storage type,
// its number of rows) and not to be had from a count of multiply-adds: unpacking, scales and broadcasts decide it.
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/artifact/Loader.h"
#include "runtime/device/Device.h"
#include "runtime/device/cpu/ThreadTeam.h"
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace lathe::tool {

/// Measures on its own arena; the weights are the artifact's, in place. One thread at a time.
class KernelProbe {
public:
  /// Error: resourceExhausted without the memory for an arena.
  static Result<std::unique_ptr<KernelProbe>> create(std::shared_ptr<runtime::LoadedArtifact> artifact, unsigned threads);
  ~KernelProbe();
  KernelProbe(const KernelProbe &) = delete;

  /// The step that launches are measured in: |perSequence| rows of each of |sequences| sequences behind |depth| entries, with |outRows| output rows. All
  /// entries of the KV cache are those of one block.
  void setStep(uint32_t sequences, uint32_t perSequence, uint32_t depth, uint32_t outRows);
  /// Seconds of launch |index| if every thread found what it reads in its own cache. Of a matmul a few items run over and over, of attention all of
  /// them over one block; the best so far, so that a second call some time later mends what other load spoiled. 0 for launches that are neither.
  double fromCache(uint32_t index);
  /// Reads the weights of |launches|, those of a step in their order, as all its threads do. In turns with steps it finds as much of them in the caches
  /// as a step does, which of a small model is a good part; twice in a row it finds more.
  void readWeights(std::span<const uint32_t> launches);
  /// Bytes per second of the weights of launch |index|, the median of all reads; 0 of one that has none.
  double readRate(uint32_t index) const;

private:
  KernelProbe() = default;
  /// |repeats| times the items of |run| on all threads; seconds.
  double timed(LatheKernelFn kernel, uint8_t *const *args, int64_t items, bool whole, bool dealt, int64_t repeats);

  std::shared_ptr<runtime::LoadedArtifact> artifact;
  std::shared_ptr<runtime::ThreadTeam> team;
  unsigned threads = 1;
  uint8_t *arena = nullptr;
  uint64_t arenaBytes = 0, scratchStride = 0;
  std::vector<uint8_t *> pools; ///< a block of each KV group, behind the arena
  LatheStep step{};
  std::vector<int32_t> token, position, slot, sequence, outRow, table;
  std::vector<const int32_t *> tables;
  std::vector<uint32_t> strides;
  std::map<uint32_t, double> known; ///< seconds of an item, or of a whole launch, by kernel
  std::vector<uint32_t> launches;   ///< those read last
  std::vector<std::span<const uint8_t>> parts; ///< of each, its largest weight
  std::vector<std::vector<double>> reads; ///< of each time, seconds of the parts
};

} // namespace lathe::tool
