//===- ONNXInterpreterTest.cpp - tensors that callers bring --------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "lathe/Interpreter/ONNXInterpreter.h"
#include "lathe/InitAll.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include <cstring>
#include <gtest/gtest.h>

using namespace lathe;
using onnx::DataType;
using onnx::HostTensor;

namespace {

/// With all dialects loaded, on one thread.
struct Context : mlir::MLIRContext {
  Context() : MLIRContext(registry(), Threading::DISABLED) { loadAllAvailableDialects(); }
  static mlir::DialectRegistry registry() {
    mlir::DialectRegistry registry;
    registerAllDialects(registry);
    return registry;
  }
};

/// Message of running -x on |input|, or "ok" when the first result byte is that of -1.
std::string negate(const HostTensor &input) {
  Context context;
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

constexpr int64_t least = INT64_MIN, most = INT64_MAX;

/// What |op| of |version| with |attributes| makes of tensors of 64-bit integers, or the message.
std::string numbers(const std::string &op, int version, const std::vector<std::pair<std::vector<int64_t>, std::vector<int64_t>>> &inputs, const std::string &attributes = "") {
  Context context;
  std::string heads, names, types;
  std::vector<HostTensor> tensors;
  for (const auto &[shape, values] : inputs) {
    std::string name = "%x" + std::to_string(tensors.size()), type = "tensor<", comma = tensors.empty() ? "" : ", ";
    for (size_t k = 0; k < shape.size(); ++k)
      type += "?x";
    type += "i64>";
    heads += comma + name + ": " + type, names += comma + name, types += comma + type;
    HostTensor tensor{DataType::int64, shape, std::vector<uint8_t>(values.size() * 8)};
    if (!values.empty()) memcpy(tensor.data.data(), values.data(), tensor.data.size());
    tensors.push_back(std::move(tensor));
  }
  auto module = mlir::parseSourceString<mlir::ModuleOp>("func.func @main(" + heads + ") -> tensor<*x!onnx.any> {\n  %y = onnx.op \"" + op + "\"(" + names + ") {version = " + std::to_string(version) + " : i64, attrs = {" + attributes +
                                                            "}} : (" + types + ") -> tensor<*x!onnx.any>\n  return %y : tensor<*x!onnx.any>\n}", &context);
  if (!module) return "does not parse";
  auto results = interp::runONNX(*module, tensors);
  if (!results.ok()) return results.status().message();
  std::string text;
  for (size_t k = 0; k < (*results)[0].data.size(); k += 8) {
    int64_t n;
    memcpy(&n, (*results)[0].data.data() + k, 8);
    text += (k ? " " : "") + (n == least ? "least" : n == most ? "most" : std::to_string(n));
  }
  return text;
}

} // namespace

TEST(ONNXInterpreter, WholeNumbersAreModulo64Bits) {
  EXPECT_EQ(numbers("Neg", 13, {{{3}, {least, most, 5}}}), "least -9223372036854775807 -5");
  EXPECT_EQ(numbers("Abs", 13, {{{3}, {least, -7, 5}}}), "least 7 5");
  EXPECT_EQ(numbers("Add", 14, {{{2}, {most, least}}, {{2}, {1, -1}}}), "least most");
  EXPECT_EQ(numbers("Sub", 14, {{{2}, {least, 0}}, {{2}, {1, least}}}), "most least");
  EXPECT_EQ(numbers("Mul", 14, {{{2}, {most, least}}, {{2}, {2, -1}}}), "-2 least");
  EXPECT_EQ(numbers("Div", 14, {{{2}, {least, most}}, {{2}, {-1, -1}}}), "least -9223372036854775807");
  EXPECT_EQ(numbers("Mod", 13, {{{1}, {least}}, {{1}, {-1}}}), "0");
  EXPECT_EQ(numbers("ReduceSum", 13, {{{3}, {most, most, 3}}}), "1");
  EXPECT_EQ(numbers("ReduceL1", 18, {{{2}, {least, -1}}}), "-9223372036854775807");
  EXPECT_EQ(numbers("ReduceSumSquare", 18, {{{2}, {int64_t(1) << 32, 3}}}), "9");
  EXPECT_EQ(numbers("ReduceProd", 18, {{{2}, {int64_t(1) << 32, int64_t(3) << 31}}}), "least");
  EXPECT_EQ(numbers("CumSum", 14, {{{3}, {most, 1, 1}}, {{}, {0}}}), "most least -9223372036854775807");
  EXPECT_EQ(numbers("Range", 11, {{{}, {least}}, {{}, {least / 2}}, {{}, {int64_t(1) << 61}}}), "least -6917529027641081856");
  EXPECT_EQ(numbers("ScatterElements", 18, {{{2}, {most, 1}}, {{1}, {0}}, {{1}, {1}}}, "reduction = \"add\""), "least 1");
  EXPECT_EQ(numbers("MatMul", 13, {{{1, 2}, {most, 1}}, {{2, 1}, {2, 3}}}), "1");
  // Places count from numbers of the graph too.
  EXPECT_EQ(numbers("Trilu", 14, {{{2, 2}, {1, 2, 3, 4}}, {{}, {most}}}), "0 0 0 0");
  EXPECT_EQ(numbers("Trilu", 14, {{{2, 2}, {1, 2, 3, 4}}, {{}, {least}}}), "1 2 3 4");
  EXPECT_EQ(numbers("EyeLike", 22, {{{2, 2}, {1, 2, 3, 4}}}, "k = 9223372036854775807 : i64"), "0 0 0 0");
  EXPECT_EQ(numbers("EyeLike", 22, {{{2, 2}, {1, 2, 3, 4}}}, "k = -1 : i64"), "0 0 1 0");
}

TEST(ONNXInterpreter, WhatNumbersCannotBe) {
  EXPECT_EQ(numbers("TensorScatter", 24, {{{1, 2, 1}, {1, 2}}, {{1, 1, 1}, {3}}, {{1}, {most}}}), "node 'TensorScatter' (TensorScatter, opset 24): expected an update within the cache, found 9223372036854775807 of 2");
  EXPECT_EQ(numbers("TensorScatter", 24, {{{1, 0, 1}, {}}, {{1, 1, 1}, {3}}, {{1}, {0}}}, "mode = \"circular\""), "node 'TensorScatter' (TensorScatter, opset 24): expected an update that fits into int64[1,0,1], found int64[1,1,1]");
  EXPECT_EQ(numbers("Pad", 24, {{{0}, {}}, {{2}, {1, 1}}}, "mode = \"wrap\""), "node 'Pad' (Pad, opset 24): expected elements to repeat, found int64[0]");
  EXPECT_EQ(numbers("Pad", 24, {{{0}, {}}, {{2}, {1, 1}}}, "mode = \"edge\""), "node 'Pad' (Pad, opset 24): expected elements to repeat, found int64[0]");
}

TEST(ONNXInterpreter, LengthsAndWindowsOfAttention) {
  Context context;
  auto module = mlir::parseSourceString<mlir::ModuleOp>(R"(
    func.func @main(%q: tensor<1x1x2x1xf32>, %v: tensor<1x1x3x1xf32>, %n: tensor<1xi64>) -> tensor<*x!onnx.any> {
      %none = onnx.none : none
      %y = onnx.op "Attention"(%q, %v, %v, %none, %none, %none, %n) {version = 25 : i64, attrs = {is_causal = 1 : i64, left_window_size = 9223372036854775807 : i64, right_window_size = 9223372036854775807 : i64}}
        : (tensor<1x1x2x1xf32>, tensor<1x1x3x1xf32>, tensor<1x1x3x1xf32>, none, none, none, tensor<1xi64>) -> tensor<*x!onnx.any>
      return %y : tensor<*x!onnx.any>
    })", &context);
  ASSERT_TRUE(module);
  auto floats = [](std::vector<int64_t> shape, std::vector<float> values) {
    HostTensor tensor{DataType::float32, std::move(shape), std::vector<uint8_t>(values.size() * 4)};
    memcpy(tensor.data.data(), values.data(), tensor.data.size());
    return tensor;
  };
  // All scores are 0, so that a row's result is the mean of what it sees: positions up to its own, of the first |length|.
  auto run = [&](int64_t length) -> std::string {
    HostTensor n{DataType::int64, {1}, std::vector<uint8_t>(8)};
    memcpy(n.data.data(), &length, 8);
    auto results = interp::runONNX(*module, {floats({1, 1, 2, 1}, {0, 0}), floats({1, 1, 3, 1}, {1, 3, 8}), n});
    if (!results.ok()) return results.status().message();
    float y[2];
    memcpy(y, (*results)[0].data.data(), 8);
    return std::to_string(y[0]) + " " + std::to_string(y[1]);
  };
  EXPECT_EQ(run(3), "2.000000 4.000000");
  EXPECT_EQ(run(2), "1.000000 2.000000");
  EXPECT_EQ(run(0), "0.000000 0.000000");
  for (int64_t length : {int64_t(-1), int64_t(4), least})
    EXPECT_EQ(run(length), "node 'Attention' (Attention, opset 25): expected 'nonpad_kv_seqlen' of 0 .. 3, found " + std::to_string(length));
}

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
  Context context;
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
