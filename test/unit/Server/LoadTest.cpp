//===- LoadTest.cpp - the load tool ---------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "TestServer.h"
#include "ToyArtifact.h"
#include "runtime/metrics/ModelMetrics.h"
#include "tools/lathe/load/Client.h"
#include <cmath>
#include <gtest/gtest.h>
#include <numeric>

using namespace lathe;
using namespace lathe::load;
using namespace lathe::test;

namespace {

RunOptions toward(const TestServer &server) {
  RunOptions options;
  options.target = *parseUrl("http://127.0.0.1:" + std::to_string(server.port()) + "/v1");
  options.model = "toy";
  return options;
}

WorkloadOptions small(uint32_t requests) {
  WorkloadOptions w;
  w.requests = requests;
  w.vocabulary = 40;
  w.input.mean = 5;
  w.output.mean = 3;
  return w;
}

double mean(const std::vector<double> &values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}
double deviation(const std::vector<double> &values) {
  double m = mean(values), sum = 0;
  for (double v : values)
    sum += (v - m) * (v - m);
  return std::sqrt(sum / static_cast<double>(values.size()));
}

} // namespace

TEST(Workload, ASeedGivesTheSameRequests) {
  WorkloadOptions w = small(50);
  w.rate = 10;
  w.input.sigma = 0.5;
  w.abortShare = 0.2;
  auto a = planWorkload(w), b = planWorkload(w);
  w.seed = 2;
  auto c = planWorkload(w);
  ASSERT_EQ(a.size(), 50u);
  size_t equal = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].arrival, b[i].arrival);
    EXPECT_EQ(a[i].turns[0].prompt, b[i].turns[0].prompt);
    EXPECT_EQ(a[i].abortAfter, b[i].abortAfter);
    equal += a[i].turns[0].prompt == c[i].turns[0].prompt;
  }
  EXPECT_LT(equal, 5u);
}

TEST(Workload, ArrivalsAndLengthsHaveTheirDistributions) {
  WorkloadOptions w = small(20000);
  w.rate = 50;
  w.input = {200, 0.8, 1u << 20};
  for (double burstiness : {1.0, 0.25, 4.0}) {
    w.burstiness = burstiness;
    std::vector<double> gaps, lengths;
    double before = 0;
    for (const PlannedRequest &r : planWorkload(w)) {
      gaps.push_back(r.arrival - before);
      before = r.arrival;
      lengths.push_back(static_cast<double>(r.turns[0].prompt.size()));
    }
    EXPECT_NEAR(mean(gaps), 1 / 50.0, 0.001);
    EXPECT_NEAR(deviation(gaps) / mean(gaps), 1 / std::sqrt(burstiness), 0.05 / std::sqrt(burstiness));
    EXPECT_NEAR(mean(lengths), 200, 6);
    EXPECT_NEAR(deviation(lengths) / mean(lengths), std::sqrt(std::exp(0.64) - 1), 0.06); // of a log-normal
  }
}

TEST(Workload, MixesAndPrefixes) {
  WorkloadOptions w = small(2000);
  w.abortShare = 0.25;
  w.slowShare = 0.5;
  w.sharedPrefix = 7;
  w.groups = 4;
  w.turns = 2;
  std::map<std::vector<int32_t>, int> prefixes;
  int aborts = 0, slow = 0;
  for (const PlannedRequest &r : planWorkload(w)) {
    ++prefixes[{r.turns[0].prompt.begin(), r.turns[0].prompt.begin() + 7}];
    EXPECT_EQ(r.turns[0].prompt.size(), 12u);
    EXPECT_EQ(r.turns[1].prompt.size(), 5u);
    aborts += r.abortAfter > 0;
    slow += r.slow;
  }
  EXPECT_EQ(prefixes.size(), 4u);
  EXPECT_NEAR(aborts, 500, 80);
  EXPECT_NEAR(slow, 1000, 100);
}

