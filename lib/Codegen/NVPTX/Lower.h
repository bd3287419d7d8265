//===- Lower.h - kernels to PTX text --------------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "NVPTX/Capabilities.h"
#include "lathe/base/Status.h"
#include "mlir/IR/BuiltinOps.h"
#include <functional>
#include <string>
#include <vector>

namespace llvm {
class Module;
}

namespace lathe::codegen::nvptx {

/// Lowers |module| (llvm.func kernels over arith, math, scf, vector and nvvm; changed in place) to PTX for |chip|. Errors:
/// unsupported, with the op's location, when an op needs what the chip lacks or is not in the capability table; internal when a
/// pass fails. Never aborts on a chip's lack. |link| may add functions that the kernels call; its error is the result.
Result<std::string> lowerToPtx(mlir::ModuleOp module, const Chip &chip, llvm::function_ref<Status(llvm::Module &)> link = {});

/// One kernel to build: |emit| appends `symbol` to an empty module; it runs on any thread, with a context of its own.
struct PtxJob {
  std::string symbol;
  std::function<mlir::LogicalResult(mlir::ModuleOp, llvm::StringRef symbol, const Chip &)> emit;
  std::string layers = {}; ///< what of the model it computes; a comment in the PTX
};
/// All kernels in one PTX module, in the order of |jobs| whatever |threads| (0: all cores) do.
Result<std::string> buildPtx(mlir::ArrayRef<PtxJob> jobs, const Chip &chip, unsigned threads = 0);

/// A kernel (or a function of one) whose registers did not hold what it computes with.
struct PtxasSpill {
  std::string kernel;
  int stackBytes = 0, spillBytes = 0; ///< of a thread; the second: stores and loads
};
/// What ptxas says about a module.
struct PtxasReport {
  std::string cubin;
  std::string log;                ///< of ptxas -v
  int spillBytes = 0, stackBytes = 0; ///< sums over the kernels
  int maxRegisters = 0;
  std::vector<std::string> warnings; ///< warnings, and the informational C75xx that tell of serialised matrix instructions
  std::vector<PtxasSpill> spills;    ///< kernels with a stack or spills, in ptxas's order
};
/// All of a report but the cubin, read from what ptxas -v wrote. Lines that are not understood say nothing.
PtxasReport readPtxasLog(std::string log);
/// What a user should hear of: a line for each kernel with a stack or spills, and for each warning. Such a kernel is right and slow.
std::vector<std::string> complaints(const PtxasReport &report, const Chip &chip);
/// Path of ptxas: $LATHE_PTXAS, or the one on PATH; empty when there is none.
std::string findPtxas();
/// Assembles |ptx|. Errors: invalidArgument with ptxas's message, notFound when |ptxas| cannot be run.
Result<PtxasReport> runPtxas(const std::string &ptxas, const std::string &ptx, const Chip &chip);

} // namespace lathe::codegen::nvptx
