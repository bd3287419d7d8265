//===- TestServer.h - a server in this process and a plain client --*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "FakeEngine.h"
#include "runtime/server/Server.h"
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

namespace lathe::test {

/// The toy model's words over a fake engine; the name is "toy", the context 256 tokens, the hidden size 3.
server::ServedModel toyModel(std::shared_ptr<FakeEngine> engine);

struct Answer {
  int status = 0; ///< 0: the connection ended before a whole answer
  std::map<std::string, std::string> headers; ///< names in lower case
  std::string body; ///< chunks put together
  nlohmann::json json() const { return nlohmann::json::parse(body, nullptr, false); }
  /// The data of server-sent events.
  std::vector<std::string> events() const;
};

/// A blocking socket to the server. Reads give up after 20 seconds, so that a bug fails a test instead of hanging it.
class Client {
public:
  explicit Client(uint16_t port, int receiveBuffer = 0);
  ~Client();
  Client(const Client &) = delete;
  void send(std::string_view bytes);
  /// One whole answer, or what came until the end of the connection.
  Answer read(bool headOnly = false);
  /// Bytes until |text| has come; false at the end of the connection.
  bool readUntil(std::string_view text);
  bool closed(); ///< the server ends the connection; waits for it
  void close();
  void halfClose();

private:
  bool more();
  int fd = -1;
  std::string buffer;
};

/// "POST path" with a JSON body, or a GET when |body| is empty.
std::string request(const std::string &path, const std::string &body = "", const std::string &headers = "");

class TestServer {
public:
  explicit TestServer(std::shared_ptr<FakeEngine> engine, server::ServerOptions options = {},
                      std::vector<server::ServedModel> more = {});
  ~TestServer();
  uint16_t port() const { return server->port(); }
  Answer get(const std::string &path, const std::string &headers = "") { return send(request(path, "", headers)); }
  Answer post(const std::string &path, const std::string &body, const std::string &headers = "") {
    return send(request(path, body, headers));
  }
  Answer send(const std::string &bytes);
  /// Value of a metric with its labels as printed, or -1.
  double metric(const std::string &name, const std::string &headers = "");
  void shutDown() { server->shutDown(); }
  /// Waits for run() to return; its result.
  bool join();

private:
  std::unique_ptr<server::Server> server;
  std::thread thread;
  bool result = false;
};

/// Waits until |condition| holds, at most 20 seconds.
bool eventually(const std::function<bool()> &condition);

} // namespace lathe::test
