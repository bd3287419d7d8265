//===- DeviceTest.cpp - thread team, dealing of items, topology ---------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/device/Device.h"
#include "ToyArtifact.h"
#include "lathe/artifact/ProgramCodec.h"
#include "lathe/base/Topology.h"
#include "runtime/device/Trees.h"
#include "runtime/device/cpu/ThreadTeam.h"
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sched.h>
#include <thread>
#include <xmmintrin.h>

using namespace lathe;
using namespace lathe::runtime;
using namespace lathe::test;

TEST(ThreadTeam, BarrierSeparatesPhases) {
  auto team = ThreadTeam::acquire();
  struct State {
    uint32_t counts[8][64] = {};
    std::atomic<int> wrong{0};
  };
  for (unsigned n : {1u, 2u, 3u, 7u}) {
    State state;
    team->run(
        n, false,
        [](void *context, unsigned t, unsigned threads, FlagBarrier &barrier) {
          auto &s = *static_cast<State *>(context);
          uint32_t epoch = 0;
          for (uint32_t round = 1; round <= 100; ++round) {
            s.counts[t][0] = round; // plain memory: ThreadSanitizer sees a missing barrier
            barrier.wait(t, epoch);
            for (unsigned i = 0; i < threads; ++i)
              s.wrong += s.counts[i][0] != round;
            barrier.wait(t, epoch);
          }
        },
        &state);
    EXPECT_EQ(state.wrong, 0) << n;
  }
}

TEST(ThreadTeam, CallersTakeTurns) {
  auto team = ThreadTeam::acquire();
  int plain = 0; // only ever touched by thread 0 of a run
  auto loop = [&] {
    for (int i = 0; i < 50; ++i)
      team->run(
          3, false,
          [](void *c, unsigned t, unsigned, FlagBarrier &) {
            if (t == 0) ++*static_cast<int *>(c);
          },
          &plain);
  };
  std::thread other(loop);
  loop();
  other.join();
  EXPECT_EQ(plain, 100);
}

TEST(ThreadTeam, FloatModeIsTheRulesWhateverTheCallerSet) {
  auto team = ThreadTeam::acquire();
  unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040); // flush to zero, denormals are zero
  unsigned seen[3] = {};
  team->run(
      3, true, [](void *c, unsigned t, unsigned, FlagBarrier &) { static_cast<unsigned *>(c)[t] = _mm_getcsr(); },
      seen);
  EXPECT_EQ(_mm_getcsr() & 0xffc0u, (before | 0x8040u) & 0xffc0u);
  _mm_setcsr(before);
  for (unsigned mode : seen)
    EXPECT_EQ(mode & 0xffc0u, 0x1f80u);
}

namespace {

/// Runs of two kinds one after the other for |seconds|, each as long as |spin| or |sleep| says (of a quiet 2 or 3 ms),
/// with |spinPreemptions| each while spinning. Returns the share of the time that was spent spinning.
double spinShare(WaitPolicy &policy, double &now, double seconds, double spin, double sleep, double spinPreemptions,
                 bool named = true) {
  double begin = now, spun = 0, owed = 0;
  for (uint64_t i = 0; now - begin < seconds; ++i) {
    bool spins = policy.spins();
    double took = (i % 2 ? 0.003 : 0.002) * (spins ? spin : sleep);
    now += took;
    spun += spins ? took : 0;
    owed += spins ? spinPreemptions : 0;
    auto preemptions = static_cast<uint64_t>(owed);
    owed -= static_cast<double>(preemptions);
    policy.report(now, named ? 1 + i % 2 : 0, took, preemptions);
  }
  return spun / (now - begin);
}

} // namespace

TEST(WaitPolicy, SpinsOnAQuietMachine) {
  WaitPolicy policy;
  double now = 100;
  EXPECT_GT(spinShare(policy, now, 5, 1, 3, 0.03), 0.999); // about ten preemptions a second
}

