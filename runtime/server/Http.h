//===- Http.h - between connections and the API --------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// The API knows requests and answers; what carries them (a socket, or a test) is behind these.
// All of it is called on the server's one I/O thread.
//===----------------------------------------------------------------------===//
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace lathe::server {

/// A request's head, known before its body is read.
struct HttpHead {
  std::string method, path; ///< the path without the query
  std::string host, authorization, origin;
  std::string requestHeaders; ///< of a CORS preflight
  std::string remote;         ///< the client's address
  bool hasHost = false;
};

using Headers = std::vector<std::pair<std::string, std::string>>;

struct HttpReply {
  int status = 200;
  std::string type = "application/json";
  Headers headers;
  std::string body;
};

/// Carries one answer: either reply(), or beginStream(), send()... and endStream(), or reply() after beginStream() while streamBegun()
/// is false. After the client is gone all of them do nothing.
class Transport {
public:
  virtual ~Transport() = default;
  virtual void reply(HttpReply reply) = 0;
  /// Status 200, text/event-stream; sent with the first text, or with a comment when none comes for a while.
  virtual void beginStream(const Headers &headers) = 0;
  /// Whether the head of a stream was sent, so that another status is too late.
  virtual bool streamBegun() const = 0;
  virtual void send(std::string text) = 0;
  virtual void endStream() = 0;
  /// Bytes that the kernel has not taken yet.
  virtual size_t unsent() const = 0;
  /// Closes at once; the answer stays incomplete.
  virtual void abandon() = 0;
};

/// A request that is being answered.
class Call {
public:
  virtual ~Call() = default;
  /// The client left, or the answer was abandoned: stop working for it.
  virtual void disconnected() = 0;
};

} // namespace lathe::server
