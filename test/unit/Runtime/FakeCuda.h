//===- FakeCuda.h - what FakeCuda.cpp counts ---------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lathe::test {

/// State of a FakeCuda library, by its function fakeCudaState().
struct FakeCudaState {
  std::map<std::string, unsigned> arguments; ///< of each kernel, set by the test: a launch does not tell
  uint64_t executed = 0;     ///< kernels that ran
  uint64_t started = 0;      ///< calls of cuLaunchKernel and cuLaunchKernelEx
  uint64_t overlapping = 0;  ///< of which may start before the launch before has ended
  std::string firsts;        ///< for each first launch of a capture or after a copy: 'o' if it may overlap, which it must not, else '-'
  int version = 12040;       ///< of the driver
  uint64_t captures = 0, graphLaunches = 0;
  int64_t graphs = 0, executables = 0, memory = 0; ///< that are alive
  uint64_t failStart = UINT64_MAX; ///< the call of cuLaunchKernel that fails
  bool failInstantiate = false;
  std::string megakernel;          ///< a kernel of this name is one: what its table says is done with the kernels |bodies|
  std::vector<std::string> bodies;
  uint64_t together = 0;           ///< cooperative launches
  int cooperative = 1, resident = 2; ///< whether the device has them; blocks of each of 3 multiprocessors
};

} // namespace lathe::test
