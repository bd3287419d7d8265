//===- ProgramCodecTest.cpp -----------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "lathe/artifact/ProgramCodec.h"
#include "SampleProgram.h"
#include <functional>
#include <gtest/gtest.h>
#include <random>
#include <utility>

using namespace lathe;
using namespace lathe::test;

static void addDraft(Program &p) {
  p.draftMaxSeq = 8, p.draftLogitsStride = 64;
  p.entries.push_back({"draft", {{8, 0, 1}}});
  p.entries.push_back({"draft_head", p.entries[1].buckets});
}

TEST(ProgramCodec, RoundTripKeepsEveryField) {
  Program p = sampleProgram();
  auto bytes = encodeProgram(p);
  auto back = decodeProgram(bytes);
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(encodeProgram(*back), bytes);
  EXPECT_EQ(back->launches[1].itemKind, ItemKind::perRowChunk);
  EXPECT_EQ(back->launches[1].shareKind, ShareKind::interleaved);
  EXPECT_EQ(back->launches[0].bytesPerRow, 300u);
  EXPECT_EQ(back->launches[0].macsPerEntry, 500u);
  EXPECT_EQ(back->launches[0].arithmetic, Arithmetic::f32);
  EXPECT_EQ(back->entries[0].buckets[1].launchCount, 2u);
  EXPECT_EQ(back->kvGroups[1].window, 32u);
  EXPECT_EQ(back->names[1], "blk.0.attn");
  EXPECT_EQ(back->kvPlanes[0].pieceStride, 32u);
  EXPECT_TRUE(validateProgram(*back, sampleWeightBytes).ok());
}

/// A draft of three heads over rows of the step.
static void addHeads(Program &p) {
  addDraft(p);
  p.draftMethod = DraftMethod::medusa;
  p.draftInputSize = p.hiddenSize, p.draftInputStride = 32;
  p.draftInputOffset = 64, p.draftMoreLogits = {128, 192};
}

TEST(ProgramCodec, HeadsAreOnlyInAProgramThatHasThem) {
  Program p = sampleProgram();
  size_t plain = encodeProgram(p).size();
  addDraft(p);
  size_t draft = encodeProgram(p).size();
  addHeads(p = sampleProgram());
  auto bytes = encodeProgram(p);
  EXPECT_EQ(bytes.size(), draft + 4 + 8 + 4 + 4 + 4 + 2 * 8);
  EXPECT_GT(draft, plain);
  auto back = decodeProgram(bytes);
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(back->draftMethod, DraftMethod::medusa);
  EXPECT_EQ(back->draftInputOffset, 64u);
  EXPECT_EQ(back->draftInputStride, 32u);
  EXPECT_EQ(back->draftInputSize, p.hiddenSize);
  EXPECT_EQ(back->draftMoreLogits, (std::vector<uint64_t>{128, 192}));
  EXPECT_EQ(back->draftHeads(), 3u);
  EXPECT_EQ(encodeProgram(*back), bytes);
  EXPECT_TRUE(validateProgram(*back, sampleWeightBytes).ok());
  // A CPU's program without trees writes the lists in between, empty.
  p.kvPlanes.clear();
  back = decodeProgram(encodeProgram(p));
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(back->draftMoreLogits.size(), 2u);
}

static void addChoices(Program &p) {
  p.choicesOffset = 128, p.choicesStride = 16;
  p.entries.push_back({"head_choices", p.entries[1].buckets});
}

TEST(ProgramCodec, ChoicesAreOnlyInAProgramThatHasThem) {
  Program p = sampleProgram();
  addChoices(p);
  p.kvPlanes.clear(); // the lists in between are there, empty
  auto back = decodeProgram(encodeProgram(p));
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(back->choicesOffset, 128u);
  EXPECT_EQ(back->choicesStride, 16u);
  EXPECT_EQ(back->draftInputStride, 0u);
  EXPECT_TRUE(validateProgram(*back, sampleWeightBytes).ok());
  addHeads(p);
  back = decodeProgram(encodeProgram(p));
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(back->choicesStride, 16u);
  EXPECT_EQ(back->draftMoreLogits.size(), 2u);
  p.entries.erase(p.entries.begin() + 2), p.choicesStride = 0;
  EXPECT_EQ(decodeProgram(encodeProgram(p))->choicesStride, 0u);
}

