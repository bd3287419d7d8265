//===- GraphExecutable.h - a general graph as an executable --------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/device/Device.h"
#include "runtime/device/cpu/GraphCall.h"

namespace lathe::runtime {

/// Serves the steps of one sequence by calling the artifact's lathe_graph, with a contiguous cache. A step's rows are the next
/// tokens of the sequence, from any slot that the cache reaches: a lower one drops what is behind it, 0 begins another sequence.
/// Errors of submit(): failedPrecondition (rows of several sequences, or slots that are not next), invalidArgument (the graph
/// refuses the sizes: says which node), resourceExhausted. After an error the cache is empty.
///
/// Tensors of a step are allocated in |memory|: the sizes of a general graph are not planned. memoryBytes() is what is held between steps.
Result<std::unique_ptr<Executable>> makeGraphExecutable(std::shared_ptr<LoadedArtifact> artifact, std::unique_ptr<GraphMemory> memory);

} // namespace lathe::runtime
