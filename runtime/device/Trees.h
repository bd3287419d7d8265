//===- Trees.h - draft trees, as devices see them -----------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/artifact/Program.h"
#include "lathe/artifact/Step.h"
#include "lathe/base/Status.h"

namespace lathe::runtime {

/// Whether |program| can verify trees: it says where its KV entries lie, so that those of the right path can be moved. General graphs do not.
inline bool knowsTrees(const Program &program) { return !program.kvPlanes.empty(); }

/// What kernels rely on of LatheStep.parent (see there), for the rows of |step|. Errors: unsupported (no trees), invalidArgument,
/// naming the row. Null is fine.
Status checkParents(const Program &program, const LatheStep &step);

/// What a step may ask for is all in LatheStep; what kernels do not know yet (adapters, masks, tokens chosen by the step before) is refused here, never
/// ignored. Errors: unsupported, naming the row; those of checkParents() where |rowsRun|, the entry runs rows. Fields behind |step|.size are not read.
Status checkStep(const Program &program, const LatheStep &step, bool rowsRun);

/// Whether copyEntry() can be called so. Errors: unsupported (no trees), invalidArgument.
Status checkEntry(const Program &program, uint32_t group, uint32_t fromToken, uint32_t toToken);
/// Copies entry |fromToken| (in its block) of a KV group over entry |toToken| of the same or another block. Host memory.
void copyEntry(const Program &program, uint32_t group, uint8_t *toBlock, uint32_t toToken, const uint8_t *fromBlock, uint32_t fromToken);

} // namespace lathe::runtime
