//===- Speculate.cpp ------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Speculate.h"
#include "Limits.h"
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>

namespace lathe::tool {
using namespace runtime;
using Json = nlohmann::ordered_json;

Result<Speculation> speculationOption(const std::string &value) {
  auto method = parseSpeculation(value);
  if (method.ok()) return *method;
  return makeError(StatusCode::invalidArgument, "option '--speculate': %s", method.status().message().c_str());
}

Result<Acceptance> acceptanceOption(const std::string &value) {
  auto rule = parseAcceptance(value);
  if (rule.ok()) return *rule;
  return makeError(StatusCode::invalidArgument, "option '--draft-acceptance': %s", rule.status().message().c_str());
}

Result<bool> draftCostOption(const std::string &value) {
  if (value == "measured" || value == "none") return value == "none";
  return makeError(StatusCode::invalidArgument, "option '--draft-cost': expected measured or none, found '%s'", value.c_str());
}

Result<Answering> Answering::open(const Session &session, const EngineFlags &flags, uint32_t sequences, bool freeDrafts) {
  RequestEngineOptions o;
  o.freeDrafts = freeDrafts;
  o.threads = static_cast<unsigned>(flags.threads);
  o.pin = flags.pin;
  o.contextTokens = static_cast<uint32_t>(flags.context);
  o.memoryBudget = flags.memory.value_or(0) << 20;
  o.maxSequences = sequences;
  o.maxQueued = std::max(sequences, 1u);
  std::shared_ptr<const TextModel> text;
  if (session.text) text = {std::shared_ptr<const TextModel>(), session.words()}; // the session's, which lives on
  Answering a;
  LATHE_ASSIGN_OR_RETURN(a.core, EngineCore::create(session.artifact, text, o, session.device.get(), nullptr, nullptr));
  return a;
}

namespace {

class Listener : public RequestListener {
public:
  explicit Listener(Answering::Answer &answer) : answer(answer) {}
  void piece(uint32_t, const Sample &sample, std::string_view text) override {
    if (sample.token >= 0) answer.ids.push_back(sample.token);
    answer.text += text;
    if (onPiece && go) go = onPiece(sample.token, text);
  }
  void choiceDone(uint32_t, EndReason reason, std::string_view, int32_t) override { answer.reason = reason; }
  void finished(const RequestUsage &usage, const Status &error) override {
    answer.usage = usage;
    answer.error = error;
  }
  std::function<bool(int32_t, std::string_view)> onPiece;
  bool go = true;

private:
  Answering::Answer &answer;
};

double seconds(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

} // namespace

std::vector<Answering::Answer> Answering::answer(std::span<const Request> requests,
                                                 const std::function<bool(int32_t, std::string_view)> &onPiece) {
  std::vector<Answer> answers(requests.size());
  std::vector<std::shared_ptr<Listener>> listeners;
  first = next;
  for (size_t i = 0; i < requests.size(); ++i) {
    listeners.push_back(std::make_shared<Listener>(answers[i]));
    if (!i) listeners[0]->onPiece = onPiece;
    if (Status wrong = core->check()(requests[i]); !wrong.ok())
      answers[i].error = wrong;
    else
      core->add(next, requests[i], listeners[i], core->now());
    ++next;
  }
  auto begin = std::chrono::steady_clock::now();
  uint64_t before = 0;
  bool decoding = false;
  while (!core->idle()) {
    core->step();
    if (!decoding) {
      decoding = true;
      before = 0;
      for (const Answer &a : answers)
        decoding &= !a.ids.empty() || !a.error.ok(), before += a.ids.size();
      begin = std::chrono::steady_clock::now();
    }
    if (interrupted || (!listeners.empty() && !listeners[0]->go)) core->cancelAll(); // also while the prompt is computed
  }
  decodeSeconds = seconds(begin);
  decodeTokens = 0;
  for (const Answer &a : answers)
    decodeTokens += a.ids.size();
  decodeTokens -= std::min(decodeTokens, before);
  return answers;
}

namespace {

class Measurement {
public:
  Measurement(Session &session, Answering &answering, const SpeculationBench &options)
      : session(session), answering(answering), o(options) {}

