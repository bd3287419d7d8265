//===- Client.cpp ---------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Client.h"
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <charconv>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>

namespace lathe::load {
namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using Error = boost::system::error_code;
using Clock = std::chrono::steady_clock;
using nlohmann::json;

Result<Target> parseUrl(const std::string &url) {
  Target target;
  constexpr std::string_view scheme = "http://";
  auto wrong = [&] { return makeError(StatusCode::invalidArgument, "expected a URL as http://127.0.0.1:8000, found '%s'", url.c_str()); };
  if (url.rfind(scheme, 0) != 0) return wrong();
  std::string rest = url.substr(scheme.size()), authority = rest.substr(0, rest.find('/'));
  target.base = rest.substr(authority.size());
  while (!target.base.empty() && target.base.back() == '/')
    target.base.pop_back();
  if (target.base.ends_with("/v1")) target.base.resize(target.base.size() - 3);
  size_t colon = authority.rfind(':');
  bool bracket = authority.find(']') != std::string::npos && (colon == std::string::npos || authority.find(']') > colon);
  target.port = 80;
  if (colon != std::string::npos && !bracket) {
    auto [end, error] = std::from_chars(authority.data() + colon + 1, authority.data() + authority.size(), target.port);
    if (error != std::errc() || end != authority.data() + authority.size()) return wrong();
    authority.resize(colon);
  }
  if (authority.size() > 2 && authority[0] == '[') authority = authority.substr(1, authority.size() - 2);
  if (authority.empty()) return wrong();
  target.host = authority;
  return target;
}

namespace {

std::string head(const RunOptions &o, const char *method, const std::string &path, size_t bytes) {
  std::string text = std::string(method) + " " + o.target.base + path + " HTTP/1.1\r\nHost: " + o.target.host + ":" +
                     std::to_string(o.target.port) + "\r\nConnection: close\r\n";
  if (!o.key.empty()) text += "Authorization: Bearer " + o.key + "\r\n";
  if (bytes) text += "Content-Type: application/json\r\nContent-Length: " + std::to_string(bytes) + "\r\n";
  return text + "\r\n";
}

Result<std::vector<tcp::endpoint>> resolve(asio::io_context &io, const Target &target) {
  std::vector<tcp::endpoint> endpoints;
  for (const std::string &address : target.addresses)
    endpoints.emplace_back(asio::ip::make_address(address), target.port);
  if (!endpoints.empty()) return endpoints;
  tcp::resolver resolver(io);
  Error error;
  auto found = resolver.resolve(target.host, std::to_string(target.port), error);
  if (error) return makeError(StatusCode::notFound, "cannot find '%s': %s", target.host.c_str(), error.message().c_str());
  for (const auto &entry : found)
    endpoints.push_back(entry.endpoint());
  return endpoints;
}

/// Connects |socket| to the first address at which the server listens: a name may have several, "localhost" ::1 and 127.0.0.1.
Result<tcp::endpoint> reach(asio::io_context &io, const Target &target, tcp::socket &socket) {
  LATHE_ASSIGN_OR_RETURN(auto endpoints, resolve(io, target));
  Error error;
  tcp::endpoint found = asio::connect(socket, endpoints, error);
  if (error)
    return makeError(StatusCode::notFound, "no server answers at %s port %u: %s", target.host.c_str(), target.port, error.message().c_str());
  return found;
}

struct Run;

/// One conversation: its turns one after the other, a connection each.
class Conversation : public std::enable_shared_from_this<Conversation> {
public:
  Conversation(Run &run, const PlannedRequest &plan, Record *records, double due);
  void begin();

private:
  void send();
  void read();
  void received(Error error);
  void lines();
  void event(const std::string &data);
  void finish(Outcome outcome, const std::string &error = "");
  Record &record() { return records[turn]; }

  Run &run;
  const PlannedRequest &plan;
  Record *records;
  size_t turn = 0;
  tcp::socket socket;
  asio::steady_timer deadline, pause;
  boost::beast::flat_buffer buffer;
  std::optional<http::response_parser<http::string_body>> parser;
  json messages = json::array();
  std::string request, text, answer;
  uint32_t pieces = 0;
  bool ended = false, done = false;
};

struct Run {
  Run(const std::vector<PlannedRequest> &plan, const RunOptions &options) : options(options), plan(plan), timer(io) {}
  double now() const { return std::chrono::duration<double>(Clock::now() - start).count(); }
  void next();
  void ended() {
    --active;
    next();
  }

