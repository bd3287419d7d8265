//===- MatmulTest.cpp - matmul kernels against the scalar model, bit for bit ===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "KernelLibrary.h"
#include "RandomWeight.h"

using namespace lathe;
using namespace lathe::codegen;
using namespace lathe::codegen::test;

namespace {

const StorageType allTypes[] = {StorageType::f32,       StorageType::f16,       StorageType::bf16,
                                StorageType::q4_0,      StorageType::q4_1,      StorageType::q5_0,
                                StorageType::q5_1,      StorageType::q8_0,      StorageType::q2_k,
                                StorageType::q3_k,      StorageType::q4_k,      StorageType::q5_k,
                                StorageType::q6_k,      StorageType::iq4_nl,    StorageType::int8,
                                StorageType::int4_g32,  StorageType::int4_g64,  StorageType::int4_g128,
                                StorageType::int4z_g32, StorageType::int4z_g64, StorageType::int4z_g128,
                                StorageType::e4m3};

bool isFloat(StorageType t) { return packedLayout(t).isFloat(); }

struct Case {
  MatmulParams p;
  std::string name;
};

std::string caseName(const MatmulParams &p) {
  return "t" + std::to_string(int(p.type)) + "_a" + std::to_string(int(p.act)) + (p.halves ? "h" : "") + "_" +
         std::to_string(p.n) + "x" + std::to_string(p.k) + (p.bias ? "_b" : "") + (p.residual ? "_r" : "") +
         (p.epilogue == MatmulParams::gateUp
              ? "_g" + std::to_string(int(p.activation)) + std::to_string(int(p.outAct)) + (p.outHalves ? "h" : "")
          : p.epilogue == MatmulParams::argmax ? "_max" : "");
}

std::vector<KernelJob> jobsOf(const std::vector<Case> &cases) {
  std::vector<KernelJob> jobs;
  for (const Case &c : cases)
    jobs.push_back({c.name, [p = c.p](mlir::ModuleOp module, llvm::StringRef s, X86Target t) {
                      return emitMatmul(module, s, p, t);
                    }, {.bf16 = c.p.act == ActFormat::bf16 || c.p.outAct == ActFormat::bf16, .dots = isInt8(c.p.act)}});
  return jobs;
}

/// Expected bytes of the output: rows f32 or activations, for |rows| rows.
void runCase(const Case &c, const KernelLibrary &library, X86Target target, const std::vector<int64_t> &rowCounts, uint32_t seed) {
  const MatmulParams &p = c.p;
  std::mt19937 rng(seed);
  LatheKernelFn kernel = library[c.name];
  if (!kernel) return;
  m::Weight w = randomWeight(p.type, p.n, p.k, rng);
  std::vector<uint8_t> packed = m::pack(w);
  Buffer weights(packed.size());
  std::memcpy(weights.data(), packed.data(), packed.size());
  int64_t maxRows = *std::max_element(rowCounts.begin(), rowCounts.end()), capacity = (maxRows + 15) / 16 * 16;
  std::vector<float> x = randomInputs(maxRows, p.k, rng);
  m::Activations act = m::quantize(x, maxRows, p.k, p.act);
  std::vector<float> bias(size_t(rowStride(p.n))), residual(size_t(capacity * p.outStride));
  std::normal_distribution<float> normal(0, 1);
  for (int64_t i = 0; i < p.n; ++i)
    bias[size_t(i)] = normal(rng);
  for (float &v : residual)
    v = normal(rng);

  // y of all rows once: a row's value may not depend on how many there are.
  std::vector<std::vector<float>> y(static_cast<size_t>(maxRows));
  for (int64_t r = 0; r < maxRows; ++r)
    for (int64_t n = 0; n < p.n; ++n) {
      float v = m::dot(w, n, act[size_t(r)], p.act);
      if (p.bias) v = v + bias[size_t(n)];
      if (p.residual) v = residual[size_t(r * p.outStride + n)] + v;
      y[size_t(r)].push_back(v);
    }

  for (int64_t rows : rowCounts) {
    SCOPED_TRACE(c.name + ", " + std::to_string(rows) + " rows");
    Buffer activations(size_t(activationBytes(rows, p.k, p.act, p.halves)), 0x55);
    m::pack(m::Activations(act.begin(), act.begin() + rows), p.k, p.act, p.halves,
            activations.data(), target.packsBf16(p.act));
    Buffer biasBuffer(bias.size() * 4), residualBuffer(residual.size() * 4), scratch(scratchBytes(p) + 64);
    std::memcpy(biasBuffer.data(), bias.data(), bias.size() * 4);
    std::memcpy(residualBuffer.data(), residual.data(), residual.size() * 4);
    bool gateUp = p.epilogue == MatmulParams::gateUp;
    Buffer out(gateUp ? size_t(activationBytes(rows, p.n / 2, p.outAct, p.outHalves))
                      : size_t((rows + 15) / 16 * 16 * p.outStride * 4));
    LatheStep step{};
    step.size = sizeof step;
    (p.outRows ? step.outRows : step.rows) = uint32_t(rows);
    std::vector<uint8_t *> args{activations.data(), weights.data(), out.data()};
    if (p.bias) args.push_back(biasBuffer.data());
    if (p.residual) args.push_back(residualBuffer.data());
    // Two threads' shares, one of them strided: units are independent.
    int64_t units = matmulUnits(p), half = units / 2;
    kernel(args.data(), &step, 0, half, 1, scratch.data());
    for (int64_t s = 0; s < 2; ++s)
      kernel(args.data(), &step, half + s, units, 2, scratch.data());
    ASSERT_TRUE(out.intact());
    ASSERT_TRUE(activations.intact());
    if (p.epilogue == MatmulParams::argmax) {
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t u = 0; u < units; ++u) {
          auto begin = y[size_t(r)].begin() + u * argmaxRun, end = y[size_t(r)].begin() + std::min((u + 1) * argmaxRun, p.n);
          auto want = std::max_element(begin, end); // the first of equals
          const float *got = out.as<float>() + r * p.outStride + u;
          ASSERT_EQ(got[units], float(want - y[size_t(r)].begin())) << "row " << r << " run " << u;
          ASSERT_EQ(m::toBits(got[0]), m::toBits(*want)) << "row " << r << " run " << u;
        }
      continue;
    }
    if (!gateUp) {
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t n = 0; n < p.n; ++n) {
          float got = out.as<float>()[r * p.outStride + n], want = y[size_t(r)][size_t(n)];
          ASSERT_EQ(m::toBits(got), m::toBits(want))
              << "row " << r << " output " << n << ": got " << got << ", expected " << want;
        }
      continue;
    }
    std::vector<float> h;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = 0; i < p.n / 2; ++i) {
        float gate = y[size_t(r)][size_t(i / 32 * 64 + i % 32)], up = y[size_t(r)][size_t(i / 32 * 64 + 32 + i % 32)];
        h.push_back((p.activation == Activation::silu ? m::silu(gate) : m::geluTanh(gate)) * up);
      }
    m::Activations expected = m::quantize(h, rows, p.n / 2, p.outAct);
    // Compare row by row: planes of a block that no row owns are stale.
    ActivationLayout l = activationLayout(p.n / 2, p.outAct, p.outHalves);
    Buffer want(out.size());
    m::pack(expected, p.n / 2, p.outAct, p.outHalves, want.data(), target.packsBf16(p.outAct));
    for (int64_t r = 0; r < rows; ++r) {
      int64_t b = r / 16;
      auto [first, mb] = rowPart(p.outAct, std::min<int64_t>(16, rows - 16 * b), r % 16);
      int64_t i = r % 16 - first, before = first * l.groups, sumsBefore = before * l.sums;
      auto same = [&](int64_t offset, int64_t bytes) {
        return std::memcmp(out.data() + b * l.blockBytes + offset, want.data() + b * l.blockBytes + offset,
                           size_t(bytes)) == 0;
      };
      for (int64_t g = 0; g < l.groups; ++g) {
        if (!isInt8(p.outAct)) {
          int64_t bytes = target.packsBf16(p.outAct) ? 64 : 128;
          ASSERT_TRUE(same((before + g * mb + i) * bytes, bytes)) << "row " << r << " group " << g;
          continue;
        }
        ASSERT_TRUE(same((before + g * mb + i) * 32, 32)) << "codes of row " << r << " group " << g;
        ASSERT_TRUE(same(l.scale + (before + g * mb + i) * 4, 4)) << "scale of row " << r << " group " << g;
        for (int64_t s = 0; s < l.sums; ++s) {
          ASSERT_TRUE(same(l.isum + (sumsBefore + (g * l.sums + s) * mb + i) * 4, 4)) << "isum of row " << r << " group " << g;
          ASSERT_TRUE(same(l.fsum + (sumsBefore + (g * l.sums + s) * mb + i) * 4, 4)) << "fsum of row " << r << " group " << g;
        }
        if (p.outAct == ActFormat::int8z)
          ASSERT_TRUE(same(l.offset + (before + g * mb + i) * 4, 4)) << "offset of row " << r << " group " << g;
      }
    }
  }
}

