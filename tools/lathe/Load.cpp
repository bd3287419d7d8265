//===- Load.cpp - lathe load ----------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Commands.h"
#include "load/Client.h"
#include <charconv>
#include <cstdio>
#include <fstream>
#include <sstream>

namespace lathe::tool {
using namespace load;

namespace {

struct LoadFlags {
  WorkloadOptions work;
  RunOptions run;
  uint64_t requests = 100, concurrency = 0, seed = 1, prefix = 0, groups = 1, turns = 1, warmup = 0, vocabulary = 0;
  uint64_t input = 128, output = 64, mostInput = 1u << 20, mostOutput = 1u << 20;
  std::optional<double> rate, burstiness, inputSigma, outputSigma, think, aborts, slow, slowRate, timeout, temperature;
  std::string objectives, json, plot;
  bool records = false, keepEnd = false;
};

Options declare(LoadFlags &f) {
  Options o("lathe load URL [options]",
            "Sends requests to an OpenAI-compatible server and measures what its clients see. URL is http://HOST:PORT.\n"
            "With --rate requests arrive by the clock (open loop) and latencies count from the time a request was due;\n"
            "without, the next begins when one ends (closed loop). A seed gives the same requests every time.");
  o.number("-n, --requests", "N", "requests, or conversations with --turns (default: 100)", f.requests, 1, 1u << 24);
  o.number("-c, --concurrency", "N", "requests at one time (default: 16; with --rate no bound)", f.concurrency, 1, 1u << 16);
  o.real("--rate", "R", "requests a second, in expectation", f.rate, 1e-6, 1e6);
  o.real("--burstiness", "B", "gaps are gamma distributed with this shape: 1 is Poisson, below comes in bursts (default: 1)", f.burstiness, 1e-3, 1e6);
  o.number("--warmup", "N", "leave the first N out of the result (default: 0)", f.warmup, 0, 1u << 24);
  o.number("--seed", "S", "of the workload (default: 1)", f.seed, 0, UINT64_MAX / 16);
  o.text("--model", "NAME", "model to ask (default: the server's first)", f.run.model);
  o.text("--key", "KEY", "sent as bearer token", f.run.key);
  o.real("--timeout", "S", "for one request (default: 300)", f.timeout, 0.01, 1e6);
  o.heading("Requests");
  o.number("--input", "N", "prompt tokens, on average (default: 128)", f.input, 1, 1u << 24);
  o.real("--input-sigma", "S", "log-normal with this deviation of the logarithm; 0: all equal (default: 0)", f.inputSigma, 0, 10);
  o.number("--max-input", "N", "prompt tokens at most", f.mostInput, 1, 1u << 24);
  o.number("--output", "N", "new tokens, on average (default: 64)", f.output, 1, 1u << 24);
  o.real("--output-sigma", "S", "the same for new tokens (default: 0)", f.outputSigma, 0, 10);
  o.number("--max-output", "N", "new tokens at most", f.mostOutput, 1, 1u << 24);
  o.number("--shared-prefix", "N", "tokens that the prompts of a group begin with (default: 0)", f.prefix, 0, 1u << 20);
  o.number("--groups", "N", "groups with a prefix each (default: 1)", f.groups, 1, 1u << 20);
  o.flag("--chat", "conversations of words instead of token ids", f.run.chat);
  o.number("--turns", "N", "turns of a conversation, each with the history; needs --chat (default: 1)", f.turns, 1, 1000);
  o.real("--think", "S", "pause between turns, on average (default: 0)", f.think, 0, 1e6);
  o.real("--abort", "P", "share of clients that leave before the end (default: 0)", f.aborts, 0, 1);
  o.real("--slow", "P", "share of clients that read slowly (default: 0)", f.slow, 0, 1);
  o.real("--slow-rate", "B", "bytes a second that those read (default: 2000)", f.slowRate, 1, 1e9);
  o.real("--temp", "T", "temperature (default: 0)", f.temperature, 0, 100);
  o.flag("--stop-at-eos", "let answers end by themselves", f.keepEnd);
  o.number("--vocab", "N", "token ids are below N (default: the server's vocabulary, else 1000)", f.vocabulary, 1, 1u << 24);
  o.heading("Result");
  o.text("--slo", "ttft:MS,tpot:MS,e2e:MS", "objectives; their share and rate is the goodput", f.objectives);
  o.text("--json", "FILE", "write the result as JSON; -: standard output", f.json);
  o.flag("--records", "with every request in the JSON", f.records);
  o.text("--plot", "FILE.svg", "write a plot", f.plot);
  return o;
}

Result<Objectives> parseObjectives(const std::string &text) {
  Objectives o;
  std::stringstream list(text);
  for (std::string item; std::getline(list, item, ',');) {
    size_t colon = item.find(':');
    std::string name = item.substr(0, colon);
    double *to = name == "ttft" ? &o.ttft : name == "tpot" ? &o.tpot : name == "e2e" ? &o.total : nullptr;
    const char *end = item.data() + item.size();
    double value = 0;
    bool ok = to && colon != std::string::npos &&
              std::from_chars(item.data() + colon + 1, end, value).ptr == end && value > 0;
    if (!ok)
      return makeError(StatusCode::invalidArgument, "option '--slo': expected ttft:MS,tpot:MS,e2e:MS, found '%s'", item.c_str());
    *to = value / 1e3;
  }
  return o;
}

nlohmann::ordered_json recordJson(const Record &r) {
  static constexpr const char *names[] = {"complete", "aborted", "refused", "failed"};
  return {{"due", r.due},     {"sent", r.sent},         {"first", r.first},        {"last", r.last},
          {"end", r.end},     {"gaps", r.gaps},         {"prompt_tokens", r.promptTokens}, {"new_tokens", r.newTokens},
          {"cached_tokens", r.cachedTokens}, {"outcome", names[static_cast<int>(r.outcome)]}, {"status", r.status}, {"error", r.error}};
}

Status writeFile(const std::string &path, const std::string &text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  return file ? Status() : makeError(StatusCode::failedPrecondition, "'%s': the result could not be written", path.c_str());
}

} // namespace

Result<int> loadCommand(const Args &args) {
  LoadFlags f;
  Options options = declare(f);
  Args positional;
  LATHE_ASSIGN_OR_RETURN(bool go, parseOptions(options, args, positional));
  if (!go) return 0;
  LATHE_ASSIGN_OR_RETURN(std::string url, onePositional(positional, "the URL of a server"));
  LATHE_ASSIGN_OR_RETURN(f.run.target, parseUrl(url));
  LATHE_ASSIGN_OR_RETURN(Objectives objectives, parseObjectives(f.objectives));
  if (f.turns > 1 && !f.run.chat)
    return makeError(StatusCode::invalidArgument, "option '--turns': expected '--chat' with it");
  LATHE_ASSIGN_OR_RETURN(ServerInfo info, askServer(f.run));
  f.run.model = info.model;
  f.run.concurrency = static_cast<uint32_t>(f.concurrency);
  f.run.timeout = f.timeout.value_or(300);
  f.run.slowBytesPerSecond = f.slowRate.value_or(2000);
  f.run.temperature = f.temperature.value_or(0);
  f.run.ignoreEnd = !f.keepEnd;
  WorkloadOptions &w = f.work;
  w.seed = f.seed;
  w.requests = static_cast<uint32_t>(f.requests);
  w.rate = f.rate.value_or(0);
  w.burstiness = f.burstiness.value_or(1);
  w.input = {static_cast<double>(f.input), f.inputSigma.value_or(0), static_cast<uint32_t>(f.mostInput)};
  w.output = {static_cast<double>(f.output), f.outputSigma.value_or(0), static_cast<uint32_t>(f.mostOutput)};
  w.vocabulary = f.vocabulary ? static_cast<uint32_t>(f.vocabulary) : info.vocabulary ? info.vocabulary : 1000;
  w.sharedPrefix = static_cast<uint32_t>(f.prefix);
  w.groups = static_cast<uint32_t>(f.groups);
  w.turns = static_cast<uint32_t>(f.turns);
  w.thinkSeconds = f.think.value_or(0);
  w.abortShare = f.aborts.value_or(0);
  w.slowShare = f.slow.value_or(0);

  std::vector<Record> records = runWorkload(planWorkload(w), f.run);
  auto warmup = static_cast<uint32_t>(f.warmup * f.turns);
  nlohmann::ordered_json summary = summarize(records, objectives, warmup);
  if (f.json != "-") std::fputs(printed(summary).c_str(), stdout);
  if (!f.json.empty()) {
    nlohmann::ordered_json all = {{"url", url}, {"model", info.model}, {"seed", f.seed}, {"arguments", args}, {"summary", summary}};
    if (f.records)
      for (const Record &r : records)
        all["records"].push_back(recordJson(r));
    std::string text = all.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
    if (f.json == "-") std::fputs(text.c_str(), stdout);
    else LATHE_RETURN_IF_ERROR(writeFile(f.json, text));
  }
  if (!f.plot.empty()) LATHE_RETURN_IF_ERROR(writeFile(f.plot, plot(records, summary, warmup)));
  return summary["failed"].get<uint64_t>() ? 1 : 0;
}

} // namespace lathe::tool
