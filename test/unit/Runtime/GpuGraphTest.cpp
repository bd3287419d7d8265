//===- GpuGraphTest.cpp - what a general graph asks of a GPU ------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// A function in place of compiled code, kernels written by hand, and the emulator.
//===----------------------------------------------------------------------===//
#include "runtime/device/gpu/GpuGraphMemory.h"
#include <cstring>
#include <gtest/gtest.h>

using namespace lathe;
using namespace lathe::runtime;

namespace {

// twice: word i of the third argument becomes twice word i of the second. refuse: check 4 fails.
const char ptx[] = R"(.version 8.0
.target sm_80
.address_size 64
.visible .entry twice(.param .u64 items, .param .u64 from, .param .u64 to, .param .u64 status)
{
  .reg .pred %p; .reg .b32 %r<4>; .reg .b64 %d<10>;
  mov.u32 %r0, %ctaid.x; mov.u32 %r1, %tid.x;
  mul.wide.u32 %d0, %r0, 128; cvt.u64.u32 %d1, %r1; add.s64 %d0, %d0, %d1;
  ld.param.u64 %d2, [items]; setp.ge.u64 %p, %d0, %d2;
  @%p ret;
  ld.param.u64 %d3, [from]; ld.param.u64 %d4, [to]; shl.b64 %d5, %d0, 3;
  add.s64 %d3, %d3, %d5; add.s64 %d4, %d4, %d5;
  ld.global.u64 %d6, [%d3]; add.s64 %d6, %d6, %d6; st.global.u64 [%d4], %d6;
  ret;
}
.visible .entry refuse(.param .u64 items, .param .u64 status)
{
  .reg .b64 %d<2>;
  ld.param.u64 %d0, [status]; mov.u64 %d1, 5; st.global.u64 [%d0], %d1;
  exit;
}
)";

enum class Ask : int64_t { good, refused, unknownKernel, tooMany, outside, hungry };

const int64_t constants[3] = {7, 8, 9};

/// Inputs: an address of 3 words, and what to do. The result is a tensor of 3 words: four times the input, and the constants' middle one added to the first.
void graph(const LatheGraphCall *call) {
  auto *in = static_cast<int64_t *>(call->inputs[0]);
  auto ask = static_cast<Ask>(*static_cast<const int64_t *>(call->inputs[1]));
  auto launch = [&](int64_t kernel, int64_t items, std::initializer_list<const void *> addresses) {
    int64_t words[3] = {items};
    int64_t count = 1;
    for (const void *a : addresses)
      words[count++] = reinterpret_cast<int64_t>(a);
    call->launch(call->context, kernel, 1, items, words, count);
  };
  char *a = static_cast<char *>(call->allocate(call->context, ask == Ask::hungry ? uint64_t(1) << 50 : 24)), *b = static_cast<char *>(call->allocate(call->context, 24));
  if (ask == Ask::refused) launch(1, 1, {});
  if (ask == Ask::unknownKernel) launch(2, 1, {});
  if (ask == Ask::tooMany) launch(0, int64_t(1) << 40, {in, a});
  if (ask == Ask::outside) launch(0, 4, {in, a});
  launch(0, 0, {});
  launch(0, 3, {in, a});
  launch(0, 3, {a, b});
  call->copy(call->context, a, b, 24);
  call->release(call->context, b);
  const void *table = call->constant(call->context, constants, sizeof constants);
  int64_t first = call->read(call->context, a, 8) + call->read(call->context, static_cast<const char *>(table) + 8, 8);
  call->write(call->context, a, 8, first);
  std::memcpy(call->results, &a, 8);
}

std::string run(GraphMemory &memory, Ask ask, std::vector<int64_t> *out = nullptr) {
  const int64_t in[3] = {1, 10, -3}, what = static_cast<int64_t>(ask);
  GraphCall call(memory);
  auto placed = call.place({reinterpret_cast<const uint8_t *>(in), sizeof in});
  if (!placed.ok()) return placed.status().message();
  void *inputs[] = {const_cast<void *>(*placed), const_cast<int64_t *>(&what)};
  void *result = nullptr;
  if (Status s = call.run(graph, inputs, &result, {"c0", "c1", "c2", "c3", "node 'x': expected less"}); !s.ok()) return s.message();
  std::vector<uint8_t> buffer;
  auto bytes = memory.view(result, 24, buffer);
  if (!bytes.ok()) return bytes.status().message();
  out->resize(3);
  std::memcpy(out->data(), *bytes, 24);
  return "";
}

std::unique_ptr<GraphMemory> make(const std::vector<std::string> &kernels = {"twice", "refuse"}, std::string_view code = ptx) {
  auto driver = makeEmulatorDriver(artifact::Variant::sm_80);
  EXPECT_TRUE(driver.ok()) << driver.status().message();
  auto memory = makeGpuGraphMemory(*std::move(driver), code, {}, kernels);
  EXPECT_TRUE(memory.ok()) << memory.status().message();
  return memory.ok() ? *std::move(memory) : nullptr;
}

} // namespace

TEST(GpuGraph, LaunchesReadsAndWrites) {
  auto memory = make();
  ASSERT_TRUE(memory);
  std::vector<int64_t> out;
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(run(*memory, Ask::good, &out), "");
    EXPECT_EQ(out, (std::vector<int64_t>{12, 40, -12}));
  }
}

TEST(GpuGraph, FaultsEndTheCallAndNotTheNext) {
  auto memory = make();
  ASSERT_TRUE(memory);
  EXPECT_EQ(run(*memory, Ask::refused), "node 'x': expected less");
  EXPECT_EQ(run(*memory, Ask::unknownKernel), "expected one of the graph's 2 kernels, found number 2; compile the model again");
  EXPECT_EQ(run(*memory, Ask::tooMany), "expected tensors of at most 274877906816 elements in a graph, found 1099511627776");
  EXPECT_NE(run(*memory, Ask::outside).find("out of bounds"), std::string::npos);
  EXPECT_EQ(run(*memory, Ask::hungry), "not enough memory for a step of the graph");
  std::vector<int64_t> out;
  EXPECT_EQ(run(*memory, Ask::good, &out), "");
  EXPECT_EQ(out, (std::vector<int64_t>{12, 40, -12}));
}

TEST(GpuGraph, DamagedCodeIsRefused) {
  auto driver = makeEmulatorDriver(artifact::Variant::sm_80);
  ASSERT_TRUE(driver.ok());
  auto memory = makeGpuGraphMemory(*std::move(driver), "no ptx", {}, {"twice"});
  EXPECT_FALSE(memory.ok());
}

// The CPU's memory has neither kernels nor another side to read.
TEST(GpuGraph, HostMemoryRefusesWhatIsForGpus) {
  auto memory = makeHostGraphMemory();
  EXPECT_EQ(memory->launch(0, false, 1, {}).status().message(), "a graph for the CPU launches no kernels");
  int64_t value;
  EXPECT_EQ(memory->read(nullptr, 8, value).message(), "a graph for the CPU reads its memory itself");
}
