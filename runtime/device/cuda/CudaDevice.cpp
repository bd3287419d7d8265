//===- CudaDevice.cpp - NVIDIA GPUs through the driver API ---------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/device/Device.h"
#include "runtime/device/cuda/CudaApi.h"
#include "runtime/device/gpu/GpuExecutable.h"
#include <algorithm>
#include <cinttypes>
#include <cstring>
#include <map>
#include <utility>

namespace lathe::runtime {
namespace {
using namespace cuda;
using artifact::Variant;

/// A device's compute capability, 10 * major + minor, and what code it runs.
struct Capability {
  int value = 0;
  bool runs(Variant variant) const {
    int code = static_cast<int>(variant);
    bool later = variant == Variant::sm_80 || variant == Variant::sm_89; // PTX that the driver compiles for later chips, too
    return artifact::isGpu(variant) && (later ? code <= value : code == value);
  }
};

class CudaDriver : public GpuDriver {
public:
  static Result<std::unique_ptr<CudaDriver>> create(std::shared_ptr<const Api> api, CuDevice device, Capability capability) {
    std::unique_ptr<CudaDriver> d(new CudaDriver(std::move(api), device, capability));
    LATHE_RETURN_IF_ERROR(d->check(d->api->contextRetain(&d->context, device), "making a context"));
    LATHE_RETURN_IF_ERROR(d->check(d->api->contextSetCurrent(d->context), "entering the context"));
    LATHE_RETURN_IF_ERROR(d->check(d->api->streamCreate(&d->stream, streamNonBlocking), "making a stream"));
    int version = 0;
    d->programmatic = !d->api->driverVersion(&version) && version >= programmaticInGraphs;
    return d;
  }
  ~CudaDriver() override {
    if (context) (void)api->contextSetCurrent(context);
    if (stream) (void)api->streamSynchronize(stream);
    for (auto [key, exec] : graphs) (void)api->graphExecDestroy(exec);
    for (CuAddress a : shared) (void)api->free(a);
    if (module) (void)api->moduleUnload(module);
    if (stream) (void)api->streamDestroy(stream);
    if (context) (void)api->contextRelease(device);
  }
  const char *name() const override { return "cuda"; }
  bool runs(Variant variant) const override { return capability.runs(variant); }

  Result<uint64_t> allocate(uint64_t bytes, const char *what) override {
    LATHE_RETURN_IF_ERROR(enter());
    CuAddress address = 0;
    if (CuResult r = api->allocate(&address, std::max<uint64_t>(bytes, 1)))
      return makeError(StatusCode::resourceExhausted, "cannot allocate %" PRIu64 " bytes of GPU memory for the %s: %s", bytes, what, text(r));
    return address;
  }
  void release(uint64_t address) override {
    if (enter().ok()) (void)api->free(address);
  }
  Result<uint64_t> share(std::span<const uint8_t> bytes, const char *what, const UploadProgress &told) override {
    LATHE_ASSIGN_OR_RETURN(uint64_t address, allocate(bytes.size(), what));
    shared.push_back(address);
    // In pieces: the file is read while the bytes before are on their way.
    if (told) told(0, bytes.size());
    for (size_t at = 0, piece = 64 << 20; at < bytes.size(); at += piece) {
      const size_t size = std::min(piece, bytes.size() - at);
      LATHE_RETURN_IF_ERROR(upload(address + at, bytes.subspan(at, size)));
      if (told) told(at + size, bytes.size());
    }
    return address;
  }
  Status upload(uint64_t to, std::span<const uint8_t> bytes) override {
    LATHE_RETURN_IF_ERROR(enter());
    // From pageable memory the call returns when the bytes are staged, so the caller may change them.
    return check(api->upload(to, bytes.data(), bytes.size(), stream), "copying to the GPU");
  }
  Status download(std::span<uint8_t> to, uint64_t from) override {
    LATHE_RETURN_IF_ERROR(enter());
    LATHE_RETURN_IF_ERROR(check(api->download(to.data(), from, to.size(), stream), "copying from the GPU"));
    return synchronize();
  }
  Status copy(uint64_t to, uint64_t from, uint64_t bytes) override {
    LATHE_RETURN_IF_ERROR(enter());
    return check(api->copy(to, from, bytes, stream), "copying on the GPU");
  }
  Status fill(uint64_t to, uint8_t value, uint64_t bytes) override {
    LATHE_RETURN_IF_ERROR(enter());
    return check(api->fill(to, value, bytes, stream), "filling GPU memory");
  }

