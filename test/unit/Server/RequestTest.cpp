//===- RequestTest.cpp - fields of a body ---------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "TestServer.h"
#include "runtime/server/Defaults.h"
#include "runtime/server/Request.h"
#include <gtest/gtest.h>

using namespace lathe;
using namespace lathe::server;
using namespace lathe::test;

namespace {

struct Parsed {
  std::optional<ApiError> error;
  ApiRequest request;
  std::vector<runtime::Request> engine;
  std::string message() const { return error ? error->message : ""; }
};

Parsed parse(Endpoint endpoint, const std::string &text) {
  static ServedModel model = toyModel(nullptr);
  Parsed p;
  Json body;
  p.error = parseBody(text, 64, body);
  if (!p.error) p.error = parseRequest(endpoint, body, model, ApiLimits(), p.request);
  if (!p.error && endpoint != Endpoint::tokenize && endpoint != Endpoint::detokenize)
    p.error = prepare(p.request, model, p.engine);
  return p;
}

Parsed chat(const std::string &more) {
  return parse(Endpoint::chat, R"({"messages":[{"role":"user","content":"hi"}])" + (more.empty() ? "" : "," + more) + "}");
}
Parsed completion(const std::string &more) {
  return parse(Endpoint::completions, R"({"prompt":"hi")" + (more.empty() ? "" : "," + more) + "}");
}

void refused(const Parsed &p, const std::string &param, const std::string &message) {
  ASSERT_TRUE(p.error) << message;
  EXPECT_EQ(p.error->status, 400);
  EXPECT_EQ(p.error->param, param);
  EXPECT_EQ(p.error->message, message);
}

} // namespace

TEST(RequestTest, Json) {
  EXPECT_EQ(parse(Endpoint::chat, "{\"a\":").message(), "the body: expected JSON in UTF-8, found an error at byte 6");
  EXPECT_EQ(parse(Endpoint::chat, "").message(), "the body: expected JSON in UTF-8, found an error at byte 1");
  EXPECT_EQ(parse(Endpoint::chat, "{\"a\":\"\xff\"}").message().substr(0, 34), "the body: expected JSON in UTF-8, ");
  EXPECT_EQ(parse(Endpoint::chat, "{\"a\":\"\\ud800\"}").message().substr(0, 34), "the body: expected JSON in UTF-8, ");
  EXPECT_EQ(parse(Endpoint::chat, "[]").message(), "the body: expected a JSON object, found a list");
  EXPECT_EQ(parse(Endpoint::chat, std::string(100, '[')).message(),
            "the body: expected at most 64 levels of JSON, found more at byte 64");
}

TEST(RequestTest, ChatDefaults) {
  Parsed p = chat("");
  ASSERT_FALSE(p.error) << p.message();
  const runtime::Request &r = p.engine.at(0);
  EXPECT_EQ(r.sampling.temperature, 1);
  EXPECT_EQ(r.sampling.logprobs, -1);
  EXPECT_EQ(r.maxTokens, 256 - r.prompt.size());
  EXPECT_FALSE(r.continues);
  EXPECT_EQ(r.choices, 1u);
  EXPECT_FALSE(r.hasSeed);
  EXPECT_TRUE(p.request.ignored.empty());
}

