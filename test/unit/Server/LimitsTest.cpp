//===- LimitsTest.cpp - bounds, clients that misbehave, the end -----------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "TestServer.h"
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>
#include <unistd.h>

using namespace lathe;
using namespace lathe::server;
using namespace lathe::test;
using nlohmann::json;

namespace {

const std::string chat = R"({"messages":[{"role":"user","content":"hi"}])";
const std::string chatPath = "/v1/chat/completions";

std::shared_ptr<FakeEngine> says(Script script) {
  return std::make_shared<FakeEngine>([script](auto &) { return script; });
}
std::shared_ptr<FakeEngine> waits() {
  Script s;
  s.secondsBefore = 1000;
  return says(s);
}

} // namespace

TEST(Limits, Sizes) {
  ServerOptions options;
  options.maxBodyBytes = 1000;
  options.maxHeaderBytes = 2000;
  TestServer server(says({}), options);
  Answer body = server.post(chatPath, chat + ",\"x\":\"" + std::string(1000, 'x') + "\"}");
  EXPECT_EQ(body.status, 413);
  EXPECT_EQ(body.json()["error"]["message"], "the body has more than 1000 bytes");
  // The same without a length.
  Client client(server.port());
  client.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n" + std::string(2000, ' ') + "\r\n");
  EXPECT_EQ(client.read().status, 413);
  EXPECT_TRUE(client.closed());
  EXPECT_EQ(server.get("/health", "X-Long: " + std::string(3000, 'x') + "\r\n").status, 431);
  EXPECT_EQ(server.send("\x16\x03\x01 not http\r\n\r\n").status, 400);
  EXPECT_EQ(server.send("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n").status, 400);
  EXPECT_EQ(server.get("/health").status, 200);
}

TEST(Limits, BodiesTogether) {
  ServerOptions options;
  options.maxBodyBytes = 1000;
  options.maxBodiesBytes = 1500;
  TestServer server(says({}), options);
  Client slow(server.port());
  slow.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_TRUE(slow.readUntil("100 Continue"));
  Answer refused = server.post(chatPath, chat + ",\"x\":\"" + std::string(700, 'x') + "\"}");
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.headers["retry-after"], "1");
  EXPECT_EQ(server.post(chatPath, chat + "}").status, 200);
  slow.close();
  EXPECT_TRUE(eventually([&] { return server.post(chatPath, chat + ",\"x\":\"" + std::string(700, 'x') + "\"}").status == 200; }));
}

TEST(Limits, BodiesCountUntilTheyAreParsed) {
  auto engine = says({});
  ServerOptions options;
  options.maxBodyBytes = 1000;
  options.maxBodiesBytes = 1500;
  options.workers = 1;
  TestServer server(engine, options);
  const std::string large = chat + ",\"x\":\"" + std::string(700, 'x') + "\"}";
  Client metrics(server.port()), first(server.port());
  {
    std::lock_guard busy(engine->gate); // the only worker
    metrics.send(request("/metrics"));
    first.send(request(chatPath, large));
    // The first body is read and waits for the worker: there is no room for another, however often one asks.
    EXPECT_TRUE(eventually([&] {
      Client second(server.port());
      second.send(request(chatPath, large));
      return second.readUntil("\r\n\r\n") && second.readUntil("the bodies of other requests fill the memory for bodies");
    }));
    EXPECT_EQ(server.get("/health").status, 200);
  }
  EXPECT_EQ(first.read().status, 200);
  EXPECT_EQ(metrics.read().status, 200);
  EXPECT_EQ(server.post(chatPath, large).status, 200);
}

