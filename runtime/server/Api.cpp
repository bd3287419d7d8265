//===- Api.cpp ------------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/server/Api.h"
#include "runtime/metrics/ModelMetrics.h"
#include "runtime/server/Access.h"
#include "runtime/server/ApiCall.h"
#include "runtime/server/JsonText.h"
#include "runtime/server/Page.h"
#include <algorithm>
#include <cctype>
#include <chrono>
#include <cmath>
#include <ctime>
#include <unistd.h>

namespace lathe::server {
namespace {

using Kind = Route::Kind;

struct PathRule {
  const char *path, *method;
  Kind kind;
  Endpoint endpoint;
};
constexpr PathRule paths[] = {
    {"/v1/chat/completions", "POST", Kind::work, Endpoint::chat},
    {"/v1/completions", "POST", Kind::work, Endpoint::completions},
    {"/v1/embeddings", "POST", Kind::work, Endpoint::embeddings},
    {"/tokenize", "POST", Kind::work, Endpoint::tokenize},
    {"/detokenize", "POST", Kind::work, Endpoint::detokenize},
    {"/v1/models", "GET", Kind::models, {}},
    {"/health", "GET", Kind::health, {}},
    {"/ready", "GET", Kind::ready, {}},
    {"/version", "GET", Kind::version, {}},
    {"/metrics", "GET", Kind::metrics, {}},
    {"/", "GET", Kind::page, {}},
    {"/page.js", "GET", Kind::script, {}},
    {"/page.css", "GET", Kind::style, {}},
};
constexpr std::string_view modelPrefix = "/v1/models/";

bool open(Kind kind) {
  return kind == Kind::health || kind == Kind::ready || kind == Kind::page || kind == Kind::script ||
         kind == Kind::style || kind == Kind::preflight;
}

ApiError error(int status, const char *type, const char *code, std::string message) {
  ApiError e;
  e.status = status, e.type = type, e.code = code, e.message = std::move(message);
  return e;
}

std::string thisHost() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return name;
}

HttpReply replyOf(const ApiError &e) {
  HttpReply reply;
  reply.status = e.status;
  reply.body = errorBody(e);
  if (e.status == 429 || e.status == 503)
    reply.headers.emplace_back("Retry-After", std::to_string(std::max(1, static_cast<int>(std::ceil(std::min(e.retryAfter, 3600.0))))));
  if (e.status == 401) reply.headers.emplace_back("WWW-Authenticate", "Bearer");
  return reply;
}

} // namespace

Api::Api(std::vector<ServedModel> served, const ServerOptions &options, Post post, LineWriter &log,
         LineWriter *accessLog)
    : models(std::move(served)), options(options), post(std::move(post)), log(log), accessLog(accessLog),
      hostname(thisHost()), created(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now())),
      callsOfKey(options.keys.all().size()), workers(options.workers) {
  std::random_device device;
  random.seed(uint64_t(device()) << 32 | device());
}

Route Api::routeOf(const HttpHead &head) const {
  Route route;
  const std::string &method = head.method == "HEAD" ? "GET" : head.method;
  for (const PathRule &rule : paths) {
    if (head.path != rule.path) continue;
    route.label = rule.path;
    if (method == rule.method) route.kind = rule.kind, route.endpoint = rule.endpoint;
    else if (method == "OPTIONS" && !options.corsOrigins.empty()) route.kind = Kind::preflight;
    return route;
  }
  if (head.path.starts_with(modelPrefix)) {
    route.label = "/v1/models/{model}";
    if (method == "GET") route.kind = Kind::model;
  }
  return route;
}

std::optional<ApiError> Api::mayCall(const HttpHead &head, const Route &route, int &key) const {
  if (!head.hasHost) return error(400, "invalid_request_error", "missing_host", "expected a Host header");
  if (!hostAllowed(head.host, hostname, options.allowedHosts))
    return error(403, "permission_error", "host_not_allowed",
                 "Host " + jsonString(head.host.substr(0, 100)) + " is not allowed; see --allowed-host");
  if (!originAllowed(head.origin, head.host, options.corsOrigins))
    return error(403, "permission_error", "origin_not_allowed",
                 "Origin " + jsonString(head.origin.substr(0, 100)) + " is not allowed; see --cors-origin");
  if (options.keys.empty() || open(route.kind)) return std::nullopt;
  constexpr std::string_view bearer = "Bearer "; // the scheme in any case (RFC 9110, 11.1)
  std::string_view given = head.authorization;
  auto same = [](char a, char b) { return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b)); };
  if (given.size() > bearer.size() && std::equal(bearer.begin(), bearer.end(), given.begin(), same))
    key = options.keys.find(given.substr(bearer.size()));
  if (key < 0)
    return error(401, "authentication_error", "invalid_api_key",
                 given.empty() ? "expected a key in the header 'Authorization: Bearer KEY'" : "the key is not known");
  return std::nullopt;
}

std::optional<ApiError> Api::mayWork(const Route &route, int key) const {
  if (route.kind != Kind::work) return std::nullopt;
  if (isDraining) return shuttingDown(options.shutdownTimeout);
  if (key < 0) return std::nullopt;
  const ApiKey &own = options.keys.all()[static_cast<size_t>(key)];
  if (!own.concurrency || callsOfKey[static_cast<size_t>(key)] < own.concurrency) return std::nullopt;
  ApiError e = error(429, "rate_limit_error", "concurrency_exceeded",
                     "the key allows " + std::to_string(own.concurrency) + " requests at one time");
  e.retryAfter = 1;
  return e;
}

HttpReply Api::withCors(HttpReply reply, const HttpHead &head) const {
  if (options.corsOrigins.empty() || head.origin.empty()) return reply;
  reply.headers.emplace_back("Access-Control-Allow-Origin", head.origin);
  reply.headers.emplace_back("Vary", "Origin");
  return reply;
}

