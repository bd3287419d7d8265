//===- ExactnessFuzz.cpp - promise P1, as bits -------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
//   ExactnessFuzz [--device D] SEED TRIALS ARTIFACT...
//
// The artifacts are one model compiled with different pages. Reference: each sequence alone, one thread, one step for the
// whole of it, the first artifact, its avx2 code. Every trial mixes artifact, code variant, thread count, chunk size, placement of
// KV blocks, NaN in free blocks, the order and the pieces in which sequences arrive, rollbacks, and draft trees in which the text is one path
// of several (it goes on from the path that is kept); the logits of every
// row must have the reference's bits. On a GPU or the emulator: one code variant, shorter sequences.
//===----------------------------------------------------------------------===//
#include "TestDevice.h"
#include "runtime/engine/Engine.h"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

using namespace lathe;
using namespace lathe::runtime;

namespace {

using Rng = std::mt19937_64;
int pick(Rng &rng, int low, int high) { return low + int(rng() % uint64_t(high - low + 1)); }

struct Setting {
  std::string artifact, variant;
  EngineOptions options;
  bool megakernel = false;
};

std::string describe(const Setting &s) {
  char text[300];
  std::snprintf(text, sizeof text, "%s, %s%s, %u threads, chunks of %u, blocks %s", s.artifact.c_str(), s.variant.c_str(), s.megakernel ? " megakernel" : "", s.options.threads,
                s.options.chunkRows, s.options.shuffleBlocks ? "shuffled" : "in order");
  return text;
}

std::unique_ptr<Device> device, together; ///< |together|: with megakernels, or none

std::unique_ptr<Engine> open(const Setting &s) {
  auto loaded = LoadedArtifact::load(s.artifact, loadFor(*device, s.variant));
  if (!loaded.ok()) {
    std::fprintf(stderr, "error: %s\n", loaded.status().message().c_str());
    std::exit(2);
  }
  auto engine = Engine::create(*loaded, s.options, s.megakernel ? together.get() : device.get());
  if (!engine.ok()) {
    std::fprintf(stderr, "error: %s\n", engine.status().message().c_str());
    std::exit(2);
  }
  return std::move(*engine);
}

bool supported(const std::string &artifact, const std::string &variant) { return LoadedArtifact::load(artifact, {.variant = variant}).ok(); }

void check(const Status &status, const Setting &setting) {
  if (status.ok()) return;
  std::fprintf(stderr, "error: %s (%s)\n", status.message().c_str(), describe(setting).c_str());
  std::exit(2);
}

/// A random draft tree: a beginning of |text| is one path of it, all else is made up.
struct Tree {
  std::vector<int32_t> tokens, parents;
  std::vector<uint32_t> text; ///< the rows of the path that is the text's
  size_t work = 0;

  Tree(Rng &rng, std::span<const int32_t> next, uint32_t count, uint32_t vocabulary) {
    const bool deep = rng() % 2;
    for (uint32_t i = 0; i < count; ++i) {
      if (i && (text.size() == next.size() || rng() % 2)) { // a wrong guess behind any row, or the newest ones
        uint32_t back = deep ? uint32_t(pick(rng, 1, int(std::min(i, 2u)))) : uint32_t(pick(rng, 1, int(i)));
        parents.push_back(int32_t(i - back));
        tokens.push_back(int32_t(rng() % vocabulary));
        continue;
      }
      parents.push_back(i ? int32_t(text.back()) : -1);
      tokens.push_back(next[text.size()]);
      text.push_back(i);
    }
  }
  std::vector<uint32_t> pathTo(uint32_t row) const {
    std::vector<uint32_t> path{row};
    while (parents[path.back()] >= 0)
      path.push_back(uint32_t(parents[path.back()]));
    std::reverse(path.begin(), path.end());
    return path;
  }
};

} // namespace