TEST(Limits, TimeForHeaderAndBody) {
  ServerOptions options;
  options.headerTimeout = 0.2;
  options.bodyTimeout = 0.2;
  options.idleTimeout = 0.2;
  TestServer server(says({}), options);
  Client header(server.port()), body(server.port()), silent(server.port()), idle(server.port());
  header.send("GET /health HTTP/1.1\r\nHost: local");
  body.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{");
  idle.send(request("/health"));
  EXPECT_EQ(idle.read().status, 200);
  Answer late = header.read();
  EXPECT_EQ(late.status, 408);
  EXPECT_EQ(late.json()["error"]["code"], "header_timeout");
  EXPECT_EQ(body.read().json()["error"]["code"], "body_timeout");
  EXPECT_TRUE(silent.closed());
  EXPECT_TRUE(idle.closed());
  EXPECT_EQ(server.metric("lathe:http_timeouts_total"), 2);
}

TEST(Limits, Connections) {
  ServerOptions options;
  options.maxConnections = 3;
  TestServer server(says({}), options);
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<Client>(server.port()));
    clients.back()->send(request("/health"));
    EXPECT_EQ(clients.back()->read().status, 200);
  }
  Answer refused = server.get("/health");
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.json()["error"]["code"], "too_many_connections");
  clients.pop_back();
  EXPECT_TRUE(eventually([&] { return server.get("/health").status == 200; }));
}

TEST(Limits, AClientThatDoesNotReadIsCancelled) {
  Script endless;
  endless.tokens = {{1, std::string(4000, 'x')}};
  endless.repeat = 1u << 20;
  auto engine = std::make_shared<FakeEngine>([endless](auto &request) { // a bound on what the engine says
    Script s = request.maxTokens > 5 ? endless : Script();
    s.secondsBetween = 1e-5;
    return s;
  });
  ServerOptions options;
  options.maxUnsentBytes = 100000;
  ServedModel model = toyModel(engine);
  model.name = "long";
  model.contextTokens = 1u << 20;
  TestServer server(engine, options, {model});
  Client stalled(server.port(), 4096);
  stalled.send(request(chatPath, R"({"model":"long","stream":true,"messages":[{"role":"user","content":"hi"}]})"));
  EXPECT_TRUE(eventually([&] { return engine->cancelled == 1; }));
  EXPECT_LT(engine->tokensSaid, 1000u); // the kernel's buffers, 100 KB, and what was on its way
  EXPECT_EQ(server.metric("lathe:http_slow_readers_total"), 1);
  EXPECT_EQ(server.post(chatPath, R"({"model":"toy","max_tokens":5,"messages":[{"role":"user","content":"hi"}]})").status, 200);
}

TEST(Limits, AnAnswerThatIsNotTakenEnds) {
  Script big;
  big.tokens = {{1, std::string(1 << 20, 'x')}};
  big.repeat = 16;
  ServerOptions options;
  options.writeTimeout = 0.3;
  TestServer server(says(big), options);
  Client stalled(server.port(), 4096);
  stalled.send(request(chatPath, chat + "}"));
  EXPECT_TRUE(eventually([&] { return server.metric("lathe:http_slow_readers_total") == 1; }));
}

TEST(Limits, HealthAnswersWhileManyClientsStall) {
  // Each stream has more for its client than the kernel's buffers hold, less than what would cut it off, and does not end.
  Script talk;
  talk.tokens = {{1, std::string(300000, 'x')}, {2, "end"}};
  talk.secondsBetween = 1000;
  TestServer server(says(talk));
  std::vector<std::unique_ptr<Client>> stalled;
  for (int i = 0; i < 200; ++i) {
    stalled.push_back(std::make_unique<Client>(server.port(), 4096));
    stalled.back()->send(request(chatPath, chat + ",\"stream\":true}"));
  }
  ASSERT_TRUE(eventually([&] { return server.metric("lathe:http_requests_in_flight") >= 201; })); // and the question itself
  for (int i = 0; i < 20; ++i)
    ASSERT_EQ(server.get("/health").status, 200);
  EXPECT_GE(server.metric("lathe:http_requests_in_flight"), 201); // they stall still
  EXPECT_EQ(server.metric("lathe:http_slow_readers_total"), 0);
}