TEST(WaitPolicy, SleepsInACrowdAndTriesAgain) {
  WaitPolicy policy;
  double now = 100;
  spinShare(policy, now, 1, 1, 3, 0);
  EXPECT_LT(spinShare(policy, now, 20, 8, 3, 3), 0.06); // others came
  EXPECT_GT(spinShare(policy, now, 20, 1, 3, 0), 0.8);  // and went: at most 3 s more
}

TEST(WaitPolicy, SpinsWhenPreemptionsAreShortAndSleepingIsSlower) {
  WaitPolicy policy;
  double now = 100;
  spinShare(policy, now, 1, 1, 5, 0);
  EXPECT_GT(spinShare(policy, now, 20, 1.1, 5, 0.5), 0.95);
  // What it learned does not outlive a change: now others want the processors for good.
  EXPECT_LT(spinShare(policy, now, 20, 9, 4, 3), 0.25);
}

TEST(WaitPolicy, TakesTheHintWhenNothingCanBeCompared) {
  WaitPolicy policy;
  double now = 100;
  EXPECT_LT(spinShare(policy, now, 20, 5, 2, 1, false), 0.1);
}

TEST(Topology, ReadsLimits) {
  EXPECT_EQ(parseCpuMax("max 100000\n"), 0u);
  EXPECT_EQ(parseCpuMax("150000 100000\n"), 2u);
  EXPECT_EQ(parseCpuMax("50000 100000"), 1u);
  EXPECT_EQ(parseCpuMax("-1 0"), 0u);
  EXPECT_EQ(parseCpuMax(""), 0u);
  Topology t = Topology::detect();
  EXPECT_GE(t.usableCpus(), 1u);
  EXPECT_GE(t.defaultThreads(), 1u);
  EXPECT_LE(t.cores, t.cpus.size());
}

TEST(Topology, ThreadsFollowTheAffinityMask) {
  // A thread of its own: the mask is a thread's.
  std::thread([] {
    cpu_set_t all, one;
    ASSERT_EQ(sched_getaffinity(0, sizeof all, &all), 0);
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (!CPU_ISSET(cpu, &all)) continue;
      CPU_ZERO(&one);
      CPU_SET(cpu, &one);
      ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
      Topology t = Topology::detect();
      EXPECT_EQ(t.cpus, std::vector<int>{cpu});
      EXPECT_EQ(t.defaultThreads(), 1u);
    }
  }).join();
}

