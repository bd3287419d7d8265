//===- CompiledGraph.cpp - general code, compiled and called in process ------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "CompiledGraph.h"
#include "X86/Compile.h"
#include "lathe/Codegen/General.h"
#include "lathe/Conversion/Passes.h"
#include "ONNXOps/Weights.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/PassManager.h"
#include "runtime/device/gpu/GpuGraphMemory.h"
#include <cstring>
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

namespace lathe::onnxtest {
using namespace mlir;
using onnx::HostTensor;

namespace {

/// What is read before it is written shows.
class DirtyMemory : public runtime::GraphMemory {
public:
  void *allocate(uint64_t bytes) override {
    void *p = bytes > (uint64_t(1) << 36) ? nullptr : host->allocate(bytes);
    if (p) memset(p, 0xfd, bytes);
    return p;
  }
  void release(void *address) override { host->release(address); }
  Status copy(void *to, const void *from, uint64_t bytes) override { return host->copy(to, from, bytes); }
  Result<const uint8_t *> view(const void *address, uint64_t bytes, std::vector<uint8_t> &buffer) override { return host->view(address, bytes, buffer); }
  Result<const void *> share(std::span<const uint8_t> bytes, const char *what) override { return host->share(bytes, what); }
  Status upload(void *to, std::span<const uint8_t> bytes) override { return host->upload(to, bytes); }

private:
  std::unique_ptr<runtime::GraphMemory> host = runtime::makeHostGraphMemory();
};

} // namespace

Result<CompiledGraph> CompiledGraph::compile(ModuleOp module, artifact::Variant gpu) {
  CompiledGraph g;
  std::string complaints;
  auto complain = [&](Diagnostic &d) {
    if (d.getSeverity() == DiagnosticSeverity::Error) complaints += (complaints.empty() ? "" : "; ") + d.str();
    return success();
  };
  {
    ScopedDiagnosticHandler handler(module.getContext(), complain);
    PassManager pm(module.getContext());
    pm.addPass(createONNXToLinalgPass());
    if (failed(pm.run(module))) return makeError(StatusCode::unsupported, "%s", complaints.c_str());
  }
  auto graph = module.lookupSymbol<func::FuncOp>("graph");
  auto port = [](Type type) {
    auto tensor = cast<RankedTensorType>(type);
    Port p{onnx::dataType(tensor.getElementType()), {}};
    for (int64_t n : tensor.getShape())
      p.shape.push_back(ShapedType::isDynamic(n) ? -1 : n);
    return p;
  };
  for (unsigned i = 0; i < graph.getNumArguments(); ++i) {
    Type type = graph.getArgAttrOfType<TypeAttr>(i, "lathe.type").getValue();
    if (Attribute value = graph.getArgAttr(i, "lathe.value")) {
      LATHE_ASSIGN_OR_RETURN(HostTensor weight, ops::readWeight(type, value));
      g.weights.push_back(std::move(weight));
    } else {
      g.inputs.push_back(port(type));
    }
  }
  for (unsigned i = 0; i < graph.getNumResults(); ++i)
    g.outputs.push_back(port(cast<TypeAttr>(graph.getResultAttr(i, "lathe.type")).getValue()));
  for (Attribute text : module->getAttrOfType<ArrayAttr>("lathe.checks"))
    g.checks.push_back(cast<StringAttr>(text).str());

  std::string object;
  if (gpu == artifact::Variant::none) {
    LATHE_ASSIGN_OR_RETURN(object, codegen::compileGraph(module, {codegen::emittedVariant(codegen::hostVariant())}));
    g.memory = std::make_unique<DirtyMemory>();
  } else {
    LATHE_ASSIGN_OR_RETURN(codegen::GpuGraph made, codegen::compileGraphForGpu(module, gpu));
    LATHE_ASSIGN_OR_RETURN(auto driver, runtime::makeEmulatorDriver(gpu));
    LATHE_ASSIGN_OR_RETURN(g.memory, runtime::makeGpuGraphMemory(std::move(driver), made.ptx, {}, made.kernels));
    object = std::move(made.object);
  }
  LATHE_ASSIGN_OR_RETURN(std::string code, codegen::linkGraph(object));
  int fd = memfd_create("lathe-graph", 0);
  if (fd < 0 || write(fd, code.data(), code.size()) != ssize_t(code.size())) return makeError(StatusCode::resourceExhausted, "cannot hold the code in memory");
  void *library = dlopen(("/proc/self/fd/" + std::to_string(fd)).c_str(), RTLD_NOW | RTLD_LOCAL);
  // The name of an open library stands for it: another graph must not get the number while this one lives.
  g.library = {library, [fd](void *handle) {
                 if (handle) dlclose(handle);
                 close(fd);
               }};
  if (!library) return makeError(StatusCode::internal, "%s", dlerror());
  g.function = reinterpret_cast<LatheGraphFn>(dlsym(library, "lathe_graph"));
  if (!g.function) return makeError(StatusCode::internal, "the code has no lathe_graph");
  return g;
}

Result<std::vector<HostTensor>> CompiledGraph::run(const std::vector<HostTensor> &given) const {
  if (given.size() != inputs.size()) return makeError(StatusCode::invalidArgument, "expected %zu inputs, found %zu", inputs.size(), given.size());
  runtime::GraphCall call(*memory);
  std::vector<std::vector<int64_t>> heads;
  auto head = [&](const HostTensor &t) -> Status {
    std::vector<int64_t> h(3 + 2 * t.shape.size());
    LATHE_ASSIGN_OR_RETURN(const void *data, call.place(t.data));
    h[0] = h[1] = reinterpret_cast<int64_t>(data);
    int64_t stride = 1;
    for (size_t k = t.shape.size(); k-- > 0;) {
      h[3 + k] = t.shape[k];
      h[3 + t.shape.size() + k] = stride;
      stride *= t.shape[k];
    }
    heads.push_back(std::move(h));
    return Status();
  };
  for (size_t i = 0; i < given.size(); ++i) {
    bool fits = given[i].type == inputs[i].type && given[i].shape.size() == inputs[i].shape.size();
    for (size_t k = 0; fits && k < given[i].shape.size(); ++k)
      fits = inputs[i].shape[k] < 0 || inputs[i].shape[k] == given[i].shape[k];
    if (!fits) return makeError(StatusCode::invalidArgument, "input %zu does not have the type that the graph states", i);
    LATHE_RETURN_IF_ERROR(head(given[i]));
  }
  for (const HostTensor &w : weights)
    LATHE_RETURN_IF_ERROR(head(w));
  std::vector<void *> pointers;
  for (auto &h : heads)
    pointers.push_back(h.data());
  size_t words = 0;
  for (const Port &p : outputs)
    words += 3 + 2 * p.shape.size();
  std::vector<int64_t> results(words);
  LATHE_RETURN_IF_ERROR(call.run(function, pointers.data(), results.data(), checks));
  std::vector<HostTensor> out;
  const int64_t *at = results.data();
  for (const Port &p : outputs) {
    HostTensor t;
    t.type = p.type;
    t.shape.assign(at + 3, at + 3 + p.shape.size());
    size_t bytes = size_t(t.elements()) * size_t(std::max(8, onnxfile::dataTypeBits(p.type)) / 8);
    std::vector<uint8_t> buffer;
    LATHE_ASSIGN_OR_RETURN(const uint8_t *data, memory->view(reinterpret_cast<const void *>(at[1]), bytes, buffer));
    t.data.assign(data, data + bytes);
    out.push_back(std::move(t));
    at += 3 + 2 * p.shape.size();
  }
  return out;
}

} // namespace lathe::onnxtest
