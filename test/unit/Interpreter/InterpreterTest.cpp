//===- InterpreterTest.cpp - what a tool cannot ask the interpreter ---------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "lathe/Interpreter/Interpreter.h"
#include "Kernels.h"
#include "lathe/InitAll.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include <cmath>
#include <gtest/gtest.h>
#include <random>

using namespace lathe;
using namespace lathe::llm;

namespace {

class InterpreterTest : public testing::Test {
protected:
  InterpreterTest() : context(registry(), mlir::MLIRContext::Threading::DISABLED) {}
  static mlir::DialectRegistry registry() {
    mlir::DialectRegistry r;
    registerAllDialects(r);
    return r;
  }
  std::unique_ptr<Interpreter> make(const char *body) {
    std::string text = R"(
      llm.param @e : tensor<3x2xf32> = dense<[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]> : tensor<3x2xf32>
      llm.kv_group @kv layers [#llm.kv_layer<1, 2, 2>] key f32 value f32 window 0 page 16
      func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x2xf32>, !llm.kv) {
        %e = llm.weight @e : tensor<3x2xf32>
        %x = llm.embed %b, %e : tensor<3x2xf32> -> tensor<?x2xf32>
    )" + std::string(body) + "}";
    module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
    auto made = Interpreter::create(*module);
    return std::move(*made);
  }
  /// The message of the error that |batch| gives, or nothing.
  std::string errorOf(Interpreter &interpreter, const StepBatch &batch) {
    std::string message;
    mlir::ScopedDiagnosticHandler handler(&context, [&](mlir::Diagnostic &d) { message = d.str(); });
    return mlir::failed(interpreter.step(batch)) ? message : "";
  }

  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
};

TEST_F(InterpreterTest, RowsCanBringTheirEmbedding) {
  auto interpreter = make("return %x, %kv : tensor<?x2xf32>, !llm.kv");
  auto out = interpreter->step({{{1, 0, 0, 0, {}}, {99, 1, 0, 1, {0.5f, -7.0f}}}, {0}});
  ASSERT_TRUE(mlir::succeeded(out));
  EXPECT_EQ(out->at(0).values, (std::vector<double>{3, 4, 0.5, -7}));
}

TEST_F(InterpreterTest, RefusesBatchesThatAreWrong) {
  auto interpreter = make("return %x, %kv : tensor<?x2xf32>, !llm.kv");
  EXPECT_EQ(errorOf(*interpreter, {{{1, -1, 0, 0, {}}}, {}}), "row 0: expected a position and a slot of at least 0, found -1 and 0");
  EXPECT_EQ(errorOf(*interpreter, {{{1, 0, 0, 0, {}}}, {1}}), "expected output rows below 1, found 1");
  EXPECT_EQ(errorOf(*interpreter, {{{1, 0, 0, 0, {1.0f}}}, {}}), "'llm.embed' op row 0: expected an embedding of 2 elements, found 1");
  EXPECT_EQ(errorOf(*interpreter, {{{1, 0, 0, 0, {}}}, {0}}), "");
  const char *parent = "row 1: expected an earlier row of its sequence and a smaller slot as its parent, found row ";
  EXPECT_EQ(errorOf(*interpreter, {{{1, 0, 0, 0, {}}, {1, 1, 0, 1, {}, 1}}, {0}}), parent + std::string("1"));
  EXPECT_EQ(errorOf(*interpreter, {{{1, 0, 4, 0, {}}, {1, 1, 0, 1, {}, 0}}, {0}}), parent + std::string("0"));
  EXPECT_EQ(errorOf(*interpreter, {{{1, 0, 0, 1, {}}, {1, 1, 0, 1, {}, 0}}, {0}}), parent + std::string("0"));
}

TEST_F(InterpreterTest, RefusesToSelectTwice) {
  auto interpreter = make(R"(
    %y = llm.select_rows %x, %b : tensor<?x2xf32>
    %z = llm.select_rows %y, %b : tensor<?x2xf32>
    return %z, %kv : tensor<?x2xf32>, !llm.kv)");
  EXPECT_EQ(errorOf(*interpreter, {{{1, 0, 0, 0, {}}, {1, 1, 0, 1, {}}}, {1}}), "'llm.select_rows' op output row 1 is outside an input of 1 rows");
}

