//===- main.cpp - the serving engine in process: throughput, gaps, prefixes ===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
//   lathe-engine-bench load|steps|gap|prefix ARTIFACT [options]
//
//   load    a closed loop: --concurrent clients, each with the next of --requests distinct prompts of --prompt tokens
//   and
//           --new new tokens
//   steps   the same, and of the steps then the median seconds by rows, for `lathe simulate --cost`
//   gap     time between tokens of --concurrent sequences, at the same places of their answers, without and while a prompt
//           of --long tokens is computed
//   prefix  time to the first token of --prompt + --tail tokens, the first --prompt of them cached or not, and whether
//   a hit shows in
//           any bit of the answer
//
//   --check 1: exit status 1 when the median of the gaps' p99 is above twice the p50 without the prompt, or a cached first token above the bound printed
//===----------------------------------------------------------------------===//
#include "runtime/engine/RequestEngine.h"
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>
#include <utility>

using namespace lathe;
using namespace lathe::runtime;

namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

[[noreturn]] void die(const std::string &text) {
  std::fprintf(stderr, "error: %s\n", text.c_str());
  std::exit(2);
}

double quantile(std::vector<double> values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1, static_cast<size_t>(q * static_cast<double>(values.size())))];
}

std::map<std::string, double> options = {{"concurrent", 16}, {"requests", 64}, {"prompt", 128},     {"new", 64},
                                         {"long", 2000},     {"tail", 32},     {"threads", 0},      {"context", 0},
                                         {"temperature", 0}, {"text", 1},      {"step-tokens", 0},  {"itl-ms", 0},
                                         {"repeat", 3},      {"logprobs", -1}, {"prefix-cache", 1}, {"kv-tokens", 0},
                                         {"check", 0}};
int option(const char *name) { return static_cast<int>(options.at(name)); }

/// When the tokens of one request came.
class Client : public RequestListener {
public:
  void piece(uint32_t, const Sample &sample, std::string_view) override {
    times.push_back(now());
    ids.push_back(sample.token);
    logprobs.push_back(sample.logprob);
    if (onToken) onToken();
  }
  void choiceDone(uint32_t, EndReason, std::string_view, int32_t) override {}
  void finished(const RequestUsage &used, const Status &status) override {
    if (!status.ok()) die(status.message());
    usage = used;
    auto next = std::move(onEnd);
    {
      std::lock_guard lock(mutex);
      done = true;
      changed.notify_all();
    }
    if (next) next();
  }
  void wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return done; });
  }
  std::vector<double> times;
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
  RequestUsage usage;
  std::function<void()> onToken, onEnd;
  double sent = 0;

private:
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
};

/// Seconds of steps by their rows. Of the engine's thread until the engine is gone.
class StepLog : public EngineObserver {
public:
  void step(uint32_t rows, double seconds) override { log[rows].push_back(seconds); }
  void firstToken(const std::string &, double) override {}
  void tokenGap(const std::string &, double) override {}
  void requestDone(const std::string &, EndReason, const RequestUsage &) override {}
  void print() {
    for (auto &[rows, seconds] : log)
      if (seconds.size() >= 3) std::printf("%u %.6f\n", rows, quantile(seconds, 0.5));
  }

private:
  std::map<uint32_t, std::vector<double>> log;
};

std::vector<int32_t> randomPrompt(std::mt19937_64 &random, int tokens, const Program &program) {
  std::vector<int32_t> prompt(static_cast<size_t>(tokens));
  for (int32_t &t : prompt)
    t = static_cast<int32_t>(random() % program.vocabulary);
  return prompt;
}

Request requestOf(std::vector<int32_t> prompt, int fresh) {
  Request r;
  r.prompt = std::move(prompt);
  r.maxTokens = static_cast<uint32_t>(fresh);
  r.ignoreEnd = true;
  r.hasSeed = true;
  r.sampling.temperature = static_cast<float>(options["temperature"]);
  r.sampling.logprobs = option("logprobs");
  return r;
}

std::shared_ptr<Client> submit(RequestEngine &engine, Request request,
                               std::shared_ptr<Client> client = std::make_shared<Client>()) {
  client->sent = now();
  auto id = engine.submit(std::move(request), client);
  if (!id.ok()) die(id.status().message());
  return client;
}