nlohmann::ordered_json Api::accessLine(const HttpHead &head, int key, int status, double seconds, const std::string &code) const {
  char time[40];
  std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::strftime(time, sizeof time, "%Y-%m-%dT%H:%M:%SZ", &utc);
  nlohmann::ordered_json line = {{"time", time}, {"remote", head.remote}, {"method", head.method}, {"path", head.path}, {"status", status}, {"seconds", seconds}};
  if (key >= 0) line["key"] = options.keys.all()[static_cast<size_t>(key)].name;
  if (!code.empty()) line["error"] = code;
  return line;
}

HttpReply Api::errorReply(ApiError e) { return replyOf(e); }

HttpReply Api::refuse(ApiError e, const HttpHead &head, const char *label, int key) {
  http.answered(label, e.status, 0);
  if (accessLog) accessLog->write(accessLine(head, key, e.status, 0, e.code).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  return replyOf(e);
}

Api::Admission Api::admit(const HttpHead &head) {
  Admission a;
  a.route = routeOf(head);
  auto refusal = mayCall(head, a.route, a.key);
  if (!refusal && a.route.kind == Kind::none) {
    bool known = std::string_view(a.route.label) != "other";
    refusal = known ? error(405, "invalid_request_error", "method_not_allowed",
                            "method " + head.method.substr(0, 20) + " is not allowed for " + a.route.label)
                    : error(404, "not_found_error", "unknown_path", "unknown path " + jsonString(head.path.substr(0, 100)));
  }
  if (!refusal) refusal = mayWork(a.route, a.key);
  if (refusal) a.refusal = withCors(refuse(*refusal, head, a.route.label, a.key), head);
  return a;
}

HttpReply Api::simple(const Route &route, const HttpHead &head) const {
  HttpReply reply;
  auto file = [&](const char *type, std::string_view text) {
    reply.type = type;
    reply.body = text;
    reply.headers = {{"Content-Security-Policy", "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"},
                     {"X-Content-Type-Options", "nosniff"},
                     {"Referrer-Policy", "no-referrer"},
                     {"Cache-Control", "no-cache"}};
  };
  switch (route.kind) {
  case Kind::health:
    reply.body = "{\"status\":\"ok\"}";
    break;
  case Kind::ready:
    reply.status = isDraining ? 503 : 200;
    reply.body = isDraining ? "{\"status\":\"draining\"}" : "{\"status\":\"ready\"}";
    break;
  case Kind::version:
    reply.body = "{\"version\":\"" LATHE_VERSION "\"}";
    break;
  case Kind::models:
    reply.body = modelsBody(models, created);
    break;
  case Kind::model: {
    std::string name = percentDecoded(std::string_view(head.path).substr(modelPrefix.size()));
    if (const ServedModel *model = find(name)) reply.body = modelBody(*model, created);
    else reply = replyOf(error(404, "invalid_request_error", "model_not_found", "the model " + jsonString(name.substr(0, 100)) + " is not served"));
    break;
  }
  case Kind::page:
    file("text/html; charset=utf-8", pageHtml());
    break;
  case Kind::script:
    file("text/javascript; charset=utf-8", pageScript());
    break;
  case Kind::style:
    file("text/css; charset=utf-8", pageStyle());
    break;
  case Kind::preflight:
    reply.status = 204;
    reply.headers = {{"Access-Control-Allow-Methods", "GET, POST, OPTIONS"},
                     {"Access-Control-Allow-Headers", head.requestHeaders.empty() ? "authorization, content-type" : head.requestHeaders},
                     {"Access-Control-Max-Age", "600"}};
    break;
  case Kind::work:
  case Kind::metrics:
  case Kind::none:
    break;
  }
  return reply;
}

std::shared_ptr<Call> Api::start(const Admission &admission, HttpHead head, std::string body,
                                 std::shared_ptr<Transport> transport, uint64_t bodyBytes) {
  auto call = std::make_shared<ApiCall>(*this, admission, std::move(head), std::move(transport), bodyBytes);
  calls.insert(call);
  if (call->worksForKey()) ++callsOfKey[static_cast<size_t>(admission.key)];
  ++http.inFlight;
  call->begin(std::move(body));
  return call;
}

void Api::finished(const std::shared_ptr<ApiCall> &call) {
  if (!calls.erase(call)) return;
  if (call->worksForKey()) --callsOfKey[static_cast<size_t>(call->key())];
  --http.inFlight;
  if (calls.empty() && onIdle) onIdle();
}

void Api::cancelAll() {
  for (const auto &call : std::vector(calls.begin(), calls.end()))
    call->shutDown();
}

const ServedModel *Api::find(const std::string &name) const {
  for (const ServedModel &model : models)
    if (model.name == name) return &model;
  return nullptr;
}

std::string Api::metricsText() const {
  metrics::MetricSet set(options.vllmMetrics);
  double now = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  for (const ServedModel &model : models)
    if (model.metrics) model.metrics->collect(model.engine->stats(), model.engine->limits(), now, set);
  http.collect(set);
  return set.text();
}

std::string Api::newId(const char *prefix) {
  char text[64];
  std::snprintf(text, sizeof text, "%s-%016llx%016llx", prefix, static_cast<unsigned long long>(random()),
                static_cast<unsigned long long>(random()));
  return text;
}

void Api::warnIgnored(const std::vector<std::string> &names) {
  for (const std::string &name : names) {
    if (warned.size() >= maxWarnedNames) return;
    std::string text = jsonString(name.substr(0, 60));
    if (warned.insert(text).second) log.write("lathe: warning: requests carry the unknown field " + text + ", which is ignored");
  }
}

} // namespace lathe::server
