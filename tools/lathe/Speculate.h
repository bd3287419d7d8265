//===- Speculate.h - answers with draft tokens --------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "Session.h"
#include "runtime/engine/EngineCore.h"

namespace lathe::tool {

/// The value of the option --draft-acceptance. Error: invalidArgument.
Result<Acceptance> acceptanceOption(const std::string &value);
/// The value of the option --draft-cost: whether drafts count as free. Error: invalidArgument.
Result<bool> draftCostOption(const std::string &value);

/// The serving engine driven by hand, for the commands that answer with speculation. One thread at a time.
class Answering {
public:
  /// |sequences| answers at one time; |freeDrafts| as in RequestEngineOptions. |session| must outlive this.
  static Result<Answering> open(const Session &session, const EngineFlags &flags, uint32_t sequences, bool freeDrafts);

  struct Answer {
    std::string text;
    std::vector<int32_t> ids;
    runtime::EndReason reason = runtime::EndReason::failed;
    runtime::RequestUsage usage;
    Status error;
  };
  /// Answers all |requests| together. |onPiece|, if given, gets the pieces of the first one and says whether to go on.
  /// Errors of a request are in its answer.
  std::vector<Answer> answer(std::span<const runtime::Request> requests,
                             const std::function<bool(int32_t id, std::string_view text)> &onPiece = nullptr);
  /// Of the last answer(): seconds, and new tokens, after each request had its first one.
  double decodeSeconds = 0;
  uint64_t decodeTokens = 0;

  runtime::EngineCore &engine() { return *core; }
  runtime::RequestId firstId() const { return first; } ///< of the last answer(): the first request's

private:
  std::unique_ptr<runtime::EngineCore> core;
  runtime::RequestId next = 1, first = 1;
};

struct SpeculationBench {
  std::string method;      ///< auto, draft, medusa, eagle, eagle2, eagle3, ngram, suffix, suffix-tree, or synthetic
  std::string promptFile;  ///< empty: pseudo-random tokens
  bool freeDrafts = false; ///< as in RequestEngineOptions
  Acceptance rule = Acceptance::exact; ///< with another one answers may differ, and are not compared
  double acceptance = 0.7; ///< of synthetic drafts
  uint64_t drafts = 4;     ///< synthetic: tokens a draft
  uint64_t prompt = 512, fresh = 128, repeat = 5;
  std::vector<uint64_t> batches = {1};
  bool json = false;
  SamplingFlags sampling; ///< answer i draws from seed + i; the default is greedy
};
/// Measures plain and speculated answers in turns; an error if one token differs (where |rule| is exact).
Result<int> benchSpeculation(const std::string &path, const EngineFlags &flags, const SpeculationBench &options);

} // namespace lathe::tool
