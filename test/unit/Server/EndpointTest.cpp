//===- EndpointTest.cpp - answers over HTTP -------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "TestServer.h"
#include "ToyArtifact.h"
#include <cmath>
#include <gtest/gtest.h>

using namespace lathe;
using namespace lathe::server;
using namespace lathe::test;
using nlohmann::json;

namespace {

const std::string chat = R"({"model":"toy","messages":[{"role":"user","content":"hi"}])";

std::shared_ptr<FakeEngine> says(Script script) {
  return std::make_shared<FakeEngine>([script](auto &) { return script; });
}

} // namespace

TEST(Endpoint, ChatCompletion) {
  Script script;
  script.cachedTokens = 2;
  TestServer server(says(script));
  Answer a = server.post("/v1/chat/completions", chat + "}");
  ASSERT_EQ(a.status, 200) << a.body;
  json body = a.json();
  EXPECT_EQ(body["id"].get<std::string>().rfind("chatcmpl-", 0), 0u);
  EXPECT_EQ(a.headers["x-request-id"], body["id"].get<std::string>());
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_EQ(body["model"], "toy");
  EXPECT_EQ(body["system_fingerprint"], "fp_toy");
  EXPECT_EQ(body["choices"].size(), 1u);
  EXPECT_EQ(body["choices"][0]["message"], json::parse(R"({"role":"assistant","content":"Hello world","refusal":null})"));
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(body["choices"][0]["logprobs"], nullptr);
  EXPECT_EQ(body["choices"][0]["seed"], 77);
  int in = body["usage"]["prompt_tokens"];
  EXPECT_GT(in, 0);
  EXPECT_EQ(body["usage"]["completion_tokens"], 3);
  EXPECT_EQ(body["usage"]["total_tokens"], in + 3);
  EXPECT_EQ(body["usage"]["prompt_tokens_details"]["cached_tokens"], 2);
}

TEST(Endpoint, ChatStream) {
  TestServer server(says({}));
  Answer a = server.post("/v1/chat/completions", chat + R"(,"stream":true,"stream_options":{"include_usage":true}})");
  ASSERT_EQ(a.status, 200);
  EXPECT_EQ(a.headers["content-type"], "text/event-stream; charset=utf-8");
  auto events = a.events();
  ASSERT_EQ(events.size(), 7u); // role, three deltas, finish, usage, [DONE]
  std::string text;
  for (size_t i = 0; i < 6; ++i) {
    json event = json::parse(events[i]);
    EXPECT_EQ(event["object"], "chat.completion.chunk");
    EXPECT_EQ(event["id"], json::parse(events[0])["id"]);
    EXPECT_EQ(event.contains("usage"), true);
    EXPECT_EQ(event["usage"].is_null(), i != 5);
    if (i < 5) EXPECT_EQ(event["choices"][0]["finish_reason"], i == 4 ? json("stop") : json());
    if (i >= 1 && i <= 3) text += event["choices"][0]["delta"]["content"];
  }
  EXPECT_EQ(json::parse(events[0])["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(text, "Hello world");
  EXPECT_EQ(json::parse(events[4])["choices"][0]["delta"], json::object());
  EXPECT_EQ(json::parse(events[5])["choices"], json::array());
  EXPECT_EQ(json::parse(events[5])["usage"]["completion_tokens"], 3);
  EXPECT_EQ(events[6], "[DONE]");
}

TEST(Endpoint, AStreamWithoutUsageHasNone) {
  TestServer server(says({}));
  auto events = server.post("/v1/chat/completions", chat + R"(,"stream":true})").events();
  ASSERT_EQ(events.size(), 6u);
  for (size_t i = 0; i < 5; ++i)
    EXPECT_FALSE(json::parse(events[i]).contains("usage"));
}

TEST(Endpoint, Http10GetsAStreamThatEndsWithTheConnection) {
  TestServer server(says({}));
  std::string body = chat + R"(,"stream":true})";
  Answer a = server.send("POST /v1/chat/completions HTTP/1.0\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
  EXPECT_EQ(a.status, 200);
  EXPECT_EQ(a.headers.count("transfer-encoding"), 0u);
  ASSERT_EQ(a.events().size(), 6u);
  EXPECT_EQ(a.events().back(), "[DONE]");
}

TEST(Endpoint, SeveralChoicesAndPrompts) {
  TestServer server(says({}));
  json body = server.post("/v1/completions", R"({"prompt":["a","b"],"n":2,"seed":5})").json();
  ASSERT_EQ(body["choices"].size(), 4u) << body.dump();
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(body["choices"][i]["index"], i);
    EXPECT_EQ(body["choices"][i]["text"], "Hello world");
    EXPECT_EQ(body["choices"][i]["seed"], 5);
  }
  EXPECT_EQ(body["usage"]["completion_tokens"], 12);
  auto events = server.post("/v1/completions", R"({"prompt":["a","b"],"n":2,"stream":true})").events();
  std::map<int, std::string> texts;
  std::map<int, int> finishes;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    json event = json::parse(events[i]);
    for (const json &choice : event["choices"]) {
      texts[choice["index"]] += choice["text"];
      finishes[choice["index"]] += !choice["finish_reason"].is_null();
    }
  }
  EXPECT_EQ(texts.size(), 4u);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(texts[i], "Hello world");
    EXPECT_EQ(finishes[i], 1);
  }
}

