//===- GraphKernelsTest.cpp - loops of a general graph on a GPU ---------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// func @graph over tensors, as onnx-to-linalg leaves it, compiled for sm_80 and run on the emulator.
//===----------------------------------------------------------------------===//
#include "lathe/Codegen/General.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "runtime/device/gpu/GpuGraphMemory.h"
#include <cmath>
#include <cstring>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace lathe;
using namespace lathe::runtime;

namespace {

/// A graph of float tensors of rank 1 on the emulator.
class Graph {
public:
  explicit Graph(const std::string &body) : context(registry(), mlir::MLIRContext::Threading::DISABLED) {
    context.loadAllAvailableDialects();
    auto module = mlir::parseSourceString<mlir::ModuleOp>("module attributes {lathe.checks = []} {\nfunc.func private @lathe_graph_fail(i64)\n" + body + "}", &context);
    if (!module) return;
    auto made = codegen::compileGraphForGpu(*module, artifact::Variant::sm_80);
    EXPECT_TRUE(made.ok()) << made.status().message();
    if (!made.ok()) return;
    code = *std::move(made);
    auto driver = makeEmulatorDriver(artifact::Variant::sm_80);
    auto linked = codegen::linkGraph(code.object);
    EXPECT_TRUE(driver.ok() && linked.ok());
    auto m = makeGpuGraphMemory(*std::move(driver), code.ptx, {}, code.kernels);
    EXPECT_TRUE(m.ok()) << m.status().message();
    if (!m.ok()) return;
    memory = *std::move(m);
    int fd = memfd_create("graph", 0);
    EXPECT_EQ(write(fd, linked->data(), linked->size()), static_cast<ssize_t>(linked->size()));
    void *library = dlopen(("/proc/self/fd/" + std::to_string(fd)).c_str(), RTLD_NOW | RTLD_LOCAL);
    EXPECT_TRUE(library) << dlerror();
    function = reinterpret_cast<LatheGraphFn>(dlsym(library, "lathe_graph")); // stays loaded, as its descriptor stays open
  }
  /// The result, or the error's message in |error|.
  std::vector<float> run(const std::vector<std::vector<float>> &inputs, const std::vector<std::string> &checks = {}) {
    error.clear();
    GraphCall call(*memory);
    std::vector<std::array<int64_t, 5>> heads;
    std::vector<void *> pointers;
    for (const auto &x : inputs) {
      auto at = call.place({reinterpret_cast<const uint8_t *>(x.data()), x.size() * 4});
      EXPECT_TRUE(at.ok());
      auto address = reinterpret_cast<int64_t>(*at);
      heads.push_back({address, address, 0, static_cast<int64_t>(x.size()), 1});
    }
    for (auto &h : heads)
      pointers.push_back(h.data());
    int64_t result[5];
    if (Status s = call.run(function, pointers.data(), result, checks); !s.ok()) {
      error = s.message();
      return {};
    }
    std::vector<uint8_t> buffer;
    auto bytes = memory->view(reinterpret_cast<const void *>(result[1]), static_cast<uint64_t>(result[3]) * 4, buffer);
    EXPECT_TRUE(bytes.ok());
    std::vector<float> out(static_cast<size_t>(result[3]));
    std::memcpy(out.data(), *bytes, out.size() * 4);
    return out;
  }
  codegen::GpuGraph code;
  std::string error;

private:
  static mlir::DialectRegistry registry() {
    mlir::DialectRegistry r;
    codegen::registerGeneralDialects(r);
    r.insert<mlir::LLVM::LLVMDialect>();
    return r;
  }
  mlir::MLIRContext context;
  std::unique_ptr<GraphMemory> memory;
  LatheGraphFn function = nullptr;
};

const char *const twoEqual = R"(
  func.func @graph(%x: tensor<?xf32> {bufferization.writable = false}) -> tensor<?xf32> {
    %c0 = arith.constant 0 : index
    %n = tensor.dim %x, %c0 : tensor<?xf32>
    %y = tensor.generate %n {
    ^bb0(%i: index):
      %a = tensor.extract %x[%i] : tensor<?xf32>
      %s = math.sin %a : f32
      tensor.yield %s : f32
    } : tensor<?xf32>
    %z = tensor.generate %n {
    ^bb0(%i: index):
      %a = tensor.extract %y[%i] : tensor<?xf32>
      %s = math.sin %a : f32
      tensor.yield %s : f32
    } : tensor<?xf32>
    return %z : tensor<?xf32>
  })";

} // namespace

TEST(GraphKernels, EqualLoopsAreOneKernel) {
  Graph g(twoEqual);
  EXPECT_EQ(g.code.kernels, (std::vector<std::string>{"lathe_graph_kernel_0"}));
  EXPECT_NE(g.code.ptx.find(".entry lathe_graph_kernel_0("), std::string::npos);
  std::vector<float> x, want;
  for (int i = 0; i < 300; ++i) { // more than two blocks, and not whole ones
    x.push_back(0.1f * static_cast<float>(i) - 7);
    want.push_back(std::sin(std::sin(x.back())));
  }
  auto got = g.run({x});
  ASSERT_EQ(got.size(), want.size()) << g.error;
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], want[i], 2e-7) << i;
  EXPECT_TRUE(g.run({{}}).empty()); // nothing to launch
  EXPECT_EQ(g.error, "");
}

