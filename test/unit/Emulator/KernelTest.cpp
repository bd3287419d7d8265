//===- KernelTest.cpp - emitted kernels against float64 --------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "KernelCases.h"
#include <gtest/gtest.h>

namespace lathe::emulator {
namespace {

class Kernel : public testing::TestWithParam<KernelCase> {};

TEST_P(Kernel, MatchesTheReferenceInBothModes) {
  const KernelCase &kernel = GetParam();
  std::string text = readText(kernel.file);
  ASSERT_FALSE(text.empty());
  for (AsyncMode mode : {AsyncMode::lazy, AsyncMode::eager}) {
    Options options;
    options.mode = mode;
    Outcome outcome = kernel.run(text, options);
    EXPECT_TRUE(outcome.status.ok()) << outcome.status.message();
    EXPECT_LE(outcome.error, outcome.tolerance) << (mode == AsyncMode::lazy ? "lazy" : "eager");
  }
}
TEST_P(Kernel, HasNoRace) {
  if (!GetParam().small) GTEST_SKIP() << "too slow with the race check";
  Options options;
  options.checkRaces = true;
  options.seed = 7;
  Outcome outcome = GetParam().run(readText(GetParam().file), options);
  EXPECT_TRUE(outcome.good()) << outcome.status.message() << " error " << outcome.error;
}
INSTANTIATE_TEST_SUITE_P(Emitted, Kernel, testing::ValuesIn(kernelCases()), [](const auto &info) { return std::string(info.param.name); });

} // namespace
} // namespace lathe::emulator
