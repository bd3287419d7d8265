//===- Session.h - a model ready to answer -------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "Commands.h"
#include "runtime/engine/Generator.h"
#include "runtime/text/Completion.h"
#include <chrono>
#include <nlohmann/json.hpp>

namespace lathe::tool {

/// How to sample, where the command line differs from the model's own defaults.
struct SamplingFlags {
  std::optional<double> temperature, topP, minP, repetitionPenalty, presencePenalty, frequencyPenalty;
  std::optional<uint64_t> topK, seed;
  std::vector<std::pair<int32_t, float>> logitBias;
  void declare(Options &options);
  /// Error: a bias of a token that a vocabulary of |vocabulary| tokens does not have.
  Status check(uint32_t vocabulary) const;
  /// |defaults| with the flags applied; without --seed a random one, which the caller reports.
  SamplingParams apply(SamplingParams defaults) const;
};

/// An artifact, its words if it has any, and an engine with one open sequence.
struct Session {
  std::shared_ptr<runtime::LoadedArtifact> artifact;
  std::optional<runtime::TextModel> text;
  std::unique_ptr<runtime::Device> device; ///< outlives the engine
  std::unique_ptr<runtime::Engine> engine;
  runtime::SequenceId sequence = 0;
  double loadSeconds = 0;

  /// |sequences| 0: without an engine.
  static Result<Session> open(const std::string &path, const EngineFlags &flags, uint32_t sequences = 1);
  /// The words, or null.
  const runtime::TextModel *words() const { return text ? &*text : nullptr; }
  /// The words, or an error that says what to do without.
  Result<const runtime::TextModel *> needText() const;
};

/// Error: failedPrecondition when the program cannot say the largest logit of a row without its logits.
Status needChoices(const Session &session);
/// Bytes of weights that a step of |rows| rows with |outRows| results reads.
uint64_t weightBytesOfStep(const Program &program, uint32_t rows, uint32_t outRows);

/// "prompt", "generated" figures as JSON, and as one line for people.
nlohmann::ordered_json timingsJson(const Session &session, const runtime::GenerateTimings &timings);
std::string timingsLine(const Session &session, const runtime::GenerateTimings &timings);

/// One line of JSON that never fails, whatever bytes the strings hold.
std::string dumpLine(const nlohmann::ordered_json &value);

struct ChatSettings {
  SamplingParams sampling;
  uint32_t maxTokens = UINT32_MAX;
  std::vector<std::string> stops;
  std::string system;
  bool parseSpecial = false, ids = false, ignoreEnd = false;
};
/// Talks on the terminal until the input ends.
Result<int> chatLoop(Session &session, ChatSettings settings);

} // namespace lathe::tool
