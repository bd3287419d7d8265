//===- Client.h - many clients of one server -----------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "Report.h"
#include "Workload.h"
#include "lathe/base/Status.h"

namespace lathe::load {

struct Target {
  std::string host = "127.0.0.1"; ///< for the socket and the Host header
  uint16_t port = 8000;
  std::string base; ///< path before "/v1"
  std::vector<std::string> addresses; ///< to try in this order; empty: those that |host| has
};
/// "http://HOST[:PORT][/PATH]"; a last "/v1" is left out. Errors: invalidArgument.
Result<Target> parseUrl(const std::string &url);

struct RunOptions {
  Target target;
  std::string key, model;
  bool chat = false;        ///< /v1/chat/completions with words instead of /v1/completions with token ids
  bool ignoreEnd = true;    ///< ask for exactly the planned number of tokens
  uint32_t concurrency = 0; ///< requests at one time; 0: no bound (open loop), 16 (closed loop)
  double timeout = 300;     ///< seconds for one request
  double slowBytesPerSecond = 2000;
  double temperature = 0;
};

/// The first model of the server, and what it says about it. Errors: notFound (no answer), failedPrecondition (refused).
struct ServerInfo {
  std::string model;
  uint32_t contextTokens = 0, vocabulary = 0; ///< 0: not told
};
Result<ServerInfo> askServer(const RunOptions &options);

/// Sends |plan| and returns a record for each turn, in the order of the plan. One thread; ends when all requests have.
std::vector<Record> runWorkload(const std::vector<PlannedRequest> &plan, const RunOptions &options);

} // namespace lathe::load