void load(RequestEngine &engine, const Program &program) {
  std::mt19937_64 random(1);
  int requests = option("requests"), concurrent = std::min(option("concurrent"), requests);
  std::vector<std::shared_ptr<Client>> clients;
  for (int i = 0; i < requests; ++i)
    clients.push_back(std::make_shared<Client>());
  std::vector<Request> wanted;
  for (int i = 0; i < requests; ++i)
    wanted.push_back(requestOf(randomPrompt(random, option("prompt"), program), option("new")));
  // Each client sends its next request when the last one has ended. A listener may not call the engine, so a thread of
  // its own does.
  std::mutex mutex;
  std::condition_variable changed;
  int started = 0, ended = 0;
  for (auto &client : clients)
    client->onEnd = [&] {
      std::lock_guard lock(mutex);
      ++ended;
      changed.notify_one();
    };
  EngineStats before = engine.stats();
  double begin = now();
  {
    std::unique_lock lock(mutex);
    while (ended < requests) {
      while (started < requests && started - ended < concurrent) {
        int i = started++;
        lock.unlock();
        submit(engine, std::move(wanted[static_cast<size_t>(i)]), clients[static_cast<size_t>(i)]);
        lock.lock();
      }
      changed.wait(lock, [&] { return ended == requests || (started < requests && started - ended < concurrent); });
    }
  }
  double seconds = now() - begin;
  engine.waitIdle(10);
  EngineStats after = engine.stats();
  std::vector<double> gaps, firsts;
  for (auto &client : clients) {
    client->wait();
    firsts.push_back(client->times[0] - client->sent);
    for (size_t i = 1; i < client->times.size(); ++i)
      gaps.push_back(client->times[i] - client->times[i - 1]);
  }
  auto tokens = static_cast<double>(after.newTokens - before.newTokens);
  double busy = after.busySeconds - before.busySeconds, sampler = after.samplerSeconds - before.samplerSeconds;
  double scheduler = after.schedulerSeconds - before.schedulerSeconds;
  auto steps = static_cast<double>(after.steps - before.steps);
  std::printf("%d requests, %d at a time, %d + %d tokens: %.1f new tokens/s, %.2f s, %.0f steps of %.1f rows\n",
              requests, concurrent, option("prompt"), option("new"), tokens / seconds, seconds, steps,
              static_cast<double>(after.rows - before.rows) / steps);
  std::printf("  time to first token p50 %.0f ms, p99 %.0f ms; between tokens p50 %.1f ms, p99 %.1f ms\n",
              1e3 * quantile(firsts, 0.5), 1e3 * quantile(firsts, 0.99), 1e3 * quantile(gaps, 0.5),
              1e3 * quantile(gaps, 0.99));
  double rest = seconds - busy - sampler - scheduler;
  std::printf("  device %.1f %%, sampler and text %.2f %%, scheduler %.2f %% (%.1f us a step), other %.2f %%\n",
              100 * busy / seconds, 100 * sampler / seconds, 100 * scheduler / seconds, 1e6 * scheduler / steps,
              100 * rest / seconds);
}

/// What the machine did to this process: counters that only grow.
struct Disturbance {
  double stolen = 0;      ///< seconds of all processors that the host gave to others
  long faults = 0;        ///< page faults
  long preemptions = 0;   ///< of threads of this process
  static Disturbance now() {
    Disturbance d;
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    d.faults = usage.ru_minflt + usage.ru_majflt;
    d.preemptions = usage.ru_nivcsw;
    if (FILE *stat = std::fopen("/proc/stat", "r")) {
      unsigned long long ticks = 0;
      if (std::fscanf(stat, "cpu %*u %*u %*u %*u %*u %*u %*u %llu", &ticks) == 1)
        d.stolen = double(ticks) / double(sysconf(_SC_CLK_TCK));
      std::fclose(stat);
    }
    return d;
  }
};

