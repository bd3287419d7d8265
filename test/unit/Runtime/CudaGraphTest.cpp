//===- CudaGraphTest.cpp - the CUDA device on a driver library of the test ------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// The whole way from an engine's step to the driver's calls, without a GPU: FakeCuda.cpp runs the toy model's kernels.
//===----------------------------------------------------------------------===//
#include "FakeCuda.h"
#include "ToyArtifact.h"
#include "lathe/artifact/ProgramCodec.h"
#include "runtime/device/gpu/GpuExecutable.h"
#include "runtime/engine/Engine.h"
#include <cstring>
#include <dlfcn.h>
#include <gtest/gtest.h>

using namespace lathe;
using namespace lathe::artifact;
using namespace lathe::runtime;
using namespace lathe::test;

namespace {

const std::string path = "cuda-graph-test.lathe";

FakeCudaState &fake() {
  void *library = dlopen(FAKE_CUDA, RTLD_NOW | RTLD_LOCAL);
  EXPECT_TRUE(library) << dlerror();
  return *reinterpret_cast<FakeCudaState *(*)()>(dlsym(library, "fakeCudaState"))();
}

/// Kernels that wait for the launches before them, or do not; it is the toy's PTX that says so.
/// |bodies|: kernels whose launches a megakernel does in the first bucket of the step.
void writeArtifact(bool waits = false, const std::vector<uint32_t> &bodies = {}) {
  Program p = toyProgram({});
  for (const Launch &l : p.launches) fake().arguments[p.kernels[l.kernel]] = l.argCount + 1;
  fake().bodies.clear();
  if (!bodies.empty()) {
    uint32_t most = 0;
    for (uint32_t b : bodies) {
      fake().bodies.push_back(p.kernels[b]);
      most = std::max(most, fake().arguments[p.kernels[b]] - 1);
    }
    p.megakernels.push_back({uint32_t(p.kernels.size()), 0, 0, most, bodies});
    p.kernels.push_back(fake().megakernel = "megakernel_step_1");
  }
  for (size_t i = 0; i < p.kernels.size(); ++i) p.blocks.push_back({32, 16});
  auto writer = ArtifactWriter::create(path);
  ASSERT_TRUE(writer.ok());
  std::string text = waits ? "toy ptx: griddepcontrol.wait;" : "toy ptx", code = TOY_KERNELS;
  ASSERT_TRUE(writer->addSection(SectionKind::program, Variant::sm_90a, encodeProgram(p)).ok());
  ASSERT_TRUE(writer->addSection(SectionKind::ptx, Variant::sm_90a, {reinterpret_cast<const uint8_t *>(text.data()), text.size()}).ok());
  ASSERT_TRUE(writer->addSection(SectionKind::cubin, Variant::sm_90a, {reinterpret_cast<const uint8_t *>(code.c_str()), code.size() + 1}).ok());
  ASSERT_TRUE(addToySections(*writer, {}, toyProgram({})).ok());
  ASSERT_TRUE(writer->finish().ok());
}

class FakeDevice : public Device {
public:
  DevicePlan plan = DevicePlan::graph;
  const char *name() const override { return "cuda"; }
  std::string gpuCode() const override { return "sm_90a"; }
  Result<std::unique_ptr<Executable>> prepare(std::shared_ptr<LoadedArtifact> artifact, const ExecutableOptions &options) override {
    LATHE_ASSIGN_OR_RETURN(auto driver, makeCudaDriver(FAKE_CUDA));
    ExecutableOptions mine = options;
    mine.plan = plan;
    return prepareOnGpu(std::move(driver), std::move(artifact), mine);
  }
};

struct CudaGraph : ::testing::Test {
  FakeDevice device;
  std::unique_ptr<Engine> engine;
  std::vector<int32_t> tokens;
  std::vector<std::vector<float>> expected;
  SequenceId sequence{};
  size_t done = 0;

