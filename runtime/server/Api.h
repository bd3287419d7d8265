//===- Api.h - the endpoints ---------------------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/metrics/HttpMetrics.h"
#include "runtime/server/Http.h"
#include "runtime/server/Log.h"
#include "runtime/server/Request.h"
#include "runtime/server/Response.h"
#include "runtime/server/Workers.h"
#include <functional>
#include <random>
#include <set>
#include <unordered_set>

namespace lathe::server {

class ApiCall;

/// What a path and a method mean.
struct Route {
  enum class Kind { work, models, model, health, ready, version, metrics, page, script, style, preflight, none };
  Kind kind = Kind::none;
  Endpoint endpoint = Endpoint::chat;
  const char *label = "other"; ///< for metrics
};

/// The endpoints: decides who may call, parses, asks the engine and writes answers. Lives on the I/O thread; what takes
/// long runs on |workers|.
class Api {
public:
  /// Runs a function on the I/O thread, from any thread; dropped once the server has ended.
  using Post = std::function<void(std::function<void()>)>;
  Api(std::vector<ServedModel> models, const ServerOptions &options, Post post, LineWriter &log, LineWriter *accessLog);

  struct Admission {
    std::optional<HttpReply> refusal; ///< to be sent instead of reading the body
    Route route;
    int key = -1; ///< index into the key table
  };
  /// Looks at a head only, so that nobody without a key can send a body.
  Admission admit(const HttpHead &head);
  /// Answers through |transport|, now or later. |bodyBytes|: what was reserved for the body, given back when it is parsed.
  std::shared_ptr<Call> start(const Admission &admission, HttpHead head, std::string body,
                              std::shared_ptr<Transport> transport, uint64_t bodyBytes = 0);
  /// An error as an answer.
  HttpReply errorReply(ApiError error);
  /// The answer to what becomes no call (413, 408, ...), counted and written to the access log. |head|: what is known of the request.
  HttpReply refuse(ApiError error, const HttpHead &head, const char *label = "other", int key = -1);
  /// Begins a line of the access log; |code|, if not empty, is that of an error.
  nlohmann::ordered_json accessLine(const HttpHead &head, int key, int status, double seconds, const std::string &code) const;

  /// From now on /ready says 503 and new work is refused; calls that have begun go on.
  void drain() { isDraining = true; }
  bool draining() const { return isDraining; }
  /// Calls without a complete answer.
  size_t active() const { return calls.size(); }
  /// Cancels them all; their clients get an error.
  void cancelAll();
  /// Called when active() becomes 0.
  std::function<void()> onIdle;

  metrics::HttpMetrics http;
  uint64_t bodyBytes = 0; ///< reserved for bodies that are being read, wait for a worker or are parsed

private:
  friend class ApiCall;
  Route routeOf(const HttpHead &head) const;
  std::optional<ApiError> mayCall(const HttpHead &head, const Route &route, int &key) const;
  std::optional<ApiError> mayWork(const Route &route, int key) const;
  HttpReply withCors(HttpReply reply, const HttpHead &head) const;
  HttpReply simple(const Route &route, const HttpHead &head) const;
  const ServedModel *find(const std::string &name) const;
  std::string metricsText() const;
  std::string newId(const char *prefix);
  void warnIgnored(const std::vector<std::string> &names);
  void finished(const std::shared_ptr<ApiCall> &call);

  std::vector<ServedModel> models;
  const ServerOptions &options;
  Post post;
  LineWriter &log;
  LineWriter *accessLog;
  std::string hostname;
  int64_t created; ///< seconds since 1970, of the start
  std::mt19937_64 random;
  std::unordered_set<std::shared_ptr<ApiCall>> calls;
  std::vector<uint32_t> callsOfKey; ///< of Kind::work: who only looks uses nothing up
  std::set<std::string> warned;
  bool isDraining = false;
  Workers workers; ///< destroyed first: jobs use the rest
};

} // namespace lathe::server
