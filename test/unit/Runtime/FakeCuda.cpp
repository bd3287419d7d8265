//===- FakeCuda.cpp - NVIDIA's driver library on host memory -------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// A shared library with the driver's functions that Lathe calls: device memory is host memory, a module is the toy model's x86 code, a launch calls
// it for all blocks. A stream that is being captured runs nothing and refuses copies, as the real one does.
//===----------------------------------------------------------------------===//
#include "FakeCuda.h"
#include "lathe/artifact/Megakernel.h"
#include "lathe/artifact/Step.h"
#include "runtime/device/cuda/CudaApi.h"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fstream>
#include <vector>

using namespace lathe;
using namespace lathe::runtime::cuda; // its types: a call through another function type is undefined

namespace {

constexpr int success = 0, invalidValue = 1, captureUnsupported = 900;

struct Function {
  std::string name;
  LatheKernelFn code;
};
struct Start {
  Function *function;
  unsigned blocks;
  std::vector<uint64_t> args;
};
struct Graph {
  std::vector<Start> starts;
};

test::FakeCudaState state;
bool capturing = false, first = true;
Graph captured;
std::map<uint64_t, void *> memory;
void *module = nullptr; ///< of the code that was loaded last

/// What a megakernel does, by its table: all blocks of one launch after the other.
void executeTable(const Start &s) {
  const auto *at = reinterpret_cast<const uint8_t *>(s.args[0]);
  const auto *step = reinterpret_cast<const LatheStep *>(s.args[2]);
  MegakernelTable table;
  std::memcpy(&table, at, sizeof table);
  at += sizeof table;
  unsigned most = 0;
  for (const std::string &body : state.bodies) most = std::max(most, state.arguments.at(body) - 1);
  for (uint32_t i = 0; i < table.launches; ++i, at += megakernelRecordBytes(most)) {
    MegakernelRecord r;
    std::memcpy(&r, at, sizeof r);
    const uint32_t rows = r.rows == MegakernelRecord::ofStep ? step->rows : r.rows == MegakernelRecord::ofOutput ? step->outRows : 1;
    const std::string &body = state.bodies.at(r.body);
    std::vector<uint8_t *> pointers(state.arguments.at(body) - 1);
    std::memcpy(pointers.data(), at + sizeof r, 8 * pointers.size());
    alignas(64) uint8_t scratch[4096];
    auto code = reinterpret_cast<LatheKernelFn>(dlsym(module, body.c_str()));
    code(pointers.data(), step, 0, int64_t(r.count) * ((rows + r.rowsPerBlock - 1) / r.rowsPerBlock), 1, scratch);
    ++state.executed;
  }
}
void execute(const Start &s) {
  if (!s.function->code) return executeTable(s);
  std::vector<uint8_t *> pointers;
  for (size_t i = 0; i + 1 < s.args.size(); ++i) pointers.push_back(reinterpret_cast<uint8_t *>(s.args[i]));
  alignas(64) uint8_t scratch[4096];
  s.function->code(pointers.data(), reinterpret_cast<const LatheStep *>(s.args.back()), 0, s.blocks, 1, scratch);
  ++state.executed;
}
int copy(uint64_t to, uint64_t from, size_t bytes) {
  if (capturing) return captureUnsupported;
  first = true;
  if (bytes) std::memcpy(reinterpret_cast<void *>(to), reinterpret_cast<const void *>(from), bytes);
  return success;
}

} // namespace