  void SetUp() override { open(false, 12040); }
  void open(bool waits, int version, const std::vector<uint32_t> &bodies = {}) {
    engine.reset();
    tokens.clear();
    done = 0;
    auto &state = fake();
    state = {};
    writeArtifact(waits, bodies);
    state.version = version;
    auto loaded = LoadedArtifact::load(path, {.variant = {}, .gpu = device.gpuCode()});
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    EngineOptions options;
    options.chunkRows = 64;
    options.maxSequences = 2;
    auto made = Engine::create(*loaded, options, &device);
    ASSERT_TRUE(made.ok()) << made.status().message();
    engine = *std::move(made);
    for (int i = 0; i < 120; ++i) tokens.push_back((i * i + 7) % toyVocabulary);
    expected = toyLogits({}, tokens);
    sequence = *engine->open();
  }
  /// The next |rows| tokens of the sequence.
  Status run(size_t rows) {
    Work work[] = {{sequence, std::span(tokens).subspan(done, rows), OutputRows::all}};
    size_t at = done;
    Status s = engine->forward(work, [&](size_t, size_t token, std::span<const float> row) {
      EXPECT_EQ(std::memcmp(row.data(), expected[at + token].data(), row.size_bytes()), 0) << at + token;
      return Status();
    });
    if (s.ok()) done += rows;
    return s;
  }
};

TEST_F(CudaGraph, IsMadeOnceForAsManyRows) {
  auto &state = fake();
  for (int i = 0; i < 5; ++i) {
    Status s = run(1);
    ASSERT_TRUE(s.ok()) << s.message();
  }
  const uint64_t captures = state.captures, started = state.started;
  EXPECT_GT(captures, 0u);
  EXPECT_EQ(state.executables, int64_t(captures)); // each is kept
  EXPECT_EQ(state.graphs, 0);
  EXPECT_EQ(state.executed, 5 * started);
  EXPECT_EQ(state.graphLaunches, 5 * captures);
  Status s = run(3); // other blocks, another graph
  ASSERT_TRUE(s.ok()) << s.message();
  EXPECT_GT(state.captures, captures);
  const uint64_t more = state.captures;
  ASSERT_TRUE(run(3).ok() && run(1).ok() && run(3).ok());
  EXPECT_EQ(state.captures, more);
  engine.reset();
  EXPECT_EQ(state.executables, 0);
  EXPECT_EQ(state.memory, 0);
}

TEST_F(CudaGraph, IsNotMadeOfLongSteps) {
  auto &state = fake();
  Status s = run(60);
  ASSERT_TRUE(s.ok()) << s.message();
  const uint64_t captures = state.captures; // the head's: few rows at a time
  s = run(50);
  ASSERT_TRUE(s.ok()) << s.message();
  EXPECT_GT(state.executed, 0u);
  EXPECT_LE(state.captures, captures + 1);
}

TEST_F(CudaGraph, IsNotMadeWhereLaunchesAreStartedOneByOne) {
  device.plan = DevicePlan::launches;
  open(false, 12040);
  const uint64_t captures = fake().captures;
  ASSERT_TRUE(run(1).ok() && run(1).ok());
  EXPECT_EQ(fake().captures, captures);
}

/// Kernels that wait themselves start while the one before runs, in graphs and outside; the first of a sequence does not: before it the step's state
/// is copied.
TEST_F(CudaGraph, LaunchesOverlapWhereKernelsWait) {
  auto &state = fake();
  ASSERT_TRUE(run(1).ok() && run(40).ok());
  EXPECT_EQ(state.overlapping, 0u); // these do not wait
  open(true, 12040);
  ASSERT_TRUE(run(1).ok());
  const uint64_t captured = state.started;
  EXPECT_EQ(state.overlapping, captured - state.captures);
  ASSERT_TRUE(run(40).ok());
  EXPECT_GT(state.overlapping, captured);
  EXPECT_EQ(state.overlapping, state.started - state.firsts.size());
  EXPECT_GT(state.firsts.size(), 1u);
  EXPECT_EQ(state.firsts.find('o'), std::string::npos) << state.firsts;
  open(true, 12020); // its graphs would not keep the overlap
  ASSERT_TRUE(run(1).ok() && run(40).ok());
  EXPECT_GT(state.started, 0u);
  EXPECT_EQ(state.overlapping, 0u);
}

/// Kernels 0, 1 and 2 embed, append and attend; a step launches them in the order 0 1 2 1 2.
TEST_F(CudaGraph, HasOneLaunchOfAMegakernel) {
  auto &state = fake();
  device.plan = DevicePlan::megakernel;
  open(false, 12040, {2, 0, 1});
  Status s = run(1);
  ASSERT_TRUE(s.ok()) << s.message();
  const uint64_t heads = state.started - state.together; // which have no megakernel
  EXPECT_EQ(state.together, 1u);
  EXPECT_EQ(state.executed, 5 + heads);
  EXPECT_EQ(state.captures, heads); // one launch needs no graph
  ASSERT_TRUE(run(1).ok());
  EXPECT_EQ(state.together, 2u);
  EXPECT_EQ(state.executed, 2 * (5 + heads));
  ASSERT_TRUE(run(40).ok()); // a bucket without one
  EXPECT_EQ(state.together, 2u);
  engine.reset();
  EXPECT_EQ(state.memory, 0);
}

TEST_F(CudaGraph, IsCutAtKernelsThatAreNoBodies) {
  auto &state = fake();
  device.plan = DevicePlan::megakernel;
  open(true, 12040, {2, 1}); // what embeds is launched before
  Status s = run(1);
  ASSERT_TRUE(s.ok()) << s.message();
  EXPECT_EQ(state.together, 1u);
  EXPECT_EQ(state.overlapping, 0u); // the one launch before it is the first
  open(true, 12040, {0, 1}); // 0 and 1 together, 2, 1 (one alone is an ordinary launch), 2
  s = run(1);
  ASSERT_TRUE(s.ok()) << s.message();
  EXPECT_EQ(state.together, 1u);
  const uint64_t captures = state.captures;
  EXPECT_TRUE(run(1).ok()); // the graph that was kept, with a megakernel in it
  EXPECT_EQ(state.captures, captures);
  EXPECT_EQ(state.together, 1u);
  EXPECT_EQ(state.overlapping, 3u);
  EXPECT_EQ(state.firsts.find('o'), std::string::npos) << state.firsts;
  device.plan = DevicePlan::graph; // the same file, one by one
  open(true, 12040, {0, 1});
  s = run(1);
  ASSERT_TRUE(s.ok()) << s.message();
  EXPECT_EQ(state.together, 0u);
}

TEST_F(CudaGraph, SaysWhyThereIsNoMegakernel) {
  auto &state = fake();
  device.plan = DevicePlan::megakernel;
  auto message = [&](const std::vector<uint32_t> &bodies) {
    writeArtifact(false, bodies);
    auto loaded = LoadedArtifact::load(path, {.variant = {}, .gpu = device.gpuCode()});
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    return device.prepare(*loaded, {1, false, {4, 2}}).status();
  };
  Status s = message({});
  EXPECT_EQ(s.code(), StatusCode::failedPrecondition);
  EXPECT_NE(s.message().find("the artifact has no megakernels for sm_90a, found kernels to launch one by one; compile with '--megakernel', which warns where it makes none"), std::string::npos) << s.message();
  state.cooperative = 0;
  s = message({0, 1, 2});
  EXPECT_NE(s.message().find("device 'cuda' has no launches of blocks that wait for each other, which megakernels need"), std::string::npos) << s.message();
  state.cooperative = 1, state.resident = 0;
  s = message({0, 1, 2});
  EXPECT_NE(s.message().find("expected a GPU that keeps a block of megakernel 'megakernel_step_1' with 32 threads and 16 bytes of shared memory, found none"), std::string::npos) << s.message();
}

TEST_F(CudaGraph, WeightsGoToTheDeviceOnceAndSayHowFarTheyAre) {
  auto driver = makeCudaDriver(FAKE_CUDA);
  ASSERT_TRUE(driver.ok()) << driver.status().message();
  std::vector<uint8_t> bytes(size_t(130) << 20, 7);
  std::vector<std::pair<uint64_t, uint64_t>> told;
  auto shared = (*driver)->share(bytes, "weights", [&](uint64_t done, uint64_t all) { told.push_back({done >> 20, all >> 20}); });
  ASSERT_TRUE(shared.ok()) << shared.status().message();
  EXPECT_EQ(told, (std::vector<std::pair<uint64_t, uint64_t>>{{0, 130}, {64, 130}, {128, 130}, {130, 130}}));
  uint8_t last = 0;
  ASSERT_TRUE((*driver)->download({&last, 1}, *shared + bytes.size() - 1).ok());
  EXPECT_EQ(last, 7);
}

TEST_F(CudaGraph, OfAFailedLaunchIsForgotten) {
  auto &state = fake();
  state.failStart = 1;
  Status s = run(1);
  EXPECT_NE(s.message().find("starting a kernel failed"), std::string::npos) << s.message();
  EXPECT_EQ(state.graphs + state.executables, 0);
  EXPECT_EQ(state.executed, 0u);
  state.failStart = UINT64_MAX;
  sequence = *engine->open(); // the engine does not know what a failed step has done to the other
  s = run(1);
  EXPECT_TRUE(s.ok()) << s.message();
  state.failInstantiate = true;
  s = run(2);
  EXPECT_NE(s.message().find("making a graph failed: a fake error"), std::string::npos) << s.message();
  EXPECT_EQ(state.graphs, 0);
}

} // namespace
