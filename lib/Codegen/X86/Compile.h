//===- Compile.h - kernels to x86 machine code ---------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// ModuleOp -> LLVM -> object for one code variant -> one shared object that needs nothing: no undefined symbol,
// no other library. The output is a function of the input alone.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/Codegen/Kernels.h"
#include "lathe/base/Status.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/ArrayRef.h"
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace lathe::codegen {

/// What of a kernel has instructions that only some variants have.
struct KernelUse {
  bool bf16 = false; ///< it reads or writes bf16 activations, which avx512bf16 and amx keep in a form of their own (docs/kernels.md)
  bool dots = false; ///< it multiplies 8-bit activations with weights, which amx does by tiles
};

/// One kernel to build: |emit| appends `symbol` to an empty module; it runs on any thread, with a context of its own.
struct KernelJob {
  std::string symbol;
  std::function<mlir::LogicalResult(mlir::ModuleOp, llvm::StringRef symbol, X86Target)> emit;
  KernelUse use = {};
};

/// "avx2", "avx512vnni", "avx512bf16", "amx".
const char *variantName(artifact::Variant v);
/// The variant whose code |v| shares for a kernel of this |use|: without bf16 activations it has no use for a bfloat16
/// instruction, so avx512bf16 runs the code of avx512vnni, and without 8-bit products amx that of avx512bf16.
artifact::Variant emittedVariant(artifact::Variant v, KernelUse use = {});
/// Whether this machine executes the variant. Asks the system for the tiles' registers (allowTiles).
bool hostSupports(X86Target target);
/// The best variant of this machine; Variant::none below AVX2.
artifact::Variant hostVariant();

struct ObjectOptions {
  std::string *assembly = nullptr; ///< if not null, receives the listing
  bool loops = false; ///< scalar loops of upstream's lowering, not vector code: LLVM vectorises them
};
/// Compiles what |module| holds (it is lowered in place).
Result<std::string> compileObject(mlir::ModuleOp module, X86Target target, const ObjectOptions &options);
inline Result<std::string> compileObject(mlir::ModuleOp module, X86Target target, std::string *assembly = nullptr) {
  return compileObject(module, target, ObjectOptions{.assembly = assembly});
}

/// Emits and compiles |jobs| on |threads| threads (0: all cores): one object each, in their order.
Result<std::vector<std::string>> compileKernels(llvm::ArrayRef<KernelJob> jobs, X86Target target, unsigned threads = 0);

/// Links objects to the bytes of a shared object that needs |libraries| ("libm.so.6") and nothing else, of those only the ones
/// that are used. Thread-safe (serialised inside).
Result<std::string> linkObjects(llvm::ArrayRef<std::string> objects, llvm::ArrayRef<const char *> libraries = {});

/// compileKernels and linkObjects: the CODE section of an artifact.
Result<std::string> buildCode(llvm::ArrayRef<KernelJob> jobs, X86Target target, unsigned threads = 0);

/// buildCode for several variants of the same jobs: a kernel whose code two variants share is compiled once.
class VariantBuilder {
public:
  VariantBuilder(std::vector<KernelJob> jobs, unsigned threads) : jobs(std::move(jobs)), threads(threads) {}
  Result<std::string> build(artifact::Variant variant);

private:
  std::vector<KernelJob> jobs;
  unsigned threads;
  std::map<artifact::Variant, std::vector<std::string>> objects; ///< by the variant emitted for; empty: not yet
};

} // namespace lathe::codegen