TEST(ProgramCodec, LongListsNeedNoMoreThanTheirBytes) {
  Program p = sampleProgram();
  p.launches.resize(1000, p.launches[0]);
  p.args.resize(1000, p.args[0]);
  p.kvGroups.clear();
  p.kvPlanes.clear();
  p.entries.clear();
  auto back = decodeProgram(encodeProgram(p));
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(back->launches.size(), 1000u);
}

TEST(ProgramCodec, BlocksAreOnlyInAGpusProgram) {
  Program p = sampleProgram();
  p.kvPlanes.clear();
  size_t cpu = encodeProgram(p).size();
  for (size_t i = 0; i < p.kernels.size(); ++i) p.blocks.push_back({uint32_t(32 * (i + 1)), uint32_t(i)});
  auto bytes = encodeProgram(p);
  EXPECT_EQ(bytes.size(), cpu + 4 + 8 * p.blocks.size());
  auto back = decodeProgram(bytes);
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(back->blocks.size(), p.kernels.size());
  EXPECT_EQ(back->blocks.back().threads, 32 * p.kernels.size());
  EXPECT_EQ(encodeProgram(*back), bytes);
}

static void addMegakernels(Program &p) {
  p.kernels.push_back("megakernel_step");
  p.blocks.resize(p.kernels.size(), {128, 0});
  p.megakernels = {{2, 0, 0, 2, {0}}, {2, 0, 1, 3, {1, 0}}};
}

/// Two megakernels of records of 32 + 8 x 1,024 bytes, over the same launches but for the last |fewer|.
static Status tablesOf(uint32_t launches, uint32_t fewer) {
  Program p = sampleProgram();
  addMegakernels(p);
  p.launches.resize(3 + launches, p.launches[0]);
  p.entries[0].buckets = {{1, 3, launches - fewer}, {8, 3, launches}};
  for (Megakernel &m : p.megakernels) m.maxArgs = 1024;
  return validateProgram(p, sampleWeightBytes);
}

