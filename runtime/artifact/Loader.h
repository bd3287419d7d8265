//===- Loader.h - an artifact with its code entered ---------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/artifact/GraphSection.h"
#include "lathe/artifact/Program.h"
#include "lathe/artifact/Reader.h"
#include "lathe/artifact/Step.h"
#include "lathe/base/MappedFile.h"
#include <memory>
#include <string>
#include <vector>

namespace lathe::runtime {

struct LoadOptions {
  std::string variant = {}; ///< see chooseVariant
  /// Names of GPU code, the best first ("sm_90a,sm_80"), or "any": load the program of the first that is there instead of
  /// the CPU's, and enter no code. variant() is then that GPU's. See Device::gpuCode.
  std::string gpu = {};
};

/// A mapped artifact: checked sections, a validated program, the kernels of one code variant.
/// Immutable after load, so that any number of threads may read it; the engines that run it share it.
class LoadedArtifact {
public:
  /// Maps |path|, checks everything but the weights' hash, and enters the code.
  static Result<std::shared_ptr<LoadedArtifact>> load(const std::string &path, const LoadOptions &options = {});
  ~LoadedArtifact();

  const std::string &path() const { return file.path(); }
  const MappedFile &mapping() const { return file; }
  const artifact::ArtifactView &view() const { return sections; }
  const Program &program() const { return code; }
  /// The tensors of a general graph, whose function is kernels()[0] (a LatheGraphFn); null for a program of launches.
  const GraphSection *graph() const { return general.get(); }
  artifact::Variant variant() const { return chosen; }
  /// One function per Program.kernels entry; none for a GPU's program.
  const std::vector<LatheKernelFn> &kernels() const { return functions; }
  /// WEIGHTS, or what stands for it (Program.syntheticWeightBytes).
  std::span<const uint8_t> weights() const { return weightBytes; }
  /// Seconds that load() took.
  double loadSeconds() const { return seconds; }

private:
  LoadedArtifact() = default;
  Status enterCode(const std::string &wanted);
  Status checkGraph() const;
  Status makeSyntheticWeights();

  MappedFile file;
  artifact::ArtifactView sections;
  Program code;
  std::unique_ptr<GraphSection> general;
  artifact::Variant chosen = artifact::Variant::none;
  std::vector<LatheKernelFn> functions;
  std::span<const uint8_t> weightBytes;
  void *library = nullptr;
  int codeFile = -1; ///< memory that |library| was loaded from
  void *synthetic = nullptr;
  double seconds = 0;
};

} // namespace lathe::runtime
