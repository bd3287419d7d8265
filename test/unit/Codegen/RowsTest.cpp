//===- RowsTest.cpp - norm, quantize, activation, softcap against the model --===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "RowTesting.h"

using namespace lathe;
using namespace lathe::codegen;
using namespace lathe::codegen::test;

namespace {

const ActFormat formats[] = {ActFormat::f32, ActFormat::bf16, ActFormat::int8, ActFormat::int8z, ActFormat::e4m3};

TEST(Norm, MatchesTheModelBitForBit) {
  std::vector<NormParams> grid;
  for (int64_t k : fullGrid() ? std::vector<int64_t>{1, 15, 16, 17, 31, 32, 33, 64, 100, 576, 577, 2048, 4095}
                              : std::vector<int64_t>{7, 33, 576, 100})
    for (bool layer : {false, true})
      for (int out = 0; out < 7; ++out) {
        NormParams p;
        p.k = k;
        p.inStride = rowStride(k) + (out % 2 ? 0 : 32);
        p.layerNorm = layer;
        p.bias = layer && k != 33;
        p.eps = 1e-5f;
        p.outRows = out == 1 || out == 4;
        p.out = out < 2 ? NormParams::Out::rows : NormParams::Out::activations;
        p.outStride = rowStride(k);
        p.postScaleResidual = out == 0;
        if (out >= 2) p.act = formats[out - 2];
        p.halves = out == 4;
        grid.push_back(p);
      }
  std::vector<KernelJob> jobs;
  for (size_t i = 0; i < grid.size(); ++i)
    jobs.push_back(job("k" + std::to_string(i), grid[i], emitNorm));
  for (X86Target target : rowTargets()) {
    KernelLibrary library(jobs, target);
    for (size_t i = 0; i < grid.size(); ++i) {
      const NormParams &p = grid[i];
      SCOPED_TRACE(std::string(variantName(target.variant)) + " k " + std::to_string(p.k) + " case " +
                   std::to_string(i));
      for (int64_t rows : {1, 3, 17, 29}) {
        Random random(uint32_t(i * 100 + rows));
        StepData step(rows + (p.outRows ? 5 : 0));
        for (int64_t r = 0; p.outRows && r < rows; ++r)
          step.outRow.push_back(int32_t((r * 7 + 3) % (rows + 5)));
        Buffer x = randomRows(random, rows + 5, p.inStride), w = randomRows(random, 1, rowStride(p.k)),
               bias = randomRows(random, 1, rowStride(p.k));
        bool rowsOut = p.out == NormParams::Out::rows;
        Buffer out(size_t(rowsOut ? rows * p.outStride * 4 : activationBytes(rows, p.k, p.act, p.halves)), 0xcd);
        Buffer expected(out.size(), 0xcd);
        if (p.postScaleResidual) { // into the residual itself
          fillNormal(random, out.as<float>(), rows * p.outStride);
          std::memcpy(expected.data(), out.data(), out.size());
        }
        std::vector<uint8_t *> args{x.data(), w.data(), out.data()};
        if (p.bias) args.push_back(bias.data());
        if (p.postScaleResidual) args.push_back(out.data());
        std::vector<float> y(size_t(rowStride(p.k)));
        for (int64_t r = 0; r < rows; ++r) {
          const float *in = x.as<float>() + (p.outRows ? step.outRow[size_t(r)] : r) * p.inStride;
          if (p.layerNorm)
            model::layerNorm(in, w.as<float>(), p.bias ? bias.as<float>() : nullptr, y.data(), p.k, p.eps);
          else
            model::rmsNorm(in, w.as<float>(), y.data(), p.k, p.eps);
          if (!rowsOut) {
            model::writeActivations(expected.data(), p.k, p.act, p.halves, r, rows, y.data(),
                                    target.packsBf16(p.act));
            continue;
          }
          float *e = expected.as<float>() + r * p.outStride;
          for (int64_t j = 0; j < p.outStride; ++j)
            e[j] = j >= p.k              ? (p.postScaleResidual ? e[j] : 0)
                   : p.postScaleResidual ? e[j] + y[size_t(j)]
                                         : y[size_t(j)];
          for (int64_t j = p.k; j < p.outStride; ++j)
            e[j] = 0;
        }
        runKernel(library["k" + std::to_string(i)], args, step, rows);
        ASSERT_TRUE(sameBytes(out.data(), expected.data(), out.size()));
        EXPECT_TRUE(out.intact());
      }
    }
  }
}

TEST(Rows, ArgmaxFindsTheFirstOfTheLargest) {
  std::vector<ArgmaxParams> grid;
  for (int64_t width : {1, 5, 16, 33, 256, 1000})
    for (bool pairs : {false, true})
      grid.push_back(argmaxCase(width, pairs));
  std::vector<KernelJob> jobs;
  for (size_t i = 0; i < grid.size(); ++i)
    jobs.push_back(job("k" + std::to_string(i), grid[i], emitArgmax));
  for (X86Target target : rowTargets()) {
    KernelLibrary library(jobs, target);
    for (size_t i = 0; i < grid.size(); ++i) {
      SCOPED_TRACE(std::string(variantName(target.variant)) + " case " + std::to_string(i));
      constexpr int64_t rows = 200;
      Random random{uint32_t(i)};
      StepData step(rows);
      step.outRow.resize(rows);
      Buffer x = argmaxRows(random, rows, grid[i]), out(rows * 64, 0xcd);
      runKernel(library["k" + std::to_string(i)], {x.data(), out.data()}, step, rows);
      ASSERT_TRUE(out.intact());
      ASSERT_TRUE(areLargest(x.as<float>(), out.as<float>(), rows, grid[i]));
    }
  }
}

TEST(Rows, QuantizeAndActivationsMatchTheModel) {
  struct Case {
    int64_t k;
    ActFormat act;
    bool halves;
    int kind; ///< 0..3 activation with up, 4..7 without, 8 plain quantize
  };
  std::vector<Case> grid;
  for (int64_t k :
       fullGrid() ? std::vector<int64_t>{1, 16, 31, 32, 33, 47, 48, 1536, 5000} : std::vector<int64_t>{47, 96, 9})
    for (ActFormat f : formats)
      for (int kind = 0; kind < 9; ++kind)
        if (fullGrid() || kind == 8 || (kind + int(f)) % 4 == 0) grid.push_back({k, f, kind % 3 == 0, kind});
  std::vector<KernelJob> jobs;
  for (size_t i = 0; i < grid.size(); ++i) {
    const Case &g = grid[i];
    std::string symbol = "k" + std::to_string(i);
    if (g.kind == 8) {
      QuantizeParams p;
      p.k = g.k, p.inStride = rowStride(g.k), p.act = g.act, p.halves = g.halves;
      jobs.push_back(job(symbol, p, emitQuantize));
    } else {
      ActivationParams p;
      p.k = g.k, p.inStride = rowStride(g.k), p.act = g.act, p.halves = g.halves;
      p.up = g.kind < 4, p.activation = Activation(g.kind % 4);
      jobs.push_back(job(symbol, p, emitActivation));
    }
  }
  for (X86Target target : rowTargets()) {
    KernelLibrary library(jobs, target);
    for (size_t i = 0; i < grid.size(); ++i) {
      const Case &g = grid[i];
      SCOPED_TRACE(std::string(variantName(target.variant)) + " k " + std::to_string(g.k) + " kind " +
                   std::to_string(g.kind));
      for (int64_t rows : {1, 6, 16, 23}) {
        Random random(uint32_t(i * 100 + rows));
        StepData step(rows);
        int64_t stride = rowStride(g.k);
        Buffer gate = randomRows(random, rows, stride, 3.0f), up = randomRows(random, rows, stride);
        std::memset(gate.data(), 0, size_t(g.k) * 2); // half a row of zeros: groups without a scale
        for (int64_t j = 0; j < std::min<int64_t>(g.k, 8); ++j)
          gate.as<float>()[(rows - 1) * stride + j] = (j % 2 ? -1 : 1) * (j < 4 ? 200.0f : 12.0f);
        Buffer out(size_t(activationBytes(rows, g.k, g.act, g.halves)), 0xcd), expected(out.size(), 0xcd);
        std::vector<float> y(static_cast<size_t>(g.k));
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t j = 0; j < g.k; ++j) {
            float v = gate.as<float>()[r * stride + j];
            if (g.kind < 8) v = model::activation(Activation(g.kind % 4), v);
            y[size_t(j)] = g.kind < 4 ? v * up.as<float>()[r * stride + j] : v;
          }
          model::writeActivations(expected.data(), g.k, g.act, g.halves, r, rows, y.data(),
                                    target.packsBf16(g.act));
        }
        std::vector<uint8_t *> args{gate.data()};
        if (g.kind < 4) args.push_back(up.data());
        args.push_back(out.data());
        runKernel(library["k" + std::to_string(i)], args, step, rows);
        ASSERT_TRUE(sameBytes(out.data(), expected.data(), out.size()));
        EXPECT_TRUE(out.intact());
      }
    }
  }
}

