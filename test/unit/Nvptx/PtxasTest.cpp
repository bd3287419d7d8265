//===- PtxasTest.cpp - every kernel for every chip through ptxas --------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// ptxas is the judge of what we emit: it must take every kernel, without spills, stack or serialised matrix
// instructions. It is on PATH or named by LATHE_PTXAS (scripts/test.sh sees to that); without it the test fails.
//===----------------------------------------------------------------------===//
#include "KernelGrid.h"
#include "NVPTX/GpuEmitter.h"
#include "dialects/Kernel/Kernel.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Parser/Parser.h"
#include "runtime/device/gpu/GpuDriver.h"
#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>
#include <map>

using namespace lathe;
using namespace lathe::codegen;
using namespace lathe::codegen::nvptx;

namespace {

class Ptxas : public ::testing::TestWithParam<const Chip *> {};

TEST_P(Ptxas, TakesEveryKernelWithoutSpills) {
  const Chip &chip = *GetParam();
  std::string ptxas = findPtxas();
  ASSERT_FALSE(ptxas.empty()) << "no ptxas: install the Python package nvidia-cuda-nvcc and name its ptxas in LATHE_PTXAS";
  bool everything = std::getenv("LATHE_FULL") != nullptr;
  std::vector<PtxJob> jobs = nvptx::test::realisticKernels(everything, chip.has(Feature::fp8));
  if (chip.has(Feature::wgmma))
    for (PtxJob &j : nvptx::test::wgmmaKernels(everything)) jobs.push_back(std::move(j));
  if (const char *some = std::getenv("LATHE_KERNELS")) // while working on a family
    llvm::erase_if(jobs, [&](const PtxJob &j) { return j.symbol.find(some) == std::string::npos; });
  auto ptx = buildPtx(jobs, chip, 2);
  ASSERT_TRUE(ptx.ok()) << ptx.status().message();
  if (const char *directory = std::getenv("LATHE_DUMP_PTX")) std::ofstream(std::string(directory) + "/" + chip.name + ".ptx") << *ptx;
  llvm::StringRef text = *ptx;
  EXPECT_EQ(text.count("griddepcontrol.wait;"), chip.has(Feature::pdl) ? text.count(".entry ") : 0u); // every kernel waits for those before it
  auto report = runPtxas(ptxas, *ptx, chip);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->spillBytes, 0) << report->log;
  EXPECT_EQ(report->stackBytes, 0) << report->log;
  EXPECT_GT(report->maxRegisters, 0);
  EXPECT_GT(report->cubin.size(), 1000u);
  for (const std::string &w : report->warnings) ADD_FAILURE() << w;
}

std::string chipName(const ::testing::TestParamInfo<const Chip *> &info) { return info.param->name; }
std::vector<const Chip *> allChips() {
  std::vector<const Chip *> all;
  for (const Chip &c : chips()) all.push_back(&c);
  return all;
}
INSTANTIATE_TEST_SUITE_P(Chips, Ptxas, ::testing::ValuesIn(allChips()), chipName);

/// A kernel with one intrinsic that only later chips have.
PtxJob wait(const char *symbol) {
  return {symbol, [](mlir::ModuleOp m, llvm::StringRef symbol, const Chip &) {
            auto *context = m.getContext();
            context->loadDialect<mlir::LLVM::LLVMDialect, mlir::NVVM::NVVMDialect>();
            mlir::OpBuilder b(context);
            b.setInsertionPointToEnd(m.getBody());
            auto loc = mlir::NameLoc::get(b.getStringAttr("layer.7"));
            auto type = mlir::LLVM::LLVMFunctionType::get(mlir::LLVM::LLVMVoidType::get(context), {});
            auto f = mlir::LLVM::LLVMFuncOp::create(b, loc, symbol, type);
            f->setAttr("nvvm.kernel", b.getUnitAttr());
            b.setInsertionPointToStart(f.addEntryBlock(b));
            mlir::NVVM::GriddepcontrolOp::create(b, loc, mlir::NVVM::GridDepActionKind::wait);
            mlir::LLVM::ReturnOp::create(b, loc, mlir::ValueRange());
            return mlir::success();
          }};
}