// Buckets share launches: what the tables need does not follow from the size of the file.
TEST(ProgramCodec, TablesOfMegakernelsAreBounded) {
  Status most = tablesOf(16320, 0); // 2 x 16,320 x 8,224 bytes
  EXPECT_TRUE(most.ok()) << most.message();
  EXPECT_EQ(tablesOf(16321, 1).message(), "program: megakernel 1: expected tables of at most 268435456 bytes of all, found 268439584");
  EXPECT_EQ(tablesOf(100'000, 0).message(), "program: megakernel 0: expected tables of at most 268435456 bytes of all, found 822400000");
}

TEST(ProgramCodec, MegakernelsAreReadAsTheyWereWritten) {
  for (bool choices : {false, true}) {
    Program p = sampleProgram();
    if (choices) {
      p.choicesOffset = 64, p.choicesStride = 16;
      p.entries.push_back({"head_choices", {{4, 2, 1}}});
    }
    addMegakernels(p);
    auto bytes = encodeProgram(p);
    auto back = decodeProgram(bytes);
    ASSERT_TRUE(back.ok()) << back.status().message();
    ASSERT_EQ(back->megakernels.size(), 2u);
    EXPECT_EQ(back->megakernels[1].kernel, 2u);
    EXPECT_EQ(back->megakernels[1].entry, 0u);
    EXPECT_EQ(back->megakernels[1].bucket, 1u);
    EXPECT_EQ(back->megakernels[1].maxArgs, 3u);
    EXPECT_EQ(back->megakernels[1].bodies, (std::vector<uint32_t>{1, 0}));
    EXPECT_EQ(encodeProgram(*back), bytes);
    EXPECT_EQ(back->choicesStride, choices ? 16u : 0u);
    Status valid = validateProgram(*back, sampleWeightBytes);
    EXPECT_TRUE(valid.ok()) << valid.message();
  }
}

/// A draft that goes on from its own rows, over three of the step, with 5 tokens.
static void addLayer(Program &p) {
  addHeads(p);
  p.draftMethod = DraftMethod::eagle3;
  p.draftMoreLogits.clear();
  p.draftInputSize = 4 * p.hiddenSize, p.draftInputStride = 96;
  p.draftOwnOffset = 128, p.draftFeatures = {0, 64, 128}, p.draftTokens = {0, 2, 3, 5, p.vocabulary - 1};
}

TEST(ProgramCodec, ALayerOverFeaturesIsReadAsItWasWritten) {
  Program p = sampleProgram();
  addLayer(p);
  auto bytes = encodeProgram(p);
  auto back = decodeProgram(bytes);
  ASSERT_TRUE(back.ok()) << back.status().message();
  EXPECT_EQ(back->draftMethod, DraftMethod::eagle3);
  EXPECT_EQ(back->draftOwnOffset, 128u);
  EXPECT_EQ(back->draftFeatures, p.draftFeatures);
  EXPECT_EQ(back->draftTokens, p.draftTokens);
  EXPECT_EQ(back->draftVocabulary(), 5u);
  EXPECT_EQ(back->draftFeatureSize(), 3 * p.hiddenSize);
  EXPECT_EQ(encodeProgram(*back), bytes);
  Status valid = validateProgram(*back, sampleWeightBytes);
  EXPECT_TRUE(valid.ok()) << valid.message();
  for (size_t n = bytes.size() - 60; n < bytes.size(); ++n) EXPECT_FALSE(decodeProgram(std::span(bytes).first(n)).ok()) << n;
}

TEST(ProgramCodec, EveryTruncationIsAnError) {
  Program p = sampleProgram();
  addHeads(p);
  addChoices(p);
  p.blocks.assign(p.kernels.size(), {32, 0});
  p.megakernels = {{1, 0, 0, 2, {0, 1}}};
  auto bytes = encodeProgram(p);
  // Whole programs that have no megakernels, one form of the head, no heads of a draft, know no draft trees either, or are a CPU's.
  p.megakernels.clear();
  size_t choices = encodeProgram(p).size();
  p.choicesStride = 0;
  size_t heads = encodeProgram(p).size();
  p.draftInputStride = 0;
  size_t trees = encodeProgram(p).size();
  p.kvPlanes.clear();
  size_t gpu = encodeProgram(p).size();
  p.blocks.clear();
  size_t cpu = encodeProgram(p).size();
  for (size_t n = 0; n < bytes.size(); ++n) {
    if (n == cpu || n == gpu || n == trees || n == heads || n == choices) continue;
    auto got = decodeProgram(std::span(bytes).first(n));
    ASSERT_FALSE(got.ok()) << n;
    EXPECT_NE(got.status().message().find("the section ends at " + std::to_string(n)), std::string::npos)
        << got.status().message();
  }
  bytes.push_back(0);
  EXPECT_NE(decodeProgram(bytes).status().message().find("expected the section to end at offset"), std::string::npos);
}

TEST(ProgramCodec, UnknownKindIsAnError) {
  Program p = sampleProgram();
  p.args[0].kind = static_cast<ArgKind>(7);
  auto got = decodeProgram(encodeProgram(p));
  ASSERT_FALSE(got.ok());
  EXPECT_NE(got.status().message().find("expected a kind of at most 2 at offset"), std::string::npos);
}

TEST(ProgramCodec, ValidationNamesWhatIsWrong) {
  struct Case {
    const char *expected;
    std::function<void(Program &)> damage;
  } cases[] = {
      {"expected maxRows in 1..65536, found 0", [](Program &p) { p.maxRows = 0; }},
      {"expected vocabulary in", [](Program &p) { p.vocabulary = 0; }},
      {"expected arenaBytes in", [](Program &p) { p.arenaBytes = uint64_t(1) << 50; }},
      {"expected no WEIGHTS beside synthetic weights, found 4096", [](Program &p) { p.syntheticWeightBytes = 9; }},
      {"expected the logits stride to be at least 50, found 49", [](Program &p) { p.logitsStride = 49; }},
      {"logits at offset 7680 with 1024 bytes does not fit the arena", [](Program &p) { p.logitsOffset = 7680; }},
      {"hidden at offset 4100", [](Program &p) { p.hiddenOffset = 4100; }},
      {"expected KV group kind in 0..1, found 2", [](Program &p) { p.kvGroups[0].kind = 2; }},
      {"expected KV window in 1..", [](Program &p) { p.kvGroups[1].window = 0; }},
      {"expected pageTokens in", [](Program &p) { p.kvGroups[1].pageTokens = 0; }},
      {"expected KV layers in", [](Program &p) { p.kvGroups[1].layers = 0; }},
      {"expected blockBytes in", [](Program &p) { p.kvGroups[1].blockBytes = 0; }},
      {"KV plane 2: expected a group below 2, found 2", [](Program &p) { p.kvPlanes[2].group = 2; }},
      {"expected size of a KV plane in 0..1024, found 1025", [](Program &p) { p.kvPlanes[0].headStride = 1025; }},
      {"expected heads of a KV plane in 1..", [](Program &p) { p.kvPlanes[0].heads = 0; }},
      {"expected pieces of a KV plane in 1..", [](Program &p) { p.kvPlanes[0].pieces = 0; }},
      {"KV plane 2: expected it to end within a block of 512 bytes, found 513", [](Program &p) { p.kvPlanes[2].offset = 1; }},
      {"expected a block shape for each of", [](Program &p) { p.blocks.resize(p.kernels.size() + 1); }},
      {"expected a block of whole warps of 32 threads, found 33 threads", [](Program &p) { p.blocks.resize(p.kernels.size(), {33, 0}); }},
      {"expected threads of a block in 32..1024, found 2048", [](Program &p) { p.blocks.resize(p.kernels.size(), {2048, 0}); }},
      {"expected megakernels in a GPU's program only, found 2 in another", [](Program &p) { addMegakernels(p), p.blocks.clear(); }},
      {"megakernel 1: expected a kernel below 3, found 3", [](Program &p) { addMegakernels(p), p.megakernels[1].kernel = 3; }},
      {"megakernel 0: no bucket 2 of entry 0", [](Program &p) { addMegakernels(p), p.megakernels[0].bucket = 2; }},
      {"megakernel 0: no bucket 0 of entry 9", [](Program &p) { addMegakernels(p), p.megakernels[0].entry = 9; }},
      {"megakernel 1: expected ascending entries and buckets, found 0, 0 after 0, 0", [](Program &p) { addMegakernels(p), p.megakernels[1].bucket = 0; }},
      {"expected arguments of a megakernel's launch in 0..1024, found 1025", [](Program &p) { addMegakernels(p), p.megakernels[0].maxArgs = 1025; }},
      {"megakernel 0: expected bodies of kernels below 3, found 7", [](Program &p) { addMegakernels(p), p.megakernels[0].bodies = {7}; }},
      {"megakernel 1: expected every body once, found kernel 1 twice", [](Program &p) { addMegakernels(p), p.megakernels[1].bodies = {1, 0, 1}; }},
      {"megakernel 1: expected launches of at most 2 arguments, found 3 in launch 1", [](Program &p) { addMegakernels(p), p.megakernels[1].maxArgs = 2; }},
      {"expected shared memory of a block in 0..232448, found 232449", [](Program &p) { p.blocks.resize(p.kernels.size(), {64, 232449}); }},
      {"'no such!' is not the name of a kernel", [](Program &p) { p.kernels[0] = "no such!"; }},
      {"argument 0: offset 8192 is outside the arena of 8192 bytes", [](Program &p) { p.args[0].offset = 8192; }},
      {"argument 1: offset 4096 is outside the weights", [](Program &p) { p.args[1].offset = 4096; }},
      {"argument 2: offset 512 is outside the KV block", [](Program &p) { p.args[2].offset = 512; }},
      {"argument 2: expected a KV group below 2, found 2", [](Program &p) { p.args[2].group = 2; }},
      {"launch 0: expected a kernel below 2, found 2", [](Program &p) { p.launches[0].kernel = 2; }},
      {"launch 0: expected a name below 2, found 9", [](Program &p) { p.launches[0].name = 9; }},
      {"launch 2: arguments 1..+3 are outside the list of 3", [](Program &p) { p.launches[2].argCount = 3; }},
      {"launch 1: expected itemRows in 1..", [](Program &p) { p.launches[1].itemRows = 0; }},
      {"launch 1: expected at most 1048576 items", [](Program &p) { p.launches[1].items = ~uint64_t(0); }},
      {"entry 'step' has no bucket", [](Program &p) { p.entries[0].buckets.clear(); }},
      {"expected buckets in ascending order, found 1 after 1", [](Program &p) { p.entries[0].buckets[1].maxRows = 1; }},
      {"entry 'head': launches 2..+2 are outside the list of 3",
       [](Program &p) { p.entries[1].buckets[0].launchCount = 2; }},
      {"the widest bucket has 3 rows, expected maxOutRows = 4",
       [](Program &p) { p.entries[1].buckets[0].maxRows = 3; }},
      {"unknown entry 'tail'", [](Program &p) { p.entries[1].name = "tail"; }},
      {"expected draft mark of a KV group in 0..0, found 1", [](Program &p) { p.kvGroups[1].draft = 1; }},
      {"expected draft mark of a KV group in 1..1, found 0", [](Program &p) { p.draftMaxSeq = 8, p.draftLogitsStride = p.vocabulary, p.kvGroups[0].draft = 1; }},
      {"expected the entries 'draft' and 'draft_head' and draftMaxSeq, or none of them, found draftMaxSeq 8", [](Program &p) { p.draftMaxSeq = 8, p.draftLogitsStride = p.vocabulary; }},
      {"or none of them, found draftMaxSeq 0", [](Program &p) { p.entries.push_back({"draft", p.entries[0].buckets}); }},
      {"draft logits at offset", [](Program &p) { p.draftMaxSeq = 8, p.draftLogitsOffset = p.arenaBytes / 64 * 64, p.draftLogitsStride = p.vocabulary; }},
      {"expected a KV group of the step first, found one of the draft program",
       [](Program &p) { addDraft(p), p.kvGroups[0].draft = p.kvGroups[1].draft = 1; }},
      {"entry 'step': launch 1 uses KV group 1, which is the draft program's", [](Program &p) { addDraft(p), p.kvGroups[1].draft = 1; }},
      {"entry 'draft': expected KV groups of its own or those of the step, found both",
       [](Program &p) {
         addDraft(p), p.kvGroups[1].draft = 1;
         p.args.push_back({ArgKind::kv, 0, 16});
         p.args.push_back({ArgKind::kv, 1, 16});
         p.launches[1].argCount = 2; // the step's attention reads nothing of group 1
         p.launches.push_back({1, 3, 2, ItemKind::perRow, ShareKind::contiguous, 1, 1, 1, 0, 0, 0, 0, 0, 0, Arithmetic::f32});
         p.entries[2].buckets = {{8, 3, 1}};
       }},
      {"expected draftMaxSeq in 0..", [](Program &p) { p.draftMaxSeq = p.maxSeq + 1; }},
      {"expected draftMaxSeq of a draft that takes rows in 1..128, found 0",
       [](Program &p) { p.draftInputSize = p.hiddenSize, p.draftInputStride = 32, p.draftInputOffset = 64; }},
      {"entry 'draft': launch 1 uses KV group 1, expected none of a draft that takes rows",
       [](Program &p) { addHeads(p), p.entries[2].buckets[0].launchCount = 2; }},
      {"entry 'draft': launch 1 uses KV group 1, expected none of a draft that takes rows",
       [](Program &p) { addHeads(p), p.kvGroups[1].draft = 1, p.entries[0].buckets = {{8, 0, 1}}, p.entries[2].buckets[0].launchCount = 2; }},
      {"entry 'draft_head': launch 1 uses KV group 1, expected none of a draft that takes rows",
       [](Program &p) { addHeads(p), p.entries[3].buckets = {{4, 1, 1}}; }},
      {"expected size of the draft's rows in 24..24, found 23", [](Program &p) { addHeads(p), p.draftInputSize = 23; }},
      {"expected the draft input stride to be at least 24, found 8", [](Program &p) { addHeads(p), p.draftInputStride = 8; }},
      {"draft input at offset 8192 with", [](Program &p) { addHeads(p), p.draftInputOffset = p.arenaBytes; }},
      {"draft logits at offset 8128 with", [](Program &p) { addHeads(p), p.draftMoreLogits[1] = 8128; }},
      {"expected further heads of the draft in 0..15, found 16", [](Program &p) { addHeads(p), p.draftMoreLogits.resize(16); }},
      {"expected further heads of the draft in 0..0, found 1", [](Program &p) { addDraft(p), p.draftMoreLogits = {0}; }},
      {"expected a draft method that takes rows, found 0", [](Program &p) { addHeads(p), p.draftMethod = DraftMethod::program; }},
      {"expected a draft method without rows, found 1", [](Program &p) { addDraft(p), p.draftMethod = DraftMethod::medusa; }},
      {"choices at offset 8192 with", [](Program &p) { addChoices(p), p.choicesOffset = 8192; }},
      {"expected the choices stride to be at least 2, found 1", [](Program &p) { addChoices(p), p.choicesStride = 1; }},
      {"expected an entry 'head_choices' and a stride of choices, or neither, found stride 16", [](Program &p) { p.choicesStride = 16; }},
      {"expected an entry 'head_choices' and a stride of choices, or neither, found stride 0", [](Program &p) { addChoices(p), p.choicesStride = 0; }},
      {"expected size of the draft's rows in 96..96, found 48", [](Program &p) { addLayer(p), p.draftInputSize = 48; }},
      {"expected rows of the step that the draft takes in 0..8, found 9", [](Program &p) { addLayer(p), p.draftFeatures.resize(9); }},
      {"expected rows of the step that the draft takes in 0..0, found 1", [](Program &p) { addHeads(p), p.draftFeatures = {0}; }},
      {"rows for the draft at offset 8192 with", [](Program &p) { addLayer(p), p.draftFeatures[2] = 8192; }},
      {"draft's own rows at offset 8192 with", [](Program &p) { addLayer(p), p.draftOwnOffset = 8192; }},
      {"expected token of the draft in 0..", [](Program &p) { addLayer(p), p.draftTokens[1] = p.vocabulary; }},
      {"expected tokens of the draft in 0..0, found 1", [](Program &p) { addHeads(p), p.draftTokens = {1}; }},
      {"expected further heads of the draft in 0..0, found 1", [](Program &p) { addLayer(p), p.draftMoreLogits = {128}; }},
      {"entry 'draft': expected KV groups of its own of a draft that goes on from its own rows, found the step's",
       [](Program &p) { addLayer(p), p.entries[2].buckets[0].launchCount = 2; }},
      {"entry 'step' is there twice", [](Program &p) { p.entries[1].name = "step"; }},
      {"embedding at offset 4160 with", [](Program &p) { p.embeddingStride = 1024, p.embeddingOffset = 4160; }},
      {"expected the embedding stride to be at least 24, found 8", [](Program &p) { p.embeddingStride = 8; }},
      {"expected an entry 'embed' and an embedding stride, or neither, found stride 32",
       [](Program &p) { p.embeddingStride = 32; }},
      {"expected an entry 'embed' and an embedding stride, or neither, found stride 0",
       [](Program &p) { p.entries.push_back({"embed", {{4, 2, 1}}}); }},
      {"entry 'head' is missing", [](Program &p) { p.entries.pop_back(); }},
  };
  for (auto &c : cases) {
    Program p = sampleProgram();
    c.damage(p);
    Status status = validateProgram(p, sampleWeightBytes);
    EXPECT_EQ(status.code(), StatusCode::dataLoss) << c.expected;
    EXPECT_NE(status.message().find(c.expected), std::string::npos) << c.expected << " | " << status.message();
  }
}

TEST(ProgramCodec, RandomDamageNeverCrashes) {
  std::mt19937 random(7);
  auto good = encodeProgram(sampleProgram());
  for (int i = 0; i < 20000; ++i) {
    auto bytes = good;
    for (int n = 1 + random() % 4; n > 0; --n)
      bytes[random() % bytes.size()] = random() % 3 ? random() : 0xff;
    if (auto got = decodeProgram(bytes); got.ok()) (void)validateProgram(*got, sampleWeightBytes).ok();
  }
}
