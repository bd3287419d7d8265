//===- NoAllocationTest.cpp - a step makes no heap allocation ------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "../CountAllocations.h"
#include "ToyArtifact.h"
#include "runtime/engine/Engine.h"
#include "runtime/engine/EngineCore.h"
#include <cstdio>

using namespace lathe;
using namespace lathe::runtime;
using namespace lathe::test;

namespace {

class Quiet : public RequestListener {
public:
  void piece(uint32_t, const Sample &sample, std::string_view text) override {
    ++tokens;
    bytes += text.size() + sample.top.size();
  }
  void choiceDone(uint32_t, EndReason, std::string_view, int32_t) override {}
  void finished(const RequestUsage &, const Status &) override {}
  size_t tokens = 0, bytes = 0;
};

/// The serving engine once all prompts are computed: pages come and go, prefixes are published, text is matched, logits are
/// penalised, candidates cut, likeliest tokens listed. |program|: the artifact's draft program drafts; |heads|: it is so many heads
/// over hidden rows; |rule|: when drafts count.
bool steadyEngine(bool program, uint32_t heads = 0, Acceptance rule = Acceptance::exact) {
  ToyOptions toy;
  toy.words = true;
  toy.maxSeq = 4096;
  toy.draft = program && !heads;
  toy.heads = heads;
  if (!writeToyArtifact("no-allocation-engine.lathe", toy).ok()) return false;
  auto loaded = LoadedArtifact::load("no-allocation-engine.lathe");
  auto words = loaded.ok() ? TextModel::create(**loaded) : Result<TextModel>(loaded.status());
  if (!words.ok()) return false;
  RequestEngineOptions options;
  options.threads = 2;
  options.maxSequences = 8;
  options.memoryBudget = 1 << 30;
  options.measureSteps = false;
  auto made = EngineCore::create(*loaded, std::make_shared<TextModel>(*std::move(words)), options, nullptr, nullptr, {});
  if (!made.ok()) return false;
  EngineCore &core = **made;
  core.draftAlways = program;
  auto quiet = std::make_shared<Quiet>();
  for (RequestId id = 1; id <= 6; ++id) {
    Request r;
    for (size_t t = 0; t < 10 * id; ++t)
      r.prompt.push_back(static_cast<int32_t>((t * id) % 40));
    r.choices = id == 3 ? 3 : 1;
    r.ignoreEnd = true;
    r.stops = {"never said", "nor this"};
    r.sampling.temperature = id % 2 ? 0.8f : 0;
    r.sampling.topP = id == 5 ? 0.9f : 1;
    r.sampling.topK = id == 4 ? 7 : 0;
    r.sampling.frequencyPenalty = id > 4 ? 0.3f : 0;
    r.sampling.logprobs = id > 2 ? 3 : -1;
    if (id > 1 && id < 6) r.speculate = id == 3 ? Speculation::suffix : Speculation::automatic;
    if (program) r.speculate = Speculation::draft;
    r.acceptance = rule;
    if (id == 2) r.sampling.logitBias = {{5, 40.0f}, {6, 40.0f}}; // says little else: drafts are right
    core.add(id, std::move(r), quiet, core.now());
  }
  for (int i = 0; i < 60; ++i)
    core.step();
  size_t before = quiet->tokens;
  counting = true;
  for (int i = 0; i < 100; ++i)
    core.step();
  counting = false;
  SpeculationStats drafts = core.stats().speculation;
  std::printf("engine: %zu tokens, %d allocations, %llu drafts, %llu accepted\n", quiet->tokens - before, allocations.load(),
              static_cast<unsigned long long>(drafts.draftedAll()), static_cast<unsigned long long>(drafts.acceptedAll()));
  return quiet->tokens - before > 800 && allocations == 0 && drafts.acceptedAll() > 0;
}

} // namespace

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
  ok &= rows == 800 && allocations == 0;
  return ok && steadyEngine(false) && steadyEngine(true) && steadyEngine(true, 3) && steadyEngine(true, 3, Acceptance::rejection) &&
                 steadyEngine(false, 0, Acceptance::typical)
             ? 0
             : 1;
}
