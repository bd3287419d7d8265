//===- OverlapTest.cpp - launches that may start before the one before ends ---===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Chains of small kernels, started with programmatic dependent launch; each mutant lacks what orders them.
//===----------------------------------------------------------------------===//
#include "runtime/device/emulator/Emulator.h"
#include <functional>
#include <gtest/gtest.h>
#include <regex>

namespace lathe::emulator {
namespace {

/// copy: out[i] = in[i] + table[i]. Two warps; the second one is ordered by the block's barrier after the first has waited.
const std::string source = R"(
.version 8.0
.target sm_90a
.address_size 64
.visible .entry add(.param .u64 in, .param .u64 table, .param .u64 out) .reqntid 64
{
  .reg .b64 %rd<8>;
  .reg .b32 %r<8>;
  .reg .f32 %f<4>;
  .reg .pred %p<2>;
  ld.param.u64 %rd1, [in];
  ld.param.u64 %rd2, [table];
  ld.param.u64 %rd3, [out];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd4, %r1, 4;
  add.s64 %rd5, %rd1, %rd4;
  add.s64 %rd6, %rd2, %rd4;
  add.s64 %rd7, %rd3, %rd4;
  griddepcontrol.launch_dependents;
  ld.global.nc.f32 %f2, [%rd6];
  setp.ge.u32 %p1, %r1, 32;
  @%p1 bra JOIN;
  griddepcontrol.wait;
JOIN:
  bar.sync 0;
  ld.global.f32 %f1, [%rd5];
  add.rn.f32 %f3, %f1, %f2;
  st.global.f32 [%rd7], %f3;
  ret;
}
)";

class Chain {
public:
  explicit Chain(AsyncMode mode) {
    Options options;
    options.mode = mode;
    options.checkRaces = options.checkOverlap = true;
    emulator = *Emulator::create(options);
    for (uint64_t &a : buffers) a = *emulator->allocate(256, "buffer");
    table = *emulator->allocate(256, "table");
    std::vector<float> ones(64, 1.0f);
    for (uint64_t a : {buffers[0], buffers[1], buffers[2], table}) (void)emulator->write(a, ones.data(), 256);
  }
  /// Launches text's kernel from buffer |from| to |to|.
  Status run(const std::string &text, int from, int to, bool programmatic, uint64_t constants = 0) {
    auto module = emulator->load(text);
    if (!module.ok()) return module.status();
    LaunchConfig config;
    config.block.x = 64;
    config.programmatic = programmatic;
    return emulator->launch(*module, "add", config, Arguments().add(buffers[from]).add(constants ? constants : table).add(buffers[to])).status();
  }
  float first(int buffer) {
    float x = 0;
    EXPECT_TRUE(emulator->read(&x, buffers[buffer], 4).ok());
    return x;
  }
  std::unique_ptr<Emulator> emulator;
  uint64_t buffers[3], table;
};

std::string without(const std::string &line) { return std::regex_replace(source, std::regex(line), ""); }
const std::string wait = "griddepcontrol.wait;", trigger = "griddepcontrol.launch_dependents;";
/// Lets dependents go after the wait only.
std::string triggersLate() { return std::regex_replace(without(trigger), std::regex("bar.sync 0;"), "bar.sync 0;\n  " + trigger); }

class Overlap : public ::testing::TestWithParam<AsyncMode> {};

TEST_P(Overlap, AChainThatWaitsRuns) {
  Chain c(GetParam());
  ASSERT_TRUE(c.run(source, 0, 1, false).ok());
  for (auto [from, to] : {std::pair{1, 2}, {2, 0}, {0, 1}, {1, 2}}) {
    Status s = c.run(source, from, to, true);
    ASSERT_TRUE(s.ok()) << s.message();
  }
  EXPECT_EQ(c.first(2), 6.0f);
}

TEST_P(Overlap, AMissingWaitIsFound) {
  const std::string none = without(wait);
  auto message = [&](const std::string &second, int from, int to) {
    Chain c(GetParam());
    EXPECT_TRUE(c.run(source, 0, 1, false).ok());
    return c.run(second, from, to, true).message();
  };
  // It reads what the launch before writes; writes that, too; writes what the launch before reads.
  EXPECT_NE(message(none, 1, 2).find("missing griddepcontrol.wait: this read of global address"), std::string::npos) << message(none, 1, 2);
  EXPECT_NE(message(none, 1, 2).find("the write by kernel 'add', launched before, which may still run, are not ordered"), std::string::npos);
  EXPECT_NE(message(none, 2, 1).find("missing griddepcontrol.wait: this write of global address"), std::string::npos) << message(none, 2, 1);
  EXPECT_NE(message(none, 2, 0).find("and the read by kernel 'add', launched before, which may still run, are not ordered"), std::string::npos) << message(none, 2, 0);
  // Too late: after the load. And without the barrier, the second warp has not waited.
  std::string late = std::regex_replace(none, std::regex("add.rn.f32"), wait + "\n  add.rn.f32");
  EXPECT_NE(message(late, 1, 2).find("missing griddepcontrol.wait: this read"), std::string::npos);
  EXPECT_NE(message(without("bar.sync 0;"), 1, 2).find("warp 1"), std::string::npos) << message(without("bar.sync 0;"), 1, 2);
  // What the launch before does not touch needs no order, and a launch that is not programmatic none at all.
  Chain c(GetParam());
  EXPECT_TRUE(c.run(source, 0, 1, false).ok());
  EXPECT_TRUE(c.run(none, 1, 2, false).ok());
  // Nor one after the host has read.
  EXPECT_EQ(c.first(2), 3.0f);
  EXPECT_TRUE(c.run(none, 2, 0, true).ok());
}

TEST_P(Overlap, LaunchesFurtherBackMayRunToo) {
  // The second launch has let the third go before it waited itself: the first one may still run.
  const std::string none = without(wait);
  Chain early(GetParam());
  EXPECT_TRUE(early.run(source, 0, 0, false, early.table).ok());
  EXPECT_TRUE(early.run(source, 1, 2, true).ok());
  EXPECT_NE(early.run(none, 0, 1, true).message().find("missing griddepcontrol.wait: this read"), std::string::npos);
  // It lets it go later: then the first one has ended.
  Chain late(GetParam());
  EXPECT_TRUE(late.run(source, 0, 0, false).ok());
  EXPECT_TRUE(late.run(triggersLate(), 1, 1, true).ok());
  std::string copy = std::regex_replace(none, std::regex("st.global.f32"), "//");
  EXPECT_TRUE(late.run(copy, 0, 2, true).ok());
  // A launch that has never waited says nothing about those before it, not even when it has ended.
  Chain never(GetParam());
  EXPECT_TRUE(never.run(source, 0, 0, false).ok());
  EXPECT_TRUE(never.run(none, 1, 2, true).ok());
  EXPECT_NE(never.run(source, 0, 1, true).message().find("missing griddepcontrol.wait: this read"), std::string::npos);
}

TEST_P(Overlap, TheReadOnlyPathIsForWhatNothingWrites) {
  Chain c(GetParam());
  EXPECT_TRUE(c.run(source, 0, 1, false).ok());
  std::string after = std::regex_replace(source, std::regex("ld.global.f32"), "ld.global.nc.f32");
  std::string message = c.run(after, 1, 2, true).message();
  EXPECT_NE(message.find("ld.global.nc of global address"), std::string::npos) << message;
  EXPECT_NE(message.find("which kernel 'add', launched before, may write while this one runs"), std::string::npos) << message;
}

TEST(OverlapDevice, NeedsAChipThatHasIt) {
  Options options;
  options.capability = 80;
  auto emulator = *Emulator::create(options);
  std::string text = std::regex_replace(without("griddepcontrol[a-z_.]*;"), std::regex("sm_90a"), "sm_80");
  auto module = emulator->load(text);
  ASSERT_TRUE(module.ok()) << module.status().message();
  LaunchConfig config;
  config.block.x = 64;
  config.programmatic = true;
  Status s = emulator->launch(*module, "add", config, Arguments().add(uint64_t(0)).add(uint64_t(0)).add(uint64_t(0))).status();
  EXPECT_NE(s.message().find("kernel 'add': programmatic dependent launch needs a device of capability 90, found 80"), std::string::npos) << s.message();
}

INSTANTIATE_TEST_SUITE_P(Modes, Overlap, ::testing::Values(AsyncMode::lazy, AsyncMode::eager));

} // namespace
} // namespace lathe::emulator
