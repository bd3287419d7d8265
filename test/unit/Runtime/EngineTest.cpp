//===- EngineTest.cpp - batches, chunks, pages, threads: the same bits --===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/engine/Engine.h"
#include "runtime/engine/KVBudget.h"
#include "ToyArtifact.h"
#include <cstring>
#include <gtest/gtest.h>
#include <random>

using namespace lathe;
using namespace lathe::runtime;
using namespace lathe::test;

namespace {

std::vector<int32_t> randomTokens(std::mt19937 &random, size_t n) {
  std::vector<int32_t> tokens(n);
  for (int32_t &t : tokens)
    t = static_cast<int32_t>(random() % toyVocabulary);
  return tokens;
}

std::unique_ptr<Engine> makeEngine(const EngineOptions &options, const ToyOptions &toy = {}) {
  const std::string path = "engine-test.lathe";
  EXPECT_TRUE(writeToyArtifact(path, toy).ok());
  auto loaded = LoadedArtifact::load(path);
  EXPECT_TRUE(loaded.ok()) << loaded.status().message();
  auto engine = Engine::create(*loaded, options);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return *std::move(engine);
}

bool sameBits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

} // namespace

TEST(Engine, LogitsOfAllRowsEqualTheModel) {
  std::mt19937 random(1);
  auto tokens = randomTokens(random, 200);
  auto expected = toyLogits({}, tokens);
  for (uint32_t chunk : {1u, 3u, 16u, 64u}) {
    auto engine = makeEngine({.threads = 2, .chunkRows = chunk, .poisonFreeBlocks = true});
    auto s = engine->open();
    size_t next = 0;
    Work work{*s, tokens, OutputRows::all};
    Status status = engine->forward({&work, 1}, [&](size_t, size_t token, std::span<const float> row) {
      EXPECT_EQ(token, next++);
      EXPECT_TRUE(sameBits(row, expected[token])) << token;
      return Status();
    });
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(next, tokens.size());
    EXPECT_EQ(engine->length(*s), 200u);
  }
}

TEST(Engine, HiddenStatesWithoutLogits) {
  auto engine = makeEngine({.threads = 1});
  auto s = engine->open();
  std::vector<int32_t> tokens = {1, 2, 3};
  Work work{*s, tokens, OutputRows::last};
  int calls = 0;
  ASSERT_TRUE(engine
                  ->forward({&work, 1}, nullptr,
                            [&](size_t w, size_t token, std::span<const float> row) {
                              EXPECT_EQ(w, 0u);
                              EXPECT_EQ(token, 2u);
                              EXPECT_EQ(row.size(), size_t(toyWidth));
                              ++calls;
                              return Status();
                            })
                  .ok());
  EXPECT_EQ(calls, 1);
}

