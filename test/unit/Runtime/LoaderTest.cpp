//===- LoaderTest.cpp -----------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/artifact/Loader.h"
#include "ToyArtifact.h"
#include "lathe/artifact/ProgramCodec.h"
#include "runtime/artifact/CpuFeatures.h"
#include <cmath>
#include <fstream>
#include <gtest/gtest.h>

using namespace lathe;
using namespace lathe::artifact;
using namespace lathe::runtime;
using namespace lathe::test;

namespace {

const std::string path = "loader-test.lathe";

/// Writes an artifact with |program| and |code|, and expects an error with |text|.
void expectRefused(const Program &program, std::span<const uint8_t> code, const char *text, bool withProgram = true) {
  auto writer = ArtifactWriter::create(path);
  ASSERT_TRUE(writer.ok());
  if (withProgram) ASSERT_TRUE(writer->addSection(SectionKind::program, Variant::none, encodeProgram(program)).ok());
  if (!code.empty()) ASSERT_TRUE(writer->addSection(SectionKind::code, Variant::avx2, code).ok());
  ASSERT_TRUE(writer->beginWeights().ok());
  ASSERT_TRUE(writer->append(std::vector<uint8_t>(8192)).ok());
  ASSERT_TRUE(writer->finish().ok());
  auto got = LoadedArtifact::load(path);
  ASSERT_FALSE(got.ok()) << text;
  EXPECT_NE(got.status().message().find(text), std::string::npos) << got.status().message();
  EXPECT_NE(got.status().message().find("'" + path + "': "), std::string::npos) << got.status().message();
}

} // namespace

TEST(Loader, ResolvesKernels) {
  ASSERT_TRUE(writeToyArtifact(path).ok());
  auto loaded = LoadedArtifact::load(path);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  EXPECT_EQ((*loaded)->kernels().size(), 7u);
  EXPECT_EQ((*loaded)->program().names.back(), "output.largest");
  EXPECT_EQ((*loaded)->weights().size(), 64u + 2 * toyVocabulary * toyWidth * 4);
  auto forced = LoadedArtifact::load(path, {"avx2"});
  ASSERT_TRUE(forced.ok());
  EXPECT_EQ((*forced)->variant(), Variant::avx2);
}

TEST(Loader, RefusesWhatCannotRun) {
  Program p = toyProgram({});
  auto code = toyCode();
  expectRefused(p, code, "section 'program' is missing", false);
  expectRefused(p, {}, "the artifact has no code for x86-64");
  std::vector<uint8_t> text(100, 'x');
  expectRefused(p, text, "code section 'avx2' is not an x86-64 shared object");
  std::vector<uint8_t> cut(code.begin(), code.begin() + 200);
  expectRefused(p, cut, "cannot load code 'avx2'");
  p.kernels[2] = "no_such_kernel";
  expectRefused(p, code, "kernel 'no_such_kernel' is missing in code 'avx2'");
  p = toyProgram({});
  p.args[0].offset = 1 << 30;
  expectRefused(p, code, "argument 0: offset 1073741824 is outside the arena");
  auto missing = LoadedArtifact::load("no-such-file.lathe");
  EXPECT_EQ(missing.status().code(), StatusCode::notFound);
}

TEST(Loader, SyntheticWeightsAreFiniteAndRepeatable) {
  Program p = toyProgram({});
  p.syntheticWeightBytes = 64 + 2 * toyVocabulary * toyWidth * 4;
  p.syntheticSeed = 5;
  auto writer = ArtifactWriter::create(path);
  ASSERT_TRUE(writer->addSection(SectionKind::program, Variant::none, encodeProgram(p)).ok());
  ASSERT_TRUE(writer->addSection(SectionKind::code, Variant::avx2, toyCode()).ok());
  ASSERT_TRUE(writer->finish().ok());
  auto a = LoadedArtifact::load(path), b = LoadedArtifact::load(path);
  ASSERT_TRUE(a.ok()) << a.status().message();
  auto wa = (*a)->weights(), wb = (*b)->weights();
  EXPECT_TRUE(std::equal(wa.begin(), wa.end(), wb.begin(), wb.end()));
  for (size_t i = 1; i < wa.size(); i += 2)
    ASSERT_EQ(wa[i] & 0xf0, 0x10); // small positive float16
}

TEST(Loader, ChoosesVariants) {
  CpuFeatures xeon{true, true, true, true}, zen4{true, true, true}, haswell{true, false, false}, old{};
  const Variant all[] = {Variant::avx2, Variant::avx512vnni, Variant::avx512bf16, Variant::amx}, some[] = {Variant::avx512vnni};
  EXPECT_EQ(*chooseVariant(all, xeon, ""), Variant::amx);
  EXPECT_EQ(*chooseVariant(all, xeon, "avx512"), Variant::amx);
  EXPECT_EQ(*chooseVariant(all, xeon, "avx512bf16"), Variant::avx512bf16);
  EXPECT_EQ(*chooseVariant(some, xeon, ""), Variant::avx512vnni);
  EXPECT_EQ(*chooseVariant(all, zen4, ""), Variant::avx512bf16);
  EXPECT_EQ(*chooseVariant(all, haswell, ""), Variant::avx2);
  EXPECT_EQ(*chooseVariant(all, zen4, "avx512vnni"), Variant::avx512vnni);
  EXPECT_EQ(*chooseVariant(all, CpuFeatures({true, true, false}), "avx512"), Variant::avx512vnni);
  auto message = [](Result<Variant> r) { return r.status().message(); };
  EXPECT_EQ(message(chooseVariant(all, zen4, "sse2")),
            "unknown variant 'sse2', expected avx2, avx512, avx512vnni, avx512bf16 or amx");
  EXPECT_EQ(message(chooseVariant(some, zen4, "avx2")), "the artifact has no code for 'avx2', it has: avx512vnni");
  EXPECT_EQ(message(chooseVariant(all, old, "")), "this processor lacks AVX2, FMA or F16C, which Lathe needs at least");
  EXPECT_EQ(message(chooseVariant(all, haswell, "avx512")),
            "this processor does not run 'avx512'; the artifact has code for: avx2, avx512vnni, avx512bf16, amx");
  EXPECT_EQ(message(chooseVariant(all, zen4, "amx")),
            "this processor does not run 'amx'; the artifact has code for: avx2, avx512vnni, avx512bf16, amx");
  EXPECT_EQ(
      message(chooseVariant(some, haswell, "")),
      "this processor does not run 'avx512vnni'; the artifact has code for: avx512vnni; compile with '--target x86'");
  EXPECT_EQ(message(chooseVariant({}, zen4, "")), "the artifact has no code for x86-64");
}
