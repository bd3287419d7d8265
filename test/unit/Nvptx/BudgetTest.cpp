//===- BudgetTest.cpp - what kernels cost, as the emulator counts ---------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Without a GPU nobody sees a kernel get slower, so what can be counted is kept: lane instructions for a weight (or an element of
// a row, or of K and V), sectors of global memory against the fewest that hold the same bytes, cycles of the shared banks against
// those without conflicts. budgets.txt holds the figures. A kernel above its budget by 1 % fails; so does one below by 5 %, which
// should get a lower budget: LATHE_UPDATE_BUDGETS=1 writes the file.
//===----------------------------------------------------------------------===//
#include "AttentionScene.h"
#include "Machine.h"
#include "MegakernelMlp.h"
#include <cinttypes>
#include <fstream>
#include <map>
#include <sstream>

using namespace lathe;
using namespace lathe::codegen;
using namespace lathe::codegen::nvptx;
using namespace lathe::codegen::nvptx::test;
using codegen::test::Batch;
using codegen::test::Scene;

namespace {

struct Figures {
  double instructions = 0, sectors = 0, banks = 0;
};

struct Case {
  std::string name;
  PtxJob job;
  double units; ///< weights or elements
  std::function<emulator::LaunchStats(Machine &)> run;
};

/// Buffers of zeros: no kernel counts by its values.
Case matmul(const std::string &name, StorageType type, ActFormat act, int64_t rows, bool gated = false) {
  MmaParams p;
  p.type = type, p.act = act, p.n = 256, p.k = 1024, p.outStride = rowStride(p.n), p.halves = packedLayout(type).subK == 16;
  p.rowTile = rows <= 8 ? 8 : rows <= 16 ? 16 : 32;
  if (gated) p.epilogue = MatmulParams::gateUp, p.outAct = act, p.outHalves = p.halves;
  p.kSegments = segmentsOfK(p);
  return {name, nvptx::test::job(name, p, nvptx::emitMatmul), double(p.n * p.k), [=](Machine &m) {
            Buffer x(size_t(actBytes(rows, p.k, p.act, p.halves))), w(size_t(packedTileBytes(p.type, p.k) * p.n / 16));
            Buffer out(gated ? size_t(actBytes(rows, p.n / 2, p.outAct, p.outHalves)) : size_t(rows * p.outStride * 4));
            StepData step(rows);
            return m.run(name, launchShape(p), {&x, &w, &out}, step);
          }};
}

/// The same by wgmma: in clusters, or of 128 rows.
Case wgmma(const std::string &name, StorageType type, int64_t rows, ActFormat act = ActFormat::bf16) {
  MmaParams p;
  p.type = type, p.act = act, p.n = 256, p.k = 1024, p.outStride = p.n, p.halves = packedLayout(type).subK == 16;
  p = onChip(p, *findChip("sm_90a"), rows);
  p.kSegments = 2;
  return {name, nvptx::test::job(name, p, nvptx::emitMatmul), double(p.n * p.k), [=](Machine &m) {
            Buffer x(size_t(actBytes(rows, p.k, p.act, p.halves))), w(size_t(packedTileBytes(p.type, p.k) * p.n / 16)), out(size_t(rows * p.outStride * 4));
            StepData step(rows);
            return m.run(name, launchShape(p), {&x, &w, &out}, step);
          }};
}

/// Attention of the last |rows| of 512 places; by mma.sync or not. Units: elements of K and V, times the rows that see them when there are many.
template <typename P, typename Emit>
Case attention(const std::string &name, P p, KVFormat format, AttentionParams::Form form, Emit emit, int64_t rows = 1) {
  static_cast<AttentionParams &>(p) = codegen::test::shape(8, 2, 64, 64, format, format, 32);
  p.chunk = 256, p.maxChunks = 2, p.form = form;
  constexpr int64_t length = 512;
  double places = 0;
  for (int64_t r = 0; r < rows; ++r) places += double(length - r);
  return {name, nvptx::test::job(name, p, emit), double(p.kvHeads * (p.headDim + p.valueDim)) * places, [=](Machine &m) {
            Scene s(p, Batch{{{length, rows}}}, 1);
            Buffer q(s.q.size() * 4), pool(s.cache.bytes.size());
            Buffer out(form == AttentionParams::split ? size_t(partialsBytes(p, rows)) : size_t(rows * p.outStride * 4));
            std::memcpy(q.data(), s.q.data(), q.size());
            std::memcpy(pool.data(), s.cache.bytes.data(), pool.size());
            return m.run(name, launchShape(p), {&q, &pool, &out}, s.step);
          }};
}

/// Two chunks' results of a row become one. Units: its elements.
Case combine() {
  AttentionParams p = codegen::test::shape(8, 2, 64, 64, KVFormat::bf16, KVFormat::bf16, 32);
  p.chunk = 256, p.maxChunks = 2, p.form = AttentionParams::combine, p.quantize = true, p.act = ActFormat::bf16;
  return {"attention_combine", nvptx::test::job("attention_combine", p, nvptx::emitAttention), double(p.qHeads * p.valueDim), [=](Machine &m) {
            Scene s(p, Batch{{{512, 1}}}, 1);
            Buffer partials(size_t(partialsBytes(p, 1))), out(size_t(actBytes(1, p.qHeads * p.valueDim, p.act, p.halves)));
            return m.run("attention_combine", launchShape(p), {&partials, &out}, s.step);
          }};
}

Case rope(const std::string &name, KVFormat format) {
  constexpr int64_t rows = 4, dim = 64;
  AttentionParams a = codegen::test::shape(8, 2, dim, dim, format, format, 32);
  RopeAppendParams p;
  p.qHeads = 8, p.kvHeads = 2, p.headDim = p.valueDim = p.rotaryDim = dim, p.qkvStride = 12 * dim, p.k = p.v = format, p.page = 32;
  p.headStride = a.headStride, p.blockStride = a.blockStride;
  return {name, nvptx::test::job(name, p, nvptx::emitRopeAppend), double(rows * p.qkvStride), [=](Machine &m) {
            Buffer qkv(size_t(rows * p.qkvStride * 4)), angles(size_t(rows * rowStride(dim) * 4)), pool(size_t(p.blockStride));
            StepData step(rows);
            for (int r = 0; r < rows; ++r) step.slot[size_t(r)] = r;
            step.table = {0};
            step.tableStride = 1;
            return m.runColumns(name, launchShape(p), qkv, {0, 8 * dim * 4, 10 * dim * 4}, {&angles, &pool}, step);
          }};
}

/// Row kernels of |rows| rows of |width|; |head|: of output rows.
template <typename P, typename Emit>
Case rowKernel(const std::string &name, P p, Emit emit, std::vector<size_t> bytesOfArguments, int64_t width = 1024, bool head = false, int64_t rows = 4) {
  return {name, nvptx::test::job(name, p, emit), double(rows * width), [=](Machine &m) {
            std::vector<std::unique_ptr<Buffer>> buffers;
            std::vector<const Buffer *> args;
            for (size_t bytes : bytesOfArguments) args.push_back(buffers.emplace_back(std::make_unique<Buffer>(bytes)).get());
            StepData step(rows);
            for (int64_t r = 0; head && r < rows; ++r) step.outRow.push_back(int32_t(r));
            return m.run(name, launchShape(p), args, step, head);
          }};
}

std::vector<Case> allCases() {
  std::vector<Case> all;
  const char *typeNames[] = {"f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl",
                             "int8", "int4_g32", "int4_g64", "int4_g128", "int4z_g32", "int4z_g64", "int4z_g128", "e4m3"};
  static_assert(std::size(typeNames) == std::size(allTypes));
  for (size_t i = 0; i < std::size(allTypes); ++i) all.push_back(matmul(std::string("matmul_bf16_") + typeNames[i], allTypes[i], ActFormat::bf16, 1));
  for (StorageType t : {StorageType::q4_0, StorageType::q4_k, StorageType::q8_0}) {
    const char *n = t == StorageType::q4_0 ? "q4_0" : t == StorageType::q4_k ? "q4_k" : "q8_0";
    all.push_back(matmul(std::string("matmul_int8_") + n, t, ActFormat::int8, 1));
    all.push_back(matmul(std::string("matmul_bf16_32rows_") + n, t, ActFormat::bf16, 32));
  }
  all.push_back(matmul("gated_bf16_q4_0", StorageType::q4_0, ActFormat::bf16, 1, true));
  const size_t row = 4 * 1024 * 4, act = size_t(actBytes(4, 1024, ActFormat::bf16, false));
  NormParams norm;
  norm.k = 1024, norm.inStride = 1024, norm.act = ActFormat::bf16;
  all.push_back(rowKernel("norm_bf16", norm, nvptx::emitNorm, {row, 4096, act}));
  QuantizeParams quantize;
  quantize.k = 1024, quantize.inStride = 1024, quantize.act = ActFormat::bf16;
  all.push_back(rowKernel("quantize_bf16", quantize, nvptx::emitQuantize, {row, act}));
  ActivationParams silu;
  silu.k = 1024, silu.inStride = 1024, silu.act = ActFormat::bf16, silu.activation = Activation::silu, silu.up = true;
  all.push_back(rowKernel("activation_bf16", silu, nvptx::emitActivation, {row, row, act}));
  GatherParams gather;
  gather.type = StorageType::q8_0, gather.n = 64, gather.k = 1024, gather.outStride = 1024;
  all.push_back(rowKernel("gather_q8_0", gather, nvptx::emitGather, {size_t(packedTileBytes(gather.type, 1024) * 4), row}));
  AnglesParams angles;
  angles.half = 32;
  all.push_back(rowKernel("angles", angles, nvptx::emitAngles, {128, 4 * 64 * 4}, 64));
  SoftcapParams cap;
  cap.n = cap.stride = 1024, cap.cap = 30;
  all.push_back(rowKernel("softcap", cap, nvptx::emitSoftcap, {row}, 1024, true));
  ArgmaxParams argmax;
  argmax.width = argmax.inStride = 1024, argmax.outRows = true;
  all.push_back(rowKernel("argmax", argmax, nvptx::emitArgmax, {row, 4 * 64}, 1024, true));
  LoopsParams select;
  select.width = select.stride0 = select.outStride = 1024, select.select = select.outRows = true;
  auto emitSelect = [](mlir::ModuleOp m, llvm::StringRef symbol, const LoopsParams &p, const Chip &c) { return nvptx::emitLoops(m, symbol, p, nullptr, c); };
  all.push_back(rowKernel("select", select, emitSelect, {row, row}, 1024, true));
  all.push_back(combine());
  return all;
}

/// An MLP's launches by a megakernel of one block, so that none waits for others. Units: weights.
Case megakernel(const Chip &chip) {
  auto mlp = std::make_shared<nvptx::test::Mlp>(chip);
  const double weights = double(mlp->width * mlp->width + 3 * mlp->width * mlp->hidden);
  return {"megakernel_mlp", {}, weights, [=, &chip](Machine &) {
            nvptx::test::MlpMachine machine(*mlp, chip, mlp->ptx);
            nvptx::test::MlpOutcome out = machine.together(1);
            EXPECT_TRUE(out.status.ok()) << out.status.message();
            return out.stats;
          }};
}

/// Kernels that read and write K and V. e4m3 needs a chip with 8-bit floats.
std::vector<Case> cacheCases(const std::vector<std::pair<const char *, KVFormat>> &formats) {
  std::vector<Case> all;
  for (auto [n, f] : formats) {
    all.push_back(rope(std::string("rope_") + n, f));
    AttentionParams exact;
    MmaAttentionParams mma;
    all.push_back(attention(std::string("attention_whole_") + n, exact, f, AttentionParams::whole, nvptx::emitAttention));
    all.push_back(attention(std::string("attention_split_") + n, exact, f, AttentionParams::split, nvptx::emitAttention));
    all.push_back(attention(std::string("mma_attention_whole_") + n, mma, f, AttentionParams::whole, emitMmaAttention));
    all.push_back(attention(std::string("mma_attention_split_") + n, mma, f, AttentionParams::split, emitMmaAttention));
    all.push_back(attention(std::string("mma_attention_64rows_") + n, mma, f, AttentionParams::whole, emitMmaAttention, 64));
    if (f == KVFormat::bf16) all.push_back(attention("attention_64rows_bf16", exact, f, AttentionParams::whole, nvptx::emitAttention, 64));
  }
  return all;
}

const std::string path = std::string(LATHE_SOURCE_DIR) + "/test/unit/Nvptx/budgets.txt";

std::map<std::string, Figures> readBudgets() {
  std::map<std::string, Figures> budgets;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream fields(line);
    std::string name;
    Figures f;
    if (fields >> name >> f.instructions >> f.sectors >> f.banks) budgets[name] = f;
  }
  return budgets;
}

