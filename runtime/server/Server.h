//===- Server.h - an OpenAI-compatible HTTP server -----------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// One I/O thread runs an event loop; a few workers parse, render and tokenize; each engine has its own thread and only
// appends to queues. docs/serving.md has the endpoints, limits and errors.
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/server/Options.h"
#include <memory>
#include <string>
#include <vector>

namespace lathe::server {

class Server {
public:
  /// Binds the port; connections wait until run(). Errors: invalidArgument (no model, two of one name, another host than
  /// loopback without keys), failedPrecondition (the port cannot be bound, the access log cannot be written).
  static Result<std::unique_ptr<Server>> create(std::vector<ServedModel> models, ServerOptions options);
  ~Server();

  /// The port bound.
  uint16_t port() const;
  /// Serves until shutDown(), or until SIGTERM or SIGINT with |signals|. Returns true when every request that had begun
  /// was answered.
  bool run(bool signals = false);
  /// As a signal: the first call drains, the second ends at once. Thread-safe.
  void shutDown();

private:
  Server();
  struct State;
  std::unique_ptr<State> state;
};

/// What a server states at start, a line each: the limits in force.
std::vector<std::string> limitLines(const std::vector<ServedModel> &models, const ServerOptions &options);

} // namespace lathe::server
