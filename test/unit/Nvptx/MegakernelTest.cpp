//===- MegakernelTest.cpp - many launches as one kernel --------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// An MLP and the largest of its outputs, as launches and as a megakernel: the same bits in every buffer, whatever the number of blocks, the mode and the
// order of warps, with races checked. Each mutant must be caught. And bodies of a 7 billion model's shapes through ptxas.
//===----------------------------------------------------------------------===//
#include "MegakernelMlp.h"

using namespace lathe;
using namespace lathe::codegen;
using namespace lathe::codegen::nvptx;
using nvptx::test::job;
using nvptx::test::Mlp;
using Machine = nvptx::test::MlpMachine;
using Outcome = nvptx::test::MlpOutcome;

namespace {

const Chip &oldest() { return chips().front(); }
const Mlp &mlp() {
  static const Mlp one(oldest());
  return one;
}

class Megakernel : public ::testing::TestWithParam<const char *> {};

TEST_P(Megakernel, HasTheBitsOfItsKernels) {
  const Chip &chip = *findChip(GetParam());
  const Mlp here(chip);
  Machine m(here, chip, here.ptx);
  ASSERT_EQ(m.plan.size(), 1u);
  ASSERT_EQ(m.plan[0].pieces.size(), 1u);
  Outcome want = m.separate();
  ASSERT_TRUE(want.status.ok()) << want.status.message();
  std::vector<float> largest(16);
  std::memcpy(largest.data(), want.memory[Mlp::best].data(), 64);
  EXPECT_GE(largest[0], 0.0f);
  EXPECT_LT(largest[0], float(Mlp::width)); // a number: what the rows came to is finite
  for (uint32_t blocks : {1u, 2u, 3u, 7u}) {
    m.reset(); // a grid has its own counter, which goes on from run to run
    uint64_t arrived = 0;
    for (auto mode : {emulator::AsyncMode::lazy, emulator::AsyncMode::eager}) {
      SCOPED_TRACE(std::to_string(blocks) + " blocks");
      m.options.mode = mode;
      m.options.seed = mode == emulator::AsyncMode::eager ? blocks : 0;
      Outcome got = m.together(blocks);
      ASSERT_TRUE(got.status.ok()) << got.status.message();
      for (int i = 0; i < Mlp::buffers; ++i) EXPECT_EQ(got.memory[size_t(i)], want.memory[size_t(i)]) << "buffer " << i;
      arrived += 5 * blocks; // between six launches
      EXPECT_EQ(m.count(), arrived);
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Chips, Megakernel, ::testing::Values("sm_80", "sm_90a"));

TEST(MegakernelMutants, AreCaught) {
  struct Mutant {
    const char *what, *from, *to, *message;
  };
  // On one block each would be right.
  const Mutant mutants[] = {
      {"no wait", "setp.ge.u64 p", "setp.le.u64 p", "race on global address"},
      {"no acquire", "ld.acquire.gpu.global.u64", "ld.relaxed.gpu.global.u64", "race on global address"},
      {"no release", "red.release.gpu.global.add.u64", "red.relaxed.gpu.global.add.u64", "race on global address"},
      {"no arrival", "red.release.gpu.global.add.u64", "// red.release.gpu.global.add.u64", "deadlock"},
  };
  for (const Mutant &x : mutants) {
    SCOPED_TRACE(x.what);
    std::string text = mlp().ptx;
    size_t at = text.find(x.from, text.find(".entry mega"));
    ASSERT_NE(at, std::string::npos);
    text.replace(at, std::strlen(x.from), x.to);
    Machine m(mlp(), oldest(), text);
    m.options.spinLimit = 200'000;
    Outcome got = m.together(3);
    EXPECT_NE(got.status.message().find(x.message), std::string::npos) << got.status.message();
  }
}

TEST(MegakernelMutants, OfTheTableAreCaught) {
  // A launch that does not wait for the one before it.
  for (size_t launch = 0; launch + 1 < mlp().args.size(); ++launch) {
    SCOPED_TRACE(launch);
    Machine m(mlp(), oldest(), mlp().ptx);
    const size_t at = sizeof(MegakernelTable) + launch * megakernelRecordBytes(uint64_t(mlp().shape.maxArgs)) + offsetof(MegakernelRecord, barrier);
    ASSERT_EQ(m.tables[at], 1u);
    m.tables[at] = 0;
    Outcome got = m.together(3);
    EXPECT_NE(got.status.message().find("race on global address"), std::string::npos) << got.status.message();
  }
}

TEST(MegakernelMutants, FewerBlocksThanStartedAreCaught) {
  Machine m(mlp(), oldest(), mlp().ptx);
  Outcome got = m.together(3, false); // one after the other
  EXPECT_NE(got.status.message().find("deadlock"), std::string::npos) << got.status.message();
  EXPECT_NE(got.status.message().find("blocks that wait for each other need a cooperative launch"), std::string::npos) << got.status.message();
  Machine few(mlp(), oldest(), mlp().ptx);
  few.options.residentBlocks = 2;
  got = few.together(3);
  EXPECT_NE(got.status.message().find("a cooperative launch of 3 blocks, expected at most the 2 that the device keeps at a time"), std::string::npos) << got.status.message();
  EXPECT_TRUE(few.together(2).status.ok());
}

TEST(MegakernelBodies, ThatDoNotFitAreRefused) {
  auto message = [](std::vector<PtxJob> bodies, const Chip &chip) {
    auto built = buildPtx({megakernelJob("mega", std::move(bodies), std::make_shared<MegakernelShape>())}, chip, 1);
    return built.ok() ? std::string() : built.status().message();
  };
  MmaParams p;
  p.type = StorageType::q4_0, p.n = 4096, p.k = 2048, p.act = ActFormat::bf16, p.epilogue = MatmulParams::gateUp, p.outAct = ActFormat::bf16, p.kSegments = 4;
  EXPECT_FALSE(canBeBody("matmul", launchShape(p).threads));
  EXPECT_NE(message({job("gate", p, nvptx::emitMatmul)}, oldest()).find("expected a body of a power of two of up to 256 threads and up to 163712 bytes of shared memory, found 512 and"), std::string::npos)
      << message({job("gate", p, nvptx::emitMatmul)}, oldest());
  EXPECT_EQ(asBody(p).kSegments, 2);
  EXPECT_TRUE(canBeBody("matmul", launchShape(asBody(p)).threads));
  EXPECT_EQ(message({job("gate", asBody(p), nvptx::emitMatmul)}, oldest()), "");
  EXPECT_TRUE(canBeBody("argmax", 512)); // as a body it has fewer
  EXPECT_NE(message({}, oldest()).find("expected at least one body of a megakernel"), std::string::npos);
  MmaParams w = onChip(p, *findChip("sm_90a"), 8);
  ASSERT_TRUE(w.wgmma);
  EXPECT_FALSE(canBeBody("matmul", launchShape(w).threads));
  EXPECT_NE(message({job("gate", w, nvptx::emitMatmul)}, *findChip("sm_90a")).find("unsupported: wgmma in a megakernel"), std::string::npos);
}

/// A decoding step's kernels of a model of 7 billion weights.
std::vector<PtxJob> decodeBodies(StorageType type, int64_t tile, KVFormat kv) {
  std::vector<PtxJob> jobs;
  auto add = [&](const char *name, auto p, auto emit) { jobs.push_back(job(name, p, emit)); };
  const bool halves = packedLayout(type).subK == 16;
  auto matmul = [&](int64_t n, int64_t k) {
    MmaParams p;
    p.type = type, p.n = n, p.k = k, p.act = ActFormat::bf16, p.halves = halves, p.outStride = n, p.rowTile = tile;
    p.kSegments = segmentsOfK(p);
    return p;
  };
  GatherParams g;
  g.type = type, g.n = 32000, g.k = 4096, g.outStride = 4096;
  add("gather", g, nvptx::emitGather);
  AnglesParams f;
  f.half = 64;
  add("angles", f, nvptx::emitAngles);
  NormParams n;
  n.k = n.inStride = 4096, n.act = ActFormat::bf16, n.halves = halves;
  add("norm", n, nvptx::emitNorm);
  add("qkv", matmul(6144, 4096), nvptx::emitMatmul);
  RopeAppendParams r;
  r.qHeads = 32, r.kvHeads = 8, r.headDim = r.valueDim = r.rotaryDim = 128, r.qkvStride = 6144, r.k = r.v = kv, r.page = 32;
  r.headStride = 2 * 32 * 128 * 4 + 1024, r.blockStride = 8 * r.headStride;
  add("rope", r, nvptx::emitRopeAppend);
  MmaAttentionParams a;
  a.qHeads = 32, a.kvHeads = 8, a.headDim = a.valueDim = 128, a.scale = 0.088f, a.k = a.v = kv, a.page = 32;
  a.headStride = r.headStride, a.blockStride = r.blockStride, a.qStride = 6144, a.outStride = 4096, a.maxChunks = 32, a.quantize = true, a.act = ActFormat::bf16, a.halves = halves;
  a.form = AttentionParams::split;
  add("attention", a, nvptx::emitMmaAttention);
  AttentionParams combine = a;
  combine.form = AttentionParams::combine;
  add("combine", combine, nvptx::emitAttention);
  MmaParams o = matmul(4096, 4096), down = matmul(4096, 11008), gate = matmul(22016, 4096);
  o.residual = down.residual = true;
  add("o", o, nvptx::emitMatmul);
  gate.epilogue = MatmulParams::gateUp, gate.outAct = ActFormat::bf16, gate.outHalves = halves;
  add("gate", asBody(gate), nvptx::emitMatmul);
  add("down", down, nvptx::emitMatmul);
  return jobs;
}

TEST(MegakernelPtxas, TakesRealisticBodiesWithoutSpills) {
  std::string ptxas = findPtxas();
  ASSERT_FALSE(ptxas.empty()) << "no ptxas: install the Python package nvidia-cuda-nvcc and name its ptxas in LATHE_PTXAS";
  struct Case {
    const char *chip;
    StorageType type;
    int64_t tile;
    KVFormat kv;
  };
  std::vector<Case> cases{{"sm_80", StorageType::q4_0, 8, KVFormat::f16}, {"sm_90a", StorageType::bf16, 16, KVFormat::bf16}, {"sm_90a", StorageType::int4_g32, 16, KVFormat::f16}, {"sm_120a", StorageType::q4_k, 8, KVFormat::e4m3}};
  if (std::getenv("LATHE_FULL")) {
    cases.clear();
    for (const Chip &c : chips())
      for (StorageType type : nvptx::test::allTypes)
        for (int64_t tile : {8, 16})
          for (KVFormat kv : {KVFormat::f16, KVFormat::int8}) cases.push_back({c.name, type, tile, kv});
  }
  for (const Case &c : cases) {
    SCOPED_TRACE(std::string(c.chip) + ", type " + std::to_string(int(c.type)) + ", " + std::to_string(c.tile) + " rows, KV " + std::to_string(int(c.kv)));
    auto shape = std::make_shared<MegakernelShape>();
    const Chip &chip = *findChip(c.chip);
    auto ptx = buildPtx({megakernelJob("mega", decodeBodies(c.type, c.tile, c.kv), shape)}, chip, 1);
    ASSERT_TRUE(ptx.ok()) << ptx.status().message();
    EXPECT_EQ(llvm::StringRef(*ptx).count(".func"), 0u); // bodies are inlined
    EXPECT_LE(shape->sharedBytes, chip.sharedBytes);
    const char *ahead = chip.has(Feature::tma) ? "cp.async.bulk.prefetch.L2" : "prefetch.global.L2";
    EXPECT_GE(llvm::StringRef(*ptx).count(ahead), 4u); // qkv, o, gate, down: asked for while the grid meets
    auto report = runPtxas(ptxas, *ptx, chip);
    ASSERT_TRUE(report.ok()) << report.status().message();
    EXPECT_EQ(report->spillBytes, 0) << report->log;
    EXPECT_EQ(report->stackBytes, 0) << report->log;
    EXPECT_GT(report->maxRegisters, 0);
    for (const std::string &w : report->warnings) ADD_FAILURE() << w;
    if (std::getenv("LATHE_VERBOSE")) printf("%s type %d tile %d kv %d: %d registers, %d shared\n", c.chip, int(c.type), int(c.tile), int(c.kv), report->maxRegisters, int(shape->sharedBytes));
  }
}

} // namespace
