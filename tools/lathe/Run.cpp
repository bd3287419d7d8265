//===- Run.cpp - lathe run ------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Limits.h"
#include "Session.h"
#include "Speculate.h"
#include <cstdio>
#include <iostream>
#include <unistd.h>

namespace lathe::tool {
using namespace runtime;
using Json = nlohmann::ordered_json;

namespace {

struct RunFlags {
  EngineFlags engine;
  SamplingFlags sampling;
  std::optional<std::string> prompt, promptIds;
  std::string system, speculate = "off", acceptance = "exact", draftCost = "measured";
  std::vector<std::string> stops;
  uint64_t newTokens = UINT32_MAX;
  bool chat = false, ids = false, json = false, limits = false, parseSpecial = false, ignoreEnd = false;
};

Options declare(RunFlags &f) {
  Options o(
      "lathe run FILE.lathe [options]",
      "Continues a text, or answers it with --chat. Without -p: a conversation on a terminal, else the prompt is\n"
      "read from standard input. FILE may be a .gguf file, an .onnx file or a model directory: it is compiled into a cache first.");
  o.text("-p, --prompt", "TEXT", "the prompt", f.prompt);
  o.text("--prompt-ids", "1,2,...", "the prompt as token ids", f.promptIds);
  o.flag("--chat", "put the prompt through the model's chat template", f.chat);
  o.text("--system", "TEXT", "system message of a chat", f.system);
  o.number("-n", "N", "new tokens at most (default: until the model ends or the context is full)", f.newTokens, 0,
           UINT32_MAX);
  o.texts("--stop", "TEXT", "end when the answer contains TEXT; may be given several times", f.stops);
  o.flag("--ignore-eos", "go on after the model's end token", f.ignoreEnd);
  o.flag("--parse-special", "control tokens written in the prompt become tokens", f.parseSpecial);
  o.text("--speculate", "M", "who drafts tokens: off, auto, draft or layerskip (the artifact's draft program), medusa, eagle, eagle2 or eagle3 (one of that kind), ngram, suffix or suffix-tree; changes no token (default: off)", f.speculate);
  o.text("--draft-acceptance", "R", "which drafts count: exact, rejection (other tokens, the same law) or typical (another law too) (default: exact)", f.acceptance);
  o.text("--draft-cost", "C", "which drafts are verified: those that pay by the measured cost of their rows (measured), or all that there are and have room (none), to compare drafters (default: measured)", f.draftCost);
  o.heading("Sampling");
  f.sampling.declare(o);
  o.heading("Output");
  o.flag("--ids", "print token ids instead of text", f.ids);
  o.flag("--json", "print one line of JSON at the end: text, ids, prompt_ids, timings, ...", f.json);
  o.flag("--limits", "measure this machine's read bandwidth afterwards, to hold the figures against", f.limits);
  o.heading("Machine");
  f.engine.declare(o);
  return o;
}

Result<std::vector<int32_t>> promptTokens(const RunFlags &f, const Session &session) {
  if (f.promptIds) {
    LATHE_ASSIGN_OR_RETURN(auto numbers, parseNumbers("--prompt-ids", *f.promptIds, 0, INT32_MAX));
    return std::vector<int32_t>(numbers.begin(), numbers.end());
  }
  LATHE_ASSIGN_OR_RETURN(const TextModel *text, session.needText());
  std::string prompt = f.prompt ? *f.prompt : std::string(std::istreambuf_iterator<char>(std::cin), {});
  if (!f.chat) {
    auto ids = text->encode(prompt, f.parseSpecial);
    if (ids.empty()) return makeError(StatusCode::invalidArgument, "expected a prompt, found an empty text");
    return ids;
  }
  Json messages = Json::array();
  if (!f.system.empty()) messages.push_back({{"role", "system"}, {"content", f.system}});
  messages.push_back({{"role", "user"}, {"content", prompt}});
  ChatOptions options;
  options.parseSpecial = f.parseSpecial;
  return text->encodeChat(messages, options);
}

/// What both engines' requests have: the prompt and how to answer it.
template <typename R> Status fill(R &request, const RunFlags &f, const Session &session) {
  LATHE_RETURN_IF_ERROR(f.sampling.check(session.artifact->program().vocabulary));
  LATHE_ASSIGN_OR_RETURN(request.prompt, promptTokens(f, session));
  SamplingParams base;
  base.temperature = 0;
  request.sampling = f.sampling.apply(session.text ? session.text->samplingDefaults() : base);
  request.maxTokens = static_cast<uint32_t>(f.newTokens);
  request.stops = f.stops;
  request.ignoreEnd = f.ignoreEnd;
  request.continues = !f.chat;
  return Status();
}

/// Prints pieces as they come.
std::function<bool(int32_t, std::string_view)> printer(const RunFlags &f, const Session &session) {
  return [json = f.json, showIds = f.ids || !session.text, first = true](int32_t id, std::string_view piece) mutable {
    if (json) return !interrupted;
    if (!showIds)
      std::fwrite(piece.data(), 1, piece.size(), stdout);
    else if (id >= 0)
      std::printf("%s%d", first ? "" : " ", id);
    first = false;
    std::fflush(stdout);
    return !interrupted;
  };
}

/// The same answer by the serving engine, which drafts.
Result<int> runSpeculated(const RunFlags &f, const Session &session, Speculation method) {
  Request request;
  LATHE_RETURN_IF_ERROR(fill(request, f, session));
  request.speculate = method;
  LATHE_ASSIGN_OR_RETURN(request.acceptance, acceptanceOption(f.acceptance));
  LATHE_ASSIGN_OR_RETURN(bool freeDrafts, draftCostOption(f.draftCost));
  LATHE_ASSIGN_OR_RETURN(Answering answering, Answering::open(session, f.engine, 1, freeDrafts));
  Answering::Answer answer;
  {
    InterruptGuard guard;
    answer = std::move(answering.answer({&request, 1}, printer(f, session))[0]);
    LATHE_RETURN_IF_ERROR(answer.error);
  }
  double decode = answering.decodeSeconds > 0 ? static_cast<double>(answering.decodeTokens) / answering.decodeSeconds : 0;
  const RequestUsage &usage = answer.usage;
  if (f.json) {
    Json line = {{"text", answer.text},
                 {"ids", answer.ids},
                 {"prompt_ids", request.prompt},
                 {"finish_reason", runtime::toString(answer.reason)},
                 {"seed", request.sampling.seed},
                 {"timings",
                  {{"load_seconds", session.loadSeconds},
                   {"prompt_tokens", usage.promptTokens},
                   {"prompt_seconds", usage.ttftSeconds},
                   {"prompt_tokens_per_second", usage.ttftSeconds > 0 ? usage.promptTokens / usage.ttftSeconds : 0},
                   {"new_tokens", usage.newTokens},
                   {"decode_seconds", answering.decodeSeconds},
                   {"decode_tokens_per_second", decode},
                   {"drafted_tokens", usage.draftedTokens},
                   {"accepted_tokens", usage.acceptedTokens},
                   {"steps", answering.engine().stats().steps}}}};
    std::printf("%s\n", dumpLine(line).c_str());
  } else {
    std::printf("\n");
  }
  std::fflush(stdout);
  std::fprintf(stderr, "prompt %u tokens | generated %u tokens, %.1f tokens/s, %llu steps | %u drafts, %u accepted | seed %s\n",
               usage.promptTokens, usage.newTokens, decode, static_cast<unsigned long long>(answering.engine().stats().steps),
               usage.draftedTokens, usage.acceptedTokens, std::to_string(request.sampling.seed).c_str());
  return interrupted ? 130 : 0;
}

Result<int> runOnce(const RunFlags &f, Session &session) {
  CompletionRequest request;
  request.sequence = session.sequence;
  LATHE_RETURN_IF_ERROR(fill(request, f, session));
  request.onPiece = printer(f, session);
  GenerateTimings timings;
  Completion answer;
  {
    InterruptGuard guard;
    auto answers = complete(*session.engine, session.words(), {&request, 1}, &timings);
    if (answers.status().code() == StatusCode::cancelled) return 130; // before the first token
    LATHE_RETURN_IF_ERROR(answers.status());
    answer = std::move((*answers)[0]);
    LATHE_RETURN_IF_ERROR(answer.error);
  }
  std::string figures = timingsLine(session, timings); // before the limits, which take memory
  Json timed = timingsJson(session, timings);
  if (f.limits) {
    double read = measureRead(session.engine->executable().threads(), session.artifact->variant(), 5);
    char text[64];
    std::snprintf(text, sizeof text, " | this machine reads %.1f GB/s", read / 1e9);
    figures += text;
    timed["read_limit_bytes_per_second"] = read;
  }
  if (f.json) {
    Json line = {{"text", answer.text},           {"ids", answer.ids},
                 {"prompt_ids", request.prompt},  {"finish_reason", runtime::toString(answer.reason)},
                 {"seed", request.sampling.seed}, {"timings", std::move(timed)}};
    std::printf("%s\n", dumpLine(line).c_str());
  } else {
    std::printf("\n");
  }
  std::fflush(stdout);
  bool sampled = request.sampling.temperature > 0 && !f.sampling.seed;
  std::fprintf(stderr, "%s%s%s\n", figures.c_str(), sampled ? " | seed " : "",
               sampled ? std::to_string(request.sampling.seed).c_str() : "");
  return interrupted ? 130 : 0;
}

} // namespace

Result<int> runCommand(const Args &args) {
  RunFlags f;
  Options options = declare(f);
  Args positional;
  LATHE_ASSIGN_OR_RETURN(bool go, parseOptions(options, args, positional));
  if (!go) return 0;
  LATHE_ASSIGN_OR_RETURN(std::string path, onePositional(positional, "an artifact"));
  LATHE_ASSIGN_OR_RETURN(Speculation method, speculationOption(f.speculate));
  LATHE_RETURN_IF_ERROR(acceptanceOption(f.acceptance).status());
  LATHE_RETURN_IF_ERROR(draftCostOption(f.draftCost).status());
  if (method != Speculation::off) {
    if (!f.prompt && !f.promptIds && isatty(0))
      return makeError(StatusCode::invalidArgument, "option '--speculate': expected a prompt; a conversation runs without it");
    LATHE_ASSIGN_OR_RETURN(Session session, Session::open(path, f.engine, 0));
    return runSpeculated(f, session, method);
  }
  LATHE_ASSIGN_OR_RETURN(Session session, Session::open(path, f.engine));
  if (f.prompt || f.promptIds || !isatty(0)) return runOnce(f, session);
  LATHE_ASSIGN_OR_RETURN(const TextModel *text, session.needText());
  LATHE_RETURN_IF_ERROR(text->templateError());
  LATHE_RETURN_IF_ERROR(f.sampling.check(session.artifact->program().vocabulary));
  ChatSettings settings;
  settings.sampling = f.sampling.apply(text->samplingDefaults());
  settings.maxTokens = static_cast<uint32_t>(f.newTokens);
  settings.stops = f.stops;
  settings.system = f.system;
  settings.parseSpecial = f.parseSpecial;
  settings.ids = f.ids;
  settings.ignoreEnd = f.ignoreEnd;
  return chatLoop(session, std::move(settings));
}

} // namespace lathe::tool