  asio::io_context io{1};
  tcp::endpoint server;
  const RunOptions &options;
  const std::vector<PlannedRequest> &plan;
  std::vector<Record> records;
  std::vector<size_t> firstRecord;
  Clock::time_point start = Clock::now();
  asio::steady_timer timer;
  size_t begun = 0;
  uint32_t active = 0;
  bool open = false; ///< arrivals by the clock
};

void Run::next() {
  uint32_t most = options.concurrency ? options.concurrency : open ? UINT32_MAX : 16;
  while (begun < plan.size() && active < most) {
    const PlannedRequest &request = plan[begun];
    double time = now();
    if (open && request.arrival > time) {
      timer.expires_at(start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(request.arrival)));
      timer.async_wait([this](Error error) {
        if (!error) next();
      });
      return;
    }
    // Whoever had to wait for a free place has waited since its arrival.
    double due = open ? request.arrival : time;
    ++active;
    std::make_shared<Conversation>(*this, request, &records[firstRecord[begun]], due)->begin();
    ++begun;
  }
}

Conversation::Conversation(Run &run, const PlannedRequest &plan, Record *records, double due)
    : run(run), plan(plan), records(records), socket(run.io), deadline(run.io), pause(run.io) {
  records[0].due = due;
}

void Conversation::begin() {
  const PlannedTurn &planned = plan.turns[turn];
  Record &r = record();
  r.slow = plan.slow;
  r.sent = run.now();
  json body = {{"model", run.options.model},
               {"stream", true},
               {"stream_options", {{"include_usage", true}}},
               {"max_tokens", planned.outputTokens},
               {"temperature", run.options.temperature}};
  if (run.options.ignoreEnd) body["ignore_eos"] = true;
  std::string path = "/v1/completions";
  if (run.options.chat) {
    path = "/v1/chat/completions";
    messages.push_back({{"role", "user"}, {"content", wordsOf(planned.prompt)}});
    body["messages"] = messages;
  } else {
    body["prompt"] = planned.prompt;
  }
  std::string content = body.dump(-1, ' ', false, json::error_handler_t::replace);
  request = head(run.options, "POST", path, content.size()) + content;
  text.clear();
  answer.clear();
  pieces = 0;
  ended = done = false;
  buffer.clear();
  parser.emplace();
  parser->body_limit(UINT64_MAX);
  deadline.expires_after(std::chrono::milliseconds(static_cast<int64_t>(run.options.timeout * 1000)));
  deadline.async_wait([self = shared_from_this()](Error error) {
    if (!error) self->finish(Outcome::failed, "no end within the time");
  });
  socket = tcp::socket(run.io);
  if (plan.slow) { // before connecting: the window is agreed on then
    Error ignored;
    socket.open(run.server.protocol(), ignored);
    socket.set_option(asio::socket_base::receive_buffer_size(4096), ignored);
  }
  socket.async_connect(run.server, [self = shared_from_this()](Error error) {
    if (self->ended) return;
    if (error) return self->finish(Outcome::failed, error.message());
    self->send();
  });
}

void Conversation::send() {
  Error ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  asio::async_write(socket, asio::buffer(request), [self = shared_from_this()](Error error, size_t) {
    if (self->ended) return;
    if (error) return self->finish(Outcome::failed, error.message());
    self->read();
  });
}

void Conversation::read() {
  http::async_read_some(socket, buffer, *parser, [self = shared_from_this()](Error error, size_t) {
    if (!self->ended) self->received(error);
  });
}

void Conversation::received(Error error) {
  Record &r = record();
  if (parser->is_header_done()) r.status = static_cast<int>(parser->get().result_int());
  std::string &body = parser->get().body();
  size_t bytes = body.size();
  text += body;
  body.clear();
  if (r.status == 200) lines();
  if (ended) return;
  if (error && error != http::error::end_of_stream) return finish(Outcome::failed, error.message());
  if (parser->is_done() || error) {
    if (r.status == 200) return finish(done ? Outcome::complete : Outcome::failed, done ? "" : "the stream broke off");
    return finish(r.status == 429 || r.status == 503 ? Outcome::refused : Outcome::failed, text.substr(0, 200));
  }
  if (!plan.slow) return read();
  pause.expires_after(std::chrono::microseconds(static_cast<int64_t>(static_cast<double>(bytes) / run.options.slowBytesPerSecond * 1e6)));
  pause.async_wait([self = shared_from_this()](Error stopped) {
    if (!stopped && !self->ended) self->read();
  });
}

void Conversation::lines() {
  size_t at = 0;
  for (size_t end; !ended && (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
    std::string line = text.substr(at, end - at);
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.rfind("data: ", 0) == 0) event(line.substr(6));
  }
  text.erase(0, at);
}

void Conversation::event(const std::string &data) {
  Record &r = record();
  if (data == "[DONE]") {
    done = r.error.empty();
    return;
  }
  json object = json::parse(data, nullptr, false);
  if (!object.is_object()) return;
  if (auto error = object.find("error"); error != object.end()) {
    r.error = error->dump(-1, ' ', true, json::error_handler_t::replace).substr(0, 200);
    return;
  }
  if (auto usage = object.find("usage"); usage != object.end() && usage->is_object()) {
    r.promptTokens = usage->value("prompt_tokens", 0u);
    r.newTokens = usage->value("completion_tokens", 0u);
    if (auto details = usage->find("prompt_tokens_details"); details != usage->end() && details->is_object())
      r.cachedTokens = details->value("cached_tokens", 0u);
  }
  auto choices = object.find("choices");
  if (choices == object.end() || !choices->is_array() || choices->empty()) return;
  const json &choice = choices->front();
  std::string piece;
  if (auto words = choice.find("text"); words != choice.end() && words->is_string()) piece = words->get<std::string>();
  if (auto delta = choice.find("delta"); delta != choice.end() && delta->is_object())
    if (auto words = delta->find("content"); words != delta->end() && words->is_string()) piece = words->get<std::string>();
  if (piece.empty()) return;
  double time = run.now();
  if (pieces) r.gaps.push_back(time - r.last);
  else r.first = time;
  r.last = time;
  answer += piece;
  ++pieces;
  if (plan.abortAfter && turn == 0 && pieces >= plan.abortAfter) finish(Outcome::aborted);
}

void Conversation::finish(Outcome outcome, const std::string &error) {
  if (ended) return;
  ended = true;
  Record &r = record();
  r.outcome = outcome;
  if (r.error.empty()) r.error = error;
  r.end = run.now();
  if (!r.newTokens) r.newTokens = pieces;
  Error ignored;
  deadline.cancel(ignored);
  pause.cancel(ignored);
  socket.close(ignored);
  if (outcome == Outcome::complete && turn + 1 < plan.turns.size()) {
    messages.push_back({{"role", "assistant"}, {"content", answer}});
    ++turn;
    record().due = r.end + plan.turns[turn].think;
    pause.expires_at(run.start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(record().due)));
    pause.async_wait([self = shared_from_this()](Error stopped) {
      if (!stopped) self->begin();
    });
    return;
  }
  run.ended();
}

} // namespace