TEST_F(InterpreterTest, SlotsAndSequencesAreFree) {
  // Entries in any order, two sequences that interleave, and a later step that sees them.
  auto interpreter = make(R"(
    %kv1 = llm.kv.append %kv, %x, %x, %b group @kv layer 0 : tensor<?x2xf32>, tensor<?x2xf32>
    %y = llm.attention %x, %kv1, %b group @kv layer 0 heads 1 scale 0.0 : tensor<?x2xf32> -> tensor<?x2xf32>
    return %y, %kv1 : tensor<?x2xf32>, !llm.kv)");
  ASSERT_TRUE(mlir::succeeded(interpreter->step({{{2, 1, 7, 1, {}}, {0, 0, 7, 0, {}}, {1, 0, 3, 0, {}}}, {}})));
  auto out = interpreter->step({{{1, 2, 7, 2, {}}}, {0}});
  ASSERT_TRUE(mlir::succeeded(out));
  // Scale 0: the mean of the entries of sequence 7.
  EXPECT_NEAR(out->at(0).values[0], 3.0, 1e-6);
  EXPECT_NEAR(out->at(0).values[1], 4.0, 1e-6);
  interpreter->reset();
  // Entries of the page that nobody wrote are NaN, and entries without a page an error.
  out = interpreter->step({{{1, 2, 7, 2, {}}}, {0}});
  ASSERT_TRUE(mlir::succeeded(out));
  EXPECT_TRUE(std::isnan(out->at(0).values[0]));
  EXPECT_EQ(errorOf(*interpreter, {{{1, 16, 5, 16, {}}}, {0}}), "'llm.attention' op expected entries 0 .. 16 of sequence 5, entry 0 was never appended");
}

TEST_F(InterpreterTest, RowsOfATreeSeeTheirAncestors) {
  const char *body = R"(
    %kv1 = llm.kv.append %kv, %x, %x, %b group @kv layer 0 : tensor<?x2xf32>, tensor<?x2xf32>
    %y = llm.attention %x, %kv1, %b group @kv layer 0 heads 1 scale 0.3 : tensor<?x2xf32> -> tensor<?x2xf32>
    return %y, %kv1 : tensor<?x2xf32>, !llm.kv)";
  auto tree = make(body);
  ASSERT_TRUE(mlir::succeeded(tree->step({{{1, 0, 0, 0, {}}, {2, 1, 0, 1, {}}}, {}})));
  // Behind token 0: 2 or 1, behind that 1 another 0 or 2.
  auto out = tree->step({{{0, 2, 0, 2, {}}, {2, 3, 0, 3, {}, 0}, {1, 3, 0, 4, {}, 0}, {0, 4, 0, 5, {}, 2}, {2, 4, 0, 6, {}, 2}}, {}});
  ASSERT_TRUE(mlir::succeeded(out));
  const std::vector<std::vector<int64_t>> paths = {{0}, {0, 2}, {0, 1}, {0, 1, 0}, {0, 1, 2}};
  for (size_t row = 0; row < paths.size(); ++row) {
    std::vector<int64_t> text{1, 2};
    text.insert(text.end(), paths[row].begin(), paths[row].end());
    tree->reset();
    auto chain = runSequences(*tree, {text});
    ASSERT_TRUE(mlir::succeeded(chain));
    for (size_t d = 0; d < 2; ++d)
      EXPECT_EQ(out->at(0).values[row * 2 + d], chain->at(0).values[(text.size() - 1) * 2 + d]) << "row " << row;
  }
}

//===----------------------------------------------------------------------===//
// Arithmetic
//===----------------------------------------------------------------------===//

TEST(InterpreterKernels, F16RoundsToNearestEven) {
  EXPECT_EQ(interp::roundToF16(1.0f + 0x1p-11f), 1.0f);                // a tie to even
  EXPECT_EQ(interp::roundToF16(1.0f + 0x1p-10f + 0x1p-11f), 1.0f + 0x1p-9f); // a tie to even, up
  EXPECT_EQ(interp::roundToF16(65519.0f), 65504.0f);
  EXPECT_EQ(interp::roundToF16(65520.0f), INFINITY);
  EXPECT_EQ(interp::roundToF16(0x1p-25f), 0.0f); // half of the smallest
  EXPECT_EQ(interp::roundToF16(-0x1.8p-25f), -0x1p-24f);
  for (uint32_t bits = 0; bits < 0x7f800000u; bits += 99991) {
    float x = std::bit_cast<float>(bits);
    EXPECT_EQ(interp::roundToF16(x), float(_Float16(x))) << x;
  }
}

