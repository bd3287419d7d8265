//===- GraphSectionTest.cpp ----------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "lathe/artifact/GraphSection.h"
#include <gtest/gtest.h>

using namespace lathe;

namespace {

GraphSection sample() {
  GraphSection g;
  g.inputs = {{GraphRole::tokens, GraphType::i64, 8, {-1, -1}, "input_ids"},
              {GraphRole::mask, GraphType::i64, 8, {1, -1}, "attention_mask"},
              {GraphRole::past, GraphType::f16, 2, {1, 2, -1, 4}, "past.0", 2, 1},
              {GraphRole::weight, GraphType::f32, 4, {8, 4}, "w", 0, 0, 64}};
  g.outputs = {{GraphRole::logits, GraphType::f32, 4, {-1, -1, 50}, "logits"}, {GraphRole::present, GraphType::f16, 2, {1, 2, -1, 4}, "present.0", 2}};
  g.checks = {"node 'a': expected this"};
  return g;
}

Result<GraphSection> decode(const std::string &text) { return decodeGraphSection({reinterpret_cast<const uint8_t *>(text.data()), text.size()}, 192, 50); }

/// The message of the sample after |change|.
template <typename F>
std::string messageOf(F change) {
  GraphSection g = sample();
  change(g);
  auto back = decode(encodeGraphSection(g));
  return back.ok() ? "ok" : back.status().message();
}

TEST(GraphSection, RoundTripKeepsEveryField) {
  auto back = decode(encodeGraphSection(sample()));
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(encodeGraphSection(*back), encodeGraphSection(sample()));
  EXPECT_EQ(back->inputs[2].peer, 1u);
  EXPECT_EQ(back->inputs[3].offset, 64u);
  EXPECT_EQ(back->checks[0], "node 'a': expected this");
}

TEST(GraphSection, WhatARunReliesOnIsChecked) {
  EXPECT_EQ(messageOf([](GraphSection &g) { g.inputs[3].offset = 65; }), "graph: input 3: expected a weight within WEIGHTS");
  EXPECT_EQ(messageOf([](GraphSection &g) { g.inputs[3].dims = {-1, 4}; }), "graph: input 3: expected known sizes beside the sequence axis");
  EXPECT_EQ(messageOf([](GraphSection &g) { g.inputs[2].peer = 0; }), "graph: input 2: expected a cache result of its type");
  EXPECT_EQ(messageOf([](GraphSection &g) { g.inputs[2].dims[1] = 3; }), "graph: input 2: expected a cache result of its type");
  EXPECT_EQ(messageOf([](GraphSection &g) { g.inputs[2].axis = 1; }), "graph: input 2: expected a sequence axis of unknown size");
  EXPECT_EQ(messageOf([](GraphSection &g) { g.inputs[0].dims = {-1}; }), "graph: input 0: expected integers of rank 2");
  EXPECT_EQ(messageOf([](GraphSection &g) { g.inputs[0].role = GraphRole::logits; }), "graph: input 0: expected the role of an input");
  EXPECT_EQ(messageOf([](GraphSection &g) { g.outputs[0].role = GraphRole::tokens; }), "graph: output 0: expected the role of a result");
  EXPECT_EQ(messageOf([](GraphSection &g) { g.outputs[0].dims[2] = 51; }), "graph: output 0: expected logits of rank 3 over the vocabulary");
  EXPECT_EQ(messageOf([](GraphSection &g) { g.inputs[0].elementBytes = 4; }), "graph: input 0: expected the bytes of an element of its type");
  EXPECT_EQ(messageOf([](GraphSection &g) { g.inputs[3].dims = std::vector<int64_t>(9, 1); }), "graph: input 3: expected at most 8 dimensions");
  EXPECT_EQ(messageOf([](GraphSection &g) { g.inputs[3].dims = {int64_t(1) << 31, int64_t(1) << 31}; }), "graph: input 3: expected at most 2^40 elements");
  EXPECT_EQ(messageOf([](GraphSection &g) { g.inputs[3].dims = {-2}; }), "graph: input 3: expected dimensions of -1 .. 2^31");
  EXPECT_EQ(messageOf([](GraphSection &g) { g.inputs.erase(g.inputs.begin()); }), "graph: expected one tokens, one logits and at most one mask and positions");
}

TEST(GraphSection, WhatIsNoSectionIsRefused) {
  for (const char *text : {"", "{", "[]", "{\"inputs\": 1, \"outputs\": [], \"checks\": []}"})
    EXPECT_EQ(decode(text).status().message(), "graph: expected a JSON object with inputs, outputs and checks");
  EXPECT_EQ(decode("{\"inputs\": [1], \"outputs\": [], \"checks\": []}").status().message(), "graph: input 0: expected an object");
  EXPECT_EQ(decode("{\"inputs\": [{\"role\": \"king\"}], \"outputs\": [], \"checks\": []}").status().message(), "graph: input 0: expected a known role and type");
  EXPECT_EQ(decode("{\"inputs\": [], \"outputs\": [], \"checks\": [1]}").status().message(), "graph: expected checks that are strings");
}

} // namespace
