//===- ONNXInterpreterTest.cpp - tensors that callers bring --------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "lathe/Interpreter/ONNXInterpreter.h"
#include "lathe/InitAll.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include <gtest/gtest.h>

using namespace lathe;
using onnx::DataType;
using onnx::HostTensor;

namespace {

/// Message of running -x on |input|, or "ok" when the first result byte is that of -1.
std::string negate(const HostTensor &input) {
  mlir::DialectRegistry registry;
  registerAllDialects(registry);
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  context.loadAllAvailableDialects();
  auto module = mlir::parseSourceString<mlir::ModuleOp>(R"(
    func.func @main(%x: tensor<?xi8>) -> tensor<*x!onnx.any> {
      %y = onnx.op "Neg"(%x) {version = 13 : i64} : (tensor<?xi8>) -> tensor<*x!onnx.any>
      return %y : tensor<*x!onnx.any>
    })", &context);
  if (!module) return "does not parse";
  auto results = interp::runONNX(*module, {input});
  if (!results.ok()) return results.status().message();
  return (*results)[0].shape == std::vector<int64_t>{3} && (*results)[0].data == std::vector<uint8_t>{255, 254, 253} ? "ok" : "another result";
}

} // namespace

TEST(ONNXInterpreter, TensorsHaveTheBytesThatTheirShapeSays) {
  EXPECT_EQ(negate({DataType::int8, {3}, {1, 2, 3}}), "ok");
  EXPECT_EQ(negate({DataType::int8, {4}, {1, 2, 3}}), "input 0: expected a tensor of 4 elements of 1 bytes, found 3 bytes");
  EXPECT_EQ(negate({DataType::int8, {2}, {1, 2, 3}}), "input 0: expected a tensor of 2 elements of 1 bytes, found 3 bytes");
  EXPECT_EQ(negate({DataType::int64, {1}, {1, 2, 3}}), "input 0: expected a tensor of 1 elements of 8 bytes, found 3 bytes");
  EXPECT_EQ(negate({DataType::int8, {-3}, {1, 2, 3}}), "input 0: expected a tensor of sizes that can be, found a dimension of -3");
  EXPECT_EQ(negate({DataType::int8, {int64_t(1) << 62, 4}, {1, 2, 3}}), "input 0: expected a tensor of sizes that can be, found a dimension of 4");
  EXPECT_EQ(negate({DataType::string, {1}, {}}), "input 0: expected a tensor of numbers, found string");
  EXPECT_EQ(negate({DataType::complex128, {1}, std::vector<uint8_t>(16)}), "input 0: expected a tensor of numbers, found complex128");
}

TEST(ONNXInterpreter, AnEmptyAxisHasNothingToTakeBackwards) {
  mlir::DialectRegistry registry;
  registerAllDialects(registry);
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  context.loadAllAvailableDialects();
  auto module = mlir::parseSourceString<mlir::ModuleOp>(R"(
    func.func @main(%x: tensor<?xi8>, %start: tensor<1xi64>, %end: tensor<1xi64>) -> tensor<*x!onnx.any> {
      %zero = onnx.constant dense<[0]> : tensor<1xi64>
      %back = onnx.constant dense<[-1]> : tensor<1xi64>
      %y = onnx.op "Slice"(%x, %start, %end, %zero, %back) {version = 13 : i64} : (tensor<?xi8>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<*x!onnx.any>
      return %y : tensor<*x!onnx.any>
    })", &context);
  ASSERT_TRUE(module);
  auto reversed = [&](std::vector<uint8_t> bytes) {
    HostTensor x{DataType::int8, {static_cast<int64_t>(bytes.size())}, bytes}, start{DataType::int64, {1}, std::vector<uint8_t>(8, 255)}, end = start;
    end.data = {0, 0, 0, 0, 0, 0, 0, 128};
    auto results = interp::runONNX(*module, {x, start, end});
    EXPECT_TRUE(results.ok()) << results.status().message();
    return results.ok() ? (*results)[0].data : std::vector<uint8_t>{77};
  };
  EXPECT_EQ(reversed({}), std::vector<uint8_t>());
  EXPECT_EQ(reversed({1, 2, 3}), (std::vector<uint8_t>{3, 2, 1}));
}
