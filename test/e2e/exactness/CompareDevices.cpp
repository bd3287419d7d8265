//===- CompareDevices.cpp - the same bits on two devices ----------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
//   CompareDevices ARTIFACT DEVICE DEVICE TOKEN...
//
// All logits of the tokens, fed in pieces of 1, 2, 3 ... rows, must have the same bits on both devices: what
// docs/exactness.md promises for activations other than bf16.
//===----------------------------------------------------------------------===//
#include "TestDevice.h"
#include "runtime/engine/Engine.h"
#include <cstring>
#include <vector>

using namespace lathe;
using namespace lathe::runtime;

static Result<std::vector<float>> logits(const char *artifact, const char *name, std::span<const int32_t> tokens) {
  std::unique_ptr<Device> device = namedDevice(name);
  LATHE_ASSIGN_OR_RETURN(auto loaded, LoadedArtifact::load(artifact, loadFor(*device)));
  EngineOptions options;
  options.contextTokens = uint32_t(tokens.size());
  LATHE_ASSIGN_OR_RETURN(auto engine, Engine::create(loaded, options, device.get()));
  LATHE_ASSIGN_OR_RETURN(SequenceId id, engine->open());
  std::vector<float> all;
  for (size_t at = 0, n = 1; at < tokens.size(); at += n, ++n) {
    Work work{id, tokens.subspan(at, std::min(n, tokens.size() - at)), OutputRows::all};
    LATHE_RETURN_IF_ERROR(engine->forward({&work, 1}, [&](size_t, size_t, std::span<const float> row) {
      all.insert(all.end(), row.begin(), row.end());
      return Status();
    }));
  }
  return all;
}

int main(int argc, char **argv) {
  if (argc < 5) {
    std::fprintf(stderr, "usage: CompareDevices ARTIFACT DEVICE DEVICE TOKEN...\n");
    return 2;
  }
  std::vector<int32_t> tokens;
  for (int i = 4; i < argc; ++i) tokens.push_back(std::atoi(argv[i]));
  auto first = logits(argv[1], argv[2], tokens), second = logits(argv[1], argv[3], tokens);
  for (auto *r : {&first, &second})
    if (!r->ok()) {
      std::fprintf(stderr, "error: %s\n", r->status().message().c_str());
      return 2;
    }
  size_t differ = 0, at = 0;
  for (size_t i = 0; i < first->size(); ++i)
    if (std::memcmp(&(*first)[i], &(*second)[i], 4) != 0 && ++differ == 1) at = i;
  if (first->size() != second->size() || first->empty()) {
    std::fprintf(stderr, "error: %zu and %zu logits\n", first->size(), second->size());
    return 1;
  }
  if (differ) std::fprintf(stderr, "%s: %zu of %zu logits differ, first at %zu: %a on %s, %a on %s\n", argv[1], differ, first->size(), at, (*first)[at], argv[2], (*second)[at], argv[3]);
  else std::printf("%s: %zu logits of %zu rows bit-equal on %s and %s\n", argv[1], first->size(), tokens.size(), argv[2], argv[3]);
  return differ ? 1 : 0;
}