double ratio(uint64_t x, uint64_t y) { return y ? double(x) / double(y) : 1.0; }

std::vector<Case> wgmmaCases() {
  std::vector<Case> all;
  for (auto [n, t] : {std::pair{"bf16", StorageType::bf16}, {"q4_0", StorageType::q4_0}, {"q4_k", StorageType::q4_k}, {"int8", StorageType::int8}, {"e4m3", StorageType::e4m3}})
    for (int64_t rows : {8, 128}) all.push_back(wgmma(std::string("wgmma_") + n + (rows == 8 ? "" : "_128rows"), t, rows));
  for (int64_t rows : {8, 128}) all.push_back(wgmma(std::string("wgmma_e4m3_e4m3") + (rows == 8 ? "" : "_128rows"), StorageType::e4m3, rows, ActFormat::e4m3));
  return all;
}

TEST(Budget, NoKernelCostsMoreThanItDid) {
  auto jobsOf = [](const std::vector<Case> &cases) {
    std::vector<PtxJob> jobs;
    for (const Case &c : cases)
      if (c.job.emit) jobs.push_back(c.job);
    return jobs;
  };
  std::vector<Case> cases = allCases(), floats8 = cacheCases({{"e4m3", KVFormat::e4m3}}), hopper = wgmmaCases();
  floats8.push_back(matmul("matmul_e4m3_e4m3", StorageType::e4m3, ActFormat::e4m3, 1));
  for (Case &c : cacheCases({{"f16", KVFormat::f16}, {"bf16", KVFormat::bf16}, {"int8", KVFormat::int8}})) cases.push_back(std::move(c));
  cases.push_back(megakernel(chips().front()));
  Machine oldest(jobsOf(cases), chips().front()), later(jobsOf(floats8), *fp8Chips().front()), newer(jobsOf(hopper), *findChip("sm_90a"));
  ASSERT_TRUE(oldest && later && newer);
  const size_t ofOldest = cases.size(), ofLater = ofOldest + floats8.size();
  cases.insert(cases.end(), floats8.begin(), floats8.end());
  cases.insert(cases.end(), hopper.begin(), hopper.end());
  std::map<std::string, Figures> budgets = readBudgets();
  std::string text = "# kernel, then: lane instructions a weight or element, global sectors over ideal, shared bank cycles over ideal\n";
  const bool update = std::getenv("LATHE_UPDATE_BUDGETS");
  for (const Case &c : cases) {
    const size_t i = size_t(&c - cases.data());
    emulator::LaunchStats s = c.run(i < ofOldest ? oldest : i < ofLater ? later : newer);
    Figures f{double(s.warpInstructions) * 32 / c.units, ratio(s.globalSectors, s.globalIdealSectors), ratio(s.sharedCycles, s.sharedIdealCycles)};
    char line[160];
    std::snprintf(line, sizeof line, "%-28s %9.4f %8.4f %8.4f\n", c.name.c_str(), f.instructions, f.sectors, f.banks);
    text += line;
    if (const char *shown = std::getenv("LATHE_SHOW_OPCODES"); shown && c.name.find(shown) != std::string::npos)
      for (const auto &op : s.opcodes) std::printf("%-28s %-40s %9.4f\n", c.name.c_str(), op.name.c_str(), double(op.warpInstructions) * 32 / c.units);
    if (update) continue;
    auto budget = budgets.find(c.name);
    if (budget == budgets.end()) {
      ADD_FAILURE() << "no budget in budgets.txt: " << line;
      continue;
    }
    auto compare = [&](const char *what, double is, double may) {
      EXPECT_LE(is, may * 1.01 + 1e-4) << c.name << ": " << what << " above the budget";
      EXPECT_GE(is, may * 0.95 - 1e-4) << c.name << ": " << what << " below the budget, which should follow (LATHE_UPDATE_BUDGETS=1)";
    };
    compare("instructions", f.instructions, budget->second.instructions);
    compare("sectors", f.sectors, budget->second.sectors);
    compare("bank cycles", f.banks, budget->second.banks);
  }
  if (update) std::ofstream(path) << text;
}

