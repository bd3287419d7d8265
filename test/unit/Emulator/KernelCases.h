//===- KernelCases.h - kernels with inputs and float64 references -*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Each case builds its inputs by seed, runs a kernel's PTX (kernels/*.ptx, made by MLIR from vector, gpu
// and nvgpu ops) and compares with a reference in float64. The mutation tests run the same cases on
// broken text.
//===----------------------------------------------------------------------===//
#pragma once
#include "Harness.h"

namespace lathe::emulator {

/// What came of a run.
struct Outcome {
  Status status;       ///< error of parsing, decoding or running
  double error = 0;    ///< largest difference divided by the largest reference value; infinity for NaN
  double tolerance = 0;
  bool good() const { return status.ok() && error <= tolerance; }
};

struct KernelCase {
  const char *name;
  const char *file;   ///< below test/unit/Emulator
  Outcome (*run)(const std::string &text, const Options &options);
  bool small;         ///< fast enough for the mutation tests
};
const std::vector<KernelCase> &kernelCases();

} // namespace lathe::emulator
