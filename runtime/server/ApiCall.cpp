//===- ApiCall.cpp --------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/server/ApiCall.h"
#include "runtime/metrics/ModelMetrics.h"
#include "runtime/server/JsonText.h"
#include <algorithm>
#include <ctime>

namespace lathe::server {
using namespace runtime;
using Kind = Route::Kind;

ApiCall::ApiCall(Api &api, const Api::Admission &admission, HttpHead head, std::shared_ptr<Transport> transport, uint64_t bodyBytes)
    : api(api), admission(admission), head(std::move(head)), transport(std::move(transport)),
      bodyBytes(bodyBytes), begun(std::chrono::steady_clock::now()) {}

void ApiCall::begin(std::string body) {
  auto self = shared_from_this();
  if (admission.route.kind == Kind::metrics) { // reading an engine's counters may wait for a moment
    api.workers.post([self] {
      auto text = std::make_shared<std::string>(self->api.metricsText());
      self->api.post([self, text] {
        HttpReply reply;
        reply.type = "text/plain; version=0.0.4; charset=utf-8";
        reply.body = std::move(*text);
        self->replyWith(std::move(reply));
      });
    });
    return;
  }
  if (admission.route.kind != Kind::work) return replyWith(api.simple(admission.route, head));
  if (auto refused = api.mayWork(admission.route, -1)) return replyError(*refused);
  auto text = std::make_shared<std::string>(std::move(body));
  api.workers.post([self, text] {
    auto result = std::make_shared<Prepared>();
    self->prepareOnWorker(*text, *result);
    text->clear();
    text->shrink_to_fit();
    self->api.post([self, result] { self->prepared(result); });
  });
}

void ApiCall::prepareOnWorker(const std::string &body, Prepared &out) const {
  Json json;
  if ((out.error = parseBody(body, api.options.api.maxJsonDepth, json))) return;
  std::optional<std::string> name;
  if ((out.error = readModelName(json, name))) return;
  if (!name && api.models.size() != 1) {
    out.error = badField("model", "expected the name of a model, found none; see /v1/models");
    return;
  }
  out.model = name ? api.find(*name) : &api.models[0];
  if (!out.model) {
    ApiError e = badField("model", "the model " + jsonString(name->substr(0, 100)) + " is not served; see /v1/models");
    e.status = 404, e.code = "model_not_found";
    out.error = e;
    return;
  }
  Endpoint endpoint = admission.route.endpoint;
  if ((out.error = parseRequest(endpoint, json, *out.model, api.options.api, out.request))) return;
  json = nullptr; // tens of bytes for each one of the text
  if (endpoint == Endpoint::detokenize) {
    out.body = detokenizeBody(*out.model, out.request.prompts[0].ids);
    return;
  }
  if (endpoint == Endpoint::tokenize) {
    std::vector<int32_t> tokens;
    if (out.request.conversation) {
      out.error = chatTokens(out.request, *out.model, tokens);
    } else {
      tokens = out.model->text->tokenizer().encode(out.request.prompts[0].text, {out.request.addSpecial, false});
    }
    if (!out.error) out.body = tokenizeBody(out.request, *out.model, tokens);
    return;
  }
  out.error = prepare(out.request, *out.model, out.engineRequests);
}

void ApiCall::prepared(std::shared_ptr<Prepared> result) {
  work = std::move(result);
  releaseBody();
  api.warnIgnored(work->request.ignored);
  if (gone) return finish(499);
  if (failure) return replyError(*failure); // the server ended meanwhile
  if (work->error) return replyError(*work->error);
  if (!work->body.empty()) {
    HttpReply reply;
    reply.body = std::move(work->body);
    return replyWith(std::move(reply));
  }
  if (auto error = submit()) return replyError(*error);
}

std::optional<ApiError> ApiCall::submit() {
  const ApiRequest &request = work->request;
  int32_t best = INT32_MIN;
  std::string tenant;
  if (admission.key >= 0) {
    const ApiKey &key = api.options.keys.all()[static_cast<size_t>(admission.key)];
    best = key.priority;
    tenant = key.tenant;
  }
  if (request.hasPriority && request.priority < best)
    return badField("priority", "the key allows " + std::to_string(best) + " and above, found " +
                                    std::to_string(request.priority));
  auto self = shared_from_this();
  std::weak_ptr<ApiCall> weak = self;
  queue = std::make_shared<EventQueue>([weak, post = api.post] {
    post([weak] {
      if (auto call = weak.lock()) call->takeEvents();
    });
  });
  const char *prefix = request.endpoint == Endpoint::chat          ? "chatcmpl"
                       : request.endpoint == Endpoint::completions ? "cmpl"
                                                                   : "embd";
  answer.id = api.newId(prefix);
  answer.created = std::time(nullptr);
  prompts.resize(work->engineRequests.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    Request &one = work->engineRequests[i];
    one.tenant = tenant;
    one.priority = request.hasPriority ? request.priority : std::max(best, 0);
    one.deadline = api.options.requestTimeout;
    prompts[i].choices.resize(one.choices);
    if (request.echo) prompts[i].tokens = one.prompt;
    uint32_t choices = one.choices, maxTokens = one.maxTokens;
    auto id = work->model->engine->submit(std::move(one), listenInto(queue, static_cast<uint32_t>(i)));
    if (!id.ok()) { // all prompts or none
      cancelEngine();
      queue = nullptr;
      return fromStatus(id.status(), work->model->engine->retryAfter());
    }
    ids.push_back(*id);
    if (work->model->metrics) work->model->metrics->submitted(choices, maxTokens);
  }
  work->engineRequests.clear();
  unfinished = prompts.size();
  begunChoices.resize(prompts.size() * request.choices);
  if (request.stream) {
    chunks.emplace(answer, request, *work->model);
    HttpReply cors = api.withCors({}, head);
    cors.headers.emplace_back("X-Request-Id", answer.id);
    transport->beginStream(cors.headers);
  }
  return std::nullopt;
}

void ApiCall::takeEvents() {
  if (!queue) return;
  std::string out;
  for (EngineEvent &event : queue->take())
    handle(event, out);
  if (unfinished == 0 && !ending) allFinished(out);
  if (!chunks || done || gone) return; // perhaps answered just now
  if (!out.empty()) transport->send(std::move(out));
  if (ending) {
    transport->endStream();
    return finish(failure ? failure->status : 200);
  }
  if (transport->unsent() > api.options.maxUnsentBytes) {
    ++api.http.slowReaders;
    gone = true;
    cancelEngine();
    transport->abandon();
    failure = ApiError(); // for the log alone: the connection is gone
    failure->status = 499, failure->code = "slow_reader";
  }
}

void ApiCall::firstChunk(PromptState &prompt, ChoiceState &choice, uint32_t index, std::string &out) {
  if (begunChoices[index]) return;
  begunChoices[index] = true;
  out += chunks->first(prompt, choice, index);
}

void ApiCall::handle(EngineEvent &e, std::string &out) {
  PromptState &prompt = prompts[e.prompt];
  using Event = EngineEvent::Kind;
  if (e.kind == Event::accepted) prompt.seed = e.seed;
  else if (e.kind == Event::promptDone) prompt.logprobs = std::move(e.promptLogprobs);
  else if (e.kind == Event::embedding) prompt.embedding = std::move(e.values);
  else if (e.kind == Event::finished) {
    prompt.usage = e.usage;
    if (!e.error.ok() && !failure) failure = fromStatus(e.error, work->model->engine->retryAfter());
    if (!prompt.finished) --unfinished;
    prompt.finished = true;
  }
  if ((e.kind != Event::piece && e.kind != Event::choiceDone) || e.choice >= prompt.choices.size()) return;

  ChoiceState &choice = prompt.choices[e.choice];
  uint32_t index = e.prompt * work->request.choices + e.choice;
  if (e.kind == Event::piece) {
    if (chunks) {
      firstChunk(prompt, choice, index, out);
      out += chunks->piece(choice, index, e.sample, e.text);
      return;
    }
    choice.text += e.text;
    if (work->request.logprobs && e.sample.token >= 0) choice.tokens.push_back(std::move(e.sample));
    return;
  }
  choice.done = true;
  choice.reason = e.reason;
  choice.stopText = std::move(e.text);
  choice.stopToken = e.stopToken;
  if (e.reason == EndReason::stop || e.reason == EndReason::length) {
    if (!chunks) return;
    firstChunk(prompt, choice, index, out);
    out += chunks->last(prompt, choice, index);
  } else if (e.reason == EndReason::timeout) {
    ApiError timeout;
    timeout.status = 504, timeout.type = "timeout_error", timeout.code = "request_timeout";
    timeout.message = "the request did not end within " + decimal(static_cast<float>(api.options.requestTimeout)) + " seconds";
    if (!failure) failure = timeout;
  } else if (e.reason == EndReason::rejected && !failure) {
    failure = fromStatus(Status(StatusCode::resourceExhausted, "the request cannot be served within its targets"),
                         work->model->engine->retryAfter());
  } else if (e.reason == EndReason::cancelled && !failure) {
    failure = shuttingDown(1);
  }
}

void ApiCall::allFinished(std::string &out) {
  ending = true;
  if (gone) return finish(499);
  if (chunks) {
    // Nothing was said yet: an error is an answer of its own, with its status and Retry-After.
    if (failure && out.empty() && !transport->streamBegun()) return replyError(*failure);
    out += failure ? ChunkWriter::error(*failure) : chunks->usage(prompts);
    out += ChunkWriter::done();
    return;
  }
  if (failure) return replyError(*failure);
  auto self = shared_from_this();
  api.workers.post([self] {
    auto text = std::make_shared<std::string>(
        self->work->request.endpoint == Endpoint::embeddings
            ? embeddingsBody(self->work->request, *self->work->model, self->prompts)
            : answerBody(self->answer, self->work->request, *self->work->model, self->prompts));
    self->api.post([self, text] {
      HttpReply reply;
      reply.headers.emplace_back("X-Request-Id", self->answer.id);
      reply.body = std::move(*text);
      self->replyWith(std::move(reply));
    });
  });
}

void ApiCall::cancelEngine() {
  for (RequestId id : ids)
    work->model->engine->cancel(id);
}

void ApiCall::disconnected() {
  if (gone || done) return;
  gone = true;
  ++api.http.disconnected;
  // The engine still says how it ended: that finishes the call.
  cancelEngine();
}

void ApiCall::shutDown() {
  if (done || failure) return;
  failure = shuttingDown(1);
  cancelEngine();
}

void ApiCall::replyWith(HttpReply reply) {
  if (done) return;
  int status = gone ? 499 : reply.status;
  if (!gone) transport->reply(api.withCors(std::move(reply), head));
  finish(status);
}

void ApiCall::replyError(const ApiError &error) {
  ApiError e = error; // may be |failure| itself
  failure = e;
  replyWith(api.errorReply(e));
}

void ApiCall::finish(int status) {
  if (done) return;
  done = true;
  releaseBody();
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  api.http.answered(admission.route.label, status, seconds);
  if (api.accessLog) {
    nlohmann::ordered_json line = api.accessLine(head, admission.key, status, seconds, failure ? failure->code : "");
    if (work && work->model && !prompts.empty()) {
      RequestUsage sum;
      auto reasons = nlohmann::ordered_json::array();
      for (const PromptState &p : prompts) {
        sum.promptTokens += p.usage.promptTokens;
        sum.cachedTokens += p.usage.cachedTokens;
        sum.newTokens += p.usage.newTokens;
        sum.queueSeconds = std::max(sum.queueSeconds, p.usage.queueSeconds);
        sum.ttftSeconds = std::max(sum.ttftSeconds, p.usage.ttftSeconds);
        for (const ChoiceState &c : p.choices)
          if (c.done) reasons.push_back(runtime::toString(c.reason));
      }
      line["id"] = answer.id;
      line["model"] = work->model->name;
      line["stream"] = work->request.stream;
      line["prompt_tokens"] = sum.promptTokens;
      line["cached_tokens"] = sum.cachedTokens;
      line["completion_tokens"] = sum.newTokens;
      line["queue_seconds"] = sum.queueSeconds;
      line["ttft_seconds"] = sum.ttftSeconds;
      line["finish_reasons"] = reasons;
    }
    api.accessLog->write(line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  }
  auto self = shared_from_this(); // the API and the connection may hold the last references
  transport = nullptr;
  api.finished(self);
}

} // namespace lathe::server
