//===- Driver.h - from a model to an artifact, by named phases ------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/artifact/Format.h"
#include "lathe/base/Status.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace lathe {

/// Stop and restart points, in order (docs/design.md, "The levels").
enum class Phase { import, raise, configure, fuse, kernels, plan, package };
Result<Phase> parsePhase(const std::string &name);
const char *phaseName(Phase phase);

struct CompileOptions {
  std::string activations = "auto"; ///< auto, int8, int8z, bf16, f32
  std::string kv = "f16";           ///< f32, f16, bf16, int8, e4m3
  std::string quantize = "none";    ///< none, int8, int4-g32, ...
  std::vector<std::string> quantizeSkip; ///< regular expressions: names of weights that |quantize| leaves
  int64_t page = 32;
  int64_t maxSeq = 0; ///< 0: the model's own
  int64_t maxRows = 512;
  bool gpu = false; ///< plan for NVIDIA GPUs
  bool megakernel = false; ///< GPU code also as one launch a step (docs/ptx.md, "Megakernel")
  std::vector<artifact::Variant> variants; ///< of x86, and GPUs
  /// "file", or "synthetic:SEED": the artifact holds no weights and the runtime makes them up (speed of large shapes).
  std::string weights = "file";
  /// A draft program beside the step: "" (none), "draft:MODEL", "layerskip:LAYERS", "medusa", "eagle", "eagle2" or "eagle3" (docs/speculation.md).
  std::string speculate;
  std::string speculateWeights; ///< directory of the heads that "medusa" asks for, or of EAGLE's layer
  int threads = 2;
  std::vector<std::string> disabled; ///< fusion passes left out
  std::string dumpDirectory;         ///< the module after every phase, as PHASE.mlir
  bool remarks = false;              ///< say what raising recognised
};

/// The seed of CompileOptions.weights, or nothing for "file". Errors: invalidArgument.
Result<std::optional<uint64_t>> syntheticSeed(const CompileOptions &options);

/// Sections that are not code, program or weights.
struct ModelText {
  std::vector<uint8_t> tokenizer; ///< TokenizerSpec, encoded; empty: none
  std::string chatTemplate;
  std::string generation; ///< JSON
  std::string metadata;   ///< JSON
};

/// The passes that CompileOptions.disabled may name, in the order in which they run.
std::vector<std::string> fusionPasses();

/// The options for the GPUs' own copy of an imported module: |activations| `auto` means bf16 there.
CompileOptions gpuOptions(const CompileOptions &options);
/// Runs the passes from |from| (the module is at its end) to the end of |to|, at most Phase::plan.
Status runPhases(mlir::ModuleOp module, Phase from, Phase to, const CompileOptions &options);

/// A step of a chip's first bucket with megakernels: |launches| of kernels became |pieces| launches.
struct MegakernelReport {
  std::string chip;
  uint32_t launches = 0, pieces = 0;
};
/// What packaging cost.
struct PackageReport {
  double codeSeconds = 0, packSeconds = 0;
  uint64_t codeBytes = 0, weightBytes = 0, fileBytes = 0;
  int kernels = 0;
  std::vector<MegakernelReport> megakernels;
  std::vector<std::string> withoutMegakernels; ///< chips that were to have some, and have none
  std::vector<std::string> complaints; ///< of ptxas, where there is one: kernels that spill registers, instructions that wait for each other
};
/// Emits code, packs weights and writes the artifact of a module at the end of Phase::plan. |gpu|: the same model at the same phase for GPUs, or
/// null; both read the same packed weights, which are in the file once. An artifact without x86 variants has GPU programs only. |progress| gets (done, all) bytes of weights.
Result<PackageReport> packageArtifact(mlir::ModuleOp module, mlir::ModuleOp gpu, const ModelText &text, const CompileOptions &options, const std::string &path,
                                      const std::function<void(uint64_t, uint64_t)> &progress);

} // namespace lathe
