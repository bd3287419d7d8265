//===- CompareLogits.cpp - compiled logits against the interpreter's ---------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
//   CompareLogits [--device D] [--chunk N] [--save FILE.f32] ARTIFACT FILE.f32 TOLERANCE TOKEN...
//
// FILE.f32 holds float32 logits [tokens][vocabulary] (lathe-interp --raw). Passes when max |a - b| / max |b| is at
// most TOLERANCE, and the likeliest tokens are equal wherever the reference's first two differ by more than TOLERANCE of the row's largest logit,
// which they do in one row at least. --save writes the artifact's logits, for a comparison of two devices.
//===----------------------------------------------------------------------===//
#include "LogitCheck.h"
#include "TestDevice.h"
#include "runtime/engine/Engine.h"
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

using namespace lathe;
using namespace lathe::runtime;

static int fail(const Status &status) {
  std::fprintf(stderr, "error: %s\n", status.message().c_str());
  return 2;
}

int main(int argc, char **argv) {
  std::unique_ptr<Device> device = takeDevice(argc, argv);
  EngineOptions options;
  if (argc > 2 && !std::strcmp(argv[1], "--chunk")) { // tokens of a step at most
    options.chunkRows = uint32_t(std::atoi(argv[2]));
    argc -= 2;
    argv += 2;
  }
  const char *save = nullptr;
  if (argc > 2 && !std::strcmp(argv[1], "--save")) {
    save = argv[2];
    argc -= 2;
    argv += 2;
  }
  if (argc < 5) {
    std::fprintf(stderr, "usage: CompareLogits [--device D] [--chunk N] [--save FILE.f32] ARTIFACT FILE.f32 TOLERANCE TOKEN...\n");
    return 2;
  }
  std::vector<int32_t> tokens;
  for (int i = 4; i < argc; ++i)
    tokens.push_back(std::atoi(argv[i]));
  auto loaded = LoadedArtifact::load(argv[1], loadFor(*device));
  if (!loaded.ok()) return fail(loaded.status());
  options.contextTokens = uint32_t(tokens.size());
  auto engine = Engine::create(*loaded, options, device.get());
  if (!engine.ok()) return fail(engine.status());
  auto id = (*engine)->open();
  if (!id.ok()) return fail(id.status());
  size_t vocabulary = (*engine)->program().vocabulary;
  std::ifstream file(argv[2], std::ios::binary);
  std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
  if (bytes.size() != tokens.size() * vocabulary * 4) {
    std::fprintf(stderr, "error: '%s': expected %zu bytes, found %zu\n", argv[2], tokens.size() * vocabulary * 4, bytes.size());
    return 2;
  }
  const float *want = reinterpret_cast<const float *>(bytes.data());
  test::LogitCheck check(std::atof(argv[3]));
  std::vector<std::pair<size_t, size_t>> choices;
  std::vector<float> chosen; // their logits
  Work work{*id, tokens, OutputRows::all};
  std::vector<float> saved(save ? tokens.size() * vocabulary : 0);
  size_t said = 0;
  RowSink logits = [&](size_t, size_t token, std::span<const float> row) {
    check.add({want + token * vocabulary, vocabulary}, row.first(vocabulary));
    if (save) std::copy_n(row.begin(), vocabulary, saved.begin() + token * vocabulary);
    choices.push_back({std::max_element(row.begin(), row.end()) - row.begin(), token});
    chosen.push_back(row[choices.back().first]);
    return Status();
  };
  // The head's other form says the same of the same rows, bit for bit.
  RowSink greatest = [&](size_t, size_t, std::span<const float> row) {
    auto [choice, token] = choices[said++];
    if (row[0] == float(choice) && std::memcmp(&row[1], &chosen[said - 1], 4) == 0) return Status();
    return makeError(StatusCode::internal, "row %zu: the logits say %zu (%g), the head without logits %g (%g)", token, choice, double(chosen[said - 1]), double(row[0]), double(row[1]));
  };
  const bool forms = (*engine)->program().choicesStride;
  Status status = (*engine)->forward({&work, 1}, logits, nullptr, forms ? greatest : RowSink());
  if (status.ok() && forms && said != choices.size()) status = Status(StatusCode::internal, "the head without logits said nothing");
  if (!status.ok()) return fail(status);
  if (save && !std::ofstream(save, std::ios::binary).write(reinterpret_cast<const char *>(saved.data()), std::streamsize(saved.size() * 4))) {
    std::fprintf(stderr, "error: '%s' is not to be written to\n", save);
    return 2;
  }
  std::printf("%s: %zu rows, largest difference %.2e of the largest logit (limit %.0e), %zu choices differ of %zu%s\n", argv[1], check.rows, check.error(), std::atof(argv[3]), check.unequal,
              check.decided, forms ? ", both heads agree" : "");
  if (!check.decided) std::fprintf(stderr, "error: no row's first two logits are further apart than the limit, so no choice was compared\n");
  return check.passes() && check.decided ? 0 : 1;
}