/// Every float16, and what lies next to it, against a search among all values that e4m3 has.
TEST(InterpreterKernels, E4M3RoundsToNearestEven) {
  std::vector<float> values; // by code: 0 .. 0x7e; 0x7f is no number
  for (int code = 0; code < 0x7f; ++code) {
    int exponent = code >> 3, fraction = code & 7;
    values.push_back(exponent ? std::ldexp(8.0f + float(fraction), exponent - 10) : std::ldexp(float(fraction), -9));
  }
  ASSERT_EQ(values.back(), 448.0f);
  auto nearest = [&](double x) {
    size_t best = 0;
    for (size_t code = 1; code < values.size(); ++code) {
      double is = std::fabs(x - values[code]), was = std::fabs(x - values[best]);
      if (is < was || (is == was && code % 2 == 0)) best = code;
    }
    return values[best];
  };
  for (uint32_t bits = 0; bits < 0x7c00; bits += 3) {
    float x = float(std::bit_cast<_Float16>(uint16_t(bits)));
    for (float v : {std::nextafterf(x, 0.0f), x, std::nextafterf(x, INFINITY)}) {
      ASSERT_EQ(interp::roundToE4M3(v), nearest(v)) << v;
      ASSERT_EQ(interp::roundToE4M3(-v), -nearest(v)) << v;
    }
  }
  for (size_t code = 0; code + 1 < values.size(); ++code) { // ties
    float tie = (values[code] + values[code + 1]) / 2;
    ASSERT_EQ(interp::roundToE4M3(tie), values[code + code % 2]) << tie;
  }
  EXPECT_EQ(interp::roundToE4M3(1e30f), 448.0f);
  EXPECT_EQ(interp::roundToE4M3(-INFINITY), -448.0f);
  EXPECT_TRUE(std::isnan(interp::roundToE4M3(NAN)));
}

/// The largest element of a stored head is kept, all others to a sixteenth of themselves (or half a step of the smallest).
TEST(InterpreterKernels, E4M3EntriesKeepTheErrorTheyPromise) {
  std::mt19937 random(4);
  std::normal_distribution<float> normal;
  std::vector<float> x(64), y(64);
  for (float scale : {1e-3f, 1.0f, 3e4f}) {
    float amax = 0;
    for (float &v : x) v = scale * normal(random), amax = std::max(amax, std::fabs(v));
    interp::roundEntry(interp::Store::e4m3, x.data(), 64, y.data());
    for (int i = 0; i < 64; ++i) EXPECT_LE(std::fabs(x[i] - y[i]), std::max(std::fabs(x[i]) / 16, amax / 448 / 1024) * 1.0001f) << i;
    EXPECT_EQ(std::count_if(y.begin(), y.end(), [&](float v) { return std::fabs(std::fabs(v) - amax) < 1e-6f * amax; }), 1);
  }
  std::fill(x.begin(), x.end(), 1e-31f); // too small for its quotient
  interp::roundEntry(interp::Store::e4m3, x.data(), 64, y.data());
  EXPECT_EQ(y, std::vector<float>(64));
}

TEST(InterpreterKernels, E4M3ActivationsHaveAScaleForEach32Columns) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<float> x(100), y(100), alone(100);
  for (int i = 0; i < 100; ++i) x[i] = normal(random) * (i < 32 ? 1000.0f : 1.0f);
  interp::roundActivations(interp::Act::e4m3, x.data(), 100, y.data());
  for (int g = 0; g < 100; g += 32) interp::roundEntry(interp::Store::e4m3, x.data() + g, std::min(32, 100 - g), alone.data() + g);
  EXPECT_EQ(y, alone); // whose error is looked at above
}

TEST(InterpreterKernels, ActivationsKeepTheErrorTheyPromise) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> x(100), y(100);
  for (float &v : x) v = 3 + normal(random); // far from zero: a zero point helps
  for (auto [format, steps] : {std::pair(interp::Act::int8, 127.0f), {interp::Act::int8z, 254.0f}}) {
    interp::roundActivations(format, x.data(), 100, y.data());
    for (int g = 0; g < 100; g += 32) {
      float lo = 0, hi = 0;
      int end = std::min(100, g + 32);
      if (format == interp::Act::int8z && end == g + 32) lo = hi = x[g];
      for (int i = g; i < end; ++i) lo = std::min(lo, x[i]), hi = std::max(hi, x[i]);
      float step = format == interp::Act::int8 ? std::max(hi, -lo) / steps : (hi - lo) / steps;
      // int8z: the offset is a bfloat16, so the ends may be clamped by its error.
      float slack = format == interp::Act::int8z ? std::fabs(hi + lo) / 512 : 0;
      for (int i = g; i < end; ++i) EXPECT_LE(std::fabs(x[i] - y[i]), step * 0.5001f + slack) << i;
    }
  }
}

TEST(InterpreterKernels, SumsDoNotDependOnTheNumberOfRows) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  constexpr int64_t rows = 7, k = 45, n = 19;
  std::vector<float> x(rows * k), w(n * k), all(rows * n), one(n);
  for (float &v : x) v = normal(random);
  for (float &v : w) v = normal(random);
  interp::matmul(x.data(), rows, k, w.data(), n, all.data(), n);
  for (int64_t r = 0; r < rows; ++r) {
    interp::matmul(x.data() + r * k, 1, k, w.data(), n, one.data(), n);
    for (int64_t j = 0; j < n; ++j) {
      EXPECT_EQ(one[j], all[r * n + j]);
      double exact = 0;
      for (int64_t i = 0; i < k; ++i) exact += double(x[r * k + i]) * w[j * k + i];
      EXPECT_NEAR(one[j], exact, 1e-4);
    }
  }
}

} // namespace
