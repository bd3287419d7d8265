//===- Connection.h - one client's socket --------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/server/Api.h"
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <functional>
#include <memory>

namespace lathe::server {

class Connection;

/// What connections share.
struct ConnectionContext {
  const ServerOptions &options;
  Api &api;
  std::unordered_set<Connection *> all;
  std::function<void()> onClosed;
};

/// Reads requests one after the other, hands them to the API, and sends what comes back. While an answer is under way one
/// read stays open, so that a client that leaves is seen at once. Kept alive by its pending operations.
class Connection final : public Transport, public std::enable_shared_from_this<Connection> {
public:
  using Socket = boost::asio::ip::tcp::socket;
  Connection(Socket socket, ConnectionContext &context);
  void start();
  /// Closes at once; a call in progress is told.
  void close();
  /// Whether an answer, or a part of it, is still to be sent, or a body that was let in is under way.
  bool busy() const { return state == State::answering || state == State::body || writing; }
  /// While a body is under way: refuses it, for the server's time to end is up.
  void refuseBody();

  void reply(HttpReply reply) override;
  void beginStream(const Headers &headers) override;
  bool streamBegun() const override { return streaming; }
  void send(std::string text) override;
  void endStream() override;
  size_t unsent() const override { return outgoing.size() - written + pending.size(); }
  void abandon() override;

private:
  enum class State { waiting, head, body, answering, lingering, closed };
  using Clock = std::chrono::steady_clock;
  using Error = boost::system::error_code;
  void waitForRequest(double seconds);
  void watch();
  void readHead();
  void headRead(Error error);
  void readBody(Api::Admission admission, HttpHead head);
  void answer(const Api::Admission &admission, HttpHead head);
  void refuse(ApiError error, HttpHead head = {});
  void writeText(std::string text);
  void writeSome();
  void answered();
  void linger();
  void arm(double seconds);
  void timeout();
  void releaseBody();
  void sendStreamHead();
  void watchForEnd();
  std::string head(int status, const std::string &type, const Headers &headers) const;

  Socket socket;
  ConnectionContext &context;
  boost::asio::steady_timer timer, endTimer;
  boost::beast::flat_buffer buffer;
  std::optional<boost::beast::http::request_parser<boost::beast::http::string_body>> parser;
  std::string remote;
  State state = State::waiting;
  bool reading = false;  ///< the read of watch() is open
  bool timedOut = false; ///< the head or the body did not come in time
  bool keepAlive = false, http11 = true, headOnly = false;
  bool cutOff = false;   ///< the server ends before the body came
  bool streaming = false, ended = false;
  std::string streamHead; ///< of a stream of which nothing was sent yet
  bool writing = false;
  std::string outgoing, pending; ///< what the kernel is taking, and what comes after it
  size_t written = 0;            ///< of outgoing
  Clock::time_point lastProgress;
  uint64_t reserved = 0; ///< of the API's bodyBytes
  std::shared_ptr<Call> call;
};

} // namespace lathe::server
