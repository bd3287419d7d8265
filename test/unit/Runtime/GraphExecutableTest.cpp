//===- GraphExecutableTest.cpp - a general graph as an executable -------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "ToyArtifact.h"
#include "runtime/device/Device.h"
#include "runtime/engine/Engine.h"
#include <algorithm>
#include <gtest/gtest.h>
#include <thread>

using namespace lathe;
using namespace lathe::runtime;
using namespace lathe::test;

namespace {

const std::string path = "graph-test.lathe";

/// Steps of a toy graph, and what it says of their rows.
class GraphExecutableTest : public testing::Test {
protected:
  void open(ToyGraphMode mode = ToyGraphMode::whole) {
    ASSERT_TRUE(writeToyGraph(path, mode).ok());
    auto loaded = LoadedArtifact::load(path);
    ASSERT_TRUE(loaded.ok()) << loaded.status().message();
    auto made = device->prepare(*loaded, {});
    ASSERT_TRUE(made.ok()) << made.status().message();
    graph = *std::move(made);
  }
  /// Message of a step of |tokens| from slot |first| on, "" if it ran.
  std::string step(std::vector<int32_t> tokens, int32_t first, int32_t sequence = 0) {
    std::vector<int32_t> slots(tokens.size()), sequences(tokens.size(), sequence);
    for (size_t i = 0; i < tokens.size(); ++i)
      slots[i] = first + static_cast<int32_t>(i);
    LatheStep s{};
    s.size = sizeof s;
    s.rows = static_cast<uint32_t>(tokens.size());
    s.sequences = 1;
    s.token = tokens.data();
    s.position = s.slot = slots.data();
    s.sequence = sequences.data();
    rows = s.rows;
    auto ticket = graph->submit(EntryKind::step, s);
    return ticket.ok() ? "" : ticket.status().message();
  }
  /// Message of asking for the logits of |row| of the last step, "" if they are those of |tokens|' last.
  std::string head(int32_t row, const std::vector<int32_t> &tokens) {
    LatheStep s{};
    s.size = sizeof s;
    s.rows = rows;
    s.outRows = 1;
    s.outRow = &row;
    auto ticket = graph->submit(EntryKind::head, s);
    if (!ticket.ok()) return ticket.status().message();
    const float *got = graph->logits(0);
    return std::vector<float>(got, got + toyVocabulary) == toyGraphLogits(tokens).back() ? "" : "other logits";
  }
  std::unique_ptr<Device> device = makeCpuDevice();
  std::unique_ptr<Executable> graph;
  uint32_t rows = 0;
};

} // namespace

TEST_F(GraphExecutableTest, PiecesAndReturnsEqualTheModelComputedDirectly) {
  open();
  EXPECT_EQ(step({1, 2, 3}, 0), "");
  EXPECT_EQ(head(2, {1, 2, 3}), "");
  EXPECT_EQ(head(0, {1}), "");
  EXPECT_EQ(step({4}, 3), "");
  EXPECT_EQ(head(0, {1, 2, 3, 4}), "");
  EXPECT_EQ(step({5, 6}, 2), ""); // drops slots 2 and 3
  EXPECT_EQ(head(1, {1, 2, 5, 6}), "");
  EXPECT_GT(graph->memoryBytes(), 4u * 32);
  EXPECT_EQ(step({7}, 0, 1), ""); // another sequence
  EXPECT_EQ(head(0, {7}), "");
  EXPECT_EQ(graph->threads(), 1u);
  EXPECT_TRUE(graph->profile().empty());
}