TEST(Report, PercentilesAndGoodput) {
  std::vector<double> values(100);
  std::iota(values.begin(), values.end(), 1);
  EXPECT_EQ(percentile(values, .5), 50);
  EXPECT_EQ(percentile(values, .99), 99);
  EXPECT_EQ(percentile(values, 1), 100);
  EXPECT_EQ(percentile({3}, .01), 3);
  EXPECT_EQ(percentile({}, .5), 0);
  std::vector<Record> records(4);
  for (int i = 0; i < 4; ++i) {
    Record &r = records[static_cast<size_t>(i)];
    r.due = i;
    r.sent = i + 0.5; // it had to wait: the latency counts from due
    r.first = i + 1.0;
    r.last = r.end = i + 1 + 0.1 * (i + 1) * 9;
    r.newTokens = 10;
    r.promptTokens = 5;
    r.outcome = Outcome::complete;
  }
  records[3].outcome = Outcome::refused;
  records[3].status = 429;
  Objectives o;
  o.ttft = 1;
  o.tpot = 0.21;
  auto s = summarize(records, o, 0);
  EXPECT_EQ(s["complete"], 3);
  EXPECT_EQ(s["refused"], 1);
  EXPECT_EQ(s["errors"]["429"], 1);
  EXPECT_NEAR(s["ttft"]["p50"].get<double>(), 1, 1e-9);
  EXPECT_NEAR(s["tpot"]["max"].get<double>(), 0.3, 1e-9);
  EXPECT_NEAR(s["largest_client_lag_seconds"].get<double>(), 0.5, 1e-9);
  EXPECT_EQ(s["goodput"]["good"], 2);
  EXPECT_EQ(summarize(records, o, 1)["requests"], 3);
  EXPECT_NE(printed(s).find("goodput: 50.0 %"), std::string::npos);
  std::string svg = plot(records, s, 0);
  EXPECT_EQ(svg.rfind("<svg ", 0), 0u);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(plot({}, summarize({}, {}, 0), 0).rfind("<svg ", 0), 0u);
}

TEST(Client, Urls) {
  EXPECT_EQ(parseUrl("http://localhost:81/api/v1/")->base, "/api");
  EXPECT_EQ(parseUrl("http://[::1]:81")->host, "::1");
  EXPECT_EQ(parseUrl("http://[::1]")->port, 80);
  for (const char *wrong : {"localhost:8000", "https://a", "http://", "http://a:b"})
    EXPECT_EQ(parseUrl(wrong).status().message(), "expected a URL as http://127.0.0.1:8000, found '" + std::string(wrong) + "'");
}

TEST(Client, ClosedLoop) {
  auto engine = std::make_shared<FakeEngine>();
  TestServer server(engine);
  RunOptions o = toward(server);
  EXPECT_EQ(askServer(o)->vocabulary, 50u);
  o.concurrency = 4;
  auto records = runWorkload(planWorkload(small(20)), o);
  auto s = summarize(records, {}, 0);
  EXPECT_EQ(s["complete"], 20) << s.dump();
  EXPECT_EQ(s["new_tokens"], 60);
  EXPECT_EQ(s["prompt_tokens"], 100);
  EXPECT_EQ(s["itl"]["count"], 40);
  EXPECT_TRUE(engine->seen()[0].ignoreEnd);
}

// Where localhost is ::1 first and the server listens on 127.0.0.1.
TEST(Client, EveryAddressIsTried) {
  TestServer server(std::make_shared<FakeEngine>());
  RunOptions o = toward(server);
  o.target.addresses = {"127.0.0.2", "127.0.0.1"};
  EXPECT_EQ(askServer(o)->vocabulary, 50u);
  EXPECT_EQ(summarize(runWorkload(planWorkload(small(3)), o), {}, 0)["complete"], 3);
  o.target.addresses = {"127.0.0.2"};
  EXPECT_EQ(askServer(o).status().message(), "no server answers at 127.0.0.1 port " + std::to_string(server.port()) + ": Connection refused");
  EXPECT_EQ(runWorkload(planWorkload(small(1)), o)[0].outcome, Outcome::failed);
}

