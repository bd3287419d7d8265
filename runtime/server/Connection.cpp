//===- Connection.cpp -----------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/server/Connection.h"
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/read.hpp>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

namespace lathe::server {
namespace asio = boost::asio;
namespace http = boost::beast::http;

namespace {

/// How often it is looked whether a client that has sent maxPipelined bytes is still there.
constexpr auto endInterval = std::chrono::milliseconds(200);
/// Seconds of silence after which the kernel asks whether the client still exists, seconds between two questions, and questions without
/// an answer.
constexpr int keepInterval = 10, keepCount = 3, keepIdle = keepAliveSeconds - keepCount * keepInterval;

const char *reasonPhrase(int status) {
  return http::obsolete_reason(static_cast<http::status>(status)).data();
}

std::string_view text(boost::beast::string_view view) { return {view.data(), view.size()}; }

ApiError simpleError(int status, const char *code, std::string message) {
  ApiError e;
  e.status = status, e.code = code, e.message = std::move(message);
  return e;
}

} // namespace

Connection::Connection(Socket s, ConnectionContext &context)
    : socket(std::move(s)), context(context), timer(socket.get_executor()), endTimer(socket.get_executor()), lastProgress(Clock::now()) {
  Error ignored;
  auto endpoint = socket.remote_endpoint(ignored);
  remote = endpoint.address().to_string();
}

void Connection::start() {
  Error ignored;
  socket.set_option(asio::ip::tcp::no_delay(true), ignored);
  // A small buffer in the kernel, so that a client that does not read is seen before megabytes are gone.
  socket.set_option(asio::socket_base::send_buffer_size(128 << 10), ignored);
  socket.non_blocking(true, ignored);
  socket.set_option(asio::socket_base::keep_alive(true), ignored);
  int fd = socket.native_handle();
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &keepIdle, sizeof keepIdle);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &keepInterval, sizeof keepInterval);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &keepCount, sizeof keepCount);
  context.all.insert(this);
  ++context.api.http.connections;
  ++context.api.http.accepted;
  waitForRequest(context.options.headerTimeout);
}

void Connection::close() {
  if (state == State::closed) return;
  state = State::closed;
  releaseBody();
  Error ignored;
  timer.cancel(ignored);
  endTimer.cancel(ignored);
  socket.close(ignored);
  context.all.erase(this);
  --context.api.http.connections;
  if (auto told = std::exchange(call, nullptr); told && !ended) told->disconnected();
  context.onClosed();
}

void Connection::abandon() {
  call = nullptr;
  Error ignored;
  socket.set_option(asio::socket_base::linger(true, 0), ignored); // the kernel's buffer goes too
  close();
}

void Connection::arm(double seconds) {
  timer.expires_after(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds)));
  timer.async_wait([self = shared_from_this()](Error error) {
    if (!error && self->state != State::closed) self->timeout();
  });
}

void Connection::timeout() {
  const ServerOptions &o = context.options;
  switch (state) {
  case State::head:
  case State::body: { // the open read ends with an error and answers 408
    timedOut = true;
    ++context.api.http.headerTimeouts;
    Error ignored;
    socket.cancel(ignored);
    return;
  }
  case State::waiting:
  case State::lingering:
    return close();
  case State::answering: {
    double silent = std::chrono::duration<double>(Clock::now() - lastProgress).count();
    if (writing && silent >= o.writeTimeout) {
      ++context.api.http.slowReaders;
      return close();
    }
    if ((streaming || !streamHead.empty()) && !writing && silent >= o.pingSeconds * 0.99) send(": ping\n\n");
    return arm(std::min(o.pingSeconds, o.writeTimeout));
  }
  case State::closed:
    return;
  }
}

void Connection::waitForRequest(double seconds) {
  state = State::waiting;
  arm(seconds);
  if (reading) {
    if (!buffer.size()) return; // the open read brings the next request
    Error ignored;
    socket.cancel(ignored); // it is here already
    return;
  }
  if (buffer.size()) return readHead();
  watch();
}

void Connection::watch() {
  if (buffer.size() >= maxPipelined) return watchForEnd();
  reading = true;
  socket.async_read_some(buffer.prepare(4096), [self = shared_from_this()](Error error, size_t bytes) {
    self->reading = false;
    self->buffer.commit(bytes);
    if (self->state == State::closed) return;
    if (error && error != asio::error::operation_aborted) return self->close();
    switch (self->state) {
    case State::waiting:
      return self->buffer.size() ? self->readHead() : self->watch();
    case State::answering:
      return self->watch();
    case State::lingering:
      self->buffer.clear();
      return self->watch();
    default:
      return;
    }
  });
}

