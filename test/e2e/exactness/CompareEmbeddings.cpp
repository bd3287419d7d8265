//===- CompareEmbeddings.cpp - pooled hidden states against a reference ------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
//   CompareEmbeddings ARTIFACT FILE.f32 TOLERANCE TOKEN...
//
// FILE.f32 holds the float32 rows behind the last norm, [tokens][hidden size]. The serving engine's embeddings of the tokens, pooled either
// way and computed in pieces beside other requests, must be those of the rows: max |a - b| / max |b| at most TOLERANCE.
//===----------------------------------------------------------------------===//
#include "runtime/engine/EngineCore.h"
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

using namespace lathe;
using namespace lathe::runtime;

namespace {

[[noreturn]] void die(const std::string &text) {
  std::fprintf(stderr, "error: %s\n", text.c_str());
  std::exit(2);
}

class Keep : public RequestListener {
public:
  void piece(uint32_t, const Sample &, std::string_view) override {}
  void choiceDone(uint32_t, EndReason, std::string_view, int32_t) override {}
  void embedding(std::span<const float> values) override { vector.assign(values.begin(), values.end()); }
  void finished(const RequestUsage &, const Status &error) override {
    if (!error.ok()) die(error.message());
  }
  std::vector<float> vector;
};

} // namespace

int main(int argc, char **argv) {
  if (argc < 5) die("usage: CompareEmbeddings ARTIFACT FILE.f32 TOLERANCE TOKEN...");
  auto loaded = LoadedArtifact::load(argv[1]);
  if (!loaded.ok()) die(loaded.status().message());
  Request request;
  request.kind = RequestKind::embedding;
  for (int i = 4; i < argc; ++i)
    request.prompt.push_back(std::atoi(argv[i]));
  size_t tokens = request.prompt.size(), hidden = (*loaded)->program().hiddenSize;
  std::ifstream file(argv[2], std::ios::binary);
  std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
  if (bytes.size() != tokens * hidden * 4)
    die("'" + std::string(argv[2]) + "': expected " + std::to_string(tokens * hidden * 4) + " bytes, found " + std::to_string(bytes.size()));
  const float *rows = reinterpret_cast<const float *>(bytes.data());

  RequestEngineOptions options;
  options.contextTokens = std::min(uint32_t(tokens) + 8, (*loaded)->program().maxSeq);
  options.maxSequences = 4;
  options.stepTokens = 16;
  auto core = EngineCore::create(*loaded, nullptr, options, nullptr, nullptr, {});
  if (!core.ok()) die(core.status().message());
  auto last = std::make_shared<Keep>(), mean = std::make_shared<Keep>(), other = std::make_shared<Keep>();
  if (Status status = (*core)->check()(request); !status.ok()) die(status.message());
  (*core)->add(1, request, last, 0);
  request.pooling = Pooling::mean;
  (*core)->add(2, request, mean, 0);
  Request company;
  company.prompt = {1, 2, 3};
  company.maxTokens = 5;
  (*core)->add(3, company, other, 0);
  while (!(*core)->idle())
    (*core)->step();

  double worst = 0;
  for (int pooled = 0; pooled < 2; ++pooled) {
    const auto &found = pooled ? mean->vector : last->vector;
    if (found.size() != hidden) die("no embedding came");
    double difference = 0, largest = 0;
    for (size_t d = 0; d < hidden; ++d) {
      double want = 0;
      for (size_t t = pooled ? 0 : tokens - 1; t < tokens; ++t)
        want += double(rows[t * hidden + d]) / (pooled ? double(tokens) : 1);
      double error = std::fabs(want - double(found[d]));
      difference = std::isnan(error) ? INFINITY : std::max(difference, error);
      largest = std::max(largest, std::fabs(want));
    }
    std::printf("%s: %s of %zu rows, largest difference %.2e of the largest value (limit %s)\n", argv[1], pooled ? "mean" : "last", tokens, difference / largest, argv[3]);
    worst = std::max(worst, difference / largest);
  }
  return worst <= std::atof(argv[3]) ? 0 : 1;
}