  Status load(std::string_view ptx, std::span<const uint8_t> cubin, const std::vector<std::string> &kernels, const std::vector<uint32_t> &sharedBytes) override {
    LATHE_RETURN_IF_ERROR(enter());
    CuResult r = 1;
    if (!cubin.empty()) r = api->moduleLoad(&module, cubin.data(), 0, nullptr, nullptr);
    std::string log(8192, '\0');
    if (r) { // no cubin, or one for another chip: the driver compiles the PTX
      std::string terminated(ptx);
      int options[] = {jitErrorLog, jitErrorLogBytes};
      void *values[] = {log.data(), reinterpret_cast<void *>(log.size())};
      r = api->moduleLoad(&module, terminated.c_str(), 2, options, values);
    }
    if (r) return makeError(StatusCode::dataLoss, "the GPU driver refuses the code: %s: %s", text(r), log.c_str());
    for (size_t i = 0; i < kernels.size(); ++i) {
      CuFunction f = nullptr;
      if (api->moduleFunction(&f, module, kernels[i].c_str())) return makeError(StatusCode::dataLoss, "kernel '%s' is missing in the GPU's code", kernels[i].c_str());
      if (sharedBytes[i]) LATHE_RETURN_IF_ERROR(check(api->functionAttribute(f, functionDynamicShared, int(sharedBytes[i])), "reserving shared memory"));
      functions.push_back(f);
    }
    return Status();
  }
  Status launch(uint32_t kernel, uint32_t blocks, uint32_t threads, uint32_t sharedBytes, std::span<const uint64_t> args, bool overlaps) override {
    LATHE_RETURN_IF_ERROR(enter());
    pointers.clear();
    for (const uint64_t &a : args) pointers.push_back(const_cast<uint64_t *>(&a));
    if (overlaps && programmatic) return launchWith(launchProgrammatic, kernel, blocks, threads, sharedBytes);
    return check(api->launch(functions[kernel], blocks, 1, 1, threads, 1, 1, sharedBytes, stream, pointers.data(), nullptr), "starting a kernel");
  }
  Result<uint32_t> residentBlocks(uint32_t kernel, uint32_t threads, uint32_t sharedBytes) override {
    LATHE_RETURN_IF_ERROR(enter());
    int cooperative = 0, multiprocessors = 0, each = 0;
    LATHE_RETURN_IF_ERROR(check(api->deviceAttribute(&cooperative, attributeCooperative, device), "asking for cooperative launches"));
    if (!cooperative) return GpuDriver::residentBlocks(kernel, threads, sharedBytes);
    LATHE_RETURN_IF_ERROR(check(api->deviceAttribute(&multiprocessors, attributeMultiprocessors, device), "counting multiprocessors"));
    LATHE_RETURN_IF_ERROR(check(api->residentBlocks(&each, functions[kernel], int(threads), sharedBytes), "asking for a kernel's occupancy"));
    return uint32_t(std::max(0, each) * std::max(0, multiprocessors));
  }
  Status launchTogether(uint32_t kernel, uint32_t blocks, uint32_t threads, uint32_t sharedBytes, std::span<const uint64_t> args) override {
    LATHE_RETURN_IF_ERROR(enter());
    pointers.clear();
    for (const uint64_t &a : args) pointers.push_back(const_cast<uint64_t *>(&a));
    return launchWith(launchCooperative, kernel, blocks, threads, sharedBytes);
  }
  Status synchronize() override {
    LATHE_RETURN_IF_ERROR(enter());
    return check(api->streamSynchronize(stream), "waiting for the GPU");
  }

  Result<bool> replay(uint64_t key) override {
    auto kept = graphs.find(key);
    if (kept == graphs.end()) return false;
    LATHE_RETURN_IF_ERROR(enter());
    LATHE_RETURN_IF_ERROR(check(api->graphLaunch(kept->second, stream), "starting a graph"));
    return true;
  }
  Status record() override {
    LATHE_RETURN_IF_ERROR(enter());
    return check(api->captureBegin(stream, captureThreadLocal), "capturing a graph");
  }
  Status keep(uint64_t key) override {
    LATHE_RETURN_IF_ERROR(enter());
    CuGraph graph = nullptr;
    LATHE_RETURN_IF_ERROR(check(api->captureEnd(stream, &graph), "capturing a graph"));
    CuGraphExec exec = nullptr;
    Status made = check(api->graphInstantiate(&exec, graph, 0), "making a graph");
    (void)api->graphDestroy(graph);
    LATHE_RETURN_IF_ERROR(made);
    if (CuGraphExec old = std::exchange(graphs[key], exec)) (void)api->graphExecDestroy(old);
    return check(api->graphLaunch(exec, stream), "starting a graph");
  }
  void forget() override {
    CuGraph graph = nullptr;
    if (enter().ok() && !api->captureEnd(stream, &graph) && graph) (void)api->graphDestroy(graph);
  }

private:
  CudaDriver(std::shared_ptr<const Api> a, CuDevice d, Capability c) : api(std::move(a)), device(d), capability(c) {}
  /// Contexts belong to threads, and an executable may be used from another one than made it.
  Status enter() { return check(api->contextSetCurrent(context), "entering the context"); }
  /// Starts a kernel with one attribute; its arguments are in |pointers|.
  Status launchWith(int attributeId, uint32_t kernel, uint32_t blocks, uint32_t threads, uint32_t sharedBytes) {
    CuLaunchAttribute attribute;
    attribute.id = attributeId;
    attribute.value = 1;
    CuLaunchConfig config;
    config.grid[0] = blocks, config.block[0] = threads, config.sharedBytes = sharedBytes, config.stream = stream;
    config.attributes = &attribute, config.attributeCount = 1;
    return check(api->launchEx(&config, functions[kernel], pointers.data(), nullptr), "starting a kernel");
  }
  const char *text(CuResult r) const {
    const char *s = nullptr;
    api->errorString(r, &s);
    return s ? s : "unknown error";
  }
  Status check(CuResult r, const char *what) const {
    return r ? makeError(StatusCode::internal, "%s failed: %s (CUDA error %d)", what, text(r), r) : Status();
  }