extern "C" {

test::FakeCudaState *fakeCudaState() { return &state; }

int cuInit(unsigned) { return success; }
int cuDriverGetVersion(int *v) { return *v = state.version, success; }
int cuGetErrorString(int error, const char **text) { return *text = error == captureUnsupported ? "not while a stream is captured" : "a fake error", success; }
int cuDeviceGetCount(int *n) { return *n = 1, success; }
int cuDeviceGet(int *d, int) { return *d = 0, success; }
int cuDeviceGetName(char *name, int n, int) { return std::snprintf(name, size_t(n), "fake"), success; }
int cuDeviceGetAttribute(int *v, int attribute, int) { return *v = attribute == 75 ? 9 : attribute == 16 ? 3 : attribute == 95 ? state.cooperative : 0, success; }
int cuDevicePrimaryCtxRetain(CuContext *c, int) { return *c = reinterpret_cast<CuContext>(&state), success; }
int cuDevicePrimaryCtxRelease_v2(int) { return success; }
int cuCtxSetCurrent(CuContext) { return success; }
int cuStreamCreate(CuStream *s, unsigned) { return *s = reinterpret_cast<CuStream>(&capturing), success; }
int cuStreamDestroy_v2(CuStream) { return success; }
int cuStreamSynchronize(CuStream) { return capturing ? captureUnsupported : success; }
int cuMemAlloc_v2(uint64_t *address, size_t bytes) {
  if (capturing) return captureUnsupported;
  void *p = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  std::memset(p, 0xff, bytes);
  *address = reinterpret_cast<uint64_t>(p);
  memory[*address] = p;
  ++state.memory;
  return success;
}
int cuMemFree_v2(uint64_t address) {
  auto found = memory.find(address);
  if (found == memory.end()) return invalidValue;
  std::free(found->second);
  memory.erase(found);
  --state.memory;
  return success;
}
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, CuStream) { return copy(to, reinterpret_cast<uint64_t>(from), bytes); }
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, CuStream) { return copy(reinterpret_cast<uint64_t>(to), from, bytes); }
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, CuStream) { return copy(to, from, bytes); }
int cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, CuStream) {
  if (capturing) return captureUnsupported;
  return std::memset(reinterpret_cast<void *>(to), value, bytes), success;
}
/// |image|: the path of the code, as text.
int cuModuleLoadDataEx(CuModule *loaded, const void *image, unsigned, int *, void **) {
  *loaded = static_cast<CuModule>(module = dlopen(static_cast<const char *>(image), RTLD_NOW | RTLD_LOCAL));
  return module ? success : invalidValue;
}
int cuModuleUnload(CuModule module) { return dlclose(module) ? invalidValue : success; }
int cuModuleGetFunction(CuFunction *function, CuModule module, const char *name) {
  auto code = reinterpret_cast<LatheKernelFn>(dlsym(module, name));
  if (!code && name != state.megakernel) return invalidValue;
  static std::map<std::string, Function> all;
  all[name] = {name, code};
  *function = reinterpret_cast<CuFunction>(&all[name]);
  return success;
}
int cuFuncSetAttribute(CuFunction, int, int) { return success; }
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, CuFunction, int, size_t) { return *n = state.resident, success; }
static int launch(CuFunction function, unsigned blocks, void **params, bool overlaps) {
  if (state.started++ == state.failStart) return invalidValue;
  state.overlapping += overlaps;
  if (first) state.firsts += overlaps ? 'o' : '-';
  first = false;
  Start s{reinterpret_cast<Function *>(function), blocks, {}};
  const unsigned count = s.function->code ? state.arguments.at(s.function->name) : 3;
  for (unsigned i = 0; i < count; ++i) s.args.push_back(*static_cast<uint64_t *>(params[i]));
  if (capturing)
    captured.starts.push_back(std::move(s));
  else
    execute(s);
  return success;
}
int cuLaunchKernel(CuFunction function, unsigned blocks, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CuStream, void **params, void **) {
  return launch(function, blocks, params, false);
}
int cuLaunchKernelEx(const CuLaunchConfig *config, CuFunction function, void **params, void **) {
  if (config->attributeCount != 1 || config->block[0] != 32 || config->sharedBytes != 16) return invalidValue;
  if (config->attributes->id == launchCooperative) {
    if (config->attributes->value != 1 || config->grid[0] > unsigned(3 * state.resident)) return invalidValue;
    ++state.together;
    return launch(function, config->grid[0], params, false);
  }
  if (config->attributes->id != launchProgrammatic) return invalidValue;
  return launch(function, config->grid[0], params, config->attributes->value == 1);
}
int cuStreamBeginCapture_v2(CuStream, int) {
  if (capturing) return invalidValue;
  capturing = first = true;
  captured = {};
  ++state.captures;
  return success;
}
int cuStreamEndCapture(CuStream, CuGraph *graph) {
  if (!capturing) return invalidValue;
  capturing = false;
  ++state.graphs;
  *graph = reinterpret_cast<CuGraph>(new Graph(captured));
  return success;
}
int cuGraphInstantiateWithFlags(CuGraphExec *executable, CuGraph graph, unsigned long long) {
  if (state.failInstantiate) return invalidValue;
  ++state.executables;
  *executable = reinterpret_cast<CuGraphExec>(new Graph(*reinterpret_cast<Graph *>(graph)));
  return success;
}
int cuGraphDestroy(CuGraph graph) {
  --state.graphs;
  delete reinterpret_cast<Graph *>(graph);
  return success;
}
int cuGraphExecDestroy(CuGraphExec executable) {
  --state.executables;
  delete reinterpret_cast<Graph *>(executable);
  return success;
}
int cuGraphLaunch(CuGraphExec executable, CuStream) {
  if (capturing) return captureUnsupported;
  ++state.graphLaunches;
  for (const Start &s : reinterpret_cast<Graph *>(executable)->starts) execute(s);
  return success;
}

} // extern "C"
