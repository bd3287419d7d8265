//===- CheckTest.cpp - wrong programs get an error that names the line -----===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Harness.h"

namespace lathe::emulator {
namespace {

/// The message of loading |text|.
std::string loadError(const std::string &text, Options options = {}) {
  Harness harness(options);
  return harness.load(text) ? "" : errorOf(harness);
}
#define EXPECT_HAS(TEXT, PIECE) EXPECT_NE((TEXT).find(PIECE), std::string::npos) << (TEXT)

TEST(Parser, NamesTheLine) {
  EXPECT_HAS(loadError(""), "ptx line 1: expected a .version directive");
  EXPECT_HAS(loadError(".version 8.0\n.target sm_80\n.address_size 32"), "ptx line 3: expected .address_size 64");
  EXPECT_HAS(loadError(header() + ".visible .entry k()\n{\n  add.s32 %r1, %r2, ;\n}\n"), "ptx line 6: expected an operand, found ';'");
  EXPECT_HAS(loadError(header() + ".visible .entry k()\n{\n"), "function 'k' is not closed");
  EXPECT_HAS(loadError(header() + ".visible .entry k() { .reg .b33 %r<2>; }"), "expected the type of a register, found '.b33'");
  EXPECT_HAS(loadError(header() + ".visible .entry k() { .reg .b32 %r<99999999>; }"), "number of registers must be 1 to 16777216");
  EXPECT_HAS(loadError(header() + ".shared .align 3 .b8 x[4];"), "alignment must be a power of two");
  EXPECT_HAS(loadError(header() + ".global .b32 x[2] = {1, 2, 3};"), "more values than the variable has elements");
  EXPECT_HAS(loadError(header() + ".global .b32 x; .global .b32 x;"), "variable 'x' is declared twice");
  EXPECT_HAS(loadError(header() + "/* open"), "comment is not closed");
  EXPECT_HAS(loadError(header() + ".file 1 \"abc\n"), "string is not closed");
  EXPECT_HAS(loadError(header() + ".visible .entry k() { mov.f32 %f, 0f12; }"), "floating-point constant needs 8 (0f) or 16 (0d) hexadecimal digits");
  EXPECT_HAS(loadError(header() + ".visible .entry k() { L: L: ret; }"), "label 'L' is defined twice");
  EXPECT_HAS(loadError(header() + ".visible .entry k() { ret; } .visible .entry k() { ret; }"), "function 'k' is defined twice");
  EXPECT_HAS(loadError(header() + "\x01"), "character that PTX does not have");
  std::string deep = header() + ".visible .entry k() ";
  for (int depth = 0; depth < 100; ++depth)
    deep += "{";
  EXPECT_HAS(loadError(deep), "blocks are nested too deeply");
}

TEST(Decoder, RefusesWhatItDoesNotModel) {
  auto body = [](const std::string &text) { return loadError(kernelText(".reg .b32 %r<9>; .reg .b64 %d<9>; .reg .pred %q<3>;", text, 1)); };
  EXPECT_HAS(body("frobnicate.b32 %r1, %r2;"), "frobnicate.b32: unknown instruction");
  EXPECT_HAS(body("add.weird.s32 %r1, %r2, %r3;"), "add.weird.s32: unknown instruction, or a combination of modifiers");
  EXPECT_HAS(body("ld.global.b32.b128x %r1, [%d1];"), "modifier '.b128x' is not modelled here");
  EXPECT_HAS(body("add.s32 %r1, %r2;"), "expected 3 to 3 operands, found 2");
  EXPECT_HAS(body("add.s32 %r1, %r2, %d3;"), "register '%d3' has another size than .b32");
  EXPECT_HAS(body("add.s32 %r1, %r2, %q1;"), "operand '%q1' must not be a predicate");
  EXPECT_HAS(body("add.s32 %r1, %r2, nothing;"), "unknown operand 'nothing'");
  EXPECT_HAS(body("mov.pred %q1, 2;"), "a constant predicate must be 0, 1 or -1");
  EXPECT_HAS(body("bra nowhere;"), "unknown label 'nowhere'");
  EXPECT_HAS(body("call missing, ();"), "unknown function 'missing'");
  EXPECT_HAS(body("shfl.bfly.b32 %r1, %r2, %r3, %r4;"), "shfl without .sync is not modelled");
  EXPECT_HAS(body("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r1,%r2}, {%r1,%r2,%r3,%r4}, {%r5,%r6}, {%r1,%r2,%r3,%r4};"), "expected 4 registers as operand 0, found 2");
  EXPECT_HAS(body("cvt.f16.f32 %r1, %r2;"), "the conversion needs a rounding modifier");
  EXPECT_HAS(loadError(header("sm_75") + ".visible .entry k() { cp.async.commit_group; ret; }"), "cp.async needs sm_80, the module's target is sm_75");
  EXPECT_HAS(loadError(header("sm_90") + ".visible .entry k() { wgmma.fence.sync.aligned; ret; }"), "wgmma needs target sm_90a, the module's target is sm_90");
  Options small;
  small.capability = 80;
  EXPECT_HAS(loadError(header("sm_90a"), small) + loadError(header("sm_90a") + ".visible .entry k() { ret; }", small), "the module's target is sm_90a, the emulated device is sm_80a");
  EXPECT_HAS(loadError(header() + ".func f() { call f, (); ret; } .visible .entry k() { call f, (); ret; }"), "recursion is not modelled");
}

// What the fuzzer does for longer: broken text gives an error or a module, and a module runs to an end or an error.
TEST(Parser, SurvivesRandomEdits) {
  Random random{12};
  unsigned loaded = 0, refused = 0;
  for (const char *file : {"cuda/calls.ptx", "cuda/bulk_barrier.ptx", "cuda/wmma_gemm.ptx", "kernels/gemm_ws_bf16.sm_90a.ptx", "kernels/norm_i8.sm_80.ptx"}) {
    const std::string good = readText(file);
    for (int round = 0; round < 60; ++round) {
      std::string text = good;
      for (uint64_t edits = 1 + random.next() % 4; edits; --edits) {
        size_t at = random.next() % text.size(), other = random.next() % text.size();
        switch (random.next() % 4) {
        case 0: text[at] = static_cast<char>(random.next()); break;
        case 1: text.erase(at, random.next() % 12); break;
        case 2: text.insert(at, good.substr(other, random.next() % 20)); break;
        case 3: text[at] = text[other]; break;
        }
      }
      Options options;
      options.memoryLimit = 1 << 20;
      options.instructionLimit = 3000;
      options.spinLimit = 3000;
      Harness h(options);
      if (!h.load(text)) {
        EXPECT_NE(errorOf(h), "");
        ++refused;
        continue;
      }
      ++loaded;
      for (const KernelInfo &kernel : h.emulator->kernels(h.module)) {
        Arguments arguments;
        for (uint32_t bytes : kernel.parameterBytes)
          arguments.addBytes(std::vector<uint8_t>(bytes).data(), bytes);
        (void)h.run(kernel.name, {.grid = {}, .block = {40}, .cluster = {}, .sharedBytes = 1024}, arguments);
      }
    }
  }
  EXPECT_GT(loaded, 10u);
  EXPECT_GT(refused, 10u);
}

TEST(Emulator, ChecksALaunch) {
  Harness h;
  ASSERT_TRUE(h.load(header() + ".visible .entry k(.param .u64 p) .maxntid 64, 1, 1 { ret; }"));
  EXPECT_FALSE(h.run("other", {}, Arguments()));
  EXPECT_HAS(errorOf(h), "no kernel 'other'; the module has: k");
  EXPECT_FALSE(h.run("k", {}, Arguments()));
  EXPECT_HAS(errorOf(h), "expected 1 arguments, found 0");
  EXPECT_FALSE(h.run("k", {}, Arguments().add(1)));
  EXPECT_HAS(errorOf(h), "expected 8 bytes as argument 0, found 4");
  EXPECT_FALSE(h.run("k", {.grid = {}, .block = {65}, .cluster = {}}, Arguments().add(uint64_t(0))));
  EXPECT_HAS(errorOf(h), "65 threads in a block, .maxntid allows 64");
  EXPECT_FALSE(h.run("k", {.grid = {}, .block = {2000}, .cluster = {}}, Arguments().add(uint64_t(0))));
  EXPECT_HAS(errorOf(h), "expected 1 to 1024 threads");
  EXPECT_FALSE(h.run("k", {.grid = {}, .block = {1}, .cluster = {}, .sharedBytes = 1 << 20}, Arguments().add(uint64_t(0))));
  EXPECT_HAS(errorOf(h), "a block has at most 232448");
  EXPECT_FALSE(h.run("k", {.grid = {3}, .block = {1}, .cluster = {2}}, Arguments().add(uint64_t(0))));
  EXPECT_HAS(errorOf(h), "the grid is not a multiple of the cluster");
  EXPECT_TRUE(h.run("k", {.grid = {3}, .block = {7}, .cluster = {}}, Arguments().add(uint64_t(0)))) << errorOf(h);
  Options options;
  options.memoryLimit = 1000;
  Harness limited(options);
  EXPECT_HAS(limited.emulator->allocate(2000).status().message(), "of the limit of 1000 bytes");
  EXPECT_FALSE(limited.emulator->release(12345).ok());
}

/// Runs the body of a kernel with one buffer of |bytes| and returns the error.
std::string runError(const std::string &declarations, const std::string &body, unsigned threads = 32, Options options = {}, size_t bytes = 256, unsigned blocks = 1) {
  Harness h(options);
  if (!h.load(kernelText(".reg .b32 %r<20>; .reg .b64 %d<20>; .reg .pred %q<9>; " + declarations, body, 1))) return "load: " + errorOf(h);
  std::vector<uint8_t> zeros(bytes);
  return h.run("k", {.grid = {blocks}, .block = {threads}, .cluster = {}}, Arguments().add(h.put(zeros, "buffer"))) ? "" : errorOf(h);
}

TEST(Checks, GlobalMemory) {
  std::string error = runError("", "mul.wide.u32 %d1, %t, 8; add.u64 %d1, %d1, %p0;\n ld.global.u64 %d2, [%d1+8];", 32);
  EXPECT_HAS(error, "kernel 'k': ptx line 12 (ld.global.u64): global access out of bounds: 8 bytes at offset 256 of 'buffer', allocation of 256 bytes");
  EXPECT_HAS(error, "block (0, 0, 0), warp 0, lane 31");
  EXPECT_HAS(runError("", "ld.global.u32 %r1, [%p0+2];"), "misaligned load: 4 bytes at address");
  EXPECT_HAS(runError("", "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%p0+4];"), "misaligned load: 16 bytes");
  EXPECT_HAS(runError("", "mov.u64 %d1, 64; st.global.u32 [%d1], %t;"), "no allocation near address 0x40");
  EXPECT_HAS(runError(".reg .b64 %s;", "st.global.u32 [%p0+-4], %t;"), "global access out of bounds: 4 bytes before 'buffer'");
  Harness h;
  ASSERT_TRUE(h.load(kernelText(".reg .b32 %r;", "ld.global.u32 %r, [%p0];", 1)));
  uint64_t address = h.space<int>(4, "gone");
  ASSERT_TRUE(h.emulator->release(address).ok());
  EXPECT_FALSE(h.run("k", {}, Arguments().add(address)));
  EXPECT_HAS(errorOf(h), "use after free: offset 0 of 'gone'");
  EXPECT_HAS(h.emulator->release(address).message(), "already freed");
  std::vector<int> host(8, 3);
  uint64_t readOnly = *h.emulator->adopt(host.data(), 32, true, "weights");
  ASSERT_TRUE(h.load(kernelText("", "st.global.u32 [%p0], %t;", 1)));
  EXPECT_FALSE(h.run("k", {}, Arguments().add(readOnly)));
  EXPECT_HAS(errorOf(h), "write to read-only 'weights'");
  ASSERT_TRUE(h.load(header() + ".const .b32 c = 5; .visible .entry k() { .reg .b64 %d; mov.u64 %d, c; st.global.u32 [%d], 1; ret; }"));
  EXPECT_FALSE(h.run("k", {}, Arguments()));
  EXPECT_HAS(errorOf(h), "write to read-only 'c'");
}

TEST(Checks, SharedMemory) {
  EXPECT_HAS(runError(".shared .b32 s[32];", "mov.u32 %r1, s; ld.shared.u32 %r2, [%r1];"), "uninitialised shared memory: load of 4 bytes at offset 0");
  EXPECT_HAS(runError(".shared .b32 s[32];", "mov.u32 %r1, s; st.shared.u32 [%r1+128], %t;"), "shared access out of bounds: store of 4 bytes at offset 128; the block has 128 bytes");
  EXPECT_HAS(runError(".shared .b32 s[32];", "mov.u32 %r1, s; st.shared.u32 [%r1+2], %t;"), "misaligned store");
  Options relaxed;
  relaxed.checkShared = false;
  EXPECT_EQ(runError(".shared .b32 s[32];", "mov.u32 %r1, s; ld.shared.u32 %r2, [%r1];", 32, relaxed), "");
  EXPECT_HAS(runError(".local .b32 l[4];", "mov.u64 %d1, l; st.local.u32 [%d1+16], %t;"), "local access out of bounds: 4 bytes at offset 16; a thread has 16 bytes");
}

TEST(Checks, Registers) {
  for (const char *yes : {"1", "-1"})
    EXPECT_EQ(runError("", std::string("mov.pred %q1, ") + yes + "; @%q1 mov.u32 %r1, 5;\n st.global.u32 [%p0], %r1;"), "");
  std::string error = runError("", "setp.lt.u32 %q1, %t, 7; @%q1 mov.u32 %r1, 5;\n st.global.u32 [%p0], %r1;");
  EXPECT_HAS(error, "register %r1 is read before it is written");
  EXPECT_HAS(error, "lane 7");
  EXPECT_EQ(runError("", "setp.lt.u32 %q1, %t, 7; @%q1 mov.u32 %r1, 5;\n @%q1 st.global.u32 [%p0], %r1;"), "");
  Options off;
  off.checkRegisters = false;
  EXPECT_EQ(runError("", "st.global.u32 [%p0], %r1;", 32, off), "");
}

TEST(Checks, Divergence) {
  EXPECT_HAS(runError("", "setp.lt.u32 %q1, %t, 7; @%q1 bar.sync 0;"), "divergent barrier: lanes 0x0000007f are here, lanes 0xffffff80 of the warp are not");
  EXPECT_EQ(runError("", "setp.lt.u32 %q1, %t, 7; @%q1 bra L; barrier.sync 0; bra M; L: barrier.sync 0; M:"), "");
  EXPECT_HAS(runError("", "setp.lt.u32 %q1, %t, 7; @%q1 bra L; shfl.sync.bfly.b32 %r1, %t, 1, 31, -1; L:"), "deadlock: block (0, 0, 0); warp 0 waits for other lanes");
  EXPECT_EQ(runError("", "setp.lt.u32 %q1, %t, 16; @%q1 bra L; shfl.sync.bfly.b32 %r1, %t, 1, 31, 0xffff0000; L:"), "");
  EXPECT_HAS(runError("", "setp.lt.u32 %q1, %t, 16; @%q1 bra L; shfl.sync.bfly.b32 %r1, %t, 1, 31, 0xffff; L:"), "is not in its own member mask");
  EXPECT_HAS(runError("", "setp.lt.u32 %q1, %t, 16; @%q1 ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%p0];"), "divergent: an .aligned warp instruction with lanes 0x0000ffff only");
  // Lanes that wait for lanes of their own warp make progress.
  EXPECT_EQ(runError(".shared .b32 s;", "mov.u32 %r1, s; st.shared.u32 [%r1], 0; bar.sync 0; setp.eq.u32 %q1, %t, 3; @%q1 bra W; L: ld.volatile.shared.u32 %r2, [%r1]; setp.eq.u32 %q2, %r2, 0; @%q2 bra L; bra E; W: st.volatile.shared.u32 [%r1], 1; E:"), "");
}

TEST(Checks, Barriers) {
  EXPECT_HAS(runError("", "setp.lt.u32 %q1, %t, 32; @%q1 bar.sync 1, 64; bar.sync 0;", 64), "deadlock: block (0, 0, 0); warp 0 waits at barrier 1");
  EXPECT_HAS(runError("", "bar.sync 16;"), "barrier 16; a block has barriers 0 to 15");
  EXPECT_HAS(runError("", "bar.sync 1, 48;", 64), "expected a multiple of 32");
  EXPECT_HAS(runError("", "setp.lt.u32 %q1, %t, 32; @%q1 bar.arrive 2, 64; @!%q1 bar.sync 2, 96;", 96), "is used with 64 and with 96 threads at the same time");
  EXPECT_HAS(runError("", "L: ld.acquire.gpu.global.u32 %r1, [%p0]; setp.eq.u32 %q1, %r1, 0; @%q1 bra L;"), "deadlock");
  EXPECT_HAS(runError("", "trap;"), "the kernel executed a trap");
  Options limit;
  limit.instructionLimit = 1000;
  EXPECT_HAS(runError("", "L: bra L;", 32, limit), "more than 1000 instructions");
  limit.instructionLimit = 0;
  limit.spinLimit = 10000;
  EXPECT_HAS(runError("", "L: bra L;", 32, limit), "deadlock (no store, arrival or exit for a long time)");
}

TEST(Checks, LayersAndSourceLines) {
  std::string text = header() + ".file 7 \"row.cpp\"\n.visible .entry k()\n{\n.reg .b64 %d;\nmov.u64 %d, 0;\n// lathe.layer: blk.3.attn_q\n.loc 7 42 3\nld.global.u32 %d, [%d];\nret;\n}\n";
  Harness h;
  ASSERT_TRUE(h.load(text)) << errorOf(h);
  EXPECT_FALSE(h.run("k", {}, Arguments()));
  EXPECT_HAS(errorOf(h), "ptx line 11 (ld.global.u32), source row.cpp:42, layer 'blk.3.attn_q': global access out of bounds");
}

TEST(Checks, AsynchronousCopies) {
  const std::string shared = ".shared .align 16 .b8 s[1024];";
  const std::string copy = "mov.u32 %r1, s; shl.b32 %r2, %t, 2; add.u32 %r1, %r1, %r2; cvt.u64.u32 %d1, %r2; add.u64 %d1, %d1, %p0; cp.async.ca.shared.global [%r1], [%d1], 4; cp.async.commit_group;\n";
  EXPECT_HAS(runError(shared, copy + "ld.shared.u32 %r3, [%r1];"), "missing wait: load of 4 bytes at shared offset 0, which an asynchronous copy will write");
  EXPECT_HAS(runError(shared, copy + "cp.async.wait_group 1; ld.shared.u32 %r3, [%r1];"), "missing wait");
  EXPECT_EQ(runError(shared, copy + "cp.async.wait_group 0; ld.shared.u32 %r3, [%r1];"), "");
  EXPECT_HAS(runError(shared, copy + "cp.async.ca.shared.global [%r1], [%d1], 4;"), "another copy in flight will write");
  EXPECT_HAS(runError(shared, "mov.u32 %r1, s; cp.async.cg.shared.global [%r1+8], [%p0], 16;"), "misaligned copy of 16 bytes");
  EXPECT_HAS(runError(shared, "mov.u32 %r1, s; cp.async.cg.shared.global [%r1], [%p0+256], 16;"), "global access out of bounds");
}

TEST(Checks, BulkPrefetchesNameWhatIsThere) {
  EXPECT_EQ(runError("", "cp.async.bulk.prefetch.L2.global [%p0], 256;"), "");
  EXPECT_HAS(runError("", "cp.async.bulk.prefetch.L2.global [%p0+16], 256;"), "out of bounds");
  EXPECT_HAS(runError("", "cp.async.bulk.prefetch.L2.global [%p0], 40;"), "misaligned bulk prefetch of 40 bytes");
  EXPECT_HAS(runError("", "cp.async.bulk.prefetch.L2.global [%p0+8], 16;"), "misaligned bulk prefetch of 16 bytes");
}

TEST(Checks, Mbarriers) {
  const std::string shared = ".shared .align 8 .b64 m; .shared .align 128 .b8 s[512];";
  const std::string init = "mov.u32 %r1, m; mov.u32 %r2, s; setp.eq.u32 %q1, %t, 0; @%q1 mbarrier.init.shared.b64 [%r1], 1; bar.sync 0;\n";
  EXPECT_HAS(runError(shared, "mov.u32 %r1, m; mbarrier.arrive.shared.b64 %d1, [%r1];"), "no initialised mbarrier at shared offset");
  EXPECT_HAS(runError(shared, init + "mbarrier.arrive.shared.b64 %d1, [%r1]; mbarrier.arrive.shared.b64 %d1, [%r1]; ld.shared.u32 %r3, [%r1];"), "which holds an mbarrier");
  EXPECT_HAS(runError(shared, init + "@%q1 mbarrier.arrive.shared.b64 %d1, [%r1], 2;"), "2 arrivals at an mbarrier that expects 1 more");
  EXPECT_HAS(runError(shared, init + "L: mbarrier.try_wait.parity.shared.b64 %q2, [%r1], 0; @!%q2 bra L;"), "deadlock");
  const std::string load = "@%q1 mbarrier.arrive.expect_tx.shared.b64 %d1, [%r1], 256; @%q1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%p0], 256, [%r1];\n";
  const std::string wait = "L: mbarrier.try_wait.parity.shared.b64 %q2, [%r1], 0; @!%q2 bra L;\n";
  EXPECT_EQ(runError(shared, init + load + wait + "ld.shared.u32 %r3, [%r2];"), "");
  EXPECT_HAS(runError(shared, init + load + "ld.shared.u32 %r3, [%r2];"), "missing wait");
  EXPECT_HAS(runError(shared, init + load), "missing wait: the block ends while a bulk copy is in flight");
  EXPECT_HAS(runError(shared, init + "@%q1 mbarrier.arrive.expect_tx.shared.b64 %d1, [%r1], 128; @%q1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%p0], 256, [%r1];" + wait), "deadlock");
  EXPECT_HAS(runError(shared, init + "@%q1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%p0], 40, [%r1];"), "misaligned bulk copy of 40 bytes");
  const std::string fill = "shl.b32 %r3, %t, 2; add.u32 %r3, %r3, %r2; st.shared.u32 [%r3], %t;\n";
  const std::string store = "@%q1 cp.async.bulk.global.shared::cta.bulk_group [%p0], [%r2], 128; @%q1 cp.async.bulk.commit_group; ";
  EXPECT_HAS(runError(shared, init + fill + "bar.sync 0; " + store + "@%q1 cp.async.bulk.wait_group 0;"), "missing fence.proxy.async: ordinary stores have written it");
  EXPECT_EQ(runError(shared, init + fill + "fence.proxy.async.shared::cta; bar.sync 0; " + store + "@%q1 cp.async.bulk.wait_group 0;"), "");
  EXPECT_HAS(runError(shared, init + fill + "fence.proxy.async.shared::cta; bar.sync 0; " + store), "may still read its shared memory");
  EXPECT_HAS(runError(shared, init + fill + "fence.proxy.async.shared::cta; bar.sync 0; " + store + "st.shared.u32 [%r3], 0;"), "which an asynchronous operation still reads");
}

TEST(Races, SharedAndGlobal) {
  Options race;
  race.checkRaces = true;
  const std::string shared = ".shared .b32 s[64];", own = "mov.u32 %r1, s; shl.b32 %r2, %t, 2; add.u32 %r3, %r1, %r2; st.shared.u32 [%r3], %t;\n", other = "xor.b32 %r4, %r2, 128; add.u32 %r4, %r4, %r1; ld.shared.u32 %r5, [%r4];\n";
  EXPECT_EQ(runError(shared, own + "bar.sync 0;" + other, 64, race), "");
  Options unordered = race;
  unordered.checkShared = false;
  EXPECT_HAS(runError(shared, own + other, 64, unordered), "race on shared offset");
  EXPECT_HAS(runError(shared, own + "bar.sync 0;" + other + "add.u32 %r5, %r5, 1; st.shared.u32 [%r3], %r5;", 64, race), "race on shared offset");
  // Lanes of one warp.
  const std::string near = "xor.b32 %r4, %r2, 4; add.u32 %r4, %r4, %r1; ld.shared.u32 %r5, [%r4];\n";
  EXPECT_HAS(runError(shared, own + near, 32, race), "race on shared offset");
  EXPECT_EQ(runError(shared, own + "bar.warp.sync -1;" + near, 32, race), "");
  // Between blocks.
  EXPECT_HAS(runError("", "st.global.u32 [%p0], %t;", 1, race, 256, 2), "race on global address");
  EXPECT_EQ(runError("", "red.global.add.u32 [%p0], 1;", 64, race, 256, 2), "");
  const std::string hand = "mov.u32 %r1, %ctaid.x; setp.eq.u32 %q1, %r1, 1; @%q1 bra R; st.global.u32 [%p0+64], 7; RELEASE bra E; R: L: ACQUIRE setp.eq.u32 %q2, %r2, 0; @%q2 bra L; ld.global.u32 %r3, [%p0+64]; E:";
  auto with = [&](const std::string &release, const std::string &acquire) {
    std::string text = hand;
    text.replace(text.find("RELEASE"), 7, release);
    text.replace(text.find("ACQUIRE"), 7, acquire);
    return text;
  };
  EXPECT_EQ(runError("", with("red.release.gpu.global.add.u32 [%p0], 1;", "ld.acquire.gpu.global.u32 %r2, [%p0];"), 1, race, 256, 2), "");
  EXPECT_EQ(runError("", with("fence.acq_rel.gpu; st.relaxed.gpu.global.u32 [%p0], 1;", "ld.relaxed.gpu.global.u32 %r2, [%p0]; fence.acq_rel.gpu;"), 1, race, 256, 2), "");
  EXPECT_HAS(runError("", with("red.relaxed.gpu.global.add.u32 [%p0], 1;", "ld.acquire.gpu.global.u32 %r2, [%p0];"), 1, race, 256, 2), "race on global address");
  EXPECT_HAS(runError("", with("st.release.gpu.global.u32 [%p0], 1;", "ld.relaxed.gpu.global.u32 %r2, [%p0];"), 1, race, 256, 2), "race on global address");
}

TEST(Emulator, HostThreadsAndTurnsChangeNothing) {
  const std::string text = readText("cuda/softmax.ptx");
  std::vector<float> x(40 * 300), first;
  Random random{4};
  for (float &value : x)
    value = random.uniform(-5, 5);
  LaunchStats stats;
  for (auto [threads, seed] : {std::pair{1u, 0u}, {4u, 0u}, {1u, 9u}, {3u, 5u}}) {
    Options options;
    options.hostThreads = threads;
    options.seed = seed;
    Harness h(options);
    ASSERT_TRUE(h.load(text));
    uint64_t y = h.space<float>(x.size()), lse = h.space<float>(40);
    ASSERT_TRUE(h.run("softmax", {.grid = {40}, .block = {96}, .cluster = {}}, Arguments().add(h.put(x)).add(y).add(lse).add(300))) << errorOf(h);
    auto found = h.get<float>(y, x.size());
    if (first.empty()) {
      first = found;
      stats = h.stats;
    }
    EXPECT_EQ(found, first);
    EXPECT_EQ(h.stats.laneInstructions, stats.laneInstructions);
    EXPECT_EQ(h.stats.globalSectors, stats.globalSectors);
    EXPECT_EQ(h.stats.sharedCycles, stats.sharedCycles);
    ASSERT_EQ(h.stats.opcodes.size(), stats.opcodes.size());
  }
  // The error of the first block in order is the one that is reported.
  Options options;
  options.hostThreads = 4;
  Harness h(options);
  ASSERT_TRUE(h.load(kernelText(".reg .b32 %c; .reg .b64 %d;", "mov.u32 %c, %ctaid.x; mul.wide.u32 %d, %c, 4; add.u64 %d, %d, %p0; st.global.u32 [%d], %c;", 1)));
  EXPECT_FALSE(h.run("k", {.grid = {64}, .block = {1}, .cluster = {}}, Arguments().add(h.space<int>(32))));
  EXPECT_HAS(errorOf(h), "global access out of bounds");
}

TEST(Emulator, GlobalVariablesAndFunctions) {
  Harness h;
  ASSERT_TRUE(h.load(header() + R"(
.global .align 4 .u32 table[4] = {3, 5, 7};
.global .u64 pointer = generic(table);
.const .f32 half = 0f3F000000;
.func (.param .b32 result) twice(.param .b32 value)
{
  .reg .b32 %r<3>;
  ld.param.b32 %r1, [value];
  add.s32 %r2, %r1, %r1;
  st.param.b32 [result], %r2;
  ret;
}
.visible .entry k(.param .u64 p)
{
  .reg .b32 %r<9>; .reg .b64 %d<9>; .reg .f32 %f<3>; .reg .pred %q;
  ld.param.u64 %d1, [p];
  ld.global.u64 %d2, [pointer];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %d3, %r1, 4;
  add.u64 %d2, %d2, %d3;
  ld.u32 %r2, [%d2];
  setp.ne.u32 %q, %r1, 2;
  mov.u32 %r3, 100;
  { .param .b32 in; .param .b32 out;
    st.param.b32 [in], %r2;
    @%q call (out), twice, (in);
    @%q ld.param.b32 %r3, [out]; }
  ld.const.f32 %f1, [half];
  cvt.rn.f32.u32 %f2, %r3;
  mul.f32 %f2, %f2, %f1;
  add.u64 %d1, %d1, %d3;
  st.global.f32 [%d1], %f2;
})")) << errorOf(h);
  uint64_t out = h.space<float>(4);
  ASSERT_TRUE(h.run("k", {.grid = {}, .block = {4}, .cluster = {}}, Arguments().add(out))) << errorOf(h);
  EXPECT_EQ(h.get<float>(out, 4), (std::vector<float>{3, 5, 50, 0}));
  EXPECT_TRUE(h.emulator->addressOf(h.module, "table").ok());
  EXPECT_EQ(h.emulator->addressOf(h.module, "none").status().message(), "the module has no variable 'none'");
}

TEST(Cluster, BlocksShareMemoryAndMeet) {
  Harness h;
  ASSERT_TRUE(h.load(kernelText(".reg .b32 %r<9>; .reg .b64 %d<4>; .shared .b32 s[32];", R"(
    mov.u32 %r1, %cluster_ctarank; mov.u32 %r2, s; shl.b32 %r3, %t, 2; add.u32 %r3, %r3, %r2; mad.lo.u32 %r4, %r1, 100, %t;
    st.shared.u32 [%r3], %r4; barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
    xor.b32 %r5, %r1, 1; mapa.shared::cluster.u32 %r6, %r3, %r5; ld.shared::cluster.u32 %r7, [%r6];
    barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
    mov.u32 %r8, %ctaid.x; mad.lo.u32 %r8, %r8, 32, %t; mul.wide.u32 %d1, %r8, 4; add.u64 %d1, %d1, %p0; st.global.u32 [%d1], %r7;)", 1))) << errorOf(h);
  uint64_t out = h.space<int>(128);
  ASSERT_TRUE(h.run("k", {.grid = {4}, .block = {32}, .cluster = {2}}, Arguments().add(out))) << errorOf(h);
  auto found = h.get<int>(out, 128);
  for (int i = 0; i < 128; ++i)
    ASSERT_EQ(found[i], ((i / 32) % 2 == 0 ? 100 : 0) + i % 32);
}

TEST(Counters, SectorsAndBanks) {
  Harness h;
  ASSERT_TRUE(h.load(kernelText(".reg .b64 %d<4>; .reg .b32 %r<4>; .shared .align 16 .b8 s[4096];",
                                "mul.wide.u32 %d1, %t, 4; add.u64 %d1, %d1, %p0; ld.global.u32 %r1, [%d1]; mul.wide.u32 %d2, %t, 32; add.u64 %d2, %d2, %p0; ld.global.u32 %r1, [%d2];"
                                "mov.u32 %r2, s; shl.b32 %r3, %t, 2; add.u32 %r3, %r3, %r2; st.shared.u32 [%r3], %r1; shl.b32 %r3, %t, 7; add.u32 %r3, %r3, %r2; st.shared.u32 [%r3], %r1;", 1)));
  std::vector<int> data(256);
  ASSERT_TRUE(h.run("k", {.grid = {2}, .block = {32}, .cluster = {}}, Arguments().add(h.put(data)))) << errorOf(h);
  EXPECT_EQ(h.stats.globalAccesses, 4u);
  EXPECT_EQ(h.stats.globalSectors, 2u * (4 + 32));
  EXPECT_EQ(h.stats.globalIdealSectors, 2u * (4 + 4));
  EXPECT_EQ(h.stats.globalBytesRead, 2u * 256);
  EXPECT_EQ(h.stats.sharedAccesses, 4u);
  EXPECT_EQ(h.stats.sharedCycles, 2u * (1 + 32));
  EXPECT_EQ(h.stats.sharedIdealCycles, 4u);
  EXPECT_EQ(h.stats.laneInstructions, h.stats.warpInstructions * 32);
}

} // namespace
} // namespace lathe::emulator