TEST(Rows, SoftcapMatchesTheModel) {
  SoftcapParams p;
  p.n = 1003, p.stride = rowStride(p.n), p.cap = 30.0f;
  for (X86Target target : rowTargets()) {
    KernelLibrary library({job("cap", p, emitSoftcap)}, target);
    Random random(5);
    StepData step(3);
    step.outRow = {0, 1};
    Buffer x = randomRows(random, 2, p.stride, 40.0f), expected(x.size());
    std::memcpy(expected.data(), x.data(), x.size());
    for (int64_t r = 0; r < 2; ++r)
      for (int64_t i = 0; i < p.n; ++i) {
        float &v = expected.as<float>()[r * p.stride + i];
        v = p.cap * model::tanha(v * (1.0f / p.cap));
      }
    runKernel(library["cap"], {x.data()}, step, 2);
    EXPECT_TRUE(sameBits(x.as<float>(), expected.as<float>(), 2 * p.stride));
  }
}

TEST(Activations, ModelIsCloseToTheFunctions) {
  for (float x = -12.0f; x < 12.0f; x += 0.01f) {
    double d = x, s = d / (1 + std::exp(-d)), e = 0.5 * d * (1 + std::erf(d / std::sqrt(2.0)));
    double t = 0.5 * d * (1 + std::tanh(0.7978845608028654 * (d + 0.044715 * d * d * d)));
    EXPECT_NEAR(model::activation(Activation::silu, x), s, 2e-6);
    EXPECT_NEAR(model::activation(Activation::geluErf, x), e, 4e-6);
    EXPECT_NEAR(model::activation(Activation::geluTanh, x), t, 4e-6);
  }
}