TEST(Layers, AreInTheReportOfTheEmulator) {
  MmaParams p;
  p.type = StorageType::q4_0, p.act = ActFormat::bf16, p.n = 64, p.k = 64, p.outStride = 64;
  PtxJob one = nvptx::test::job("k0_matmul", p, nvptx::emitMatmul), two = nvptx::test::job("k1_matmul", p, nvptx::emitMatmul);
  one.layers = "blk.0.q+blk.0.k and 7 more";
  two.layers = "blk.0.\no";
  auto ptx = buildPtx({one, two}, chips().front(), 1);
  ASSERT_TRUE(ptx.ok()) << ptx.status().message();
  auto machine = emulator::Emulator::create({});
  ASSERT_TRUE(machine.ok());
  auto module = (*machine)->load(*ptx);
  ASSERT_TRUE(module.ok()) << module.status().message();
  emulator::LaunchConfig config;
  config.grid.x = 1, config.block.x = 128;
  emulator::Arguments nulls;
  for (int i = 0; i < 4; ++i) nulls.add(uint64_t(0));
  for (auto [kernel, layer] : {std::pair{"k0_matmul", "layer 'blk.0.q+blk.0.k and 7 more'"}, {"k1_matmul", "layer 'blk.0.?o'"}}) {
    Status s = (*machine)->launch(*module, kernel, config, nulls).status();
    EXPECT_NE(s.message().find(layer), std::string::npos) << s.message();
    EXPECT_NE(s.message().find(std::string("kernel '") + kernel), std::string::npos) << s.message();
  }
}

} // namespace
