//===- GraphTogetherTest.cpp - several operators, compiled and interpreted -------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// The ONNX project's cases hold one operator each. Here operators feed each other: what is followed beside the tensors (sizes, axes, small lists)
// has to be what the tensors hold, and inputs that only a run can find wrong have to end it, on the interpreter and as compiled code.
//===----------------------------------------------------------------------===//
#include "../../../tools/lathe-onnx-test/CompiledGraph.h"
#include "lathe/Codegen/General.h"
#include "lathe/Interpreter/ONNXInterpreter.h"
#include "dialects/ONNX/ONNX.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <map>
#include <numeric>
#include <optional>

using namespace lathe;
using onnx::DataType;
using onnx::HostTensor;
using Sizes = std::vector<int64_t>;

namespace {

template <typename T>
HostTensor make(DataType type, Sizes shape, const std::vector<T> &values) {
  HostTensor t;
  t.type = type;
  t.shape = std::move(shape);
  t.data.resize(values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(t.data.data(), values.data(), t.data.size());
  return t;
}
int64_t count(const Sizes &shape) { return std::accumulate(shape.begin(), shape.end(), int64_t(1), std::multiplies<>()); }
/// 0, 1, 2, .. (times |step|) as floats.
HostTensor floats(Sizes shape, float step = 1) {
  std::vector<float> values(static_cast<size_t>(count(shape)));
  for (size_t k = 0; k < values.size(); ++k)
    values[k] = float(k) * step;
  return make(DataType::float32, std::move(shape), values);
}
HostTensor ints(Sizes shape, std::vector<int64_t> values) { return make(DataType::int64, std::move(shape), values); }
HostTensor small(Sizes shape, std::vector<int32_t> values) { return make(DataType::int32, std::move(shape), values); }
HostTensor bytes(Sizes shape, uint8_t value) {
  std::vector<uint8_t> values(static_cast<size_t>(count(shape)), value);
  return make(DataType::uint8, std::move(shape), values);
}

class GraphTogether : public ::testing::Test {
public:
  GraphTogether() : context(registry(), mlir::MLIRContext::Threading::DISABLED) { context.loadAllAvailableDialects(); }
  static mlir::DialectRegistry registry() {
    mlir::DialectRegistry r;
    codegen::registerGeneralDialects(r);
    r.insert<onnx::ONNXDialect, mlir::LLVM::LLVMDialect, mlir::vector::VectorDialect>();
    return r;
  }
  /// @main of |text|: "(ARGUMENTS) { BODY; return %r }" with one result of any type.
  mlir::OwningOpRef<mlir::ModuleOp> parse(const std::string &arguments, const std::string &body) {
    return mlir::parseSourceString<mlir::ModuleOp>("func.func @main(" + arguments + ") -> tensor<*x!onnx.any> {\n" + body + "\nreturn %r : tensor<*x!onnx.any>\n}\n", &context);
  }
  using Results = Result<std::vector<HostTensor>>;
  Results interpreted(const std::string &arguments, const std::string &body, const std::vector<HostTensor> &inputs) {
    auto module = parse(arguments, body);
    if (!module) return Status(StatusCode::internal, "does not parse");
    return interp::runONNX(*module, inputs);
  }
  Results compiled(const std::string &arguments, const std::string &body, const std::vector<HostTensor> &inputs) {
    auto &graph = graphs[arguments + body];
    if (!graph) {
      auto module = parse(arguments, body);
      if (!module) return Status(StatusCode::internal, "does not parse");
      LATHE_ASSIGN_OR_RETURN(onnxtest::CompiledGraph made, onnxtest::CompiledGraph::compile(*module));
      graph.emplace(std::move(made));
    }
    return graph->run(inputs);
  }
  /// Both give |expected|, bit by bit.
  void gives(const std::string &arguments, const std::string &body, const std::vector<HostTensor> &inputs, const HostTensor &expected) {
    for (auto run : {&GraphTogether::interpreted, &GraphTogether::compiled}) {
      auto out = (this->*run)(arguments, body, inputs);
      ASSERT_TRUE(out.ok()) << out.status().message();
      ASSERT_EQ(out->size(), 1u);
      EXPECT_EQ((*out)[0].type, expected.type);
      EXPECT_EQ((*out)[0].shape, expected.shape);
      EXPECT_EQ((*out)[0].data, expected.data);
    }
  }
  /// Both refuse the inputs, and say what was expected.
  void refuses(const std::string &arguments, const std::string &body, const std::vector<HostTensor> &inputs, const std::string &expected) {
    for (auto run : {&GraphTogether::interpreted, &GraphTogether::compiled}) {
      auto out = (this->*run)(arguments, body, inputs);
      ASSERT_FALSE(out.ok()) << expected;
      EXPECT_NE(out.status().message().find(": expected " + expected), std::string::npos) << out.status().message() << "\n  instead of " << expected;
    }
  }

  mlir::MLIRContext context;
  std::map<std::string, std::optional<onnxtest::CompiledGraph>> graphs;
};

std::string node(const std::string &result, const std::string &op, const std::string &operands, const std::string &types, const std::string &attributes, int version, const std::string &results = "tensor<*x!onnx.any>") {
  return "%" + result + " = onnx.op \"" + op + "\"(" + operands + ") {version = " + std::to_string(version) + " : i64" + attributes + "} : (" + types + ") -> " + results + "\n";
}
const char *const any = "tensor<*x!onnx.any>";
std::string anys(int n) {
  std::string text = any;
  for (int k = 1; k < n; ++k)
    text += std::string(", ") + any;
  return text;
}
std::string constant(const std::string &name, const std::string &value, const std::string &type) { return "%" + name + " = onnx.constant dense<" + value + "> : " + type + "\n"; }
/// %r is %x reshaped to %s.
std::string reshapes(const std::string &x, const std::string &s = any) { return node("r", "Reshape", "%x, %s", x + ", " + s, "", 14); }
const std::string ms = ", domain = \"com.microsoft\"";

} // namespace

// A list of a hundred numbers is more than is followed beside the tensors: its last one is 99, not the 64th.
TEST_F(GraphTogether, LastOfALongRange) {
  gives("%x: tensor<48xf32>",
        constant("a", "0", "tensor<i64>") + constant("b", "100", "tensor<i64>") + constant("c", "1", "tensor<i64>") + constant("last", "-1", "tensor<1xi64>") + constant("less", "83", "tensor<1xi64>") + constant("left", "-1", "tensor<1xi64>") +
            node("all", "Range", "%a, %b, %c", "tensor<i64>, tensor<i64>, tensor<i64>", "", 11) + node("end", "Gather", "%all, %last", std::string(any) + ", tensor<1xi64>", "", 13) +
            node("n", "Sub", "%end, %less", std::string(any) + ", tensor<1xi64>", "", 14) + node("s", "Concat", "%n, %left", std::string(any) + ", tensor<1xi64>", ", attrs = {axis = 0 : i64}", 13) + reshapes("tensor<48xf32>"),
        {floats({48})}, floats({16, 3}));
}

// Matrices beside each other are not lists one after the other.
TEST_F(GraphTogether, ConcatOfColumns) {
  gives("%x: tensor<16xf32>",
        constant("a", "[[1], [2]]", "tensor<2x1xi64>") + constant("b", "[[8], [1]]", "tensor<2x1xi64>") + constant("flat", "-1", "tensor<1xi64>") +
            node("m", "Concat", "%a, %b", "tensor<2x1xi64>, tensor<2x1xi64>", ", attrs = {axis = 1 : i64}", 13) + node("s", "Reshape", "%m, %flat", std::string(any) + ", tensor<1xi64>", "", 14) +
            // its elements are known only when the code runs: their number is what Reshape needs
            reshapes("tensor<16xf32>"),
        {floats({16})}, floats({1, 8, 2, 1}));
}

TEST_F(GraphTogether, SumsOfAColumnAndARow) {
  gives("%x: tensor<360xf32>",
        constant("a", "[[1], [3]]", "tensor<2x1xi64>") + constant("b", "[[2, 3]]", "tensor<1x2xi64>") + constant("flat", "4", "tensor<1xi64>") + node("m", "Add", "%a, %b", "tensor<2x1xi64>, tensor<1x2xi64>", "", 14) +
            node("s", "Reshape", "%m, %flat", std::string(any) + ", tensor<1xi64>", "", 14) + reshapes("tensor<360xf32>"),
        {floats({360})}, floats({3, 4, 5, 6}));
}

// Sizes of narrow types wrap as their type does; a bool is 1, not -1.
TEST_F(GraphTogether, SizesOfOtherTypes) {
  gives("%x: tensor<44xf32>",
        constant("a", "200", "tensor<1xui8>") + constant("b", "100", "tensor<1xui8>") + node("m", "Add", "%a, %b", "tensor<1xui8>, tensor<1xui8>", "", 14) + node("s", "Cast", "%m", any, ", attrs = {to = 7 : i64}", 13) + reshapes("tensor<44xf32>"),
        {floats({44})}, floats({44}));
  gives("%x: tensor<1xf32>",
        constant("n", "3", "tensor<1xi64>") + node("m", "ConstantOfShape", "%n", "tensor<1xi64>", ", attrs = {value = dense<true> : tensor<1xi1>}", 9) + node("s", "Cast", "%m", any, ", attrs = {to = 7 : i64}", 13) + reshapes("tensor<1xf32>"),
        {floats({1})}, floats({1, 1, 1}));
}

// A past without tokens: a 0 copies the dimension, and -1 takes what is left of the others.
TEST_F(GraphTogether, ReshapeOfAnEmptyPast) {
  std::string arguments = "%x: tensor<1x?x2x4xf32>", body = constant("s", "[1, 0, -1]", "tensor<3xi64>") + reshapes("tensor<1x?x2x4xf32>", "tensor<3xi64>");
  gives(arguments, body, {floats({1, 3, 2, 4})}, floats({1, 3, 8}));
  gives(arguments, body, {floats({1, 0, 2, 4})}, floats({1, 0, 8}));
  // One that comes from a computation is not copied: then -1 could be anything.
  std::string computed = node("n", "Shape", "%x", "tensor<1x?x2x4xf32>", ", attrs = {start = 1 : i64, end = 2 : i64}", 15) + constant("left", "-1", "tensor<1xi64>") + node("s", "Concat", "%n, %left", std::string(any) + ", tensor<1xi64>", ", attrs = {axis = 0 : i64}", 13) +
                         node("r", "Reshape", "%x, %s", "tensor<1x?x2x4xf32>, " + std::string(any), ", attrs = {allowzero = 1 : i64}", 14);
  gives(arguments, computed, {floats({1, 3, 2, 4})}, floats({3, 8}));
  refuses(arguments, computed, {floats({1, 0, 2, 4})}, "no 0 beside -1 in the shape");
}

// Attention as exporters write it, of sizes that only the run knows: products, a mask from positions, softmax, heads joined again.
TEST_F(GraphTogether, AttentionOfSmallParts) {
  std::string x = "tensor<?x?x8xf32>";
  std::string body = constant("heads", "[0, 0, 2, 4]", "tensor<4xi64>") + constant("joined", "[0, 0, 8]", "tensor<3xi64>") + constant("zero", "0", "tensor<i64>") + constant("one", "1", "tensor<i64>") + constant("axis", "1", "tensor<1xi64>") +
                     constant("never", "0xff800000", "tensor<f32>") + constant("scale", "0.5", "tensor<f32>") + node("h", "Reshape", "%x, %heads", x + ", tensor<4xi64>", "", 14) +
                     node("q", "Transpose", "%h", any, ", attrs = {perm = array<i64: 0, 2, 1, 3>}", 13) + node("k", "Transpose", "%h", any, ", attrs = {perm = array<i64: 0, 2, 3, 1>}", 13) + node("dot", "MatMul", "%q, %k", anys(2), "", 13) +
                     node("scores", "Mul", "%dot, %scale", std::string(any) + ", tensor<f32>", "", 14) + node("shape", "Shape", "%x", x, "", 15) + node("n", "Gather", "%shape, %one", std::string(any) + ", tensor<i64>", "", 13) +
                     node("at", "Range", "%zero, %n, %one", "tensor<i64>, " + std::string(any) + ", tensor<i64>", "", 11) + node("rows", "Unsqueeze", "%at, %axis", std::string(any) + ", tensor<1xi64>", "", 13) +
                     node("seen", "LessOrEqual", "%at, %rows", anys(2), "", 16) + node("masked", "Where", "%seen, %scores, %never", anys(2) + ", tensor<f32>", "", 16) +
                     node("p", "Softmax", "%masked", any, ", attrs = {axis = -1 : i64}", 13) + node("y", "MatMul", "%p, %q", anys(2), "", 13) + node("t", "Transpose", "%y", any, ", attrs = {perm = array<i64: 0, 2, 1, 3>}", 13) +
                     node("r", "Reshape", "%t, %joined", std::string(any) + ", tensor<3xi64>", "", 14);
  for (Sizes shape : {Sizes{1, 1, 8}, Sizes{2, 5, 8}}) {
    HostTensor input = floats(shape, 0.01f);
    // The same in double, by hand.
    auto at = [&](int64_t b, int64_t t, int64_t h, int64_t c) { return double(reinterpret_cast<const float *>(input.data.data())[((b * shape[1] + t) * 2 + h) * 4 + c]); };
    for (auto run : {&GraphTogether::interpreted, &GraphTogether::compiled}) {
      auto out = (this->*run)("%x: " + x, body, {input});
      ASSERT_TRUE(out.ok()) << out.status().message();
      ASSERT_EQ((*out)[0].shape, shape);
      const auto *found = reinterpret_cast<const float *>((*out)[0].data.data());
      for (int64_t b = 0; b < shape[0]; ++b)
        for (int64_t r = 0; r < shape[1]; ++r)
          for (int64_t h = 0; h < 2; ++h) {
            std::vector<double> p;
            double sum = 0;
            for (int64_t t = 0; t <= r; ++t) {
              double dot = 0;
              for (int64_t c = 0; c < 4; ++c)
                dot += at(b, r, h, c) * at(b, t, h, c);
              p.push_back(std::exp(dot / 2));
              sum += p.back();
            }
            for (int64_t c = 0; c < 4; ++c) {
              double y = 0;
              for (int64_t t = 0; t <= r; ++t)
                y += p[size_t(t)] / sum * at(b, t, h, c);
              EXPECT_NEAR(found[((b * shape[1] + r) * 2 + h) * 4 + c], y, 1e-5);
            }
          }
    }
  }
}

// Sizes that do not fit each other end the run: nothing outside a tensor is read.
TEST_F(GraphTogether, RotationsOutsideTheirCaches) {
  std::string arguments = "%x: tensor<1x?x8xf32>, %c: tensor<?x?x4xf32>, %s: tensor<?x?x4xf32>";
  std::string body = node("r", "RotaryEmbedding", "%x, %c, %s", "tensor<1x?x8xf32>, tensor<?x?x4xf32>, tensor<?x?x4xf32>", ", attrs = {num_heads = 1 : i64}", 23);
  gives(arguments, body, {floats({1, 2, 8}), floats({1, 2, 4}, 0), floats({1, 2, 4}, 0)}, floats({1, 2, 8}, 0));
  refuses(arguments, body, {floats({1, 12, 8}), floats({1, 4, 4}), floats({1, 4, 4})}, "caches of [batch, sequence, ..]");
  refuses(arguments, body, {floats({1, 4, 8}), floats({2, 4, 4}), floats({2, 4, 4})}, "caches of [batch, sequence, ..]");
  arguments = "%x: tensor<2x?x8xf32>, %c: tensor<?x4xf32>, %s: tensor<?x4xf32>, %p: tensor<?x?xi64>";
  body = node("r", "RotaryEmbedding", "%x, %c, %s, %p", "tensor<2x?x8xf32>, tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x?xi64>", ", attrs = {num_heads = 1 : i64}", 23);
  refuses(arguments, body, {floats({2, 2, 8}), floats({9, 4}), floats({3, 4}), ints({2, 2}, {5, 6, 7, 8})}, "as many rows of sines as of cosines");
  refuses(arguments, body, {floats({2, 2, 8}), floats({9, 4}), floats({9, 4}), ints({2, 1}, {5, 6})}, "position ids of [batch, sequence]");
  refuses(arguments, body, {floats({2, 2, 8}), floats({9, 4}), floats({9, 4}), ints({3, 2}, {5, 6, 5, 6, 5, 6})}, "position ids of [batch, sequence]");
  refuses(arguments, body, {floats({2, 2, 8}), floats({9, 4}), floats({9, 4}), ints({1, 2}, {5, 9})}, "position ids within the caches");
  arguments = "%x: tensor<1x?x8xf32>, %p: tensor<?xi64>, %c: tensor<?x4xf32>";
  body = node("r", "RotaryEmbedding", "%x, %p, %c, %c", "tensor<1x?x8xf32>, tensor<?xi64>, tensor<?x4xf32>, tensor<?x4xf32>", ms, 1);
  refuses(arguments, body, {floats({1, 2, 8}), ints({0}, {}), floats({9, 4})}, "a first position of one element");
}

TEST_F(GraphTogether, GroupQueryAttentionOfOtherSizes) {
  std::string bias = "tensor<?x?x?x?xf32>", past = "tensor<?x1x?x4xf32>", cache = "tensor<?x?xf32>";
  std::string arguments = "%q: tensor<?x?x8xf32>, %k: tensor<?x?x4xf32>, %p: " + past + ", %n: tensor<?xi32>, %t: tensor<1xi32>, %c: " + cache + ", %s: " + cache + ", %b: " + bias;
  std::string body = "%none = onnx.none : none\n" + node("r, %1, %2", "GroupQueryAttention", "%q, %k, %k, %p, %p, %n, %t, %c, %s, %none, %b",
                                                    "tensor<?x?x8xf32>, tensor<?x?x4xf32>, tensor<?x?x4xf32>, " + past + ", " + past + ", tensor<?xi32>, tensor<1xi32>, " + cache + ", " + cache + ", none, " + bias,
                                                    ms + ", attrs = {num_heads = 2 : i64, kv_num_heads = 1 : i64, do_rotary = 1 : i64}", 1, "(" + anys(3) + ")");
  auto inputs = [](Sizes cos, Sizes sin, Sizes lengths, Sizes bias) {
    std::vector<int32_t> n(size_t(count(lengths)), 4);
    return std::vector<HostTensor>{floats({1, 2, 8}), floats({1, 2, 4}), floats({1, 1, 3, 4}), small(lengths, n), small({1}, {5}), floats(std::move(cos)), floats(std::move(sin)), floats(std::move(bias))};
  };
  for (auto run : {&GraphTogether::interpreted, &GraphTogether::compiled}) {
    auto out = (this->*run)(arguments, body, inputs({9, 2}, {9, 2}, {1}, {1, 1, 2, 5}));
    EXPECT_TRUE(out.ok()) << out.status().message();
  }
  refuses(arguments, body, inputs({9, 3}, {9, 3}, {1}, {1, 1, 2, 5}), "a cos_cache of at most half a head");
  refuses(arguments, body, inputs({9, 2}, {4, 2}, {1}, {1, 1, 2, 5}), "a sin_cache of cos_cache's shape");
  refuses(arguments, body, inputs({9, 2}, {9, 1}, {1}, {1, 1, 2, 5}), "a sin_cache of cos_cache's shape");
  refuses(arguments, body, inputs({3, 2}, {3, 2}, {1}, {1, 1, 2, 5}), "positions within cos_cache");
  refuses(arguments, body, inputs({9, 2}, {9, 2}, {0}, {1, 1, 2, 5}), "one of seqlens_k a batch entry");
  refuses(arguments, body, inputs({9, 2}, {9, 2}, {1}, {1, 3, 2, 5}), "an attention_bias that broadcasts to ");
  refuses(arguments, body, inputs({9, 2}, {9, 2}, {1}, {1, 1, 0, 5}), "an attention_bias that broadcasts to ");
  refuses(arguments, body, inputs({9, 2}, {9, 2}, {1}, {1, 1, 2, 4}), "an attention_bias for all keys");
}

TEST_F(GraphTogether, BiasesOfAttentionOfOtherSizes) {
  std::string bias = "tensor<?x?x?x?xf32>", x = "tensor<?x?x8xf32>", arguments = "%x: " + x + ", %b: " + bias;
  std::string body = "%none = onnx.none : none\n" + node("r", "MultiHeadAttention", "%x, %x, %x, %none, %none, %b", x + ", " + x + ", " + x + ", none, none, " + bias, ms + ", attrs = {num_heads = 2 : i64}", 1);
  std::string own = "%none = onnx.none : none\n" + constant("w", "0.5", "tensor<8x24xf32>") + node("r", "Attention", "%x, %w, %none, %none, %none, %b", x + ", tensor<8x24xf32>, none, none, none, " + bias, ms + ", attrs = {num_heads = 2 : i64}", 1);
  for (const std::string &text : {body, own}) {
    for (Sizes shape : {Sizes{1, 2, 3, 3}, Sizes{1, 1, 1, 1}})
      for (auto run : {&GraphTogether::interpreted, &GraphTogether::compiled}) {
        auto out = (this->*run)(arguments, text, {floats({1, 3, 8}), floats(shape)});
        EXPECT_TRUE(out.ok()) << out.status().message();
      }
    for (Sizes shape : {Sizes{2, 2, 3, 3}, Sizes{1, 3, 3, 3}, Sizes{1, 2, 2, 3}, Sizes{1, 2, 3, 2}, Sizes{1, 2, 3, 0}})
      refuses(arguments, text, {floats({1, 3, 8}), floats(shape)}, "an attention_bias that broadcasts to ");
  }
}

TEST_F(GraphTogether, ZeroPointsOfOtherSizes) {
  std::string x = "tensor<?x16xui8>", arguments = "%x: " + x + ", %i: tensor<?xi64>, %s: tensor<?x1xf32>, %z: tensor<?x?xui8>";
  std::string body = node("r", "GatherBlockQuantized", "%x, %i, %s, %z", x + ", tensor<?xi64>, tensor<?x1xf32>, tensor<?x?xui8>", ms + ", attrs = {block_size = 32 : i64, bits = 4 : i64}", 1);
  gives(arguments, body, {bytes({3, 16}, 0x33), ints({1}, {2}), floats({3, 1}), bytes({3, 1}, 0x33)}, floats({1, 32}, 0));
  refuses(arguments, body, {bytes({3, 16}, 0x33), ints({1}, {2}), floats({3, 1}), bytes({1, 1}, 0x33)}, "a zero point for each scale");
  arguments = "%x: tensor<2x?xui8>, %y: tensor<?x3xui8>, %z: tensor<?xui8>, %u: tensor<?xui8>";
  body = node("r", "MatMulInteger", "%x, %y, %z, %u", "tensor<2x?xui8>, tensor<?x3xui8>, tensor<?xui8>, tensor<?xui8>", "", 10);
  gives(arguments, body, {bytes({2, 2}, 3), bytes({2, 3}, 5), bytes({2}, 2), bytes({3}, 1)}, small({2, 3}, {8, 8, 8, 8, 8, 8}));
  refuses(arguments, body, {bytes({2, 2}, 3), bytes({2, 3}, 5), bytes({3}, 2), bytes({3}, 1)}, "a zero point for each row");
  refuses(arguments, body, {bytes({2, 2}, 3), bytes({2, 3}, 5), bytes({2}, 2), bytes({2}, 1)}, "a zero point for each column");
}

TEST_F(GraphTogether, SingleElementsThatAreMissing) {
  std::string x = "tensor<?xf32>", i = "tensor<?xi64>";
  refuses("%x: " + x + ", %y: " + x, node("r", "Clip", "%x, %y", x + ", " + x, "", 13), {floats({3}), floats({0})}, "a bound of one element");
  refuses("%x: " + i + ", %d: tensor<1xi64>, %v: " + x, node("r", "OneHot", "%x, %d, %v", i + ", tensor<1xi64>, " + x, "", 11), {ints({2}, {0, 1}), ints({1}, {3}), floats({1})}, "values [off, on]");
  refuses("%x: " + i + ", %d: " + x + ", %v: " + x, node("r", "OneHot", "%x, %d, %v", i + ", " + x + ", " + x, "", 11), {ints({2}, {0, 1}), floats({0}), floats({2})}, "a depth of one element");
  refuses("%x: " + x + ", %y: " + x, node("r", "Range", "%x, %x, %y", x + ", " + x + ", " + x, "", 11), {floats({1}), floats({0})}, "scalars of one element");
  refuses("%x: " + x + ", %v: " + x, constant("p", "[1, 1]", "tensor<2xi64>") + node("r", "Pad", "%x, %p, %v", x + ", tensor<2xi64>, " + x, "", 13), {floats({2}), floats({0})}, "a value to pad with of one element");
  refuses("%x: " + x, node("r", "ArgMax", "%x", x, ", attrs = {axis = 0 : i64}", 13), {floats({0})}, "one element or more along axis 0");
}

TEST_F(GraphTogether, SizesThatARunComputes) {
  std::string x = "tensor<?xf32>", two = "tensor<2xi64>", one = "tensor<1xi64>", m = "tensor<?x?xf32>";
  for (const char *mode : {"wrap", "edge", "reflect"}) {
    std::string body = constant("p", "[2, 0]", two) + node("r", "Pad", "%x, %p", x + ", " + two, ", attrs = {mode = \"" + std::string(mode) + "\"}", 19);
    refuses("%x: " + x, body, {floats({0})}, "elements to repeat");
    gives("%x: " + x, body, {floats({1}, 0)}, floats({3}, 0));
  }
  gives("%x: " + x, constant("p", "[3, 4]", two) + node("r", "Pad", "%x, %p", x + ", " + two, ", attrs = {mode = \"reflect\"}", 19), {floats({3})}, make<float>(DataType::float32, {10}, {1, 2, 1, 0, 1, 2, 1, 0, 1, 2}));
  refuses("%x: " + x + ", %n: " + two, "%r, %1 = onnx.op \"Split\"(%x, %n) {version = 13 : i64} : (" + x + ", " + two + ") -> (" + anys(2) + ")\n", {floats({3}), ints({2}, {5, -2})}, "sizes of 0 .. the extent of axis 0");
  refuses("%x: " + x + ", %n: " + one, node("r", "Tile", "%x, %n", x + ", " + one, "", 13), {floats({3}), ints({1}, {-1})}, "repeats of 0 and above");
  refuses("%x: " + x + ", %n: " + one, node("r", "Expand", "%x, %n", x + ", " + one, "", 13), {floats({1}), ints({1}, {-1})}, "dimensions of 0 and above");
  // Sizes whose product wraps would be memory that is too small.
  constexpr int64_t large = int64_t(1) << 33;
  std::string most = "a result of at most ";
  refuses("%x: " + x + ", %n: " + two, node("r", "Expand", "%x, %n", x + ", " + two, "", 13), {floats({1}), ints({2}, {large, large})}, most);
  refuses("%x: " + m + ", %n: " + two, node("r", "Tile", "%x, %n", m + ", " + two, "", 13), {floats({1, 2}), ints({2}, {large, large})}, most);
  refuses("%n: " + two, node("r", "ConstantOfShape", "%n", two, "", 9), {ints({2}, {large, large})}, most);
  refuses("%x: " + m + ", %n: tensor<4xi64>", node("r", "Pad", "%x, %n", m + ", tensor<4xi64>", "", 13), {floats({1, 1}), ints({4}, {large, large, 0, 0})}, most);
  refuses("%x: " + x + ", %n: " + two, node("r", "Reshape", "%x, %n", x + ", " + two, "", 14), {floats({16}), ints({2}, {17, 1085102592571150096})}, most);
  refuses("%x: tensor<?xi64>, %d: " + x + ", %v: " + x, node("r", "OneHot", "%x, %d, %v", "tensor<?xi64>, " + x + ", " + x, "", 11), {ints({2}, {0, 1}), make<float>(DataType::float32, {1}, {0x1p60f}), floats({2})}, "a ");
  // An axis that comes twice would leave a dimension that no element has.
  refuses("%x: " + x + ", %n: " + two, node("r", "Unsqueeze", "%x, %n", x + ", " + two, "", 13), {floats({3}), ints({2}, {0, 0})}, "axes that differ");
  refuses("%x: " + m + ", %n: " + two, node("r", "Squeeze", "%x, %n", m + ", " + two, "", 13), {floats({1, 3}), ints({2}, {0, -2})}, "axes that differ");
  refuses("%x: " + m + ", %n: " + one, node("r", "Squeeze", "%x, %n", m + ", " + one, "", 13), {floats({2, 3}), ints({1}, {5})}, "axes of -2 .. 1");
  refuses("%x: " + m + ", %n: " + two, node("r", "ReduceSum", "%x, %n", m + ", " + two, ", attrs = {keepdims = 0 : i64}", 13), {floats({2, 3}), ints({2}, {1, 1})}, "axes that differ");
  refuses("%x: " + m + ", %n: " + one, "%none = onnx.none : none\n" + constant("p", "[1, 1]", two) + node("r", "Pad", "%x, %p, %none, %n", m + ", " + two + ", none, " + one, "", 19), {floats({2, 3}), ints({1}, {7})}, "axes of -2 .. 1");
  // A branch is chosen by one element.
  refuses("%x: " + x + ", %c: tensor<?xi1>", "%r = onnx.op \"If\"(%c) {version = 16 : i64} : (tensor<?xi1>) -> tensor<*x!onnx.any> {\n  onnx.yield %x : " + x + "\n}, {\n  onnx.yield %x : " + x + "\n}\n",
          {floats({3}), make<uint8_t>(DataType::boolean, {0}, {})}, "a condition of ");
}

// Raising runs operators on numbers, with a bound on the elements of a result. What is out of proportion to it is an error as well, not hours of work.
TEST_F(GraphTogether, WorkOutOfProportion) {
  auto run = [&](const std::string &arguments, const std::string &body, std::vector<HostTensor> inputs) -> Results {
    auto module = parse(arguments, body);
    if (!module) return Status(StatusCode::internal, "does not parse");
    onnx::NodeOp op;
    module->walk([&](onnx::NodeOp found) { op = found; });
    std::vector<const HostTensor *> pointers;
    for (const HostTensor &t : inputs)
      pointers.push_back(&t);
    std::vector<HostTensor> out(1);
    LATHE_RETURN_IF_ERROR(interp::evaluateONNX(op, pointers, out, int64_t(1) << 24));
    return out;
  };
  auto bounded = [&](const std::string &arguments, const std::string &body, std::vector<HostTensor> inputs) {
    auto out = run(arguments, body, std::move(inputs));
    ASSERT_FALSE(out.ok());
    EXPECT_NE(out.status().message().find("expected a computation of at most 268435456 steps, found "), std::string::npos) << out.status().message();
  };
  std::string x = "tensor<?xf32>", m = "tensor<?x?xf32>", h = "tensor<?x?x?x?xf32>", two = "%x: " + x + ", %y: " + x, matrices = "%x: " + m + ", %y: " + m;
  bounded(two, node("r", "Einsum", "%x, %y", x + ", " + x, ", attrs = {equation = \"i,j->\"}", 12), {floats({1 << 20}), floats({1 << 20})});
  bounded(matrices, node("r", "MatMul", "%x, %y", m + ", " + m, "", 13), {floats({1 << 11, 1 << 9}), floats({1 << 9, 1 << 11})});
  bounded(matrices, node("r", "Gemm", "%x, %y", m + ", " + m, "", 13), {floats({1 << 11, 1 << 9}), floats({1 << 9, 1 << 11})});
  bounded("%x: " + h, node("r", "Attention", "%x, %x, %x", h + ", " + h + ", " + h, "", 23), {floats({1, 1, 1 << 12, 16}), floats({1, 1, 1 << 12, 16}), floats({1, 1, 1 << 12, 16})});
  std::string many, types;
  for (int k = 0; k < 600; ++k) {
    many += k ? ", %x" : "%x";
    types += k ? ", " + x : x;
  }
  std::vector<HostTensor> terms(600, floats({1}));
  terms[0] = floats({1 << 19});
  bounded("%x: " + x, node("r", "Sum", many, types, "", 13), std::move(terms));
  // Far from the edges a reflection costs no more than near them.
  auto out = run("%x: " + x + ", %p: tensor<2xi64>", node("r", "Pad", "%x, %p", x + ", tensor<2xi64>", ", attrs = {mode = \"reflect\"}", 19), {floats({2}), ints({2}, {4000001, 2000000})});
  ASSERT_TRUE(out.ok()) << out.status().message();
  const auto *found = reinterpret_cast<const float *>((*out)[0].data.data());
  ASSERT_EQ((*out)[0].shape, Sizes{6000003});
  EXPECT_EQ(found[0], 1);
  EXPECT_EQ(found[1], 0);
  EXPECT_EQ(found[6000002], 1);
}