TEST(Endpoint, ChatLogprobs) {
  Script script;
  script.tokens = {{4, "e"}, {5, "f"}};
  TestServer server(says(script));
  json whole = server.post("/v1/chat/completions", chat + R"(,"logprobs":true,"top_logprobs":2})").json();
  json list = whole["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(list.size(), 2u) << whole.dump();
  EXPECT_EQ(list[0]["logprob"], -0.5);
  EXPECT_EQ(list[0]["bytes"].size(), list[0]["token"].get<std::string>().size());
  ASSERT_EQ(list[0]["top_logprobs"].size(), 2u);
  EXPECT_EQ(list[0]["top_logprobs"][1]["logprob"], -1.5);
  // The stream says the same, a token at a time.
  auto events = server.post("/v1/chat/completions", chat + R"(,"logprobs":true,"top_logprobs":2,"stream":true})").events();
  json streamed = json::array();
  for (size_t i = 0; i + 1 < events.size(); ++i)
    if (json part = json::parse(events[i])["choices"][0]["logprobs"]; !part.is_null())
      for (const json &token : part["content"])
        streamed.push_back(token);
  EXPECT_EQ(streamed, list);
}

TEST(Endpoint, CompletionLogprobsAndEcho) {
  Script script;
  script.tokens = {{4, "e"}, {5, "f"}};
  TestServer server(says(script));
  json choice = server.post("/v1/completions", R"({"prompt":[1,2,3],"logprobs":1,"echo":true,"max_tokens":2})").json()["choices"][0];
  json lists = choice["logprobs"];
  ASSERT_EQ(lists["tokens"].size(), 5u) << choice.dump();
  for (const char *name : {"token_logprobs", "top_logprobs", "text_offset"})
    EXPECT_EQ(lists[name].size(), 5u);
  EXPECT_EQ(lists["token_logprobs"][0], nullptr);
  EXPECT_EQ(lists["top_logprobs"][0], nullptr);
  EXPECT_EQ(lists["token_logprobs"][1], -0.25);
  EXPECT_EQ(lists["token_logprobs"][3], -0.5);
  std::string text = choice["text"], pieces;
  EXPECT_EQ(text.substr(text.size() - 2), "ef");
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(lists["text_offset"][i], pieces.size()); // all of one byte here
    pieces += lists["tokens"][i];
  }
  // Streamed: the prompt first, then the rest; put together the same lists, for each choice.
  auto events = server.post("/v1/completions", R"({"prompt":[1,2,3],"logprobs":1,"echo":true,"stream":true,"max_tokens":2,"n":2})").events();
  EXPECT_EQ(json::parse(events[0])["choices"][0]["logprobs"]["tokens"].size(), 3u);
  json together[2];
  for (const std::string &event : events) {
    json chunk = json::parse(event, nullptr, false);
    if (!chunk.is_object() || chunk["choices"][0]["logprobs"].is_null()) continue;
    for (auto &[name, list] : chunk["choices"][0]["logprobs"].items())
      for (const json &value : list)
        together[chunk["choices"][0]["index"].get<int>()][name].push_back(value);
  }
  EXPECT_EQ(together[0], lists);
  EXPECT_EQ(together[1], lists);
}

