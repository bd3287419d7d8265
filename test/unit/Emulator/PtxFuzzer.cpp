//===- PtxFuzzer.cpp - libFuzzer target of the PTX parser and decoder ------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/device/emulator/Emulator.h"

using namespace lathe::emulator;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  Options options;
  options.memoryLimit = 1 << 20;
  options.instructionLimit = 2000;
  options.capability = 90;
  auto emulator = Emulator::create(options);
  if (!emulator.ok()) return 0;
  auto module = (*emulator)->load(std::string_view(reinterpret_cast<const char *>(data), size));
  if (!module.ok()) return 0;
  // What loads also runs: to its end, to an error, or to the limit.
  for (const KernelInfo &kernel : (*emulator)->kernels(*module)) {
    Arguments arguments;
    for (uint32_t bytes : kernel.parameterBytes) {
      std::vector<uint8_t> zeros(bytes);
      arguments.addBytes(zeros.data(), zeros.size());
    }
    (void)(*emulator)->launch(*module, kernel.name, {.grid = {}, .block = {40}, .cluster = {}, .sharedBytes = 64}, arguments);
  }
  return 0;
}