// y[n] = sum over k of x[k * 40 + n]: the loop over k comes first, as in the product of matrices, and is put inside.
TEST(GraphKernels, SumsKeepTheirOrder) {
  Graph g(R"(
  func.func @graph(%x: tensor<?xf32> {bufferization.writable = false}) -> tensor<?xf32> {
    %zero = arith.constant 0.0 : f32
    %shape = arith.constant dense<[30, 40]> : tensor<2xindex>
    %m = tensor.reshape %x(%shape) : (tensor<?xf32>, tensor<2xindex>) -> tensor<30x40xf32>
    %e = tensor.empty() : tensor<40xf32>
    %f = linalg.fill ins(%zero : f32) outs(%e : tensor<40xf32>) -> tensor<40xf32>
    %s = linalg.generic {indexing_maps = [affine_map<(k, n) -> (k, n)>, affine_map<(k, n) -> (n)>], iterator_types = ["reduction", "parallel"]}
        ins(%m : tensor<30x40xf32>) outs(%f : tensor<40xf32>) {
    ^bb0(%a: f32, %b: f32):
      %c = arith.addf %b, %a : f32
      linalg.yield %c : f32
    } -> tensor<40xf32>
    %r = tensor.cast %s : tensor<40xf32> to tensor<?xf32>
    return %r : tensor<?xf32>
  })");
  std::vector<float> x, want(40, 0.0f);
  for (int i = 0; i < 1200; ++i) {
    x.push_back(std::ldexp(1.0f + 0.001f * static_cast<float>(i % 97), i % 31 - 15));
    want[static_cast<size_t>(i % 40)] += x.back();
  }
  EXPECT_EQ(g.run({x}), want) << g.error;
}

// Writes that have an order of their own, scalars that come back to the host, a constant of the code, and a check that fails in a kernel.
TEST(GraphKernels, OrderedLoopsAndChecks) {
  Graph g(R"(
  func.func @graph(%x: tensor<?xf32> {bufferization.writable = false}) -> tensor<?xf32> {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %i3 = arith.constant 3 : i64
    %zero = arith.constant 0.0 : f32
    %table = arith.constant dense<[0.5, 0.25, 0.125, 2.0, 4.0, 8.0, 16.0, 32.0]> : tensor<8xf32>
    %n = tensor.dim %x, %c0 : tensor<?xf32>
    %count = scf.for %i = %c0 to %n step %c1 iter_args(%so = %c0) -> (index) {
      %a = tensor.extract %x[%i] : tensor<?xf32>
      %hit = arith.cmpf ogt, %a, %zero : f32
      %one = arith.select %hit, %c1, %c0 : index
      %next = arith.addi %so, %one : index
      scf.yield %next : index
    }
    %e = tensor.empty(%count) : tensor<?xf32>
    %at, %out = scf.for %i = %c0 to %n step %c1 iter_args(%k = %c0, %t = %e) -> (index, tensor<?xf32>) {
      %a = tensor.extract %x[%i] : tensor<?xf32>
      %hit = arith.cmpf ogt, %a, %zero : f32
      %k2, %t2 = scf.if %hit -> (index, tensor<?xf32>) {
        %whole = arith.fptosi %a : f32 to i64
        %place = arith.index_cast %whole : i64 to index
        %c8 = arith.constant 8 : index
        %outside = arith.cmpi sge, %place, %c8 : index
        scf.if %outside {
          func.call @lathe_graph_fail(%i3) : (i64) -> ()
        }
        %y = tensor.extract %table[%place] : tensor<8xf32>
        %u = tensor.insert %y into %t[%k] : tensor<?xf32>
        %n2 = arith.addi %k, %c1 : index
        scf.yield %n2, %u : index, tensor<?xf32>
      } else {
        scf.yield %k, %t : index, tensor<?xf32>
      }
      scf.yield %k2, %t2 : index, tensor<?xf32>
    }
    return %out : tensor<?xf32>
  })");
  EXPECT_EQ(g.run({{3.5f, -1, 1, 7, -2}}), (std::vector<float>{2, 0.25f, 32})) << g.error;
  g.run({{1, 9, 2}}, {"a", "b", "c", "node 'g': expected indices within the axis"});
  EXPECT_EQ(g.error, "node 'g': expected indices within the axis");
  EXPECT_EQ(g.run({{4}}), (std::vector<float>{4})) << g.error; // the failure is not remembered
}

TEST(GraphKernels, OtherVariantsAreNoChips) {
  mlir::DialectRegistry registry;
  codegen::registerGeneralDialects(registry);
  registry.insert<mlir::LLVM::LLVMDialect>();
  mlir::MLIRContext context(registry);
  context.loadAllAvailableDialects();
  auto module = mlir::parseSourceString<mlir::ModuleOp>(twoEqual, &context);
  EXPECT_EQ(codegen::compileGraphForGpu(*module, artifact::Variant::avx2).status().message(), "no chip has the variant 1");
}