/// Kernels that a driver starts before the one before has ended wait for it: without that the emulator refuses them.
TEST(Overlap, KernelsWaitForTheLaunchBefore) {
  QuantizeParams p;
  p.k = p.inStride = 64, p.act = ActFormat::f32;
  auto ptx = buildPtx({nvptx::test::job("k", p, nvptx::emitQuantize)}, *findChip("sm_90a"), 1);
  ASSERT_TRUE(ptx.ok()) << ptx.status().message();
  const std::string wait = "griddepcontrol.wait;";
  ASSERT_NE(ptx->find(wait), std::string::npos);
  for (bool waits : {true, false}) {
    std::string text = *ptx;
    if (!waits) text.erase(text.find(wait), wait.size());
    auto driver = runtime::makeEmulatorDriver(artifact::Variant::sm_90a);
    ASSERT_TRUE(driver.ok()) << driver.status().message();
    runtime::GpuDriver &gpu = **driver;
    Status loaded = gpu.load(text, {}, {"k"}, {0});
    ASSERT_TRUE(loaded.ok()) << loaded.message();
    uint64_t place[4]; // rows, two results, the step
    for (uint64_t &a : place) a = *gpu.allocate(8192, "buffer");
    auto launch = [&](int from, int to, bool overlaps) {
      const uint64_t args[] = {place[from], place[to], place[3]};
      return gpu.launch(0, 1, uint32_t(launchShape(p).threads), 0, args, overlaps);
    };
    Status first = launch(0, 1, false), second = launch(1, 2, true);
    EXPECT_TRUE(first.ok()) << first.message();
    if (waits) EXPECT_TRUE(second.ok()) << second.message();
    else EXPECT_NE(second.message().find("missing griddepcontrol.wait: this read of global address"), std::string::npos) << second.message();
  }
}

/// Between letting the next launch start and waiting for those before, a matmul of few rows asks for its weights, and nothing else does.
TEST(Overlap, WeightsAreAskedForBeforeTheWait) {
  auto order = [](auto params, auto emit, const char *chip) {
    auto ptx = buildPtx({nvptx::test::job("k", params, emit)}, *findChip(chip), 1);
    EXPECT_TRUE(ptx.ok()) << ptx.status().message();
    const std::string text = ptx.ok() ? *ptx : "";
    std::map<size_t, char> found; // by where it stands in the text
    for (auto [what, letter] : {std::pair("griddepcontrol.launch_dependents", 'l'), std::pair("cp.async.bulk.prefetch", 'p'), std::pair("prefetch.global", 'p'), std::pair("griddepcontrol.wait", 'w')})
      for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1)) found[at] = letter;
    std::string seen;
    for (auto [at, letter] : found) seen += letter;
    return seen;
  };
  MmaParams m;
  m.type = StorageType::q4_0, m.n = 1000, m.k = 1024, m.outStride = 1000, m.act = ActFormat::bf16, m.kSegments = 4;
  EXPECT_EQ(order(m, nvptx::emitMatmul, "sm_120a"), "lpw");
  EXPECT_EQ(order(onChip(m, *findChip("sm_90a"), 8), nvptx::emitMatmul, "sm_90a"), "lpw");
  EXPECT_EQ(order(onChip(m, *findChip("sm_90a"), 512), nvptx::emitMatmul, "sm_90a"), "lw");
  EXPECT_EQ(order(m, nvptx::emitMatmul, "sm_80"), ""); // it has no launches that overlap
  QuantizeParams q;
  q.k = q.inStride = 64, q.act = ActFormat::f32;
  EXPECT_EQ(order(q, nvptx::emitQuantize, "sm_120a"), "lw");
}

TEST(Lower, NamesTheOpThatAChipLacks) {
  auto old = buildPtx({wait("k")}, *findChip("sm_80"), 1);
  ASSERT_FALSE(old.ok());
  EXPECT_EQ(old.status().code(), StatusCode::unsupported);
  EXPECT_NE(old.status().message().find("cannot make PTX for sm_80: capability check: loc(\"layer.7\"): 'nvvm.griddepcontrol' needs programmatic dependent launch, which sm_80 lacks"), std::string::npos)
      << old.status().message();
  auto later = buildPtx({wait("k")}, *findChip("sm_90a"), 1);
  ASSERT_TRUE(later.ok()) << later.status().message();
  EXPECT_NE(later->find("griddepcontrol.wait"), std::string::npos);
}