TEST(Endpoint, PromptLogprobs) {
  TestServer server(says({}));
  json body = server.post("/v1/completions", R"({"prompt":[7,8],"prompt_logprobs":2})").json();
  json list = body["choices"][0]["prompt_logprobs"];
  ASSERT_EQ(list.size(), 2u) << body.dump();
  EXPECT_EQ(list[0], nullptr);
  EXPECT_EQ(list[1]["8"]["rank"], 1);
  EXPECT_EQ(list[1]["9"]["logprob"], -1.5);
  EXPECT_GT(server.post("/v1/chat/completions", chat + R"(,"prompt_logprobs":0})").json()["prompt_logprobs"].size(), 1u);
}

TEST(Endpoint, ReasonsOfEnding) {
  Script script;
  script.stopText = "END";
  TestServer server(says(script));
  json body = server.post("/v1/completions", R"({"prompt":"a","stop":"END"})").json();
  EXPECT_EQ(body["choices"][0]["stop_reason"], "END");
  body = server.post("/v1/completions", R"({"prompt":"a","max_tokens":2})").json();
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(body["choices"][0]["text"], "Hello");
}

TEST(Endpoint, ErrorsBeforeAndInsideAStream) {
  Script full;
  full.refuse = Status(StatusCode::resourceExhausted, "the queue is full: 256 requests wait");
  TestServer busy(says(full));
  Answer refused = busy.post("/v1/chat/completions", chat + R"(,"stream":true})");
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.headers["retry-after"], "7");
  EXPECT_EQ(refused.json()["error"]["code"], "overloaded");
  EXPECT_EQ(refused.json()["error"]["message"], "the queue is full: 256 requests wait");

  full.refuse = Status(StatusCode::invalidArgument, "logit_bias: expected finite amounts, found nan");
  TestServer strict(says(full));
  Answer wrong = strict.post("/v1/chat/completions", chat + "}");
  EXPECT_EQ(wrong.status, 400);
  EXPECT_EQ(wrong.json()["error"]["param"], "logit_bias");

  Script broken;
  broken.fail = Status(StatusCode::internal, "logits are not numbers");
  TestServer server(says(broken));
  Answer whole = server.post("/v1/chat/completions", chat + "}");
  EXPECT_EQ(whole.status, 500);
  EXPECT_EQ(whole.json()["error"]["message"], "logits are not numbers");
  auto events = server.post("/v1/chat/completions", chat + R"(,"stream":true})").events();
  ASSERT_GE(events.size(), 2u);
  EXPECT_EQ(json::parse(events[events.size() - 2])["error"]["message"], "logits are not numbers");
  EXPECT_EQ(events.back(), "[DONE]");

  Script late;
  late.reason = runtime::EndReason::timeout;
  TestServer slow(says(late));
  EXPECT_EQ(slow.post("/v1/chat/completions", chat + "}").status, 504);
  late.reason = runtime::EndReason::rejected;
  TestServer hopeless(says(late));
  EXPECT_EQ(hopeless.post("/v1/chat/completions", chat + "}").headers["retry-after"], "7");
  // A stream that has not begun: its head waits for the first word, so that an error still has its status.
  late.tokens = {};
  late.secondsBefore = 0.05;
  TestServer later(says(late));
  Answer rejected = later.post("/v1/chat/completions", chat + R"(,"stream":true})");
  EXPECT_EQ(rejected.status, 429);
  EXPECT_EQ(rejected.headers["retry-after"], "7");
  EXPECT_EQ(rejected.json()["error"]["code"], "overloaded");
  late.reason = runtime::EndReason::timeout;
  TestServer unheard(says(late));
  EXPECT_EQ(unheard.post("/v1/completions", R"({"prompt":"a","stream":true})").status, 504);
  // After a comment it is too late for that.
  ServerOptions often;
  often.pingSeconds = 0.05;
  late.reason = runtime::EndReason::rejected;
  late.secondsBefore = 0.5;
  TestServer pinged(says(late), often);
  Answer begun = pinged.post("/v1/chat/completions", chat + R"(,"stream":true})");
  EXPECT_EQ(begun.status, 200);
  ASSERT_EQ(begun.events().size(), 2u); // comments are none
  EXPECT_EQ(json::parse(begun.events()[0])["error"]["code"], "overloaded");
}