TEST(Topology, ThreadsFollowTheQuota) {
  std::filesystem::path root = std::filesystem::path(testing::TempDir()) / "lathe-cgroup-test";
  std::filesystem::remove_all(root);
  auto write = [&](const std::string &file, const std::string &text) {
    std::filesystem::create_directories((root / file).parent_path());
    std::ofstream(root / file) << text;
  };
  // Version 2: the tightest of the group and those above it. A group of its own name space is "/".
  write("a/b/cpu.max", "max 100000\n");
  write("a/cpu.max", "250000 100000\n");
  write("cpu.max", "600000 100000\n");
  EXPECT_EQ(cpuQuota("0::/a/b\n", root), 3u);
  EXPECT_EQ(cpuQuota("0::/\n", root), 6u);
  EXPECT_EQ(cpuQuota("0::/gone\n", root), 6u);
  // Version 1: the controller's own tree, whose path may not be there inside a container.
  write("cpu,cpuacct/job/cpu.cfs_quota_us", "150000\n");
  write("cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
  write("cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  write("cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cpuQuota("5:memory:/job\n4:cpu,cpuacct:/job\n", root), 2u);
  EXPECT_EQ(cpuQuota("4:cpu,cpuacct:/\n3:cpuset:/\n", root), 0u);
  EXPECT_EQ(cpuQuota("", root), 0u);
  EXPECT_EQ(cpuQuota("nonsense", root), 0u);
  std::filesystem::remove_all(root);

  Topology t;
  t.cpus = {0, 2, 4, 6, 1, 3, 5, 7}, t.cores = 4; // four cores, two threads each
  EXPECT_EQ(t.defaultThreads(), 4u);
  t.quota = 3;
  EXPECT_EQ(t.defaultThreads(), 3u);
  EXPECT_EQ(t.usableCpus(), 3u);
  t.quota = 6;
  EXPECT_EQ(t.defaultThreads(), 4u);
  EXPECT_EQ(t.usableCpus(), 6u);
}

namespace {

/// A program whose launches count visits of their items, one counter array each.
struct Probe {
  ItemKind kind;
  ShareKind share;
  uint64_t items;
  uint32_t itemRows;
  int64_t expected; ///< for the step below
};
constexpr uint32_t counters = 1024;

} // namespace

TEST(Device, EveryItemIsDoneOnceForAnyNumberOfThreads) {
  const std::string path = "device-test.lathe";
  // 5 rows in slots 0, 15, 16, 40, 100; 3 of them with results.
  const std::vector<Probe> probes = {
      {ItemKind::fixed, ShareKind::contiguous, 10, 1, 10},
      {ItemKind::fixed, ShareKind::interleaved, 1, 1, 1},
      {ItemKind::fixed, ShareKind::contiguous, 0, 1, 0},
      {ItemKind::perRow, ShareKind::interleaved, 3, 1, 15},
      {ItemKind::perRow, ShareKind::contiguous, 1, 1, 5},
      {ItemKind::perOutRow, ShareKind::contiguous, 2, 1, 6},
      {ItemKind::perRowBlock, ShareKind::contiguous, 4, 2, 12},
      {ItemKind::perRowChunk, ShareKind::interleaved, 2, 16, 2 * (1 + 1 + 2 + 3 + 7)},
      {ItemKind::perRowChunk, ShareKind::contiguous, 1, 64, 1 + 1 + 1 + 1 + 2},
  };
  Program p = toyProgram({});
  p.kernels.push_back("toy_probe");
  p.launches.clear();
  p.args.clear();
  uint64_t base = p.arenaBytes;
  for (size_t i = 0; i < probes.size(); ++i) {
    p.args.push_back({ArgKind::arena, 0, base + i * counters * 4});
    Launch l;
    l.kernel = static_cast<uint32_t>(p.kernels.size() - 1);
    l.firstArg = static_cast<uint32_t>(i);
    l.argCount = 1;
    l.itemKind = probes[i].kind;
    l.shareKind = probes[i].share;
    l.items = probes[i].items;
    l.itemRows = probes[i].itemRows;
    l.barrier = i % 2;
    p.launches.push_back(l);
  }
  p.arenaBytes += probes.size() * counters * 4;
  // Results are read through hidden(): lay it over the counters.
  p.hiddenOffset = base;
  p.hiddenStride = counters;
  p.maxRows = static_cast<uint32_t>(probes.size());
  auto all = static_cast<uint32_t>(probes.size());
  p.embeddingStride = p.choicesStride = 0;
  p.entries = {{"step", {{p.maxRows, 0, all}}}, {"head", {{p.maxOutRows, 0, 0}}}};
  auto writer = artifact::ArtifactWriter::create(path);
  ASSERT_TRUE(addToySections(*writer, {}, p).ok());
  ASSERT_TRUE(writer->finish().ok());
  auto loaded = LoadedArtifact::load(path);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();

  int32_t slots[] = {0, 15, 16, 40, 100};
  LatheStep step{};
  step.size = sizeof step;
  step.rows = 5;
  step.outRows = 3;
  step.slot = slots;
  auto device = makeCpuDevice();
  for (unsigned threads : {1u, 2u, 3u, 7u})
    for (bool profiling : {false, true}) {
      auto e = device->prepare(*loaded, {threads, false, {1, 1}});
      ASSERT_TRUE(e.ok()) << e.status().message();
      (*e)->setProfiling(profiling);
      auto ticket = (*e)->submit(EntryKind::step, step);
      ASSERT_TRUE(ticket.ok());
      ASSERT_TRUE((*e)->wait(*ticket).ok());
      for (uint32_t i = 0; i < all; ++i) {
        const auto *count = reinterpret_cast<const int32_t *>((*e)->hidden(i));
        for (int64_t item = 0; item < counters; ++item)
          ASSERT_EQ(count[item], item < probes[i].expected) << "launch " << i << " item " << item << " of " << threads;
      }
      EXPECT_EQ((*e)->profile().size(), profiling ? all : 0u);
      EXPECT_EQ((*e)->threads(), threads);
    }
}

TEST(Device, BlocksAreSavedAndRestored) {
  ASSERT_TRUE(writeToyArtifact("device-test.lathe").ok());
  auto loaded = LoadedArtifact::load("device-test.lathe");
  ASSERT_TRUE(loaded.ok());
  auto e = makeCpuDevice()->prepare(*loaded, {1, false, {4, 2}});
  ASSERT_TRUE(e.ok());
  std::vector<uint8_t> block(16 * toyWidth * 4), out(block.size());
  for (size_t i = 0; i < block.size(); ++i)
    block[i] = static_cast<uint8_t>(i * 7);
  EXPECT_TRUE((*e)->restoreBlock(0, 3, block).ok());
  EXPECT_TRUE((*e)->saveBlock(0, 3, out).ok());
  EXPECT_EQ(out, block);
  EXPECT_TRUE((*e)->fillBlock(0, 3, 0xff).ok());
  EXPECT_TRUE((*e)->saveBlock(0, 3, out).ok());
  EXPECT_EQ(out, std::vector<uint8_t>(block.size(), 0xff));
  EXPECT_NE((*e)->saveBlock(0, 4, out).message().find("no KV block 4"), std::string::npos);
  EXPECT_NE((*e)->restoreBlock(1, 0, block).message().find("no KV block 0"), std::string::npos);
  EXPECT_NE((*e)->fillBlock(2, 0, 0).message().find("no KV group 2"), std::string::npos);
  auto wrong = makeCpuDevice()->prepare(*loaded, {1, false, {4}});
  EXPECT_NE(wrong.status().message().find("expected block counts of 2 KV groups, found 1"), std::string::npos);
  LatheStep step{};
  EXPECT_NE(
      (*e)->submit(EntryKind::head, step).status().message().find("expected 1 to 8 rows in entry 'head', found 0"),
      std::string::npos);
}

TEST(Device, BlocksAreSavedRestoredAndCopied) {
  ASSERT_TRUE(writeToyArtifact("device-test.lathe").ok());
  auto loaded = LoadedArtifact::load("device-test.lathe");
  ASSERT_TRUE(loaded.ok());
  auto device = makeCpuDevice();
  ExecutableOptions options;
  options.threads = 1;
  options.kvBlocks = {4, 2};
  auto program = device->prepare(*loaded, options);
  ASSERT_TRUE(program.ok());
  Executable &e = **program;
  const auto &groups = (*loaded)->program().kvGroups;
  for (uint32_t g = 0; g < 2; ++g) {
    std::vector<uint8_t> ones(groups[g].blockBytes), twos(ones.size()), seen(ones.size());
    for (size_t i = 0; i < ones.size(); ++i)
      ones[i] = static_cast<uint8_t>(i * 7 + g), twos[i] = static_cast<uint8_t>(i * 3 + 1);
    ASSERT_TRUE(e.restoreBlock(g, 0, ones).ok());
    ASSERT_TRUE(e.restoreBlock(g, 1, twos).ok());
    ASSERT_TRUE(e.copyBlock(g, 0, 1).ok());
    ASSERT_TRUE(e.copyBlock(g, 1, 1).ok());
    for (uint32_t block : {0u, 1u}) {
      ASSERT_TRUE(e.saveBlock(g, block, seen).ok());
      EXPECT_EQ(seen, ones) << block;
    }
    std::string bytes = std::to_string(ones.size());
    EXPECT_EQ(e.copyBlock(g, 0, options.kvBlocks[g]).message(), "no KV block " + std::to_string(options.kvBlocks[g]) +
                                                                    " of " + bytes + " bytes in group " +
                                                                    std::to_string(g));
    EXPECT_EQ(e.copyBlock(g, 99, 0).message(), "no KV block 99 of " + bytes + " bytes in group " + std::to_string(g));
  }
  EXPECT_EQ(e.copyBlock(2, 0, 1).message(), "no KV group 2");
  EXPECT_EQ(e.copyEntry(0, 0, 16, 1, 3).message(), "no KV entries 16 and 3 in a block of group 0");
  Program old = (*loaded)->program();
  old.kvPlanes.clear();
  EXPECT_EQ(checkEntry(old, 0, 0, 0).message(), "this artifact does not say where a KV entry lies: compile the model again");
}

TEST(Device, WhatKernelsDoNotKnowIsRefused) {
  Program program = toyProgram({});
  std::vector<int32_t> none{-1, -1}, some{-1, 3};
  uint32_t mask = 1;
  LatheStep step{};
  step.size = sizeof step;
  step.rows = 2;
  step.adapter = step.chosenBy = none.data();
  EXPECT_EQ(checkStep(program, step, true).message(), "");
  step.adapter = some.data();
  EXPECT_EQ(checkStep(program, step, true).message(), "row 1 has adapter 3, and kernels know no adapters");
  EXPECT_EQ(checkStep(program, step, false).message(), ""); // a head has no rows of its own
  step.adapter = nullptr;
  step.chosenBy = some.data();
  EXPECT_EQ(checkStep(program, step, true).message(), "row 1 takes the choice of row 3 of the step before, which kernels do not know");
  step.size = offsetof(LatheStep, chosenBy); // of a caller that is older than the field
  EXPECT_EQ(checkStep(program, step, true).message(), "");
  step.bitmask = &mask;
  for (bool rowsRun : {false, true})
    EXPECT_EQ(checkStep(program, step, rowsRun).message(), "the step has a mask of allowed tokens, which kernels do not know: the sampler applies it");
}

TEST(Device, TreesOfAStepAreChecked) {
  Program program = toyProgram({});
  // Rows of two sequences; in the first a tree on row 1.
  std::vector<int32_t> position{4, 5, 6, 6, 7, 9}, slot{4, 5, 6, 7, 8, 9}, sequence{0, 0, 0, 0, 0, 1}, parent{-1, -1, 1, 1, 3, -1};
  auto message = [&] {
    LatheStep step{};
    step.size = sizeof step;
    step.rows = static_cast<uint32_t>(parent.size());
    step.position = position.data();
    step.slot = slot.data();
    step.sequence = sequence.data();
    step.parent = parent.data();
    return checkParents(program, step).message();
  };
  EXPECT_EQ(message(), "");
  auto with = [&](std::vector<int32_t> &list, size_t at, int32_t value) {
    int32_t before = std::exchange(list[at], value);
    std::string text = message();
    list[at] = before;
    return text;
  };
  const std::string parents = ": expected as parent an earlier row of its sequence, of a smaller slot and the position before, found row ";
  EXPECT_EQ(with(parent, 4, 4), "row 4" + parents + "4");
  EXPECT_EQ(with(parent, 4, 100), "row 4" + parents + "100");
  EXPECT_EQ(with(parent, 5, 4), "row 5" + parents + "4");
  EXPECT_EQ(with(slot, 4, 7), "row 4" + parents + "3");
  EXPECT_EQ(with(position, 4, 8), "row 4" + parents + "3");
  EXPECT_EQ(with(slot, 4, 70), "row 4: expected a slot at most 64 behind its root's, found 65");
  position[2] = 5;
  EXPECT_EQ(with(parent, 2, 0), "row 3: expected one draft tree of a sequence, found another at row 2");
  position[2] = 6;
  program.kvPlanes.clear();
  EXPECT_EQ(message(), "row 2 has a parent, and this artifact's kernels know no draft trees: compile the model again");
}