  Result<Json> run(uint64_t batch) {
    LATHE_RETURN_IF_ERROR(o.sampling.check(session.artifact->program().vocabulary));
    std::vector<Request> requests(batch);
    for (size_t i = 0; i < batch; ++i) {
      LATHE_ASSIGN_OR_RETURN(requests[i].prompt, prompt(i));
      requests[i].maxTokens = static_cast<uint32_t>(o.fresh);
      requests[i].ignoreEnd = true;
      SamplingParams greedy;
      greedy.temperature = 0;
      requests[i].sampling = o.sampling.apply(greedy);
      requests[i].sampling.seed = o.sampling.seed.value_or(1) + i;
      requests[i].hasSeed = true;
      requests[i].acceptance = o.rule;
    }
    std::vector<double> plain, drafted, ratios;
    EngineStats before = answering.engine().stats();
    for (uint64_t round = 0; round <= o.repeat; ++round) { // round 0 warms up
      // Drafters learn from earlier answers of their name space: each round has its own, or it would find the last one's.
      for (Request &r : requests)
        r.cacheSalt = std::to_string(batch) + "." + std::to_string(round);
      LATHE_ASSIGN_OR_RETURN(double plainRate, measure(requests, Speculation::off));
      LATHE_ASSIGN_OR_RETURN(double draftRate, measure(requests, method()));
      if (!round) {
        before = answering.engine().stats();
        continue;
      }
      plain.push_back(plainRate);
      drafted.push_back(draftRate);
      ratios.push_back(draftRate / plainRate);
    }
    EngineStats after = answering.engine().stats();
    auto difference = [&](auto get) { return static_cast<double>(get(after.speculation) - get(before.speculation)); };
    double rounds = difference([](const SpeculationStats &s) { return s.rounds; });
    double tokens = difference([](const SpeculationStats &s) { return s.draftedAll(); });
    double accepted = difference([](const SpeculationStats &s) { return s.acceptedAll(); });
    Json row = {{"method", o.method},
                {"batch", batch},
                {"new", o.fresh},
                {"plain_tokens_per_second", median(plain)},
                {"speculated_tokens_per_second", median(drafted)},
                {"ratio", median(ratios)},
                {"rounds", rounds},
                {"drafted", tokens},
                {"accepted", accepted},
                {"drafter_seconds", after.drafterSeconds - before.drafterSeconds}};
    // What a step costs with more rows, and how many of its drafts must be right for that.
    const StepCostModel &cost = answering.engine().state().cost();
    auto rows = static_cast<uint32_t>(batch);
    for (uint32_t k : {1u, 3u, 7u, 15u}) {
      double factor = cost.seconds(rows * (1 + k)) / cost.seconds(rows);
      row["break_even"].push_back({{"drafts", k}, {"step_factor", factor}, {"accepted_needed", factor - 1}});
    }
    return row;
  }

private:
  Speculation method() const {
    auto parsed = parseSpeculation(o.method);
    return parsed.ok() ? *parsed : Speculation::automatic; // synthetic
  }
  Result<std::vector<int32_t>> prompt(size_t index) {
    if (!o.promptFile.empty()) {
      std::ifstream in(o.promptFile, std::ios::binary);
      if (!in) return makeError(StatusCode::notFound, "cannot read '%s'", o.promptFile.c_str());
      std::string words(std::istreambuf_iterator<char>(in), {});
      LATHE_ASSIGN_OR_RETURN(const TextModel *text, session.needText());
      return text->encode(words, true);
    }
    uint64_t state = index + 1;
    std::vector<int32_t> ids;
    for (uint64_t t = 0; t < std::max<uint64_t>(1, o.prompt); ++t) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      ids.push_back(static_cast<int32_t>((state >> 33) % session.artifact->program().vocabulary));
    }
    return ids;
  }
  Result<double> measure(std::vector<Request> &requests, Speculation how) {
    for (Request &r : requests)
      r.speculate = how;
    answering.engine().onDraft = nullptr;
    if (how != Speculation::off && o.method == "synthetic") {
      RequestId first = answering.firstId() + requests.size();
      answering.engine().onDraft = [this, first](RequestId id, uint32_t, uint32_t seen, uint32_t most, Draft &draft) {
        const std::vector<int32_t> &want = truth[id - first];
        draft.count = std::min<uint32_t>(most, static_cast<uint32_t>(o.drafts));
        float chance = 1;
        for (uint32_t i = 0; i < draft.count; ++i) {
          state = state * 6364136223846793005u + 1442695040888963407u;
          bool right = static_cast<double>(state >> 40) / 16777216.0 < o.acceptance;
          int32_t token = seen + i < want.size() ? want[seen + i] : 0;
          draft.tokens[i] = right ? token : token ? token - 1 : 1;
          draft.chance[i] = chance *= static_cast<float>(o.acceptance);
        }
      };
    }
    auto answers = answering.answer(requests);
    for (size_t i = 0; i < answers.size(); ++i) {
      LATHE_RETURN_IF_ERROR(answers[i].error);
      if (how == Speculation::off && truth.size() <= i) truth.push_back(answers[i].ids);
      if (how != Speculation::off && requests[i].acceptance != Acceptance::exact) continue; // other tokens are to be had
      if (answers[i].ids != truth[i])
        return makeError(StatusCode::internal, "answer %zu differs from the plain one, which cannot be", i);
    }
    return answering.decodeSeconds > 0 ? static_cast<double>(answering.decodeTokens) / answering.decodeSeconds : 0;
  }
  Session &session;
  Answering &answering;
  const SpeculationBench &o;
  std::vector<std::vector<int32_t>> truth;
  uint64_t state = 7;
};

} // namespace

Result<int> benchSpeculation(const std::string &path, const EngineFlags &flags, const SpeculationBench &o) {
  if (o.method != "synthetic") {
    LATHE_ASSIGN_OR_RETURN(Speculation method, speculationOption(o.method));
    if (method == Speculation::off)
      return makeError(StatusCode::invalidArgument,
                       "option '--speculate': expected auto, draft, medusa, eagle, eagle2, eagle3, ngram, suffix, suffix-tree or synthetic, found 'off'");
  }
  uint64_t widest = *std::max_element(o.batches.begin(), o.batches.end());
  LATHE_ASSIGN_OR_RETURN(Session session, Session::open(path, flags, 0));
  LATHE_ASSIGN_OR_RETURN(Answering answering, Answering::open(session, flags, static_cast<uint32_t>(widest), o.freeDrafts));
  for (uint64_t batch : o.batches) {
    Measurement measurement(session, answering, o);
    LATHE_ASSIGN_OR_RETURN(Json row, measurement.run(batch));
    if (o.json) {
      std::printf("%s\n", dumpLine(row).c_str());
    } else {
      auto number = [&](const char *name) { return row[name].get<double>(); };
      std::printf(
          "batch %llu: plain %.1f, %s %.1f new tokens/s (%.2fx); %.0f drafts, %.1f %% accepted, %.2f tokens a round\n",
          static_cast<unsigned long long>(batch), number("plain_tokens_per_second"), o.method.c_str(),
          number("speculated_tokens_per_second"), number("ratio"), number("drafted"),
          number("drafted") > 0 ? 100 * number("accepted") / number("drafted") : 0,
          number("rounds") > 0 ? 1 + number("accepted") / number("rounds") : 1);
      std::printf("  break-even:");
      for (const Json &point : row["break_even"])
        std::printf(" %u drafts (step x%.2f) %.2f right;", point["drafts"].get<unsigned>(),
                    point["step_factor"].get<double>(), point["accepted_needed"].get<double>());
      std::printf("\n");
    }
    std::fflush(stdout);
  }
  return 0;
}

} // namespace lathe::tool