// The seeded fuzz test of P1 on the runtime's side: sequences of random lengths advance in random pieces in random
// company, with threads, pages, chunk sizes and block placement drawn at random.
TEST(Engine, CompanyAndPlacementShowInNoBit) {
  std::mt19937 random(11);
  for (int round = 0; round < 24; ++round) {
    ToyOptions toy;
    const uint32_t pages[] = {16, 32, 64};
    toy.pages[0] = pages[random() % 3];
    toy.pages[1] = pages[random() % 3];
    toy.window = 1 + random() % 60;
    const unsigned threads[] = {1, 2, 3, 7};
    EngineOptions options;
    options.threads = threads[random() % 4];
    options.maxSequences = 1 + random() % 32;
    options.chunkRows = 1 + random() % 64;
    options.shuffleBlocks = random();
    options.poisonFreeBlocks = true;
    auto engine = makeEngine(options, toy);
    struct Sequence {
      SequenceId id;
      std::vector<int32_t> tokens;
      std::vector<std::vector<float>> expected;
      size_t done = 0;
    };
    std::vector<Sequence> sequences;
    for (int turn = 0; turn < 40; ++turn) {
      while (sequences.size() < options.maxSequences && random() % 2) {
        auto tokens = randomTokens(random, 1 + random() % 200);
        auto id = engine->open();
        ASSERT_TRUE(id.ok());
        sequences.push_back({*id, tokens, toyLogits(toy, tokens)});
      }
      std::shuffle(sequences.begin(), sequences.end(), random);
      std::vector<Work> work;
      std::vector<size_t> from;
      for (Sequence &s : sequences) {
        if (random() % 8 == 0 && s.done) { // taken back and said again
          s.done = engine->truncate(s.id, static_cast<uint32_t>(random() % s.done));
          ASSERT_EQ(s.done, engine->length(s.id));
        }
        size_t n = std::min<size_t>(s.tokens.size() - s.done, random() % 3 ? 1 + random() % 4 : 1 + random() % 90);
        work.push_back(
            {s.id, std::span(s.tokens).subspan(s.done, n), random() % 2 ? OutputRows::all : OutputRows::last});
        from.push_back(s.done);
      }
      Status status = engine->forward(work, [&](size_t w, size_t token, std::span<const float> row) {
        const Sequence &s = sequences[w];
        EXPECT_TRUE(sameBits(row, s.expected[from[w] + token])) << "round " << round << " turn " << turn;
        return Status();
      });
      ASSERT_TRUE(status.ok()) << status.message();
      for (size_t i = sequences.size(); i-- > 0;) {
        sequences[i].done = engine->length(sequences[i].id);
        if (sequences[i].done < sequences[i].tokens.size() && random() % 20) continue;
        engine->close(sequences[i].id);
        sequences.erase(sequences.begin() + static_cast<long>(i));
      }
    }
  }
}

TEST(Engine, RefusesWrongRequests) {
  auto engine = makeEngine({.threads = 1, .contextTokens = 32, .maxSequences = 2});
  std::vector<int32_t> tokens = {1, 50}, many(33, 1);
  Work work{0, tokens, OutputRows::last};
  auto message = [&](const Work &w) { return engine->forward({&w, 1}, nullptr).message(); };
  EXPECT_EQ(message(work), "sequence 0 is not open");
  auto s = engine->open();
  ASSERT_TRUE(engine->open().ok());
  EXPECT_EQ(engine->open().status().message(), "2 sequences are open, which is the limit");
  EXPECT_EQ(message(work), "token 1: expected an id in 0..49, found 50");
  EXPECT_EQ(message({*s, many, OutputRows::last}), "expected at most 32 tokens in a sequence, found 33");
  EXPECT_EQ(engine->length(*s), 0u);
  auto artifact = LoadedArtifact::load("engine-test.lathe");
  EXPECT_EQ(Engine::create(*artifact, {.contextTokens = 1000}).status().message(),
            "expected a context of at most 256 tokens, found 1000; compile with '--max-seq 1000'");
  EXPECT_EQ(Engine::create(*artifact, {.maxSequences = 0}).status().message(), "expected 1 to 4096 sequences, found 0");
}

TEST(Engine, ABudgetNamesWhatFits) {
  ToyOptions toy;
  ASSERT_TRUE(writeToyArtifact("engine-test.lathe", toy).ok());
  auto artifact = LoadedArtifact::load("engine-test.lathe");
  const Program &p = (*artifact)->program();
  uint64_t fixed = p.arenaBytes + p.scratchBytes, block = p.kvGroups[0].blockBytes;
  auto tooSmall = Engine::create(*artifact, {.threads = 1, .memoryBudget = fixed + 10 * block});
  // 64 tokens: 4 blocks of 16 and 2 of 32 make 8 of the small ones; 80 need 5 and 3 (of twice the size).
  EXPECT_EQ(tooSmall.status().message(),
            "a memory budget of " + std::to_string(fixed + 10 * block) +
                " bytes cannot hold one sequence of 256 tokens; the longest that fits has 64 tokens");
  auto some = Engine::create(*artifact, {.threads = 1, .maxSequences = 8, .memoryBudget = fixed + 120 * block});
  ASSERT_TRUE(some.ok()) << some.status().message();
  EXPECT_EQ((*some)->availableTokens(), 256u);
}