bool full() { return std::getenv("LATHE_FULL") != nullptr; }
bool longest() { return full() && std::getenv("LATHE_LONG") != nullptr; }

void runCases(const std::vector<Case> &cases, const std::vector<int64_t> &rowCounts) {
  std::vector<X86Target> targets = hostTargets();
  if (targets.empty()) GTEST_SKIP() << "no AVX2";
  for (X86Target t : targets) {
    SCOPED_TRACE(variantName(t.variant));
    // Compiling is most of the time: the quick run compiles other than plain int8 cases for one variant each.
    std::vector<Case> mine;
    // Only bf16 activations have code of their own in avx512bf16, only 8-bit products in amx.
    for (size_t i = 0; i < cases.size(); ++i) {
      const MatmulParams &p = cases[i].p;
      bool bf16 = p.act == ActFormat::bf16 || p.outAct == ActFormat::bf16;
      if (full() || (t.hasTiles() ? isInt8(p.act) : t.hasBf16() ? bf16 : p.act == ActFormat::int8 || (i % 2 == 0) == t.has512())) mine.push_back(cases[i]);
    }
    if (mine.empty()) continue;
    KernelLibrary library(jobsOf(mine), t);
    if (!library) return;
    for (size_t i = 0; i < mine.size(); ++i) {
      runCase(mine[i], library, t, rowCounts, uint32_t(1000 + i));
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

// All parts of a block, alone, behind others and with stale rows.
const std::vector<int64_t> rowCounts{1, 2, 3, 6, 13, 16, 23, 33};

Case makeCase(StorageType type, ActFormat act, int64_t n, int64_t k) {
  MatmulParams p;
  p.type = type;
  p.act = act;
  p.n = n;
  p.k = k;
  p.halves = packedLayout(type).subK == 16 && isInt8(act);
  p.outStride = rowStride(n);
  return {p, caseName(p)};
}

TEST(Matmul, MatchesTheScalarModelForEveryTypeAndFormat) {
  const std::pair<int64_t, int64_t> shapes[] = {{40, 96}, {16, 32}, {24, 640}, {33, 256}};
  std::vector<Case> cases;
  size_t next = 0;
  for (StorageType type : allTypes)
    for (ActFormat act : {ActFormat::int8, ActFormat::int8z, ActFormat::f32, ActFormat::bf16, ActFormat::e4m3}) {
      if ((isFloat(type) && isInt8(act)) || (act == ActFormat::e4m3 && type != StorageType::e4m3)) continue;
      // Quick run: int8 for all types, float weights, and a third of the rest; the longest has every shape of each pair.
      bool quick = act == ActFormat::int8 || isFloat(type) || (size_t(type) + size_t(act)) % 3 == 0;
      if (!full() && !quick) continue;
      for (size_t s = 0; s < (longest() ? 4 : 1); ++s) {
        auto [n, k] = shapes[(next + s) % 4];
        cases.push_back(makeCase(type, act, n, k));
      }
      ++next;
    }
  runCases(cases, rowCounts);
}

TEST(Matmul, ReadsBuffersWithHalfSums) {
  std::vector<Case> cases;
  for (StorageType type : {StorageType::q4_0, StorageType::q4_k})
    for (ActFormat act : {ActFormat::int8, ActFormat::int8z}) {
      Case c = makeCase(type, act, 32, 288);
      c.p.halves = true;
      c.name = caseName(c.p);
      cases.push_back(c);
    }
  runCases(cases, {1, 7, 13, 16});
}

TEST(Matmul, AddsBiasAndResidual) {
  std::vector<Case> cases;
  for (bool bias : {false, true})
    for (bool residual : {false, true}) {
      Case c = makeCase(bias ? StorageType::q8_0 : StorageType::f16, bias ? ActFormat::int8 : ActFormat::f32, 40, 64);
      c.p.bias = bias;
      c.p.residual = residual;
      c.p.outStride = 96; // columns of a wider buffer
      c.p.outRows = residual;
      c.name = caseName(c.p);
      cases.push_back(c);
    }
  runCases(cases, {1, 3, 12, 16, 17});
}

TEST(Matmul, QuantizesGatedOutputs) {
  std::vector<Case> cases;
  auto add = [&](Activation f, ActFormat act, bool halves, StorageType type = StorageType::q4_1, ActFormat from = ActFormat::int8) {
    Case c = makeCase(type, from, 192, 64);
    c.p.epilogue = MatmulParams::gateUp;
    c.p.activation = f;
    c.p.outAct = act;
    c.p.outHalves = halves;
    c.name = caseName(c.p);
    cases.push_back(c);
  };
  add(Activation::silu, ActFormat::int8, false);
  add(Activation::silu, ActFormat::int8, true);
  add(Activation::geluTanh, ActFormat::int8z, false);
  add(Activation::geluTanh, ActFormat::int8z, true);
  add(Activation::silu, ActFormat::f32, false);
  add(Activation::geluTanh, ActFormat::bf16, false);
  // Blocks of floats have other parts than those of integers.
  add(Activation::silu, ActFormat::int8, false, StorageType::f16, ActFormat::f32);
  add(Activation::silu, ActFormat::int8z, true, StorageType::f32, ActFormat::f32);
  add(Activation::geluTanh, ActFormat::int8z, false, StorageType::bf16, ActFormat::bf16);
  add(Activation::silu, ActFormat::f32, false, StorageType::bf16, ActFormat::bf16);
  add(Activation::silu, ActFormat::bf16, false, StorageType::e4m3, ActFormat::bf16);
  runCases(cases, rowCounts);
}

TEST(Matmul, SaysTheLargestOutputOfEachRun) {
  std::vector<Case> cases;
  // One run, a run that ends in a tile, several; float kernels take two tiles at once.
  for (auto [type, act, n] : {std::tuple(StorageType::q4_0, ActFormat::int8z, int64_t(600)), {StorageType::q6_k, ActFormat::int8, 256}, {StorageType::f16, ActFormat::f32, 280},
                              {StorageType::q8_0, ActFormat::int8, 7}, {StorageType::bf16, ActFormat::bf16, 264}, {StorageType::f32, ActFormat::f32, 264},
                              {StorageType::e4m3, ActFormat::bf16, 270}}) {
    Case c = makeCase(type, act, n, 64);
    c.p.epilogue = MatmulParams::argmax;
    c.p.bias = n == 280;
    c.p.outRows = n == 600;
    c.p.outStride = rowStride(2 * matmulUnits(c.p));
    c.name = caseName(c.p);
    cases.push_back(c);
  }
  runCases(cases, rowCounts);
}

TEST(Matmul, WalksRowSuperBlocks) {
  // 32 row blocks of k = 1024 are more than 512 KiB of activations.
  runCases({makeCase(StorageType::q4_0, ActFormat::int8, 16, 1024)}, {530});
}

TEST(Matmul, RefusesWhatItCannotDo) {
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  auto refusal = [&](MatmulParams p, artifact::Variant v = artifact::Variant::avx2) {
    mlir::OwningOpRef<mlir::ModuleOp> module = mlir::ModuleOp::create(mlir::UnknownLoc::get(&context));
    std::string text;
    mlir::ScopedDiagnosticHandler handler(&context, [&](mlir::Diagnostic &d) {
      text = d.str();
      return mlir::success();
    });
    EXPECT_TRUE(mlir::failed(emitMatmul(*module, "mm", p, {v})));
    return text;
  };
  MatmulParams good = makeCase(StorageType::q4_0, ActFormat::int8, 64, 64).p, p = good;
  EXPECT_EQ(refusal(p, artifact::Variant::none), "matmul 'mm': expected an x86 code variant, found 'none'");
  p.k = 0;
  EXPECT_EQ(refusal(p), "matmul 'mm': expected positive n and k, found 64 and 0");
  p.k = int64_t(1) << 40;
  EXPECT_EQ(refusal(p), "matmul 'mm': k = 1099511627776 is too large for one tile");
  p = good;
  p.type = StorageType::f16;
  EXPECT_EQ(refusal(p), "matmul 'mm': expected f32 or bf16 activations for float weights, found int8");
  p.type = StorageType::e4m3;
  EXPECT_EQ(refusal(p), "matmul 'mm': expected f32 or bf16 activations for float weights, found int8");
  p.act = ActFormat::e4m3;
  for (StorageType other : {StorageType::bf16, StorageType::q4_0, StorageType::int8}) {
    p.type = other;
    EXPECT_EQ(refusal(p), "matmul 'mm': expected e4m3 weights for e4m3 activations");
  }
  p = good;
  p.type = StorageType::q6_k;
  EXPECT_EQ(refusal(p), "matmul 'mm': expected activations with half sums for scales of 16 k");
  p = good;
  p.outStride = 48;
  EXPECT_EQ(refusal(p), "matmul 'mm': expected an output stride of at least 64, found 48");
  p = good;
  p.epilogue = MatmulParams::gateUp;
  p.n = 96;
  EXPECT_EQ(refusal(p), "matmul 'mm': expected a multiple of 64 weight rows for a gate/up epilogue, found 96");
  p.n = 64;
  p.bias = true;
  EXPECT_EQ(refusal(p), "matmul 'mm': a gate/up epilogue takes no bias and no residual");
  p.bias = false;
  p.activation = Activation::relu;
  EXPECT_EQ(refusal(p), "matmul 'mm': expected silu or gelu_tanh in a gate/up epilogue");
  p = good;
  p.epilogue = MatmulParams::argmax;
  p.outStride = 1;
  EXPECT_EQ(refusal(p), "matmul 'mm': expected at most 16777216 outputs, no residual and an output stride of at least 2 in an argmax epilogue, found 64 outputs, no residual and 1");
}

} // namespace