TEST_F(GraphExecutableTest, StepsThatItCannotTakeAreNamed) {
  open();
  EXPECT_EQ(step({1, 2}, 1), "this artifact holds a general graph and serves one sequence at a time: expected a token at slot 0 or before, or at 0, found slot 1");
  EXPECT_EQ(step({1, 2}, 0), "");
  EXPECT_EQ(step({3}, 2, 1), "this artifact holds a general graph and serves one sequence at a time: expected a token at slot 0 or before, or at 0, found slot 2");
  EXPECT_EQ(step(std::vector<int32_t>(9, 1), 0), "expected 1 to 8 rows in a step, found 9");
  int32_t token[] = {1, 2}, slot[] = {0, 0}, sequence[] = {0, 1};
  LatheStep s{};
  s.rows = 2;
  s.token = token;
  s.position = s.slot = slot;
  s.sequence = sequence;
  EXPECT_EQ(graph->submit(EntryKind::step, s).status().message(),
            "this artifact holds a general graph: expected the next tokens of one sequence in a step, found several sequences or a gap");
  EXPECT_EQ(graph->submit(EntryKind::embed, s).status().message(), "a general graph has no embedding entry");
  for (const Status &status : {graph->saveBlock(0, 0, {}), graph->restoreBlock(0, 0, {}), graph->copyBlock(0, 0, 0), graph->fillBlock(0, 0, 0)})
    EXPECT_EQ(status.message(), "a general graph has one contiguous cache and no KV blocks");
}

TEST_F(GraphExecutableTest, AFailedStepLeavesAnEmptyCache) {
  open();
  EXPECT_EQ(step({1, 2}, 0), "");
  EXPECT_EQ(step({toyGraphBadToken}, 2), "node 'embed': a bad token");
  EXPECT_EQ(step({3}, 2), "this artifact holds a general graph and serves one sequence at a time: expected a token at slot 0 or before, or at 0, found slot 2");
  EXPECT_EQ(step({5, 6}, 0), "");
  EXPECT_EQ(head(1, {5, 6}), "");
}

TEST_F(GraphExecutableTest, WhatTheCodeGivesIsLookedAt) {
  open(ToyGraphMode::lastRow);
  EXPECT_EQ(step({1, 2, 3}, 0), "");
  EXPECT_EQ(head(2, {1, 2, 3}), "");
  EXPECT_EQ(head(1, {1, 2}), "this graph gives logits of a step's last token only: expected row 2, found 1");
  open(ToyGraphMode::stuck);
  EXPECT_EQ(step({1}, 0), "result 'present.0': expected a cache of 1 tokens, found 0");
  open(ToyGraphMode::hungry);
  EXPECT_EQ(step({1}, 0), "not enough memory for a step of the graph");
  open(ToyGraphMode::nameless);
  EXPECT_EQ(step({1}, 0), "the graph failed a check that it does not name");
  open(ToyGraphMode::borrowed); // its memory is neither freed nor written to
  EXPECT_EQ(step({1}, 0), "");
  EXPECT_EQ(step({2, 3}, 1), "");
  EXPECT_EQ(step({4}, 0), "");
  EXPECT_EQ(head(0, {4}), "");
}

// The code keeps its call in a global: two executables of one artifact take turns.
TEST_F(GraphExecutableTest, ExecutablesOfOneArtifactDoNotMeet) {
  ASSERT_TRUE(writeToyGraph(path).ok());
  auto loaded = LoadedArtifact::load(path);
  ASSERT_TRUE(loaded.ok());
  auto work = [&](int32_t salt) {
    auto own = makeCpuDevice();
    auto engine = Engine::create(*loaded, {.maxSequences = 1}, own.get());
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    auto s = (*engine)->open();
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < 20; ++i)
      tokens.push_back((i * 7 + salt) % toyGraphBadToken);
    auto expected = toyGraphLogits(tokens);
    for (size_t i = 0; i < tokens.size(); ++i) {
      Work w{*s, {&tokens[i], 1}, OutputRows::last};
      Status ran = (*engine)->forward({&w, 1}, [&](size_t, size_t, std::span<const float> row) {
        EXPECT_TRUE(std::equal(row.begin(), row.end(), expected[i].begin())) << i;
        return Status();
      });
      ASSERT_TRUE(ran.ok()) << ran.message();
    }
  };
  std::thread other(work, 1);
  work(5);
  other.join();
}