TEST(Engine, ABudgetHoldsTheDraftProgramToo) {
  // Groups of the draft's own have the tokens of the step's; one block each where it does not run.
  Program p = toyProgram({});
  uint64_t block = p.kvGroups[0].blockBytes, fixed = p.arenaBytes + p.scratchBytes;
  p.kvGroups = {{0, 0, 16, 1, block}, {0, 0, 32, 1, block, 1}};
  p.draftMaxSeq = p.maxSeq;
  KVShape shape{4, 256, 0, 32};
  EXPECT_EQ(kvBlocksFor(p, shape), (std::vector<uint32_t>{64, 1}));
  shape.drafts = true;
  EXPECT_EQ(kvBlocksFor(p, shape), (std::vector<uint32_t>{64, 32}));
  EXPECT_EQ(kvBytesFor(p, shape), 96 * block);
  ASSERT_TRUE(fitBudget(p, fixed + 96 * block, shape).ok());
  EXPECT_EQ(shape.kvTokens, 0u); // all fits
  ASSERT_TRUE(fitBudget(p, fixed + 60 * block, shape).ok());
  EXPECT_LE(kvBytesFor(p, shape), 60 * block);
  EXPECT_GT(kvBytesFor(p, shape), 57 * block);
  KVShape larger = shape;
  EXPECT_EQ(fitBudget(p, fixed + 20 * block, larger).message(),
            "a memory budget of " + std::to_string(fixed + 20 * block) + " bytes cannot hold one sequence of 256 tokens; the longest that fits has 208 tokens");
  // One that reads the step's KV has blocks for what it guesses: two pages of 16, or of 32, a sequence.
  ToyOptions toy;
  toy.draft = true;
  p = toyProgram(toy);
  DraftBlocks tails = draftBlocksFor(p, 4);
  EXPECT_EQ(tails.tails, (std::vector<uint32_t>{8, 8}));
  EXPECT_EQ(tails.sequences, 4u);
  EXPECT_EQ(tails.bytes, 8 * (p.kvGroups[0].blockBytes + p.kvGroups[1].blockBytes));
  EXPECT_EQ(draftBlocksFor(p, 64).sequences, 16u); // at a time
  shape = {4, 256, 0, 32, true};
  uint64_t all = kvBytesFor(p, shape);
  ASSERT_TRUE(fitBudget(p, p.arenaBytes + p.scratchBytes + all + tails.bytes - 1, shape).ok());
  EXPECT_GT(shape.kvTokens, 0u); // a byte too few for all
  EXPECT_TRUE(draftBlocksFor(toyProgram({}), 4).tails.empty());
}

TEST(Engine, CancellingLeavesASoundSequence) {
  auto engine = makeEngine({.threads = 1, .chunkRows = 8});
  auto s = engine->open();
  std::mt19937 random(5);
  auto tokens = randomTokens(random, 40);
  auto expected = toyLogits({}, tokens);
  std::atomic<bool> stop{false};
  engine->cancelOn(&stop);
  Work work{*s, tokens, OutputRows::all};
  Status status = engine->forward({&work, 1}, [&](size_t, size_t token, std::span<const float>) {
    stop = token == 11; // in the second step
    return Status();
  });
  // The flag is up and down again within the step: only what stays up counts.
  EXPECT_TRUE(status.ok()) << status.message();
  engine->truncate(*s, 0);
  status = engine->forward({&work, 1}, [&](size_t, size_t token, std::span<const float>) {
    if (token == 11) stop = true;
    return Status();
  });
  EXPECT_EQ(status.code(), StatusCode::cancelled);
  EXPECT_EQ(engine->length(*s), 16u);
  stop = false;
  Work rest{*s, std::span(tokens).subspan(16), OutputRows::all};
  EXPECT_TRUE(engine
                  ->forward({&rest, 1},
                            [&](size_t, size_t token, std::span<const float> row) {
                              EXPECT_TRUE(sameBits(row, expected[16 + token]));
                              return Status();
                            })
                  .ok());
}