/// Behind what is not read nothing says that the client closed its side; the kernel knows.
void Connection::watchForEnd() {
  endTimer.expires_after(endInterval);
  endTimer.async_wait([self = shared_from_this()](Error error) {
    if (error || self->state != State::answering || self->reading) return;
    pollfd ask{self->socket.native_handle(), POLLRDHUP, 0};
    if (poll(&ask, 1, 0) > 0 && ask.revents) return self->close();
    self->watchForEnd();
  });
}

void Connection::readHead() {
  state = State::head;
  timedOut = false;
  arm(context.options.headerTimeout);
  parser.emplace();
  parser->header_limit(context.options.maxHeaderBytes);
  parser->body_limit(context.options.maxBodyBytes);
  http::async_read_header(socket, buffer, *parser,
                          [self = shared_from_this()](Error error, size_t) { self->headRead(error); });
}

void Connection::headRead(Error error) {
  if (state == State::closed) return;
  const ServerOptions &o = context.options;
  keepAlive = false;
  http11 = true;
  headOnly = false;
  const auto &message = parser->get();
  HttpHead h; // after an error what came of it, perhaps nothing
  h.method = text(message.method_string());
  h.path = text(message.target()).substr(0, text(message.target()).find('?'));
  if (timedOut) return refuse(simpleError(408, "header_timeout", "the header did not come in time"), std::move(h));
  if (error == http::error::header_limit)
    return refuse(simpleError(431, "header_too_large", "the header has more than " + std::to_string(o.maxHeaderBytes) + " bytes"), std::move(h));
  if (error == http::error::body_limit)
    return refuse(simpleError(413, "body_too_large", "the body has more than " + std::to_string(o.maxBodyBytes) + " bytes"), std::move(h));
  bool ofHttp = error.category() == http::make_error_code(http::error::bad_value).category();
  if (error == http::error::end_of_stream || (error && !ofHttp)) return close();
  if (error) return refuse(simpleError(400, "bad_http", "the request is not HTTP/1.1: " + error.message()), std::move(h));
  keepAlive = message.keep_alive();
  http11 = message.version() >= 11;
  headOnly = message.method() == http::verb::head;
  h.hasHost = !http11 || message.find(http::field::host) != message.end();
  h.host = text(message[http::field::host]);
  if (!h.hasHost || h.host.empty()) h.host = h.hasHost && !http11 ? "localhost" : h.host;
  h.authorization = text(message[http::field::authorization]);
  h.origin = text(message[http::field::origin]);
  h.requestHeaders = text(message[http::field::access_control_request_headers]);
  h.remote = remote;
  Api::Admission admission = context.api.admit(h);
  if (admission.refusal) {
    if (!parser->is_done()) keepAlive = false; // the body stays unread
    state = State::answering;
    return reply(std::move(*admission.refusal));
  }
  readBody(std::move(admission), std::move(h));
}

void Connection::readBody(Api::Admission admission, HttpHead h) {
  state = State::body;
  if (parser->is_done()) return answer(admission, std::move(h));
  const ServerOptions &o = context.options;
  uint64_t need = parser->content_length().value_or(o.maxBodyBytes);
  if (context.api.bodyBytes + need > o.maxBodiesBytes) {
    ApiError e = simpleError(429, "overloaded", "the bodies of other requests fill the memory for bodies");
    e.type = "rate_limit_error", e.retryAfter = 1;
    return refuse(std::move(e), std::move(h));
  }
  context.api.bodyBytes += reserved = need;
  arm(o.bodyTimeout);
  if (boost::beast::iequals(parser->get()[http::field::expect], "100-continue"))
    writeText("HTTP/1.1 100 Continue\r\n\r\n");
  http::async_read(socket, buffer, *parser,
                   [self = shared_from_this(), admission = std::move(admission), h = std::move(h)](Error error, size_t) mutable {
                     if (self->state == State::closed) return;
                     self->keepAlive = self->keepAlive && !error;
                     if (self->cutOff) return self->refuse(shuttingDown(1), std::move(h));
                     if (self->timedOut)
                       return self->refuse(simpleError(408, "body_timeout", "the body did not come in time"), std::move(h));
                     if (error == http::error::body_limit)
                       return self->refuse(simpleError(413, "body_too_large", "the body has more than " +
                                                                                  std::to_string(self->context.options.maxBodyBytes) + " bytes"),
                                           std::move(h));
                     if (error == http::error::bad_chunk || error == http::error::bad_chunk_extension)
                       return self->refuse(simpleError(400, "bad_http", "the body's chunks are malformed"), std::move(h));
                     if (error) return self->close();
                     self->answer(admission, std::move(h));
                   });
}

