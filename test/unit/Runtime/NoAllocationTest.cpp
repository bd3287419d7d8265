//===- NoAllocationTest.cpp - a step makes no heap allocation ------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "ToyArtifact.h"
#include "runtime/engine/Engine.h"
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <new>

static std::atomic<bool> counting{false};
static std::atomic<int> allocations{0};

void *operator new(size_t bytes) {
  if (counting) ++allocations;
  void *memory = std::malloc(bytes ? bytes : 1);
  if (!memory) std::abort();
  return memory;
}
void *operator new[](size_t bytes) { return operator new(bytes); }
void operator delete(void *memory) noexcept { std::free(memory); }
void operator delete[](void *memory) noexcept { std::free(memory); }
void operator delete(void *memory, size_t) noexcept { std::free(memory); }
void operator delete[](void *memory, size_t) noexcept { std::free(memory); }

using namespace lathe;
using namespace lathe::runtime;
using namespace lathe::test;

int main() {
  if (!writeToyArtifact("no-allocation-test.lathe").ok()) return 1;
  auto loaded = LoadedArtifact::load("no-allocation-test.lathe");
  if (!loaded.ok()) return 1;
  auto engine = Engine::create(*loaded, {.threads = 3, .maxSequences = 4});
  if (!engine.ok()) return 1;
  int32_t tokens[100] = {};
  for (int i = 0; i < 100; ++i)
    tokens[i] = i % toyVocabulary;
  Work work[4];
  for (Work &w : work)
    w = {*(*engine)->open(), tokens, OutputRows::all};
  size_t rows = 0;
  RowSink sink = [&](size_t, size_t, std::span<const float>) { return ++rows, Status(); };
  counting = true; // prompts, then decode: pages and window blocks come and go
  bool ok = (*engine)->forward(work, sink).ok();
  for (int i = 0; i < 100; ++i) {
    for (Work &w : work)
      w.tokens = {tokens + i, 1};
    ok &= (*engine)->forward(work, sink).ok();
  }
  counting = false;
  std::printf("%zu rows, %d allocations\n", rows, allocations.load());
  return ok && rows == 800 && allocations == 0 ? 0 : 1;
}
