//===- CompareHeads.cpp - a draft over hidden rows against the interpreter ----===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
//   CompareHeads [--device D] ARTIFACT PREFIX TOLERANCE TOKEN...
//
// PREFIX0.f32, PREFIX1.f32, ... hold float32 logits [tokens][vocabulary] of each head (lathe-interp --function draft --result 0 --raw, ...). The step
// runs all tokens in one, its hidden rows are given to the draft, whose results are asked for in another order, and each head must say what the file says:
// max |a - b| / max |b| at most TOLERANCE. A draft over features (EAGLE) is given those of the token before.
//===----------------------------------------------------------------------===//
#include "TestDevice.h"
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

using namespace lathe;
using namespace lathe::runtime;

static int fail(const std::string &message) {
  std::fprintf(stderr, "error: %s\n", message.c_str());
  return 2;
}

/// Runs an entry and waits.
static Status run(Executable &executable, EntryKind kind, const LatheStep &step) {
  LATHE_ASSIGN_OR_RETURN(Ticket ticket, executable.submit(kind, step));
  return executable.wait(ticket);
}

int main(int argc, char **argv) {
  std::unique_ptr<Device> device = takeDevice(argc, argv);
  if (argc < 5) return fail("usage: CompareHeads [--device D] ARTIFACT PREFIX TOLERANCE TOKEN...");
  auto loaded = LoadedArtifact::load(argv[1], loadFor(*device));
  if (!loaded.ok()) return fail(loaded.status().message());
  const Program &p = (*loaded)->program();
  std::vector<int32_t> tokens, positions, sequence, table, outRows;
  for (int i = 4; i < argc; ++i) {
    positions.push_back(int32_t(tokens.size()));
    tokens.push_back(std::atoi(argv[i]));
  }
  uint32_t n = uint32_t(tokens.size());
  if (!p.draftInputStride || n > p.maxRows) return fail("expected a draft that takes rows, and at most " + std::to_string(p.maxRows) + " tokens");
  sequence.assign(n, 0);
  ExecutableOptions options{2, false, {}};
  for (const KVGroup &group : p.kvGroups)
    options.kvBlocks.push_back((n + group.pageTokens - 1) / group.pageTokens);
  for (int32_t b = 0; b < int32_t(n); ++b)
    table.push_back(b);
  std::vector<const int32_t *> tables(p.kvGroups.size(), table.data());
  std::vector<uint32_t> strides(options.kvBlocks);
  auto executable = device->prepare(*loaded, options);
  if (!executable.ok()) return fail(executable.status().message());
  LatheStep step{};
  step.size = sizeof step;
  step.rows = n;
  step.sequences = 1;
  step.token = tokens.data();
  step.position = step.slot = positions.data();
  step.sequence = sequence.data();
  step.blockTable = tables.data();
  step.tableStride = strides.data();
  if (Status s = run(**executable, EntryKind::step, step); !s.ok()) return fail(s.message());
  std::vector<std::vector<float>> hidden;
  const bool layer = goesOnFromItself(p.draftMethod);
  hidden.resize(n, std::vector<float>(p.draftInputSize)); // what a row of the draft takes
  for (uint32_t r = 0; r < n; ++r) {
    if (!layer) std::copy_n((*executable)->hidden(r), p.hiddenSize, hidden[r].begin());
    for (uint32_t f = 0; layer && r && f < p.draftFeatureSize() / p.hiddenSize; ++f)
      std::copy_n(p.draftFeatures.empty() ? (*executable)->hidden(r - 1) : (*executable)->feature(f, r - 1), p.hiddenSize, hidden[r].begin() + (1 + f) * p.hiddenSize);
  }
  if (layer && n > p.maxOutRows) return fail("expected at most " + std::to_string(p.maxOutRows) + " tokens");

  std::vector<std::vector<float>> want(p.draftHeads());
  for (uint32_t h = 0; h < p.draftHeads(); ++h) {
    std::ifstream file(argv[2] + std::to_string(h) + ".f32", std::ios::binary);
    std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
    if (bytes.size() != size_t(n) * p.draftVocabulary() * 4) return fail(argv[2] + std::to_string(h) + ".f32: expected " + std::to_string(size_t(n) * p.draftVocabulary() * 4) + " bytes, found " + std::to_string(bytes.size()));
    want[h].resize(bytes.size() / 4);
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char *>(want[h].data()));
  }
  double worst = 0, largest = 0;
  for (uint32_t first = 0; first < n; first += p.maxOutRows) {
    uint32_t count = std::min(p.maxOutRows, n - first);
    LatheStep draft = step;
    draft.rows = draft.outRows = count;
    outRows.clear();
    for (uint32_t r = 0; r < count; ++r) {
      outRows.push_back(int32_t(count - 1 - r));
      if (Status s = (*executable)->setDraftInput(r, hidden[first + r]); !s.ok()) return fail(s.message());
    }
    draft.outRow = outRows.data();
    for (EntryKind kind : {EntryKind::draft, EntryKind::draftHead})
      if (Status s = run(**executable, kind, draft); !s.ok()) return fail(s.message());
    for (uint32_t h = 0; h < p.draftHeads(); ++h)
      for (uint32_t r = 0; r < count; ++r) {
        const float *found = (*executable)->draftLogits(r, h), *reference = want[h].data() + size_t(first + count - 1 - r) * p.draftVocabulary();
        for (uint32_t v = 0; v < p.draftVocabulary(); ++v) {
          double difference = std::fabs(double(found[v]) - reference[v]);
          worst = std::isnan(difference) ? INFINITY : std::max(worst, difference);
          largest = std::max(largest, std::fabs(double(reference[v])));
        }
      }
  }
  double error = worst / largest, tolerance = std::atof(argv[3]);
  std::printf("%s: %u heads, %u rows, largest difference %.2e of the largest logit (limit %.0e)\n", argv[1], p.draftHeads(), n, error, tolerance);
  return error <= tolerance ? 0 : 1;
}