void Connection::answer(const Api::Admission &admission, HttpHead h) {
  state = State::answering;
  lastProgress = Clock::now();
  arm(std::min(context.options.pingSeconds, context.options.writeTimeout));
  std::string body = std::move(parser->get().body());
  parser.reset();
  watch();
  auto begun = context.api.start(admission, std::move(h), std::move(body), shared_from_this(), std::exchange(reserved, 0));
  if (state == State::answering && !ended) call = std::move(begun);
}

void Connection::releaseBody() { context.api.bodyBytes -= std::exchange(reserved, 0); }

void Connection::refuseBody() {
  if (state != State::body) return;
  cutOff = true;
  Error ignored;
  socket.cancel(ignored); // the open read answers
}

void Connection::refuse(ApiError e, HttpHead h) {
  releaseBody();
  keepAlive = false;
  state = State::answering;
  h.remote = remote;
  reply(context.api.refuse(std::move(e), h));
}

std::string Connection::head(int status, const std::string &type, const Headers &headers) const {
  std::string out = "HTTP/1.1 " + std::to_string(status) + " " + reasonPhrase(status) + "\r\nContent-Type: " + type + "\r\n";
  for (const auto &[name, value] : headers)
    out += name + ": " + value + "\r\n";
  bool stays = keepAlive && !context.api.draining();
  if (!stays) out += "Connection: close\r\n";
  else if (!http11) out += "Connection: keep-alive\r\n";
  return out;
}

void Connection::reply(HttpReply r) {
  if (state != State::answering || ended) return;
  ended = true;
  streamHead.clear();
  std::string out = head(r.status, r.type, r.headers);
  if (r.status != 204) out += "Content-Length: " + std::to_string(r.body.size()) + "\r\n";
  out += "\r\n";
  if (!headOnly) out += r.body;
  writeText(std::move(out));
}

void Connection::beginStream(const Headers &headers) {
  if (state != State::answering || ended) return;
  if (!http11) keepAlive = false; // no chunks: the end of the connection is the end of the answer
  streamHead = head(200, "text/event-stream; charset=utf-8", headers);
  streamHead += "Cache-Control: no-cache\r\nX-Accel-Buffering: no\r\n";
  if (http11) streamHead += "Transfer-Encoding: chunked\r\n";
  streamHead += "\r\n";
}

void Connection::sendStreamHead() {
  if (streamHead.empty()) return;
  streaming = true;
  writeText(std::exchange(streamHead, ""));
}

void Connection::send(std::string data) {
  if (state != State::answering || ended || data.empty()) return;
  sendStreamHead();
  if (!http11) return writeText(std::move(data));
  char size[24];
  std::snprintf(size, sizeof size, "%zx\r\n", data.size());
  writeText(size + data + "\r\n");
}

void Connection::endStream() {
  if (state != State::answering || ended) return;
  sendStreamHead();
  ended = true;
  if (http11) writeText("0\r\n\r\n");
  else if (!writing) answered();
}

void Connection::writeText(std::string data) {
  pending += data;
  if (writing) return;
  writing = true;
  outgoing.clear();
  outgoing.swap(pending);
  written = 0;
  lastProgress = Clock::now();
  writeSome();
}

void Connection::writeSome() {
  socket.async_write_some(asio::buffer(outgoing.data() + written, outgoing.size() - written),
                          [self = shared_from_this()](Error error, size_t bytes) {
                            if (self->state == State::closed) return;
                            if (error == asio::error::operation_aborted) return self->writeSome(); // a read was cancelled
                            if (error) {
                              self->ended = false; // the answer did not arrive
                              return self->close();
                            }
                            self->written += bytes;
                            self->lastProgress = Clock::now();
                            if (self->written < self->outgoing.size()) return self->writeSome();
                            self->writing = false;
                            self->outgoing.clear();
                            if (self->outgoing.capacity() > (64u << 10)) self->outgoing.shrink_to_fit();
                            self->written = 0;
                            if (!self->pending.empty()) self->writeText("");
                            else if (self->ended) self->answered();
                          });
}

void Connection::answered() {
  call = nullptr;
  streaming = ended = false;
  if (!keepAlive || context.api.draining()) return linger();
  waitForRequest(context.options.idleTimeout);
  context.onClosed();
}

void Connection::linger() {
  state = State::lingering;
  Error ignored;
  socket.shutdown(Socket::shutdown_send, ignored);
  arm(lingerSeconds);
  buffer.clear();
  if (!reading) watch();
  context.onClosed();
}

} // namespace lathe::server