std::string diagnosticOf(const std::function<mlir::LogicalResult(mlir::ModuleOp)> &emit) {
  mlir::MLIRContext context;
  std::string text;
  mlir::ScopedDiagnosticHandler handler(&context, [&](mlir::Diagnostic &d) { text = d.str(); });
  mlir::OwningOpRef<mlir::ModuleOp> module = mlir::ModuleOp::create(mlir::UnknownLoc::get(&context));
  EXPECT_TRUE(failed(emit(*module)));
  return text;
}

TEST(Rows, RefusesWhatItCannotEmit) {
  NormParams n;
  EXPECT_EQ(diagnosticOf([&](auto m) { return emitNorm(m, "n", n, {}); }),
            "kernel 'n': expected 1 <= k <= inStride, found k = 0, inStride = 0");
  n.k = n.inStride = 32, n.out = NormParams::Out::rows;
  EXPECT_EQ(diagnosticOf([&](auto m) { return emitNorm(m, "n", n, {}); }),
            "kernel 'n': expected outStride of at least 32, found 0");
  n.out = NormParams::Out::activations, n.postScaleResidual = true;
  EXPECT_EQ(diagnosticOf([&](auto m) { return emitNorm(m, "n", n, {}); }), "kernel 'n': a residual needs row output");
  ArgmaxParams x;
  x.width = 17, x.inStride = 32, x.pairs = true;
  EXPECT_EQ(diagnosticOf([&](auto m) { return emitArgmax(m, "x", x, {}); }),
            "kernel 'x': expected a width of 1 to 16777216 in rows of 32 and results of at least 16, found 17 and 16");
  SoftcapParams s{8, 16, 0};
  EXPECT_EQ(diagnosticOf([&](auto m) { return emitSoftcap(m, "s", s, {}); }), "kernel 's': expected a positive cap");
  GatherParams g;
  EXPECT_EQ(diagnosticOf([&](auto m) { return emitGather(m, "g", g, {}); }),
            "kernel 'g': expected a table of at least 1 x 1, found 0 x 0");
  g.n = 4, g.k = 40;
  EXPECT_EQ(diagnosticOf([&](auto m) { return emitGather(m, "g", g, {}); }),
            "kernel 'g': expected outStride of at least 40, found 0");
  AnglesParams a;
  EXPECT_EQ(diagnosticOf([&](auto m) { return emitAngles(m, "a", a, {}); }),
            "kernel 'a': expected at least one frequency, found 0");
  RopeAppendParams r;
  r.qHeads = r.kvHeads = 1, r.headDim = r.valueDim = 64, r.rotaryDim = 66, r.headStride = r.blockStride = 4096;
  EXPECT_EQ(diagnosticOf([&](auto m) { return emitRopeAppend(m, "r", r, {}); }),
            "kernel 'r': expected an even rotary size of 2 to 64, found 66");
}