/// A kernel.loops op with |body| over one or two inputs, as the planner hands it over.
PtxJob loops(const std::string &body, int inputs = 1) {
  return {"k", [body, inputs](mlir::ModuleOp m, llvm::StringRef symbol, const Chip &chip) -> mlir::LogicalResult {
            auto *context = m.getContext();
            context->loadDialect<mlir::arith::ArithDialect, mlir::math::MathDialect, mlir::func::FuncDialect, kernel::KernelDialect>();
            std::string rows = "!kernel.rows<45, 48>", args = inputs == 2 ? "%x, %y" : "%x", types = inputs == 2 ? rows + ", " + rows : rows;
            std::string params = inputs == 2 ? "%a: f32, %b: f32" : "%a: f32";
            auto source = mlir::parseSourceString<mlir::ModuleOp>("func.func @f(%x: " + rows + ", %y: " + rows + ") {\n%r = kernel.loops (" + args + ") : (" + types + ") -> " + rows +
                                                                      " {\n^bb0(" + params + "):\n" + body + "\n}\nreturn\n}",
                                                                  context);
            if (!source) return mlir::failure();
            kernel::LoopsOp op;
            source->walk([&](kernel::LoopsOp found) { op = found; });
            LoopsParams p;
            p.width = 45, p.inputs = inputs, p.stride0 = p.stride1 = p.outStride = 48;
            return nvptx::emitLoops(m, symbol, p, &op.getBody(), chip);
          }};
}

TEST(Lower, LoopsTakeWhatAGpuHasInstructionsFor) {
  auto good = buildPtx({loops("%c = arith.constant 2.0 : f32\n%m = arith.mulf %a, %c : f32\n%s = kernel.function \"silu\" %m\n%r = math.sqrt %s : f32\n"
                              "%t = math.fma %r, %b, %a : f32\nkernel.yield %t", 2)},
                       *findChip("sm_80"), 1);
  ASSERT_TRUE(good.ok()) << good.status().message();
  EXPECT_NE(good->find("sqrt.rn.f32"), std::string::npos);
  EXPECT_NE(good->find("div.rn.f32"), std::string::npos);
  auto message = [](const std::string &body) { return buildPtx({loops(body)}, *findChip("sm_80"), 1).status().message(); };
  EXPECT_NE(message("%s = math.sin %a : f32\nkernel.yield %s")
                .find("unsupported: op in loops on a GPU, expected elementwise arith ops, fma, abs, sqrt or rounding on f32"),
            std::string::npos);
  EXPECT_NE(message("%s = kernel.function \"erf\" %a\nkernel.yield %s").find("unsupported: function 'erf', expected silu, gelu_tanh, relu or tanh"), std::string::npos);
  EXPECT_NE(message("%c = arith.constant 2 : i32\nkernel.yield %a").find("unsupported: a constant of type 'i32' in loops, expected f32"), std::string::npos);
}

TEST(Lower, RefusesWhatNobodyLookedUp) {
  PtxJob unknown{"k", [](mlir::ModuleOp m, llvm::StringRef symbol, const Chip &chip) {
                   GpuEmitter e(m, symbol, chip, 32, {});
                   e.intrinsic("llvm.nvvm.mma.m8n8k4.row.col.f64", e.f64, {e.cd(1), e.cd(1), e.cd(0)});
                   e.finish();
                   return mlir::success();
                 }};
  EXPECT_NE(buildPtx({unknown}, *findChip("sm_100a"), 1).status().message().find("'llvm.nvvm.mma.m8n8k4.row.col.f64' is not in the capability table"), std::string::npos);
  EXPECT_FALSE(requiredFeature("llvm.nvvm.mma.m8n8k4.row.col.f64"));
  EXPECT_FALSE(requiredFeature("llvm.sin.f32"));
  EXPECT_EQ(requiredFeature("llvm.nvvm.mma.m16n8k32.row.col.f32.e4m3.e4m3.f32"), Feature::fp8);
  EXPECT_EQ(requiredFeature("nvvm.wgmma.mma_async"), Feature::wgmma);
  EXPECT_EQ(requiredFeature("nvvm.shfl.sync"), Feature(0));
}