TEST(Endpoint, OnePromptRefusedCancelsTheOthers) {
  int count = 0;
  auto engine = std::make_shared<FakeEngine>([&count](auto &) {
    Script s;
    s.secondsBefore = 100;
    if (count++ == 2) s.refuse = Status(StatusCode::resourceExhausted, "the queue is full");
    return s;
  });
  TestServer server(engine);
  EXPECT_EQ(server.post("/v1/completions", R"({"prompt":["a","b","c"]})").status, 429);
  EXPECT_TRUE(eventually([&] { return engine->cancelled == 2 && engine->running == 0; }));
}

TEST(Endpoint, Embeddings) {
  TestServer server(says({}));
  json body = server.post("/v1/embeddings", R"({"input":["a","b"]})").json();
  ASSERT_EQ(body["data"].size(), 2u) << body.dump();
  EXPECT_EQ(body["object"], "list");
  EXPECT_EQ(body["data"][1]["index"], 1);
  EXPECT_EQ(body["system_fingerprint"], toyModel(nullptr).fingerprint);
  EXPECT_EQ(body["data"][0]["embedding"], json::parse("[3.0,4.0,0.0]"));
  EXPECT_GT(body["usage"]["prompt_tokens"], 0);
  body = server.post("/v1/embeddings", R"({"input":[1,2],"normalize":true})").json();
  EXPECT_NEAR(body["data"][0]["embedding"][0].get<double>(), 0.6, 1e-6);
  body = server.post("/v1/embeddings", R"({"input":"a","encoding_format":"base64"})").json();
  EXPECT_EQ(body["data"][0]["embedding"], "AABAQAAAgEAAAAAA"); // 3, 4 and 0 as float32
}

TEST(Endpoint, TokensAndBack) {
  TestServer server(says({}));
  json body = server.post("/tokenize", R"({"prompt":"abc","add_special_tokens":false,"return_token_strs":true})").json();
  EXPECT_EQ(body["count"], body["tokens"].size());
  EXPECT_EQ(body["token_strs"].size(), body["tokens"].size());
  EXPECT_EQ(body["max_model_len"], 256);
  EXPECT_EQ(server.post("/detokenize", json{{"tokens", body["tokens"]}}.dump()).json()["prompt"], "abc");
  EXPECT_GT(server.post("/tokenize", chat + "}").json()["count"], 3);
  EXPECT_EQ(server.post("/tokenize", R"({"prompt":"abc"})").json()["token_strs"], nullptr);
  EXPECT_EQ(server.post("/detokenize", R"({"tokens":[50]})").status, 400);
  std::string many((1u << 21) + 1, '0'); // "0,0,...,0": one more than 2^20 ids
  for (size_t i = 1; i < many.size(); i += 2)
    many[i] = ',';
  EXPECT_EQ(server.post("/detokenize", "{\"tokens\":[" + many + "]}").json()["error"]["message"],
            "tokens: expected a list of at most 1048576 token ids, found 1048577");
  EXPECT_EQ(server.post("/detokenize", "{\"tokens\":[" + many.substr(2) + "]}").status, 200);
}