TEST(Attention, RefusesWhatItCannotEmit) {
  AttentionParams p;
  auto message = [&] { return diagnosticOf([&](auto m) { return emitAttention(m, "a", p, {}); }); };
  p.qHeads = 3, p.kvHeads = 2, p.headDim = 65, p.valueDim = 64;
  EXPECT_EQ(message(), "kernel 'a': expected an even head size of 2 to 256, found 65");
  p.headDim = 64, p.kvHeads = 0;
  EXPECT_EQ(message(), "kernel 'a': expected at least one KV head, found 0");
  p.kvHeads = 2, p.page = 24;
  EXPECT_EQ(message(), "kernel 'a': expected a page of 16 to 4096 tokens, a multiple of 16, found 24");
  p.page = 16, p.headStride = 4000;
  EXPECT_EQ(message(), "kernel 'a': expected a head stride of at least 4096 bytes, a multiple of 64, found 4000");
  p.headStride = p.blockStride = 4096;
  EXPECT_EQ(message(), "kernel 'a': expected a block stride of at least 8192 bytes, a multiple of 64, found 4096");
  p.blockStride = 8192;
  EXPECT_EQ(message(), "kernel 'a': expected query heads to be a multiple of 2 KV heads, found 3");
  p.qHeads = 4, p.chunk = 100;
  EXPECT_EQ(message(), "kernel 'a': expected a chunk of 16 to 65536 tokens, a multiple of 16, found 100");
  p.chunk = 256, p.window = -1;
  EXPECT_EQ(message(), "kernel 'a': expected a window of at least 0 tokens, found -1");
  p.window = 0, p.quantize = true, p.valueDim = 48;
  EXPECT_EQ(message(), "kernel 'a': a quantized output needs a value size that is a multiple of 32, found 48");
  p.quantize = false, p.form = AttentionParams::split;
  EXPECT_EQ(message(), "kernel 'a': expected room for at least one chunk in the partials, found 0");
}

} // namespace