int main(int argc, char **argv) {
  device = takeDevice(argc, argv);
  if (testPlan == DevicePlan::megakernel) together = std::exchange(device, namedDevice(testDevice));
  const bool cpu = device->gpuCode().empty();
  if (argc < 4) {
    std::fprintf(stderr, "usage: ExactnessFuzz [--device D] SEED TRIALS ARTIFACT...\n");
    return 2;
  }
  uint64_t seed = std::strtoull(argv[1], nullptr, 10);
  int trials = std::atoi(argv[2]);
  std::vector<std::string> artifacts(argv + 3, argv + argc);
  Rng rng(seed);

  std::vector<std::string> variants;
  if (!cpu) variants.push_back(device->gpuCode());
  for (const char *v : {"avx2", "avx512vnni", "avx512bf16", "amx"})
    if (cpu && supported(artifacts[0], v)) variants.push_back(v);
  if (variants.empty()) {
    std::fprintf(stderr, "error: %s\n", LoadedArtifact::load(artifacts[0], {}).status().message().c_str());
    return 2;
  }
  Setting base{artifacts[0], variants[0], {}, false};
  base.options.threads = 1;
  auto reference = open(base);
  const uint32_t vocabulary = reference->program().vocabulary, maxRows = reference->program().maxRows;
  const uint32_t context = std::min(reference->program().maxSeq, cpu ? 700u : 40u);

  // Lengths around pages, row blocks and attention chunks.
  const int lengths[] = {1, 2, 3, 15, 16, 17, 31, 33, 64, 65, 100, 255, 256, 257, 300, 513, 600};
  const int count = cpu ? 32 : 10;
  std::vector<std::vector<int32_t>> texts(count);
  std::vector<std::vector<float>> expected(count);
  // The reference's rows are all kept: 0.8 GB of them at most, however large the vocabulary. Every sequence keeps a token.
  size_t room = std::max<size_t>(count, (size_t(3) << 28) / (size_t(vocabulary) * sizeof(float)));
  for (int i = 0; i < count; ++i) {
    int length = i < int(std::size(lengths)) && cpu ? lengths[i] : pick(rng, 1, 40);
    texts[i].resize(std::min<size_t>(std::min<uint32_t>(length, context), room - size_t(count - 1 - i)));
    room -= texts[i].size();
    for (int32_t &token : texts[i])
      token = int32_t(rng() % vocabulary);
    // One sequence shares a prefix with the one before, so that only its own tokens differ.
    if (i % 4 == 3) std::copy_n(texts[i - 1].begin(), std::min(texts[i].size(), texts[i - 1].size()) / 2, texts[i].begin());
    auto id = reference->open();
    check(id.status(), base);
    Work work{*id, texts[i], OutputRows::all};
    expected[i].resize(texts[i].size() * vocabulary);
    check(reference->forward({&work, 1}, [&](size_t, size_t token, std::span<const float> row) {
      std::copy(row.begin(), row.end(), expected[i].begin() + token * vocabulary);
      return Status();
    }), base);
    reference->close(*id);
    for (float v : expected[i])
      if (!(v - v == 0)) {
        std::fprintf(stderr, "error: the reference has a logit that is not finite, sequence %d\n", i);
        return 2;
      }
  }

  /// The reference's logits behind |text|.
  auto logitsBehind = [&](std::span<const int32_t> text) {
    std::vector<float> out;
    auto id = reference->open();
    check(id.status(), base);
    Work work{*id, text, OutputRows::last};
    check(reference->forward({&work, 1}, [&](size_t, size_t, std::span<const float> row) {
      out.assign(row.begin(), row.end());
      return Status();
    }), base);
    reference->close(*id);
    return out;
  };

  uint64_t rows = 0, treeRows = 0, moved = 0, chosen = 0;
  std::map<std::string, int> seen;
  std::vector<int> taken(artifacts.size());
  for (int trial = 0; trial < trials; ++trial) {
    const size_t artifact = rng() % artifacts.size();
    ++taken[artifact];
    Setting s{artifacts[artifact], variants[rng() % variants.size()], {}, together && trial % 2 == 0};
    const uint32_t threadChoices[] = {1, 2, 3, 7};
    const int batch = trial % 3 == 0 ? pick(rng, 1, 3) : pick(rng, 4, count);
    s.options.threads = threadChoices[rng() % 4];
    s.options.chunkRows = rng() % 3 ? uint32_t(pick(rng, 1, int(maxRows))) : uint32_t(pick(rng, 1, 20));
    s.options.shuffleBlocks = rng() % 4 ? rng() | 1 : 0;
    s.options.poisonFreeBlocks = true;
    s.options.maxSequences = batch;
    s.options.contextTokens = context;
    auto engine = open(s);
    ++seen[s.variant + (s.megakernel ? " megakernel" : "")];

    std::vector<int> which(count);
    for (int i = 0; i < count; ++i)
      which[i] = i;
    std::shuffle(which.begin(), which.end(), rng);
    which.resize(batch);
    std::vector<SequenceId> ids;
    for (int i = 0; i < batch; ++i) {
      auto id = engine->open();
      check(id.status(), s);
      ids.push_back(*id);
    }
    // Calls with pieces of some of the sequences until all are through; now and then one is rolled back.
    const int largest = rng() % 2 ? 600 : pick(rng, 1, 40);
    int rollbacks = 6, trees = cpu ? 6 : 2;
    for (;;) {
      std::vector<Work> work;
      std::vector<int> origin;
      std::vector<uint32_t> start;
      std::vector<Tree> grown;
      grown.reserve(batch); // the work holds spans of them
      for (int i = 0; i < batch; ++i) {
        const auto &text = texts[which[i]];
        uint32_t done = engine->length(ids[i]);
        if (done && rollbacks && rng() % 40 == 0) {
          done = engine->truncate(ids[i], uint32_t(rng() % done));
          --rollbacks;
        }
        if (done == text.size() || rng() % 3 == 0) continue;
        if (trees && rng() % 4 == 0 && done < 400) {
          --trees;
          uint32_t room = std::min({s.options.chunkRows, maxRows, context - done, uint32_t(maxTreeSlots) + 1});
          Tree &tree = grown.emplace_back(rng, std::span(text).subspan(done), uint32_t(pick(rng, 1, int(room))), vocabulary);
          tree.work = work.size();
          work.push_back({ids[i], tree.tokens, OutputRows::all, tree.parents});
          origin.push_back(which[i]);
          start.push_back(done);
          continue;
        }
        uint32_t n = std::min<uint32_t>(uint32_t(text.size()) - done, uint32_t(pick(rng, 1, largest)));
        work.push_back({ids[i], std::span(text).subspan(done, n), OutputRows::all});
        origin.push_back(which[i]);
        start.push_back(done);
      }
      if (work.empty()) {
        bool all = true;
        for (int i = 0; i < batch; ++i)
          all &= engine->length(ids[i]) == texts[which[i]].size();
        if (all) break;
        continue;
      }
      std::vector<float> behind; // of a row of a tree that is not in the text
      auto wanted = [&](size_t w, size_t token) {
        const float *want = expected[origin[w]].data() + (start[w] + token) * vocabulary;
        if (auto tree = std::find_if(grown.begin(), grown.end(), [&](const Tree &t) { return t.work == w; }); tree != grown.end()) {
          ++treeRows;
          const auto &text = texts[origin[w]];
          std::vector<int32_t> path(text.begin(), text.begin() + start[w]);
          for (uint32_t step : tree->pathTo(uint32_t(token)))
            path.push_back(tree->tokens[step]);
          if (path.size() <= text.size() && std::equal(path.begin(), path.end(), text.begin())) {
            want = expected[origin[w]].data() + (path.size() - 1) * vocabulary;
          } else {
            behind = logitsBehind(path);
            want = behind.data();
          }
        }
        ++rows;
        return want;
      };
      RowSink logits = [&](size_t w, size_t token, std::span<const float> row) {
        const float *want = wanted(w, token);
        if (std::memcmp(want, row.data(), vocabulary * sizeof(float)) == 0) return Status();
        size_t at = 0;
        while (std::memcmp(want + at, row.data() + at, 4) == 0)
          ++at;
        return makeError(StatusCode::internal, "trial %d: logits of sequence %d position %zu differ first at token %zu: expected %a, found %a", trial, origin[w],
                         start[w] + token, at, want[at], row[at]);
      };
      RowSink largest = [&](size_t w, size_t token, std::span<const float> row) {
        const float *want = wanted(w, token), *best = std::max_element(want, want + vocabulary);
        ++chosen;
        if (row[0] == float(best - want) && std::memcmp(&row[1], best, 4) == 0) return Status();
        return makeError(StatusCode::internal, "trial %d: the largest logit of sequence %d position %zu: expected token %zu with %a, found %a with %a", trial, origin[w],
                         start[w] + token, size_t(best - want), *best, row[0], row[1]);
      };
      // Logits, or only the largest, or one after the other.
      const uint64_t forms = engine->program().choicesStride ? rng() % 3 : 0;
      check(engine->forward(work, forms == 1 ? RowSink() : logits, nullptr, forms == 0 ? RowSink() : largest), s);
      // Of a tree the text stays, or a part of it: what is computed behind it reads entries that were moved.
      for (const Tree &tree : grown) {
        std::vector<uint32_t> path = tree.text;
        path.resize(size_t(pick(rng, 0, int(path.size()))));
        for (uint32_t i = 0; i < path.size(); ++i)
          moved += path[i] != i;
        check(engine->keepPath(work[tree.work].sequence, path), s);
      }
    }
  }
  std::printf("exactness: %d trials, %llu rows bit-equal, %llu of them in trees, %llu by their largest logit, %llu entries moved, variants", trials, (unsigned long long)rows,
              (unsigned long long)treeRows, (unsigned long long)chosen, (unsigned long long)moved);
  for (auto &[name, n] : seen)
    std::printf(" %s x%d", name.c_str(), n);
  std::printf(", artifacts");
  for (int n : taken)
    std::printf(" x%d", n);
  std::printf("\n");
  return 0;
}