void gap(RequestEngine &engine, const Program &program) {
  std::mt19937_64 random(2);
  std::vector<double> ratios, ratiosAlone, middles, firsts;
  // The sequences, which go on until |until| has returned or |most| tokens have come.
  auto sequences = [&](int most, const std::function<void()> &until) {
    engine.clearPrefixCache();
    std::vector<std::shared_ptr<Client>> clients;
    std::vector<RequestId> ids;
    std::atomic<int> enough{0};
    for (int i = 0; i < option("concurrent"); ++i) {
      auto client = std::make_shared<Client>();
      client->onToken = [&enough, c = client.get()] { enough += c->times.size() == 60; };
      auto id = engine.submit(requestOf(randomPrompt(random, option("prompt"), program), most), client);
      if (!id.ok()) die(id.status().message());
      clients.push_back(client);
      ids.push_back(*id);
    }
    while (enough < option("concurrent"))
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (until) {
      until();
      for (RequestId id : ids)
        engine.cancel(id);
    }
    for (auto &client : clients)
      client->wait();
    return clients;
  };
  int room = static_cast<int>(engine.limits().contextTokens) - option("prompt");
  // Runs without the prompt come before and after each with it: memory of a virtual machine may be twice as fast in one minute as in the next.
  if (room < 2) die("the context is too short");
  auto without = sequences(std::min(room - 1, 400), {});
  for (int run = 0; run < option("repeat"); ++run) {
    double from = 0, to = 0;
    Disturbance before, after;
    auto others = sequences(room, [&] {
      from = now();
      before = Disturbance::now();
      auto longOne = submit(engine, requestOf(randomPrompt(random, option("long"), program), 1));
      longOne->wait();
      to = longOne->times[0];
      after = Disturbance::now();
    });
    // Histories grow, and gaps with them: every gap beside the long prompt is held against the one of the same sequence at
    // the same token in the runs without it before and after.
    size_t most = 0;
    for (auto &client : others)
      most = std::max(most, client->times.size());
    if (static_cast<int>(most) >= room) die("the sequences ended before the prompt had been computed: the context is too short");
    auto earlier = std::exchange(without, sequences(static_cast<int>(most), {}));
    std::vector<double> alone, during;
    for (size_t c = 0; c < others.size(); ++c)
      for (size_t i = 1; i < others[c]->times.size(); ++i) {
        double begin = others[c]->times[i - 1], at = others[c]->times[i];
        if (at <= from || at > to) continue;
        during.push_back(at - begin);
        for (auto *run : {&earlier, &without})
          if (auto &times = (*run)[c]->times; i < times.size()) alone.push_back(times[i] - times[i - 1]);
      }
    double p50 = quantile(alone, 0.5), p99 = quantile(during, 0.99);
    ratios.push_back(p99 / p50);
    ratiosAlone.push_back(quantile(alone, 0.99) / p50);
    middles.push_back(quantile(during, 0.5) / p50);
    firsts.push_back(to - from);
    std::printf("  without it p50 %.1f ms, p99 %.1f ms; with it p50 %.1f ms, p99 %.1f ms = %.2f of p50 without, %.1f %% of %zu gaps above "
                "twice it, its first token after %.2f s; %.0f ms of processors stolen, %ld page faults, %ld preemptions\n",
                1e3 * p50, 1e3 * quantile(alone, 0.99), 1e3 * quantile(during, 0.5), 1e3 * p99, ratios.back(),
                100.0 * double(std::count_if(during.begin(), during.end(), [&](double g) { return g > 2 * p50; })) /
                    std::max<double>(1, double(during.size())),
                during.size(), firsts.back(), 1e3 * (after.stolen - before.stolen), after.faults - before.faults,
                after.preemptions - before.preemptions);
    std::fflush(stdout);
  }
  double ratio = quantile(ratios, 0.5);
  std::printf("%d sequences, time between tokens while a prompt of %d is computed, in parts of the p50 without it, medians of %d: p50 %.2f, "
              "p99 %.2f; p99 without it %.2f; the prompt's first token after %.2f s\n",
              option("concurrent"), option("long"), option("repeat"), quantile(middles, 0.5), ratio, quantile(ratiosAlone, 0.5),
              quantile(firsts, 0.5));
  if (option("check") && !(ratio <= 2)) std::exit(1);
}