TEST(RequestTest, EveryFieldArrives) {
  Parsed p = completion(R"("temperature":0.5,"top_p":0.9,"top_k":7,"min_p":0.1,"n":3,"best_of":3,"seed":-1,"stop":["a","bc"],
    "stop_token_ids":[5],"presence_penalty":1,"frequency_penalty":-1,"repetition_penalty":1.5,"logit_bias":{"4":-2.5},
    "logprobs":2,"max_tokens":9,"min_tokens":2,"ignore_eos":true,"priority":4,"cache_salt":"x","speculate":"ngram","echo":true,
    "skip_special_tokens":false,"include_stop_str_in_output":true,"stream":true,"stream_options":{"include_usage":true})");
  ASSERT_FALSE(p.error) << p.message();
  const runtime::Request &r = p.engine.at(0);
  EXPECT_FLOAT_EQ(r.sampling.temperature, 0.5f);
  EXPECT_FLOAT_EQ(r.sampling.topP, 0.9f);
  EXPECT_EQ(r.sampling.topK, 7);
  EXPECT_FLOAT_EQ(r.sampling.minP, 0.1f);
  EXPECT_EQ(r.choices, 3u);
  EXPECT_TRUE(r.hasSeed);
  EXPECT_EQ(r.sampling.seed, UINT64_MAX);
  EXPECT_EQ(r.stops, (std::vector<std::string>{"a", "bc"}));
  EXPECT_EQ(r.stopTokens, std::vector<int32_t>{5});
  EXPECT_FLOAT_EQ(r.sampling.presencePenalty, 1);
  EXPECT_FLOAT_EQ(r.sampling.frequencyPenalty, -1);
  EXPECT_FLOAT_EQ(r.sampling.repetitionPenalty, 1.5f);
  EXPECT_EQ(r.sampling.logitBias, (std::vector<std::pair<int32_t, float>>{{4, -2.5f}}));
  EXPECT_EQ(r.sampling.logprobs, 2);
  EXPECT_EQ(r.promptLogprobs, 2); // the echoed prompt has them too
  EXPECT_EQ(r.maxTokens, 9u);
  EXPECT_EQ(r.sampling.minTokens, 2);
  EXPECT_TRUE(r.ignoreEnd && r.keepSpecial && r.includeStop && r.continues);
  EXPECT_EQ(r.priority, 4);
  EXPECT_EQ(r.cacheSalt, "x");
  EXPECT_EQ(r.speculate, runtime::Speculation::ngram);
  EXPECT_TRUE(p.request.stream && p.request.includeUsage && p.request.echo);
}

TEST(RequestTest, TargetsMayBeLooserThanTheServers) {
  auto parse = [](const std::string &fields, double ttft, double tpot) {
    ServedModel model = toyModel(nullptr);
    model.ttftTarget = ttft, model.tpotTarget = tpot;
    Parsed p;
    Json body;
    EXPECT_FALSE(parseBody("{\"prompt\":[1]" + fields + "}", 64, body));
    p.error = parseRequest(Endpoint::completions, body, model, {}, p.request);
    if (!p.error) p.error = prepare(p.request, model, p.engine);
    return p;
  };
  Parsed none = parse("", 0, 0);
  EXPECT_EQ(none.engine.at(0).ttftTarget, 0);
  EXPECT_EQ(none.engine.at(0).tpotTarget, 0);
  Parsed own = parse(R"(,"ttft_target_ms":250,"tpot_target_ms":20)", 0, 0);
  EXPECT_DOUBLE_EQ(own.engine.at(0).ttftTarget, 0.25);
  EXPECT_DOUBLE_EQ(own.engine.at(0).tpotTarget, 0.02);
  Parsed same = parse(R"(,"ttft_target_ms":2007)", 2007.0 / 1e3, 0.5);
  EXPECT_DOUBLE_EQ(same.engine.at(0).ttftTarget, 2.007);
  Parsed served = parse(R"(,"ttft_target_ms":4000)", 2, 0.5);
  EXPECT_DOUBLE_EQ(served.engine.at(0).ttftTarget, 4);
  EXPECT_DOUBLE_EQ(served.engine.at(0).tpotTarget, 0.5);
  refused(parse(R"(,"ttft_target_ms":1500)", 2, 0.5), "ttft_target_ms",
          "ttft_target_ms: expected at least the server's own target, 2000, found 1500");
  refused(parse(R"(,"tpot_target_ms":0)", 0, 0), "tpot_target_ms",
          "tpot_target_ms: expected a number in 1..1e+09, found 0");
}