Result<ServerInfo> askServer(const RunOptions &options) {
  asio::io_context io(1);
  tcp::socket socket(io);
  LATHE_RETURN_IF_ERROR(reach(io, options.target, socket).status());
  Error error;
  std::string request = head(options, "GET", "/v1/models", 0);
  asio::write(socket, asio::buffer(request), error);
  boost::beast::flat_buffer buffer;
  http::response<http::string_body> response;
  http::read(socket, buffer, response, error);
  auto list = json::parse(response.body(), nullptr, false);
  if (response.result_int() != 200 || !list.is_object() || !list.contains("data") || !list["data"].is_array())
    return makeError(StatusCode::failedPrecondition, "/v1/models: expected a list of models, found status %u",
                     response.result_int());
  for (const json &model : list["data"]) {
    if (!model.is_object() || !model.contains("id") || !model["id"].is_string()) continue;
    if (!options.model.empty() && model["id"] != options.model) continue;
    ServerInfo info;
    info.model = model["id"].get<std::string>();
    auto number = [&](const char *name) { return model.contains(name) && model[name].is_number_unsigned() ? model[name].get<uint32_t>() : 0u; };
    info.contextTokens = number("max_model_len");
    info.vocabulary = number("vocab_size");
    return info;
  }
  return makeError(StatusCode::notFound, "the server has no model '%s'", options.model.c_str());
}

std::vector<Record> runWorkload(const std::vector<PlannedRequest> &plan, const RunOptions &options) {
  Run run(plan, options);
  for (const PlannedRequest &request : plan) {
    run.firstRecord.push_back(run.records.size());
    run.records.resize(run.records.size() + request.turns.size());
    run.open |= request.arrival > 0;
  }
  {
    tcp::socket probe(run.io);
    if (auto found = reach(run.io, options.target, probe); found.ok()) run.server = *found;
    else if (auto endpoints = resolve(run.io, options.target); endpoints.ok()) run.server = endpoints->front(); // each request says so
    else return run.records; // the caller has asked the server before
  }
  run.start = Clock::now();
  run.next();
  run.io.run();
  // Turns behind one that failed were never sent.
  std::erase_if(run.records, [](const Record &r) { return r.end == 0; });
  return run.records;
}

} // namespace lathe::load