// Server, engine and clients that leave, all with their own threads: what the thread sanitizer sees together nowhere else.
TEST(Client, ARealEngineBehindTheServer) {
  ToyOptions toy;
  toy.words = true;
  ASSERT_TRUE(writeToyArtifact("load-test.lathe", toy).ok());
  auto artifact = runtime::LoadedArtifact::load("load-test.lathe");
  ASSERT_TRUE(artifact.ok());
  auto fake = std::make_shared<FakeEngine>();
  server::ServedModel real = toyModel(fake);
  real.name = "real";
  real.metrics = std::make_shared<metrics::ModelMetrics>("real", 0);
  runtime::RequestEngineOptions options;
  options.threads = 2;
  options.maxSequences = 4;
  options.kvTokens = 512;
  options.memoryBudget = uint64_t(1) << 30;
  options.savedKvBytes = 1 << 20;
  auto engine = runtime::RequestEngine::create(*artifact, real.text, options, nullptr, real.metrics.get());
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  real.engine = *std::move(engine);
  TestServer server(fake, {}, {real});
  RunOptions o = toward(server);
  o.model = "real";
  o.concurrency = 8;
  WorkloadOptions w = small(60);
  w.input.mean = 20, w.output.mean = 30;
  w.abortShare = 0.3;
  auto s = summarize(runWorkload(planWorkload(w), o), {}, 0);
  EXPECT_EQ(s["failed"], 0) << s.dump();
  EXPECT_GT(s["complete"], 20);
  EXPECT_GT(s["aborted"], 0);
  EXPECT_EQ(s["complete"].get<int>() + s["aborted"].get<int>(), 60);
  EXPECT_TRUE(eventually([&] { return real.engine->idle(); }));
  EXPECT_EQ(real.engine->stats().kvBlocksUsed, 0u);
  EXPECT_TRUE(real.engine->broken().ok());
  EXPECT_GT(server.metric("lathe:generation_tokens_total{model_name=\"real\"}"), 0);
}

TEST(Client, LatenciesCountFromTheDueTime) {
  // One request at a time is let through, each takes at least 50 ms, and all are due at once: whoever waits for its turn
  // has waited from the start.
  auto engine = std::make_shared<FakeEngine>([](auto &) {
    Script s;
    s.secondsBefore = 0.05;
    return s;
  });
  TestServer server(engine);
  RunOptions o = toward(server);
  o.concurrency = 1;
  WorkloadOptions w = small(6);
  w.rate = 1e6;
  auto records = runWorkload(planWorkload(w), o);
  ASSERT_EQ(records.size(), 6u);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(records[i].outcome, Outcome::complete);
    EXPECT_GE(records[i].ttft(), 0.05 * static_cast<double>(i + 1) - 0.001);
  }
}

TEST(Client, TurnsAbortsSlowReadersAndErrors) {
  Script script;
  script.repeat = 30;
  script.secondsBetween = 0.001;
  auto engine = std::make_shared<FakeEngine>([script](const runtime::Request &r) {
    Script s = script;
    if (r.prompt.size() == 3) s.refuse = Status(StatusCode::resourceExhausted, "the queue is full");
    return s;
  });
  TestServer server(engine);
  RunOptions o = toward(server);
  o.chat = true;
  WorkloadOptions w = small(3);
  w.turns = 3;
  w.input.mean = 2;
  auto records = runWorkload(planWorkload(w), o);
  ASSERT_EQ(records.size(), 9u);
  for (size_t i = 0; i < 9; ++i)
    EXPECT_EQ(records[i].outcome, Outcome::complete) << records[i].error;
  auto seen = engine->seen();
  size_t longest = 0, shortest = SIZE_MAX;
  for (const auto &r : seen) {
    longest = std::max(longest, r.prompt.size());
    shortest = std::min(shortest, r.prompt.size());
  }
  EXPECT_GT(longest, 2 * shortest); // later turns carry the history

  o.chat = false;
  w = small(10);
  w.abortShare = 1;
  w.output.mean = 60;
  auto aborted = runWorkload(planWorkload(w), o);
  EXPECT_EQ(summarize(aborted, {}, 0)["aborted"], 10);
  EXPECT_TRUE(eventually([&] { return engine->running == 0; }));
  EXPECT_GT(engine->cancelled, 0u);

  w = small(2);
  w.slowShare = 1;
  o.slowBytesPerSecond = 20000;
  auto slow = runWorkload(planWorkload(w), o);
  EXPECT_EQ(slow[0].outcome, Outcome::complete);
  EXPECT_EQ(summarize(slow, {}, 0)["ttft"]["count"], 0); // they choose their own pace

  w = small(2);
  w.input.mean = 3;
  auto refused = runWorkload(planWorkload(w), o);
  EXPECT_EQ(refused[0].outcome, Outcome::refused) << refused[0].status << refused[0].error;
  EXPECT_EQ(refused[0].status, 429);
  o.target.port = 1;
  EXPECT_EQ(runWorkload(planWorkload(small(1)), o)[0].outcome, Outcome::failed);
  EXPECT_EQ(askServer(o).status().message(), "no server answers at 127.0.0.1 port 1: Connection refused");
}