TEST(Endpoint, ATemplateMayRefuse) {
  ToyOptions toy;
  toy.words = true;
  toy.chatTemplate = "{{ raise_exception('not these') }}";
  ASSERT_TRUE(writeToyArtifact("endpoint-test.lathe", toy).ok());
  auto loaded = runtime::LoadedArtifact::load("endpoint-test.lathe");
  ASSERT_TRUE(loaded.ok());
  auto text = runtime::TextModel::create(**loaded);
  ASSERT_TRUE(text.ok());
  auto engine = std::make_shared<FakeEngine>();
  ServedModel strict = toyModel(engine);
  strict.name = "strict";
  strict.text = std::make_shared<runtime::TextModel>(*std::move(text));
  TestServer server(engine, {}, {strict});
  for (const char *path : {"/tokenize", "/v1/chat/completions"}) {
    Answer answer = server.post(path, R"({"model":"strict","messages":[{"role":"user","content":"hi"}]})");
    EXPECT_EQ(answer.status, 400);
    EXPECT_EQ(answer.json()["error"]["code"], "template_error") << answer.body;
    EXPECT_NE(answer.body.find("not these"), std::string::npos);
  }
}

TEST(Endpoint, Models) {
  ServedModel other = toyModel(std::make_shared<FakeEngine>());
  other.name = "org/other";
  TestServer server(says({}), {}, {other});
  json list = server.get("/v1/models").json();
  ASSERT_EQ(list["data"].size(), 2u);
  EXPECT_EQ(list["data"][1]["id"], "org/other");
  EXPECT_EQ(list["data"][0]["max_model_len"], 256);
  EXPECT_EQ(server.get("/v1/models/org%2Fother").json()["id"], "org/other");
  EXPECT_EQ(server.get("/v1/models/none").status, 404);
  Answer none = server.post("/v1/completions", R"({"model":"gpt","prompt":"a"})");
  EXPECT_EQ(none.status, 404);
  EXPECT_EQ(none.json()["error"]["code"], "model_not_found");
  EXPECT_EQ(server.post("/v1/completions", R"({"model":"org/other","prompt":"a"})").json()["model"], "org/other");
  EXPECT_EQ(server.post("/v1/completions", R"({"prompt":"a"})").json()["error"]["param"], "model");
  EXPECT_EQ(server.get("/version").json().contains("version"), true);
}

TEST(Endpoint, UnknownPathsAndMethods) {
  TestServer server(says({}));
  EXPECT_EQ(server.get("/v1/nothing").status, 404);
  EXPECT_EQ(server.get("/v1/completions").status, 405);
  EXPECT_EQ(server.post("/v1/models", "{}").status, 405);
  EXPECT_EQ(server.get("/health?verbose=1").status, 200);
}

TEST(Endpoint, Metrics) {
  ServerOptions options;
  options.vllmMetrics = true;
  TestServer server(says({}), options);
  (void)server.post("/v1/chat/completions", chat + "}");
  (void)server.get("/../../etc/passwd");
  std::string text = server.get("/metrics").body;
  for (const char *line : {"\nlathe:generation_tokens_total{model_name=\"toy\"} 3\n", "\nvllm:generation_tokens_total{model_name=\"toy\"} 3\n",
                           "\nlathe:kv_cache_usage_perc{model_name=\"toy\"} 0.25\n", "\nvllm:num_preemptions_total{model_name=\"toy\"} 3\n",
                           "\nlathe:preemptions_by_kind_total{model_name=\"toy\",kind=\"save\"} 2\n",
                           "\nlathe:http_requests_total{path=\"/v1/chat/completions\",status=\"200\"} 1\n",
                           "\nlathe:http_requests_total{path=\"other\",status=\"404\"} 1\n",
                           "\nlathe:request_params_n_count{model_name=\"toy\"} 1\n",
                           "\nlathe:machine_bytes_per_second_limit{model_name=\"toy\"} 1000000000\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  EXPECT_EQ(text.find("vllm:weight_bytes"), std::string::npos);
  EXPECT_EQ(text.find("passwd"), std::string::npos); // a label never comes from a client
}