TEST(Engine, AnErrorOfTheSinkEndsTheCall) {
  auto engine = makeEngine({.threads = 1});
  auto s = engine->open();
  std::vector<int32_t> tokens = {1, 2, 3};
  Work work{*s, tokens, OutputRows::all};
  int calls = 0;
  Status status = engine->forward({&work, 1}, [&](size_t, size_t, std::span<const float>) {
    ++calls;
    return Status(StatusCode::cancelled, "enough");
  });
  EXPECT_EQ(status.code(), StatusCode::cancelled);
  EXPECT_EQ(calls, 1);
  engine->close(*s);
}

TEST(Engine, TreesHaveTheBitsOfTheirPaths) {
  std::mt19937 random(5);
  auto text = randomTokens(random, 40);
  auto engine = makeEngine({.threads = 2, .contextTokens = 100, .shuffleBlocks = 3, .poisonFreeBlocks = true});
  auto s = engine->open();
  Work prompt{*s, std::span(text).first(29), OutputRows::none};
  ASSERT_TRUE(engine->forward({&prompt, 1}, nullptr).ok());
  // Two guesses behind the first token, of which the second goes on with the text.
  std::vector<int32_t> tokens{text[29], 5, text[30], 7, text[31], text[32], 9}, parents{-1, 0, 0, 1, 2, 4, 2};
  Work tree{*s, tokens, OutputRows::all, parents};
  EXPECT_EQ(engine->forward(std::vector<Work>{tree, {*s, std::span(text).subspan(33), OutputRows::all}}, nullptr).message(),
            "sequence 0: expected nothing behind its tree in one call, found more work");
  size_t rows = 0;
  Status status = engine->forward({&tree, 1}, [&](size_t, size_t token, std::span<const float> row) {
    std::vector<int32_t> path;
    for (auto at = static_cast<int32_t>(token); at >= 0; at = parents[static_cast<size_t>(at)])
      path.insert(path.begin(), tokens[static_cast<size_t>(at)]);
    path.insert(path.begin(), text.begin(), text.begin() + 29);
    EXPECT_TRUE(sameBits(row, toyLogits({}, path).back())) << token;
    ++rows;
    return Status();
  });
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(rows, 7u);
  Work more{*s, std::span(text).subspan(33), OutputRows::all};
  EXPECT_EQ(engine->forward({&more, 1}, nullptr).message(), "sequence 0 has a tree of which no path was chosen");
  EXPECT_EQ(engine->keepPath(*s, std::vector<uint32_t>{0, 2, 5}).message(), "token 2 of a path: 5 does not follow the one before it in the tree");
  ASSERT_TRUE(engine->keepPath(*s, std::vector<uint32_t>{0, 2, 4, 5}).ok());
  EXPECT_EQ(engine->keepPath(*s, {}).message(), "sequence 0 has no tree to choose from");
  EXPECT_EQ(engine->length(*s), 33u);
  auto expected = toyLogits({}, text);
  ASSERT_TRUE(engine->forward({&more, 1}, [&](size_t, size_t token, std::span<const float> row) {
                      EXPECT_TRUE(sameBits(row, expected[33 + token])) << token;
                      return Status();
                    }).ok());
}

TEST(Engine, RefusesWhatIsNoTree) {
  auto engine = makeEngine({.threads = 1, .contextTokens = 200});
  auto s = engine->open();
  std::vector<int32_t> tokens{1, 2, 3};
  auto refused = [&](std::vector<int32_t> parents) {
    Work work{*s, tokens, OutputRows::all, parents};
    return engine->forward({&work, 1}, nullptr).message();
  };
  EXPECT_EQ(refused({0, 0, 1}), "parent of token 0 of a tree: expected -1, found 0");
  EXPECT_EQ(refused({-1, 0, 2}), "parent of token 2 of a tree: expected an earlier token, found 2");
  EXPECT_EQ(refused({-1, 0, -1}), "parent of token 2 of a tree: expected an earlier token, found -1");
  EXPECT_EQ(refused({-1, 0}).substr(0, 29), "expected a tree of at most 64");
  EXPECT_EQ(engine->length(*s), 0u);
}