TEST(Lower, LooksAtInlinePtxToo) {
  auto message = [](const char *text, const char *chip) {
    PtxJob job{"k", [=](mlir::ModuleOp m, llvm::StringRef symbol, const Chip &c) {
                 GpuEmitter e(m, symbol, c, 32, {});
                 e.ptx(text, {}, {}, "");
                 e.finish();
                 return mlir::success();
               }};
    auto r = buildPtx({job}, *findChip(chip), 1);
    return r.ok() ? std::string() : r.status().message();
  };
  EXPECT_EQ(message("{\n\t.reg .pred p;\nHERE:\n\tsetp.ne.b32 p, 0, 0;\n\t@p bra HERE;\n\tfence.proxy.async;\n\t}", "sm_90a"), "");
  EXPECT_NE(message("{\n\tsetp.ne.b32 p, 0, 0;\nHERE:\n\t@p wgmma.fence.sync.aligned;\n\t}", "sm_80").find("'wgmma.fence.sync.aligned' needs wgmma, which sm_80 lacks"), std::string::npos);
  EXPECT_NE(message("tanh.approx.f32 x, y;", "sm_90a").find("'tanh.approx.f32' is not in the capability table"), std::string::npos);
}

TEST(Lower, IsAFunctionOfItsInput) {
  std::vector<PtxJob> jobs = nvptx::test::realisticKernels(false);
  jobs.resize(6);
  auto one = buildPtx(jobs, *findChip("sm_80"), 1), two = buildPtx(jobs, *findChip("sm_80"), 2);
  ASSERT_TRUE(one.ok() && two.ok());
  EXPECT_EQ(*one, *two);
}

TEST(Lower, AsksForTheVersionOfPtxThatItNeeds) {
  MmaParams m;
  m.type = StorageType::e4m3, m.n = 64, m.k = 64, m.outStride = 64, m.act = ActFormat::bf16;
  PtxJob usual = nvptx::test::job("a", m, nvptx::emitMatmul);
  m.act = ActFormat::e4m3;
  PtxJob floats8 = nvptx::test::job("b", m, nvptx::emitMatmul);
  auto starts = [](const std::vector<PtxJob> &jobs, const char *chip, const char *version) {
    auto r = buildPtx(jobs, *findChip(chip), 1);
    ASSERT_TRUE(r.ok()) << r.status().message();
    EXPECT_EQ(r->substr(0, 12), std::string(".version ") + version) << chip;
  };
  starts({usual}, "sm_90a", "8.0");
  starts({usual, floats8}, "sm_90a", "8.4");
  starts({floats8}, "sm_80", "8.0"); // by products of bf16
  starts({floats8}, "sm_89", "8.4");
  starts({floats8, usual}, "sm_120a", "8.7");
}

TEST(Lower, EmittersSayWhatTheyCannotDo) {
  auto message = [](PtxJob job) {
    auto r = buildPtx({job}, *findChip("sm_80"), 1);
    return r.ok() ? std::string() : r.status().message();
  };
  MmaParams m;
  m.type = StorageType::q4_0, m.n = 64, m.k = 64, m.outStride = 64, m.rowTile = 12;
  EXPECT_NE(message(nvptx::test::job("k", m, nvptx::emitMatmul)).find("expected a row tile of 8, 16 or 32, found 12"), std::string::npos);
  m.rowTile = 8, m.act = ActFormat::bf16, m.kSegments = 3;
  EXPECT_NE(message(nvptx::test::job("k", m, nvptx::emitMatmul)).find("expected a power of two of 1 to 8 segments of K, found 3"), std::string::npos);
  m.act = ActFormat::int8, m.kSegments = 2;
  EXPECT_NE(message(nvptx::test::job("k", m, nvptx::emitMatmul)).find("expected a power of two of 1 to 1 segments of K, found 2"), std::string::npos);
  m.act = ActFormat::e4m3;
  EXPECT_NE(message(nvptx::test::job("k", m, nvptx::emitMatmul)).find("expected e4m3 weights for e4m3 activations"), std::string::npos);
  m.type = StorageType::e4m3, m.act = ActFormat::int8;
  EXPECT_NE(message(nvptx::test::job("k", m, nvptx::emitMatmul)).find("expected f32 or bf16 activations for float weights, found int8"), std::string::npos);
  m.type = StorageType::q4_0;
  m.kSegments = 1, m.epilogue = MatmulParams::argmax;
  EXPECT_NE(message(nvptx::test::job("k", m, nvptx::emitMatmul)).find("unsupported: an argmax epilogue on a GPU"), std::string::npos);
  m.epilogue = MatmulParams::store;
  AttentionParams a;
  a.qHeads = 64, a.kvHeads = 1, a.headDim = a.valueDim = 128, a.page = 16, a.headStride = a.blockStride = 16 * 128 * 4, a.outStride = 64 * 128, a.chunk = 16384;
  EXPECT_NE(message(nvptx::test::job("k", a, nvptx::emitAttention)).find("bytes of shared memory, expected at most 49152"), std::string::npos);
}