TEST(GraphArtifact, SectionAndCodeHaveToAgree) {
  auto message = [](auto change, const std::vector<uint8_t> &code = toyCode()) {
    GraphSection g = toyGraphSection();
    change(g);
    EXPECT_TRUE(writeToyGraph(path, ToyGraphMode::whole, g, code).ok());
    auto loaded = LoadedArtifact::load(path);
    return loaded.ok() ? "ok" : loaded.status().message();
  };
  const std::string at = "'" + path + "': graph: ";
  EXPECT_EQ(message([](GraphSection &) {}), "ok");
  EXPECT_EQ(message([](GraphSection &g) { g.inputs.pop_back(); }), at + "expected 4 inputs and 2 results, found code with 5 and 2");
  EXPECT_EQ(message([](GraphSection &g) { g.outputs.push_back({}); }), at + "expected 5 inputs and 3 results, found code with 5 and 2");
  EXPECT_EQ(message([](GraphSection &g) { g.inputs[3].dims[0] = 49; }), at + "input 3: expected the element, rank and sizes that the code has");
  EXPECT_EQ(message([](GraphSection &g) { std::swap(g.inputs[0], g.inputs[1]); }), at + "input 0: expected the element, rank and sizes that the code has");
  EXPECT_EQ(message([](GraphSection &g) { g.outputs[1].dims = g.inputs[2].dims = {2, -1, 4}, g.outputs[1].axis = g.inputs[2].axis = 1; }),
            at + "input 2: expected the element, rank and sizes that the code has");
  EXPECT_EQ(message([](GraphSection &g) { g.outputs[0].type = GraphType::f16, g.outputs[0].elementBytes = 2; }),
            at + "output 0: expected the element, rank and sizes that the code has");
  EXPECT_EQ(message([](GraphSection &) {}, {}), "'" + path + "': the artifact has no code for x86-64");
  // Code of an older compiler says nothing of its tensors.
  std::vector<uint8_t> code = toyCode();
  std::string_view name = "lathe_graph_interface";
  // The whole name only: sanitizers add symbols whose names end with it.
  for (auto at = code.begin(); (at = std::search(at, code.end(), name.begin(), name.end())) != code.end(); ++at)
    if (at != code.begin() && at[-1] == 0) *at = 'x';
  EXPECT_EQ(message([](GraphSection &) {}, code), "'" + path + "': 'lathe_graph_interface' is missing in code 'avx2'; compile the model again");
}

// A GPU's program comes with code for the host. Here it is the CPU's, which launches nothing, so that only loading is of interest.
TEST(GraphArtifact, AGpusProgramNeedsCodeForTheHost) {
  auto message = [](const std::vector<uint8_t> &code) {
    EXPECT_TRUE(writeToyGraph(path, ToyGraphMode::whole, toyGraphSection(), code, artifact::Variant::sm_80).ok());
    auto loaded = LoadedArtifact::load(path, {.gpu = "any"});
    if (!loaded.ok()) return loaded.status().message();
    EXPECT_EQ((*loaded)->variant(), artifact::Variant::sm_80);
    EXPECT_EQ((*loaded)->kernels().size(), 1u);
    auto prepared = makeEmulatorDevice()->prepare(*loaded, {});
    return prepared.ok() ? "ok" : prepared.status().message();
  };
  EXPECT_EQ(message(toyCode()), "section 'ptx' for sm_80 is missing");
  EXPECT_EQ(message({}), "'" + path + "': section 'code' for sm_80 is missing");
  std::vector<uint8_t> code = toyCode();
  std::string_view name("\0lathe_graph\0", 13);
  auto at = std::search(code.begin(), code.end(), name.begin(), name.end());
  ASSERT_NE(at, code.end());
  at[1] = 'x';
  // Code with sanitizers looks the name up itself, so that it cannot even be loaded.
  if (std::string said = message(code); !said.starts_with("'" + path + "': cannot load code 'sm_80': "))
    EXPECT_EQ(said, "'" + path + "': kernel 'lathe_graph' is missing in code 'sm_80'");
  // It is no code for a CPU.
  EXPECT_TRUE(writeToyGraph(path, ToyGraphMode::whole, toyGraphSection(), toyCode(), artifact::Variant::sm_80).ok());
  EXPECT_EQ(LoadedArtifact::load(path).status().message(), "'" + path + "': section 'program' is missing: the artifact has no code for x86-64");
}