void prefix(RequestEngine &engine, const Program &program) {
  std::mt19937_64 random(3);
  std::vector<double> cold, warm;
  uint32_t cached = 0;
  bool equal = true;
  for (int round = 0; round < option("repeat"); ++round) {
    auto shared = randomPrompt(random, option("prompt"), program);
    auto withTail = [&] {
      auto prompt = shared;
      auto tail = randomPrompt(random, option("tail"), program);
      prompt.insert(prompt.end(), tail.begin(), tail.end());
      return prompt;
    };
    auto first = withTail(), second = withTail();
    engine.clearPrefixCache();
    auto one = submit(engine, requestOf(first, option("new")));
    one->wait();
    engine.waitIdle(10);
    auto hit = submit(engine, requestOf(second, option("new")));
    hit->wait();
    engine.waitIdle(10);
    engine.clearPrefixCache();
    auto miss = submit(engine, requestOf(second, option("new")));
    miss->wait();
    engine.waitIdle(10);
    cold.push_back(miss->usage.ttftSeconds);
    warm.push_back(hit->usage.ttftSeconds);
    cached = hit->usage.cachedTokens;
    equal &= hit->ids == miss->ids && hit->logprobs.size() == miss->logprobs.size() &&
             std::memcmp(hit->logprobs.data(), miss->logprobs.data(), hit->logprobs.size() * 4) == 0;
    if (miss->usage.cachedTokens) die("a cleared cache had a hit");
  }
  double p = option("prompt"), q = option("tail"), bound = 1.2 * (q + program.kvGroups[0].pageTokens) / (p + q);
  std::printf("prompt of %.0f + %.0f tokens, %u cached: first token after %.1f ms, %.1f ms without the cache (ratio "
              "%.3f; (q + page) / (P + q) x 1.2 = %.3f); bits %s\n",
              p, q, cached, 1e3 * quantile(warm, 0.5), 1e3 * quantile(cold, 0.5),
              quantile(warm, 0.5) / quantile(cold, 0.5), bound,
              equal ? "equal" : "DIFFER");
  if (!equal || (option("check") && !(quantile(warm, 0.5) <= bound * quantile(cold, 0.5)))) std::exit(1);
}

} // namespace

int main(int argc, char **argv) {
  if (argc < 3) die("usage: lathe-engine-bench load|steps|gap|prefix ARTIFACT [--NAME VALUE]...");
  for (int i = 3; i + 1 < argc; i += 2) {
    auto found = options.find(argv[i] + (std::strncmp(argv[i], "--", 2) == 0 ? 2 : 0));
    if (found == options.end()) die(std::string("unknown option '") + argv[i] + "'");
    found->second = std::atof(argv[i + 1]);
  }
  std::string mode = argv[1];
  auto artifact = LoadedArtifact::load(argv[2]);
  if (!artifact.ok()) die(artifact.status().message());
  std::shared_ptr<TextModel> text;
  if (option("text"))
    if (auto made = TextModel::create(**artifact); made.ok()) text = std::make_shared<TextModel>(*std::move(made));
  RequestEngineOptions o;
  o.threads = static_cast<unsigned>(option("threads"));
  o.contextTokens = static_cast<uint32_t>(option("context"));
  o.maxSequences = static_cast<uint32_t>(option("concurrent") + 4);
  o.stepTokens = static_cast<uint32_t>(option("step-tokens"));
  o.itlTarget = options["itl-ms"] / 1e3;
  o.prefixCache = option("prefix-cache");
  o.kvTokens = static_cast<uint64_t>(options["kv-tokens"]);
  double begin = now();
  StepLog steps;
  auto engine = RequestEngine::create(*artifact, text, o, nullptr, &steps);
  if (!engine.ok()) die(engine.status().message());
  EngineLimits limits = (*engine)->limits();
  std::printf("%s: ready in %.2f s, %u threads, %llu KV tokens, steps of at most %u rows\n", argv[2], now() - begin,
              limits.threads, static_cast<unsigned long long>(limits.kvTokens), limits.stepTokens);
  std::this_thread::sleep_for(std::chrono::seconds(2)); // it touches memory while it is idle, as a server does
  const Program &program = (*artifact)->program();
  if (mode == "load" || mode == "steps") {
    load(**engine, program);
    (*engine).reset(); // nobody writes to the log any more
    if (mode == "steps") steps.print();
  } else if (mode == "gap")
    gap(**engine, program);
  else if (mode == "prefix")
    prefix(**engine, program);
  else
    die("unknown mode '" + mode + "', expected load, steps, gap or prefix");
}
