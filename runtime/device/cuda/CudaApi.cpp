//===- CudaApi.cpp ----------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/device/cuda/CudaApi.h"
#include <dlfcn.h>

namespace lathe::runtime::cuda {

Result<std::shared_ptr<const Api>> Api::load(const char *library) {
  void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char *why = dlerror();
    return makeError(StatusCode::failedPrecondition,
                     "device 'cuda' needs NVIDIA's driver library, which cannot be loaded: %s; '--device cpu' works without it", why ? why : library);
  }
  auto api = std::make_shared<Api>();
  Status missing;
  auto find = [&](auto &function, const char *name) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(handle, name));
    if (!function && missing.ok())
      missing = makeError(StatusCode::failedPrecondition, "device 'cuda': '%s' has no function '%s'; expected a driver of CUDA 12.0 or later", library, name);
  };
  find(api->init, "cuInit");
  find(api->driverVersion, "cuDriverGetVersion");
  find(api->errorString, "cuGetErrorString");
  find(api->deviceCount, "cuDeviceGetCount");
  find(api->deviceGet, "cuDeviceGet");
  find(api->deviceName, "cuDeviceGetName");
  find(api->deviceAttribute, "cuDeviceGetAttribute");
  find(api->contextRetain, "cuDevicePrimaryCtxRetain");
  find(api->contextRelease, "cuDevicePrimaryCtxRelease_v2");
  find(api->contextSetCurrent, "cuCtxSetCurrent");
  find(api->streamCreate, "cuStreamCreate");
  find(api->streamDestroy, "cuStreamDestroy_v2");
  find(api->streamSynchronize, "cuStreamSynchronize");
  find(api->allocate, "cuMemAlloc_v2");
  find(api->free, "cuMemFree_v2");
  find(api->upload, "cuMemcpyHtoDAsync_v2");
  find(api->download, "cuMemcpyDtoHAsync_v2");
  find(api->copy, "cuMemcpyDtoDAsync_v2");
  find(api->fill, "cuMemsetD8Async");
  find(api->moduleLoad, "cuModuleLoadDataEx");
  find(api->moduleUnload, "cuModuleUnload");
  find(api->moduleFunction, "cuModuleGetFunction");
  find(api->functionAttribute, "cuFuncSetAttribute");
  find(api->residentBlocks, "cuOccupancyMaxActiveBlocksPerMultiprocessor");
  find(api->captureBegin, "cuStreamBeginCapture_v2");
  find(api->captureEnd, "cuStreamEndCapture");
  find(api->graphInstantiate, "cuGraphInstantiateWithFlags");
  find(api->graphDestroy, "cuGraphDestroy");
  find(api->graphExecDestroy, "cuGraphExecDestroy");
  find(api->graphLaunch, "cuGraphLaunch");
  find(api->launch, "cuLaunchKernel");
  find(api->launchEx, "cuLaunchKernelEx");
  if (!missing.ok()) return missing;
  if (CuResult r = api->init(0)) {
    const char *text = nullptr;
    api->errorString(r, &text);
    return makeError(StatusCode::failedPrecondition, "device 'cuda' cannot be used: %s (error %d)", text ? text : "unknown error", r);
  }
  return std::shared_ptr<const Api>(api);
}

} // namespace lathe::runtime::cuda
