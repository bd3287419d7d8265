//===- CudaApi.h - the part of the CUDA driver that Lathe calls --------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Declared here, found by dlopen("libcuda.so.1"): Lathe builds and runs without CUDA. Signatures and numbers follow the
// CUDA Driver API reference; they are part of the driver's stable binary interface.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/base/Status.h"
#include <cstddef>
#include <cstdint>
#include <memory>

namespace lathe::runtime::cuda {

using CuResult = int; ///< 0: success
using CuDevice = int;
using CuAddress = uint64_t;
struct CuContextObject;
struct CuModuleObject;
struct CuFunctionObject;
struct CuStreamObject;
struct CuGraphObject;
struct CuGraphExecObject;
using CuContext = CuContextObject *;
using CuModule = CuModuleObject *;
using CuFunction = CuFunctionObject *;
using CuStream = CuStreamObject *;
using CuGraph = CuGraphObject *;
using CuGraphExec = CuGraphExecObject *;

inline constexpr int attributeMajor = 75, attributeMinor = 76; ///< CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
inline constexpr int attributeMultiprocessors = 16, attributeCooperative = 95; ///< CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, ..._COOPERATIVE_LAUNCH
inline constexpr int functionDynamicShared = 8;                ///< CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
inline constexpr int jitErrorLog = 5, jitErrorLogBytes = 6;    ///< CU_JIT_ERROR_LOG_BUFFER, ..._SIZE_BYTES
inline constexpr unsigned streamNonBlocking = 1;
inline constexpr int launchCooperative = 2;  ///< CU_LAUNCH_ATTRIBUTE_COOPERATIVE
inline constexpr int launchProgrammatic = 6; ///< CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
inline constexpr int programmaticInGraphs = 12030; ///< the first driver whose graphs keep it
inline constexpr int captureThreadLocal = 1; ///< CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: other threads' calls do not disturb it

/// CUlaunchAttribute.
struct alignas(8) CuLaunchAttribute {
  int id = 0;
  char pad[4] = {};
  union {
    int value;
    char bytes[64];
  };
};
/// CUlaunchConfig.
struct CuLaunchConfig {
  unsigned grid[3] = {1, 1, 1}, block[3] = {1, 1, 1}, sharedBytes = 0;
  CuStream stream = nullptr;
  CuLaunchAttribute *attributes = nullptr;
  unsigned attributeCount = 0;
};
static_assert(sizeof(CuLaunchAttribute) == 72 && sizeof(CuLaunchConfig) == 56 && offsetof(CuLaunchConfig, stream) == 32);

/// The functions, all there when load() succeeds. The library stays loaded.
struct Api {
  CuResult (*init)(unsigned);
  CuResult (*driverVersion)(int *);
  CuResult (*errorString)(CuResult, const char **);
  CuResult (*deviceCount)(int *);
  CuResult (*deviceGet)(CuDevice *, int);
  CuResult (*deviceName)(char *, int, CuDevice);
  CuResult (*deviceAttribute)(int *, int, CuDevice);
  CuResult (*contextRetain)(CuContext *, CuDevice);
  CuResult (*contextRelease)(CuDevice);
  CuResult (*contextSetCurrent)(CuContext);
  CuResult (*streamCreate)(CuStream *, unsigned);
  CuResult (*streamDestroy)(CuStream);
  CuResult (*streamSynchronize)(CuStream);
  CuResult (*allocate)(CuAddress *, size_t);
  CuResult (*free)(CuAddress);
  CuResult (*upload)(CuAddress, const void *, size_t, CuStream);
  CuResult (*download)(void *, CuAddress, size_t, CuStream);
  CuResult (*copy)(CuAddress, CuAddress, size_t, CuStream);
  CuResult (*fill)(CuAddress, unsigned char, size_t, CuStream);
  CuResult (*moduleLoad)(CuModule *, const void *, unsigned, int *, void **);
  CuResult (*moduleUnload)(CuModule);
  CuResult (*moduleFunction)(CuFunction *, CuModule, const char *);
  CuResult (*functionAttribute)(CuFunction, int, int);
  CuResult (*residentBlocks)(int *, CuFunction, int, size_t);
  CuResult (*captureBegin)(CuStream, int);
  CuResult (*captureEnd)(CuStream, CuGraph *);
  CuResult (*graphInstantiate)(CuGraphExec *, CuGraph, unsigned long long);
  CuResult (*graphDestroy)(CuGraph);
  CuResult (*graphExecDestroy)(CuGraphExec);
  CuResult (*graphLaunch)(CuGraphExec, CuStream);
  CuResult (*launch)(CuFunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CuStream, void **, void **);
  CuResult (*launchEx)(const CuLaunchConfig *, CuFunction, void **, void **);

  /// Errors: failedPrecondition when there is no libcuda.so.1 (|library| for tests), it lacks a function or finds no device.
  static Result<std::shared_ptr<const Api>> load(const char *library = "libcuda.so.1");
};

} // namespace lathe::runtime::cuda