TEST(Limits, WhoLeavesIsCancelled) {
  auto engine = waits();
  TestServer server(engine);
  auto ask = [&](const std::string &more) {
    auto client = std::make_unique<Client>(server.port());
    client->send(request(chatPath, chat + more + "}"));
    return client;
  };
  auto stream = ask(",\"stream\":true"), whole = ask(""), many = ask(",\"n\":4"), half = ask("");
  ASSERT_TRUE(eventually([&] { return engine->running == 4; }));
  stream->close();
  EXPECT_TRUE(eventually([&] { return engine->cancelled == 1; }));
  whole->close();
  many->close();
  EXPECT_TRUE(eventually([&] { return engine->cancelled == 3; }));
  half->halfClose(); // nobody will read the answer, as far as anyone can tell
  EXPECT_TRUE(eventually([&] { return engine->cancelled == 4 && engine->running == 0; }));
  EXPECT_EQ(server.metric("lathe:http_disconnects_total"), 4);
  EXPECT_TRUE(eventually([&] { return server.metric("lathe:http_requests_in_flight") == 1; })); // the question itself
}

// What it sent behind its request is more than is read meanwhile, so no read sees that it left.
TEST(Limits, WhoPipelinesAndLeavesIsCancelled) {
  auto engine = waits();
  TestServer server(engine);
  Client client(server.port());
  std::string more;
  while (more.size() < 40000)
    more += request("/health", "", "X-Long: " + std::string(2000, 'x') + "\r\n");
  client.send(request(chatPath, chat + "}") + more);
  ASSERT_TRUE(eventually([&] { return engine->running == 1; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(300)); // its silence is not taken for its end
  EXPECT_EQ(engine->cancelled, 0u);
  client.halfClose();
  EXPECT_TRUE(eventually([&] { return engine->cancelled == 1 && engine->running == 0; }));
}

// A peer that vanishes without a word is found by the kernel: the timer of each accepted socket runs.
TEST(Limits, TheKernelAsksSilentClients) {
  TestServer server(says({}));
  Client client(server.port());
  client.send(request("/health"));
  EXPECT_EQ(client.read().status, 200);
  char port[8];
  std::snprintf(port, sizeof port, ":%04X", server.port());
  EXPECT_TRUE(eventually([&] {
    std::ifstream table("/proc/net/tcp");
    std::string line, word[6];
    while (std::getline(table, line)) {
      std::istringstream words(line);
      for (std::string &w : word)
        words >> w;
      if (word[1].ends_with(port) && word[3] == "01") return word[5].starts_with("02:"); // connected; the keepalive timer
    }
    return false;
  }));
}

TEST(Limits, ACommentWhileNothingComes) {
  ServerOptions options;
  options.pingSeconds = 0.1;
  TestServer server(waits(), options);
  Client client(server.port());
  client.send(request(chatPath, chat + ",\"stream\":true}"));
  EXPECT_TRUE(client.readUntil(": ping\n\n"));
}

TEST(Limits, TheDeadlineGoesToTheEngine) {
  auto engine = says({});
  ServerOptions options;
  options.requestTimeout = 12;
  TestServer server(engine, options);
  EXPECT_EQ(server.post(chatPath, chat + "}").status, 200);
  EXPECT_EQ(engine->seen().at(0).deadline, 12);
}

TEST(Limits, PipelinedRequestsAreAnsweredInOrder) {
  TestServer server(says({}));
  Client client(server.port());
  client.send(request("/health") + request(chatPath, chat + "}") + request("/v1/models") + request("/health"));
  EXPECT_EQ(client.read().body, "{\"status\":\"ok\"}");
  EXPECT_EQ(client.read().json()["object"], "chat.completion");
  EXPECT_EQ(client.read().json()["object"], "list");
  EXPECT_EQ(client.read().body, "{\"status\":\"ok\"}");
  // A connection stays for the next request after a stream, too.
  client.send(request(chatPath, chat + ",\"stream\":true}"));
  EXPECT_EQ(client.read().events().back(), "[DONE]");
  client.send(request("/health", "", "Connection: close\r\n"));
  EXPECT_EQ(client.read().headers["connection"], "close");
  EXPECT_TRUE(client.closed());
}

TEST(Drain, LosesNothingThatHadBegun) {
  Script slow;
  slow.secondsBetween = 0.3;
  auto engine = says(slow);
  TestServer server(engine);
  Client stream(server.port()), whole(server.port()), idle(server.port());
  stream.send(request(chatPath, chat + ",\"stream\":true}"));
  whole.send(request(chatPath, chat + "}"));
  ASSERT_TRUE(eventually([&] { return engine->running == 2; }));
  server.shutDown();
  EXPECT_TRUE(eventually([&] { return server.get("/ready").status == 503; }));
  EXPECT_EQ(server.get("/health").status, 200);
  Answer refused = server.post(chatPath, chat + "}");
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.json()["error"]["code"], "shutting_down");
  EXPECT_EQ(refused.headers["retry-after"], "30");
  EXPECT_EQ(stream.read().events().back(), "[DONE]");
  EXPECT_EQ(whole.read().json()["choices"][0]["message"]["content"], "Hello world");
  EXPECT_TRUE(server.join());
}

TEST(Drain, TheTimeIsBounded) {
  auto engine = waits();
  ServerOptions options;
  options.shutdownTimeout = 0.2;
  TestServer server(engine, options);
  Client stream(server.port()), whole(server.port());
  stream.send(request(chatPath, chat + ",\"stream\":true}"));
  whole.send(request(chatPath, chat + "}"));
  ASSERT_TRUE(eventually([&] { return engine->running == 2; }));
  server.shutDown();
  Answer streamed = stream.read(); // nothing was said yet
  EXPECT_EQ(streamed.status, 503);
  EXPECT_EQ(streamed.json()["error"]["code"], "shutting_down");
  EXPECT_EQ(whole.read().status, 503);
  EXPECT_FALSE(server.join());
  EXPECT_EQ(engine->cancelled, 2u);
}

TEST(Drain, ABodyThatWasLetInGetsAnAnswer) {
  for (bool comes : {true, false}) {
    ServerOptions options;
    options.shutdownTimeout = comes ? 20 : 0.2;
    TestServer server(says({}), options);
    Client client(server.port());
    const std::string body = chat + "}";
    client.send("POST " + chatPath + " HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n");
    ASSERT_TRUE(client.readUntil("100 Continue\r\n\r\n"));
    server.shutDown();
    if (comes) {
      EXPECT_TRUE(eventually([&] { return server.get("/ready").status == 503; })); // so it waits for the body
      client.send(body);
    }
    Answer refused = client.read(); // the first one was "100 Continue"
    EXPECT_EQ(refused.status, 503);
    EXPECT_EQ(refused.json()["error"]["code"], "shutting_down");
    EXPECT_TRUE(server.join());
  }
}

TEST(Drain, TheSecondSignalEndsAtOnce) {
  auto engine = waits();
  ServerOptions options;
  options.shutdownTimeout = 1000; // for which this test would wait if the second signal did nothing
  TestServer server(engine, options);
  Client client(server.port());
  client.send(request(chatPath, chat + "}"));
  ASSERT_TRUE(eventually([&] { return engine->running == 1; }));
  server.shutDown();
  server.shutDown();
  EXPECT_FALSE(server.join());
}

TEST(Start, SaysWhatIsWrong) {
  auto message = [](std::vector<ServedModel> models, ServerOptions options) {
    options.port = 0;
    return Server::create(std::move(models), std::move(options)).status().message();
  };
  ServedModel toy = toyModel(std::make_shared<FakeEngine>());
  EXPECT_EQ(message({}, {}), "expected at least one model");
  EXPECT_EQ(message({toy, toy}, {}), "two models have the name 'toy'; see --served-name");
  ServerOptions many;
  many.maxConnections = 1u << 30;
  EXPECT_EQ(message({toy}, many).substr(0, 36), "1073741824 connections need 10737418");
  ServerOptions log;
  log.accessLog = "/nowhere/access.log";
  EXPECT_EQ(message({toy}, log), "access log '/nowhere/access.log': No such file or directory");
  TestServer first(std::make_shared<FakeEngine>());
  ServerOptions taken;
  taken.port = first.port();
  EXPECT_EQ(Server::create({toy}, taken).status().message(),
            "cannot listen on 127.0.0.1 port " + std::to_string(first.port()) + ": Address already in use");
}

TEST(Start, SaysEveryLimit) {
  auto engine = std::make_shared<FakeEngine>();
  runtime::EngineLimits &e = engine->bounds;
  e.contextTokens = 201, e.maxSequences = 202, e.kvTokens = 402, e.stepTokens = 203, e.maxQueued = 204, e.maxQueuedTokens = 205;
  e.threads = 6, e.memoryBytes = 207e6, e.savedKvBytes = 208e6, e.saveBytesPerSecond = 2.5e9;
  ServedModel toy = toyModel(engine);
  toy.about = {"device of its own"};
  ServerOptions o;
  o.maxConnections = 301, o.maxHeaderBytes = 302, o.headerTimeout = 30.5, o.maxBodyBytes = 303, o.bodyTimeout = 31.5;
  o.maxBodiesBytes = 304, o.maxUnsentBytes = 305, o.writeTimeout = 32.5, o.pingSeconds = 33.5, o.idleTimeout = 34.5;
  o.requestTimeout = 35.5, o.shutdownTimeout = 36.5, o.workers = 7;
  o.api = {11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21};
  std::vector<std::string> lines = limitLines({toy}, o);
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_EQ(lines[0], "model toy: context 201 tokens, 202 sequences at once, KV cache 402 tokens (2.0 full contexts), 203 rows a step, queue 204 requests of 205 prompt "
                      "tokens, 6 threads, 207 MB for KV cache and work space, 208 MB for saved KV blocks");
  EXPECT_EQ(lines[1], "model toy: KV blocks go to the host and back at 2.5 GB/s");
  EXPECT_EQ(lines[2], "model toy: device of its own");
  EXPECT_EQ(lines[3], "server: 301 connections, header 302 bytes in 30.5 s, body 303 bytes in 31.5 s, all bodies 304 bytes, unsent 305 bytes a stream, 32.5 s without a "
                      "byte taken, ping after 33.5 s, idle 34.5 s, request 35.5 s, shutdown 36.5 s, 7 workers; 16384 bytes read behind a request, 2 s for a client "
                      "to read a last answer, 75 s until one that vanished is given up, 100 unknown fields in the log");
  EXPECT_EQ(lines[4], "request: n 11, 12 prompts, 13 stop strings of 14 bytes, 15 stop token ids, 16 log-probabilities, 17 biases, 18 messages, JSON of 21 levels, 20 "
                      "values in chat_template_kwargs, 19 bytes of cache_salt, prompt_logprobs of 1048576 values");
  EXPECT_EQ(lines[5], "access: 0 keys, nobody needs one");
}

TEST(AccessLog, OneLineARequestAndNoWords) {
  unlink("server-test-access.log");
  ServerOptions options;
  options.accessLog = "server-test-access.log";
  options.maxBodyBytes = 1000;
  {
    TestServer server(says({}), options);
    EXPECT_EQ(server.post(chatPath, R"({"messages":[{"role":"user","content":"secret words"}]})").status, 200);
    EXPECT_EQ(server.post(chatPath, "{").status, 400);
    EXPECT_EQ(server.get("/health").status, 200);
    EXPECT_EQ(server.get("/nothing").status, 404); // what becomes no call, too
    EXPECT_EQ(server.post(chatPath, std::string(2000, ' ')).status, 413);
  }
  std::ifstream file("server-test-access.log");
  std::vector<json> lines;
  for (std::string line; std::getline(file, line);) {
    EXPECT_EQ(line.find("secret"), std::string::npos);
    lines.push_back(json::parse(line, nullptr, false));
  }
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(lines[3]["error"], "unknown_path");
  EXPECT_EQ(lines[3]["path"], "/nothing");
  EXPECT_EQ(lines[3]["remote"], "127.0.0.1");
  EXPECT_EQ(lines[4]["error"], "body_too_large");
  EXPECT_EQ(lines[4]["status"], 413);
  EXPECT_EQ(lines[4]["path"], chatPath);
  EXPECT_EQ(lines[0]["status"], 200);
  EXPECT_EQ(lines[0]["completion_tokens"], 3);
  EXPECT_EQ(lines[0]["finish_reasons"], json::parse("[\"stop\"]"));
  EXPECT_EQ(lines[1]["error"], "invalid_json");
  EXPECT_EQ(lines[2]["path"], "/health");
  unlink("server-test-access.log");
}