  std::shared_ptr<const Api> api;
  CuDevice device;
  Capability capability;
  CuContext context = nullptr;
  CuStream stream = nullptr;
  CuModule module = nullptr;
  bool programmatic = false; ///< launches may overlap, in graphs, too
  std::vector<CuFunction> functions;
  std::vector<CuAddress> shared;
  std::map<uint64_t, CuGraphExec> graphs;
  std::vector<void *> pointers;
};

class CudaDevice : public Device {
public:
  CudaDevice(std::shared_ptr<const Api> a, CuDevice d, Capability c, DevicePlan p) : api(std::move(a)), device(d), capability(c), plan(p) {}
  const char *name() const override { return "cuda"; }
  std::string gpuCode() const override {
    std::string names;
    for (Variant v : {Variant::sm_120a, Variant::sm_100a, Variant::sm_90a, Variant::sm_89, Variant::sm_80})
      if (capability.runs(v)) names += (names.empty() ? "" : ",") + std::string(artifact::toString(v));
    return names.empty() ? "sm_80" : names;
  }
  Result<std::unique_ptr<Executable>> prepare(std::shared_ptr<LoadedArtifact> artifact, const ExecutableOptions &options) override {
    LATHE_ASSIGN_OR_RETURN(auto driver, CudaDriver::create(api, device, capability));
    ExecutableOptions mine = options;
    mine.plan = plan, mine.uploading = uploading;
    return prepareOnGpu(std::move(driver), std::move(artifact), mine);
  }

  void onUpload(UploadProgress told) override { uploading = std::move(told); }

private:
  std::shared_ptr<const Api> api;
  CuDevice device;
  Capability capability;
  DevicePlan plan;
  UploadProgress uploading;
};

struct Gpu {
  std::shared_ptr<const Api> api;
  CuDevice device = 0;
  Capability capability;
};

Result<Gpu> findGpu(const char *library = "libcuda.so.1") {
  LATHE_ASSIGN_OR_RETURN(auto api, Api::load(library));
  int count = 0, major = 0, minor = 0;
  CuDevice device = 0;
  if (api->deviceCount(&count) || count < 1 || api->deviceGet(&device, 0))
    return makeError(StatusCode::failedPrecondition, "device 'cuda': the driver finds no GPU; '--device cpu' works without one");
  if (api->deviceAttribute(&major, attributeMajor, device) || api->deviceAttribute(&minor, attributeMinor, device))
    return makeError(StatusCode::failedPrecondition, "device 'cuda': the driver does not tell the GPU's compute capability");
  Capability capability{10 * major + minor};
  if (capability.value < 80)
    return makeError(StatusCode::failedPrecondition, "device 'cuda': expected a GPU of compute capability 8.0 or later, found %d.%d", major, minor);
  return Gpu{std::move(api), device, capability};
}

} // namespace

Result<std::unique_ptr<GpuDriver>> makeCudaDriver(const char *library) {
  LATHE_ASSIGN_OR_RETURN(Gpu gpu, findGpu(library));
  LATHE_ASSIGN_OR_RETURN(auto driver, CudaDriver::create(std::move(gpu.api), gpu.device, gpu.capability));
  return std::unique_ptr<GpuDriver>(std::move(driver));
}

Result<std::unique_ptr<Device>> makeCudaDevice(DevicePlan plan) {
  LATHE_ASSIGN_OR_RETURN(Gpu gpu, findGpu());
  return std::unique_ptr<Device>(std::make_unique<CudaDevice>(std::move(gpu.api), gpu.device, gpu.capability, plan));
}

} // namespace lathe::runtime