TEST(RequestTest, Prompts) {
  EXPECT_EQ(parse(Endpoint::completions, R"({"prompt":["a","b","c"]})").engine.size(), 3u);
  EXPECT_EQ(parse(Endpoint::completions, R"({"prompt":[1,2,3]})").engine.at(0).prompt, (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(parse(Endpoint::completions, R"({"prompt":[[1],[2,3]]})").engine.at(1).prompt, (std::vector<int32_t>{2, 3}));
  EXPECT_EQ(parse(Endpoint::completions, R"({"prompt":"a"})").engine.at(0).maxTokens, 16u);
  refused(parse(Endpoint::completions, "{}"), "prompt",
          "prompt: expected a string, a list of strings, token ids or a list of lists of token ids, found none");
  refused(parse(Endpoint::completions, R"({"prompt":[1,50]})"), "prompt", "prompt: expected token ids in 0..49, found 50");
  refused(parse(Endpoint::completions, R"({"prompt":[1,-1]})"), "prompt", "prompt: expected token ids in 0..49, found -1");
  refused(parse(Endpoint::completions, R"({"prompt":["a",7]})"), "prompt",
          "prompt: expected a string, a list of strings, token ids or a list of lists of token ids, found 7");
  refused(parse(Endpoint::completions, R"({"prompt":[[]]})"), "prompt", "prompt: expected at least one token, found none");
  std::string many = R"({"prompt":[)";
  for (int i = 0; i < 65; ++i)
    many += i ? ",\"a\"" : "\"a\"";
  refused(parse(Endpoint::completions, many + "]}"), "prompt", "prompt: expected at most 64 prompts, found 65");
  refused(parse(Endpoint::completions, R"({"prompt":["a","b","c","d","e"],"n":16})"), "n",
          "n: expected at most 64 choices over all prompts, found 80");
}

TEST(RequestTest, Lengths) {
  std::string ids = "[0";
  for (int i = 1; i < 256; ++i)
    ids += ",1";
  Parsed full = parse(Endpoint::completions, R"({"prompt":)" + ids + "]}");
  refused(full, "prompt", "the context holds 256 tokens; the prompt has 256");
  EXPECT_EQ(full.error->code, "context_length_exceeded");
  EXPECT_FALSE(parse(Endpoint::completions, R"({"max_tokens":0,"echo":true,"prompt":)" + ids + "]}").error);
  refused(parse(Endpoint::completions, R"({"prompt":[1,2],"max_tokens":255})"), "max_tokens",
          "the context holds 256 tokens; the prompt has 2 and 255 are to be generated");
  EXPECT_EQ(chat(R"("max_tokens":5,"max_completion_tokens":7)").engine.at(0).maxTokens, 7u);
  refused(chat(R"("max_tokens":0)"), "max_tokens", "max_tokens: expected a whole number in 1..4294967295, found 0");
}

TEST(RequestTest, WrongValues) {
  refused(chat(R"("temperature":-1)"), "temperature", "temperature: expected a number in 0..100, found -1");
  refused(chat(R"("temperature":"hot")"), "temperature", "temperature: expected a number in 0..100, found \"hot\"");
  refused(chat(R"("top_p":0)"), "top_p", "top_p: expected a number above 0 and at most 1, found 0");
  refused(chat(R"("n":17)"), "n", "n: expected a whole number in 1..16, found 17");
  refused(chat(R"("n":1.5)"), "n", "n: expected a whole number in 1..16, found 1.5");
  refused(chat(R"("stream":"yes")"), "stream", "stream: expected true or false, found \"yes\"");
  refused(chat(R"("stream_options":{"include_usage":true})"), "stream_options",
          "stream_options: expected 'stream': true with it");
  refused(chat(R"("seed":1e30)"), "seed", "seed: expected a whole number of 64 bits, found 1e+30");
  refused(chat(R"("stop":["a","b","c","d","e"])"), "stop", "stop: expected at most 4 strings, found 5");
  refused(chat(R"("stop":[""])"), "stop", "stop: expected strings that are not empty, found \"\"");
  refused(chat("\"stop\":\"" + std::string(257, 'x') + "\""), "stop", "stop: expected at most 256 bytes a string, found 257");
  refused(chat(R"("logprobs":true,"top_logprobs":21)"), "top_logprobs",
          "top_logprobs: expected a whole number in 0..20, found 21");
  refused(chat(R"("top_logprobs":2)"), "top_logprobs", "top_logprobs: expected 'logprobs': true with it");
  refused(completion(R"("logprobs":50257)"), "logprobs", "logprobs: expected a whole number in 0..20, found 50257");
  refused(chat(R"("prompt_logprobs":2,"stream":true)"), "prompt_logprobs", "prompt_logprobs: expected 'stream': false with it");
  refused(chat(R"("logit_bias":{"50":1})"), "logit_bias", "logit_bias: expected token ids in 0..49, found \"50\"");
  refused(chat(R"("logit_bias":{"x":1})"), "logit_bias", "logit_bias: expected token ids in 0..49, found \"x\"");
  refused(chat(R"("logit_bias":{"1":101})"), "logit_bias", "logit_bias: expected amounts in -100..100, found 101");
  refused(completion(R"("n":2,"best_of":3)"), "best_of", "best_of: expected the same as n, which is 2, found 3");
  refused(completion(R"("min_tokens":17)"), "min_tokens", "min_tokens: expected at most max_tokens, which is 16, found 17");
  refused(chat(R"("echo":true)"), "echo", "echo: expected false: only /v1/completions repeats the prompt");
  refused(chat("\"cache_salt\":\"" + std::string(257, 'x') + "\""), "cache_salt",
          "cache_salt: expected at most 256 bytes, found 257");
  // One more than there may be, and as many.
  auto list = [](const char *item, int count) {
    std::string text = item;
    for (int i = 1; i < count; ++i)
      text += std::string(",") + item;
    return text;
  };
  refused(completion("\"stop_token_ids\":[" + list("1", 65) + "]"), "stop_token_ids",
          "stop_token_ids: expected a list of at most 64 token ids, found 65");
  EXPECT_EQ(completion("\"stop_token_ids\":[" + list("1", 64) + "]").message(), "");
  auto biases = [](int count) {
    std::string text;
    for (int i = 0; i < count; ++i)
      text += (i ? ",\"" : "\"") + std::to_string(i) + "\":1";
    return text;
  };
  refused(completion("\"logit_bias\":{" + biases(1025) + "}"), "logit_bias", "logit_bias: expected an object of at most 1024 token ids, found 1025");
  EXPECT_EQ(completion("\"logit_bias\":{" + biases(1024) + "}").message(), "logit_bias: expected token ids in 0..49, found \"100\""); // the toy has 50
  auto messages = [&](int count) {
    return parse(Endpoint::tokenize, "{\"messages\":[" + list(R"({"role":"user","content":"a"})", count) + "]}");
  };
  refused(messages(4097), "messages", "messages: expected a list of 1..4096 messages, found 4097");
  EXPECT_EQ(messages(4096).message(), "");
  refused(completion(R"("speculate":"hydra")"), "speculate",
          "speculate: expected off, auto, draft, layerskip, ngram, suffix, suffix-tree, medusa, eagle, eagle2 or eagle3, found 'hydra'");
  refused(completion(R"("draft_acceptance":"lenient")"), "draft_acceptance", "draft_acceptance: expected exact, rejection or typical, found 'lenient'");
}

TEST(RequestTest, NeutralValuesPassAndOthersAreNamed) {
  Parsed p = chat(R"("tools":[],"tool_choice":"none","response_format":{"type":"text"},"user":"u","metadata":{"a":"b"},
    "store":false,"parallel_tool_calls":true,"modalities":["text"],"audio":null,"service_tier":"auto","logit_bias":null,
    "length_penalty":1.0,"use_beam_search":false,"guided_json":null,"stop":null,"functions":[],"reasoning_effort":null)");
  EXPECT_FALSE(p.error) << p.message();
  EXPECT_TRUE(p.request.ignored.empty()) << p.request.ignored[0];
  for (auto [field, value] : {std::pair{"tools", R"([{"type":"function"}])"}, {"tool_choice", R"("required")"},
                              {"response_format", R"({"type":"json_object"})"}, {"store", "true"},
                              {"modalities", R"(["audio"])"}, {"guided_regex", R"("a+")"}, {"use_beam_search", "true"},
                              {"structured_outputs", R"({"regex":"a"})"}, {"reasoning_effort", R"("low")"},
                              {"continue_final_message", "true"}, {"allowed_token_ids", "[1]"}}) {
    Parsed bad = chat("\"" + std::string(field) + "\":" + value);
    ASSERT_TRUE(bad.error) << field;
    EXPECT_EQ(bad.error->status, 400);
    EXPECT_EQ(bad.error->param, field);
    EXPECT_NE(bad.message().find("not supported, and leaving it out would change the result"), std::string::npos);
  }
  EXPECT_EQ(completion(R"("suffix":"end")").error->param, "suffix");
  EXPECT_EQ(chat(R"("frobnicate":1)").request.ignored, std::vector<std::string>{"frobnicate"});
}

TEST(RequestTest, Messages) {
  auto messages = [](const std::string &list) { return parse(Endpoint::chat, "{\"messages\":" + list + "}"); };
  refused(messages("[]"), "messages", "messages: expected a list of 1..4096 messages, found 0");
  refused(messages("\"hi\""), "messages", "messages: expected a list of 1..4096 messages, found \"hi\"");
  refused(messages("[1]"), "messages[0]", "messages[0]: expected an object with role and content, found 1");
  refused(messages(R"([{"role":"tool","content":"x"}])"), "messages[0].role",
          "messages[0].role: expected system, developer, user or assistant, found \"tool\"");
  refused(messages(R"([{"role":"user"}])"), "messages[0].content",
          "messages[0].content: expected a string or a list of parts, found none");
  refused(messages(R"([{"role":"user","content":[{"type":"image_url"}]}])"), "messages[0].content[0]",
          "messages[0].content[0]: expected a part of type 'text', found \"image_url\"");
  refused(messages(R"([{"role":"assistant","content":"x","tool_calls":[{}]}])"), "messages[0].tool_calls",
          "messages[0].tool_calls: not supported");
  Parsed p = messages(R"([{"role":"developer","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
                          {"role":"assistant","content":"c","tool_calls":null,"refusal":null,"audio":null}])");
  ASSERT_FALSE(p.error) << p.message();
  EXPECT_EQ(p.request.messages.dump(), R"([{"role":"system","content":"a\nb"},{"role":"assistant","content":"c"}])");
}

TEST(RequestTest, TheTemplateStaysTheModels) {
  refused(chat(R"("chat_template":"{{ 1 }}")"), "chat_template",
          "chat_template: a request cannot bring its own template, found \"{{ 1 }}\"");
  for (const char *name : {"messages", "tools", "documents", "bos_token", "add_generation_prompt"})
    refused(chat("\"chat_template_kwargs\":{\"" + std::string(name) + "\":[]}"), "chat_template_kwargs",
            "chat_template_kwargs: expected other names than '" + std::string(name) + "', which the request cannot replace");
  EXPECT_EQ(chat(R"("chat_template_kwargs":{"enable_thinking":false,"a":[1,{"b":2.5}]})").request.chat.extra.dump(),
            R"({"a":[1,{"b":2.5}],"enable_thinking":false})");
  std::string many = "[0";
  for (int i = 0; i < 10000; ++i)
    many += ",0";
  refused(chat("\"chat_template_kwargs\":{\"a\":" + many + "]}"), "chat_template_kwargs",
          "chat_template_kwargs: expected at most 10000 values");
}

TEST(RequestTest, Embeddings) {
  Parsed p = parse(Endpoint::embeddings, R"({"input":["a","b"],"encoding_format":"base64","dimensions":3,"pooling":"mean"})");
  ASSERT_FALSE(p.error) << p.message();
  EXPECT_EQ(p.engine.size(), 2u);
  EXPECT_EQ(p.engine[0].kind, runtime::RequestKind::embedding);
  EXPECT_EQ(p.engine[0].pooling, runtime::Pooling::mean);
  EXPECT_TRUE(p.request.base64);
  EXPECT_FALSE(parse(Endpoint::embeddings, R"({"input":"a","speculate":"auto"})").error);
  refused(parse(Endpoint::embeddings, R"({"input":"a","speculate":"hydra"})"), "speculate",
          "speculate: expected off, auto, draft, layerskip, ngram, suffix, suffix-tree, medusa, eagle, eagle2 or eagle3, found 'hydra'");
  refused(parse(Endpoint::embeddings, R"({"input":"a","dimensions":2})"), "dimensions",
          "dimensions: expected 3, the only size of this model, found 2");
  refused(parse(Endpoint::embeddings, R"({"input":"a","encoding_format":"int8"})"), "encoding_format",
          "encoding_format: expected float or base64, found \"int8\"");
  refused(parse(Endpoint::embeddings, R"({"input":"a","pooling":"cls"})"), "pooling",
          "pooling: expected last or mean, found \"cls\"");
}

TEST(RequestTest, DefaultsOfTheModel) {
  ServedModel model;
  EXPECT_TRUE(readDefaults("", model).ok());
  EXPECT_EQ(model.defaults.temperature, 1);
  ASSERT_TRUE(readDefaults(R"({"temperature":0.6,"top_k":20,"top_p":0.95,"repetition_penalty":1.1,"max_new_tokens":7,"do_sample":false})", model).ok());
  EXPECT_FLOAT_EQ(model.defaults.temperature, 0.6f);
  EXPECT_EQ(model.defaults.topK, 20);
  EXPECT_FLOAT_EQ(model.defaults.topP, 0.95f);
  EXPECT_FLOAT_EQ(model.defaults.repetitionPenalty, 1.1f);
  EXPECT_EQ(model.defaultMaxTokens, 7u);
  EXPECT_EQ(readDefaults("[]", model).message(), "generation defaults: expected a JSON object");
  EXPECT_EQ(readDefaults(R"({"top_p":"x"})", model).message(),
            "generation defaults: expected a number in 1e-06..1 for 'top_p', found \"x\"");
}