/// What ptxas 13.0 said of two kernels.
TEST(Ptxas, TellsWhichKernelSpills) {
  const Chip &chip = *findChip("sm_90a");
  PtxasReport report = readPtxasLog("ptxas info    : 0 bytes gmem\n"
                                    "ptxas info    : Compiling entry function 'large' for 'sm_90a'\n"
                                    "ptxas info    : Function properties for large\n"
                                    "    232 bytes stack frame, 228 bytes spill stores, 226 bytes spill loads\n"
                                    "ptxas info    : Used 24 registers, used 0 barriers, 232 bytes cumulative stack size, 360 bytes cmem[0]\n"
                                    "ptxas info    : (C7519) Potential Performance Loss: wgmma.mma_async instructions are serialized\n"
                                    "ptxas info    : Compiling entry function 'small' for 'sm_90a'\n"
                                    "ptxas info    : Function properties for small\n"
                                    "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
                                    "ptxas info    : Used 4 registers, used 0 barriers, 360 bytes cmem[0]\n");
  EXPECT_EQ(report.maxRegisters, 24);
  EXPECT_EQ(report.stackBytes, 232);
  EXPECT_EQ(report.spillBytes, 454);
  EXPECT_EQ(complaints(report, chip),
            (std::vector<std::string>{"kernel 'large' for sm_90a: expected its values in registers, found a stack of 232 bytes a thread and 454 bytes of spills: it computes the same, but slower",
                                      "sm_90a: ptxas info    : (C7519) Potential Performance Loss: wgmma.mma_async instructions are serialized"}));
}

/// A kernel of ours with too few registers, beside one with enough, through ptxas itself.
TEST(Ptxas, SeesAKernelThatIsMadeToSpill) {
  std::string ptxas = findPtxas();
  ASSERT_FALSE(ptxas.empty());
  const Chip &chip = *findChip("sm_80");
  MmaParams m;
  m.type = StorageType::q4_k, m.n = 256, m.k = 1024, m.outStride = 256, m.act = ActFormat::bf16, m.rowTile = 32;
  auto ptx = buildPtx({nvptx::test::job("narrow", m, nvptx::emitMatmul), nvptx::test::job("usual", m, nvptx::emitMatmul)}, chip, 1);
  ASSERT_TRUE(ptx.ok()) << ptx.status().message();
  size_t at = ptx->find(".minnctapersm 1"); // the first kernel's
  ASSERT_NE(at, std::string::npos);
  ptx->replace(at, 15, ".maxnreg 32");
  auto report = runPtxas(ptxas, *ptx, chip);
  ASSERT_TRUE(report.ok()) << report.status().message();
  ASSERT_EQ(report->spills.size(), 1u) << report->log;
  EXPECT_EQ(report->spills[0].kernel, "narrow");
  EXPECT_GT(report->spills[0].spillBytes, 0);
  EXPECT_EQ(report->spills[0].spillBytes, report->spillBytes);
  EXPECT_NE(complaints(*report, chip).at(0).find("kernel 'narrow' for sm_80: expected its values in registers, found a stack of "), std::string::npos);
}

TEST(Ptxas, ReportsWhatItRefuses) {
  std::string ptxas = findPtxas();
  ASSERT_FALSE(ptxas.empty());
  auto bad = runPtxas(ptxas, ".version 8.0\n.target sm_80\n.address_size 64\nnonsense\n", *findChip("sm_80"));
  EXPECT_EQ(bad.status().code(), StatusCode::invalidArgument);
  EXPECT_NE(bad.status().message().find("ptxas refuses the PTX for sm_80"), std::string::npos);
  EXPECT_EQ(runPtxas("/no/such/ptxas", "", *findChip("sm_80")).status().code(), StatusCode::notFound);
}

} // namespace
