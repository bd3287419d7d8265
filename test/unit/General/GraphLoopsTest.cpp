//===- GraphLoopsTest.cpp - loops of a general graph on x86 -------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "General/Loops.h"
#include "lathe/Codegen/General.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"
#include <gtest/gtest.h>

using namespace lathe;

namespace {

/// Two equal nests of other memory, a sum that comes back, a loop in a branch that hands memory on, and a check.
const char *const graph = R"(
module {
  func.func private @lathe_graph_fail(i64)
  func.func @graph(%x: memref<?x?xf32>, %y: memref<?x?xf32>, %z: memref<?x?xf32>, %deep: i1) -> f32 {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c7 = arith.constant 7 : i64
    %zero = arith.constant 0.0 : f32
    %n = memref.dim %x, %c0 : memref<?x?xf32>
    %m = memref.dim %x, %c1 : memref<?x?xf32>
    scf.for %i = %c0 to %n step %c1 {
      scf.for %j = %c0 to %m step %c1 {
        %a = memref.load %x[%i, %j] : memref<?x?xf32>
        %b = math.exp %a : f32
        memref.store %b, %y[%i, %j] : memref<?x?xf32>
      }
    }
    scf.for %i = %c0 to %n step %c1 {
      scf.for %j = %c0 to %m step %c1 {
        %a = memref.load %y[%i, %j] : memref<?x?xf32>
        %b = math.exp %a : f32
        memref.store %b, %z[%i, %j] : memref<?x?xf32>
      }
    }
    scf.if %deep {
      %last = scf.for %i = %c0 to %n step %c1 iter_args(%t = %y) -> (memref<?x?xf32>) {
        %ok = arith.cmpi slt, %i, %m : index
        scf.if %ok {
          func.call @lathe_graph_fail(%c7) : (i64) -> ()
        }
        scf.yield %z : memref<?x?xf32>
      }
      memref.copy %last, %x : memref<?x?xf32> to memref<?x?xf32>
    }
    %sum = scf.for %i = %c0 to %n step %c1 iter_args(%s = %zero) -> (f32) {
      %a = memref.load %z[%i, %c0] : memref<?x?xf32>
      %t = arith.addf %s, %a : f32
      scf.yield %t : f32
    }
    return %sum : f32
  }
})";

} // namespace

TEST(GraphLoops, EqualNestsAreOneFunction) {
  mlir::DialectRegistry registry;
  codegen::registerGeneralDialects(registry);
  registry.insert<mlir::LLVM::LLVMDialect>();
  mlir::MLIRContext context(registry);
  context.loadAllAvailableDialects();
  auto module = mlir::parseSourceString<mlir::ModuleOp>(graph, &context);
  ASSERT_TRUE(module);
  EXPECT_EQ(codegen::outlineLoops(*module), 3u);
  ASSERT_TRUE(mlir::succeeded(mlir::verify(*module)));
  size_t calls = 0, loops = 0;
  auto function = module->lookupSymbol<mlir::func::FuncOp>("graph");
  function.walk([&](mlir::func::CallOp call) { calls += call.getCallee().starts_with(codegen::graphLoop); });
  function.walk([&](mlir::scf::ForOp) { ++loops; });
  EXPECT_EQ(calls, 4u);
  EXPECT_EQ(loops, 0u);
  // What the nests do is in the functions, once.
  size_t exponentials = 0, checks = 0;
  for (auto f : module->getOps<mlir::func::FuncOp>())
    f.walk([&](mlir::Operation *op) {
      exponentials += op->getName().getStringRef() == "math.exp";
      if (auto call = mlir::dyn_cast<mlir::func::CallOp>(op)) checks += call.getCallee() == "lathe_graph_fail";
    });
  EXPECT_EQ(exponentials, 1u);
  EXPECT_EQ(checks, 1u);
  // And nothing is left to do a second time.
  EXPECT_EQ(codegen::outlineLoops(*module), 0u);
}
