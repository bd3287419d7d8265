//===- Server.cpp ---------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/server/Server.h"
#include "runtime/server/Access.h"
#include "runtime/server/Connection.h"
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <csignal>
#include <sys/resource.h>

namespace lathe::server {
namespace asio = boost::asio;
using asio::ip::tcp;
using Error = boost::system::error_code;

struct Server::State {
  State(std::vector<ServedModel> models, ServerOptions o, std::unique_ptr<LineWriter> access)
      : options(std::move(o)), io(std::make_shared<asio::io_context>(1)), acceptor(*io), pause(*io), grace(*io),
        signals(*io), log(stderr), accessLog(std::move(access)),
        api(std::move(models), options,
            // An engine may speak after the server is gone: then there is nobody to tell.
            [weak = std::weak_ptr(io)](std::function<void()> job) {
              if (auto loop = weak.lock()) asio::post(*loop, std::move(job));
            },
            log, accessLog.get()),
        context{options, api, {}, [this] { checkDrained(); }} {
    api.onIdle = [this] { checkDrained(); };
  }

  Status bind();
  void accept();
  void accepted(tcp::socket socket);
  void waitForSignal();
  void shutDown();
  void drainFor(double seconds, std::function<void()> then);
  void checkDrained();

  ServerOptions options;
  std::shared_ptr<asio::io_context> io;
  tcp::acceptor acceptor;
  asio::steady_timer pause, grace;
  asio::signal_set signals;
  LineWriter log;
  std::unique_ptr<LineWriter> accessLog;
  Api api;
  ConnectionContext context;
  bool lost = false; ///< a request that had begun was not answered
};

Status Server::State::bind() {
  Error error;
  std::string host = options.host == "localhost" ? "127.0.0.1" : options.host;
  auto address = asio::ip::make_address(host, error);
  if (error)
    return makeError(StatusCode::invalidArgument, "host: expected an address or localhost, found '%s'", options.host.c_str());
  tcp::endpoint endpoint(address, options.port);
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(1024, error);
  if (error)
    return makeError(StatusCode::failedPrecondition, "cannot listen on %s port %u: %s", options.host.c_str(),
                     options.port, error.message().c_str());
  return Status();
}

void Server::State::accept() {
  acceptor.async_accept([this](Error error, tcp::socket socket) {
    if (!acceptor.is_open()) return;
    if (!error) {
      accepted(std::move(socket));
      return accept();
    }
    pause.expires_after(std::chrono::milliseconds(50)); // no more file descriptors: some come back
    pause.async_wait([this](Error stopped) {
      if (!stopped) accept();
    });
  });
}

void Server::State::accepted(tcp::socket socket) {
  if (context.all.size() < options.maxConnections) return std::make_shared<Connection>(std::move(socket), context)->start();
  ++api.http.refused;
  ApiError e;
  e.status = 503, e.type = "server_error", e.code = "too_many_connections", e.message = "too many connections";
  std::string body = errorBody(e);
  std::string full = "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\n"
                     "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  Error ignored;
  socket.non_blocking(true, ignored);
  socket.send(asio::buffer(full.data(), full.size()), 0, ignored);
  socket.shutdown(tcp::socket::shutdown_send, ignored);
}

void Server::State::waitForSignal() {
  signals.async_wait([this](Error error, int) {
    if (error) return;
    shutDown();
    waitForSignal();
  });
}

void Server::State::drainFor(double seconds, std::function<void()> then) {
  grace.expires_after(std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000)));
  grace.async_wait([then = std::move(then)](Error error) {
    if (!error) then();
  });
}

void Server::State::shutDown() {
  if (api.draining()) { // the second time
    lost |= api.active() > 0;
    return io->stop();
  }
  log.write("lathe: draining: " + std::to_string(api.active()) + " requests have " +
            std::to_string(static_cast<int>(options.shutdownTimeout)) + " seconds to end; a second signal ends them now");
  api.drain();
  drainFor(options.shutdownTimeout, [this] {
    lost |= api.active() > 0;
    api.cancelAll();
    for (Connection *connection : context.all)
      connection->refuseBody();
    drainFor(2, [this] { io->stop(); }); // for the errors to be sent
  });
  asio::post(*io, [this] { checkDrained(); });
}

void Server::State::checkDrained() {
  if (!api.draining() || api.active()) return;
  for (Connection *connection : context.all)
    if (connection->busy()) return;
  io->stop();
}

Server::Server() = default;

Server::~Server() {
  // Connections tell the API what they know while it still lives.
  auto &all = state->context.all;
  state->context.onClosed = [] {};
  state->api.onIdle = nullptr;
  while (!all.empty())
    (*all.begin())->close();
}

Result<std::unique_ptr<Server>> Server::create(std::vector<ServedModel> models, ServerOptions options) {
  if (models.empty()) return makeError(StatusCode::invalidArgument, "expected at least one model");
  for (size_t i = 0; i < models.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (models[i].name == models[j].name)
        return makeError(StatusCode::invalidArgument, "two models have the name '%s'; see --served-name", models[i].name.c_str());
  if (!isLoopback(options.host) && options.keys.empty() && !options.noAuth)
    return makeError(StatusCode::invalidArgument,
                     "host '%s' is open to others: expected --api-key-file, or --no-auth to let everybody in",
                     options.host.c_str());
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    constexpr rlim_t others = 64; // artifacts, logs, the event loop
    rlim_t wanted = options.maxConnections + others;
    if (files.rlim_cur < wanted) {
      files.rlim_cur = std::min(wanted, files.rlim_max);
      (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    if (files.rlim_cur < wanted)
      return makeError(StatusCode::invalidArgument,
                       "%u connections need %llu open files, and the system allows %llu: lower --max-connections",
                       options.maxConnections, static_cast<unsigned long long>(wanted),
                       static_cast<unsigned long long>(files.rlim_max));
  }
  std::unique_ptr<LineWriter> access;
  if (!options.accessLog.empty()) {
    LATHE_ASSIGN_OR_RETURN(access, LineWriter::open(options.accessLog));
  }
  std::unique_ptr<Server> server(new Server());
  server->state = std::make_unique<State>(std::move(models), std::move(options), std::move(access));
  LATHE_RETURN_IF_ERROR(server->state->bind());
  return server;
}

uint16_t Server::port() const {
  Error ignored;
  return state->acceptor.local_endpoint(ignored).port();
}

bool Server::run(bool signals) {
  if (signals) {
    Error ignored;
    state->signals.add(SIGTERM, ignored);
    state->signals.add(SIGINT, ignored);
    state->waitForSignal();
  }
  state->accept();
  state->io->run();
  Error ignored;
  state->acceptor.close(ignored);
  return !state->lost;
}

void Server::shutDown() {
  asio::post(*state->io, [this] { state->shutDown(); });
}

std::vector<std::string> limitLines(const std::vector<ServedModel> &models, const ServerOptions &o) {
  std::vector<std::string> lines;
  auto add = [&]<typename... A>(const char *format, A... values) {
    char line[1000];
    std::snprintf(line, sizeof line, format, values...);
    lines.emplace_back(line);
  };
  for (const ServedModel &m : models) {
    runtime::EngineLimits e = m.engine->limits();
    add("model %s: context %u tokens, %u sequences at once, KV cache %llu tokens (%.1f full contexts), %u rows a step, "
        "queue %u requests of %s prompt tokens, %u threads, %.0f MB for KV cache and work space, %.0f MB for saved KV blocks",
        m.name.c_str(), e.contextTokens, e.maxSequences, static_cast<unsigned long long>(e.kvTokens),
        e.contextTokens ? static_cast<double>(e.kvTokens) / e.contextTokens : 0.0, e.stepTokens, e.maxQueued,
        e.maxQueuedTokens ? std::to_string(e.maxQueuedTokens).c_str() : "any number of", e.threads,
        static_cast<double>(e.memoryBytes) / 1e6, static_cast<double>(e.savedKvBytes) / 1e6);
    if (e.saveBytesPerSecond > 0)
      add("model %s: KV blocks go to the host and back at %.1f GB/s", m.name.c_str(), e.saveBytesPerSecond / 1e9);
    for (const std::string &line : m.about)
      add("model %s: %s", m.name.c_str(), line.c_str());
    if (e.generalGraph)
      add("model %s: a general graph: one request at a time with a contiguous cache, without prefix cache and drafts; exact tokens and planned memory are not promised",
          m.name.c_str());
  }
  add("server: %u connections, header %u bytes in %g s, body %llu bytes in %g s, all bodies %llu bytes, unsent %llu bytes a "
      "stream, %g s without a byte taken, ping after %g s, idle %g s, request %g s, shutdown %g s, %u workers; "
      "%u bytes read behind a request, %g s for a client to read a last answer, %u s until one that vanished is given up, %zu unknown fields in the log",
      o.maxConnections, o.maxHeaderBytes, o.headerTimeout, static_cast<unsigned long long>(o.maxBodyBytes), o.bodyTimeout,
      static_cast<unsigned long long>(o.maxBodiesBytes), static_cast<unsigned long long>(o.maxUnsentBytes), o.writeTimeout,
      o.pingSeconds, o.idleTimeout, o.requestTimeout, o.shutdownTimeout, o.workers,
      maxPipelined, lingerSeconds, keepAliveSeconds, maxWarnedNames);
  add("request: n %u, %u prompts, %u stop strings of %u bytes, %u stop token ids, %u log-probabilities, %u biases, %u messages, JSON of %u levels, "
      "%u values in chat_template_kwargs, %u bytes of cache_salt, prompt_logprobs of %llu values",
      o.api.maxChoices, o.api.maxPrompts, o.api.maxStops, o.api.maxStopBytes, o.api.maxStopTokens, o.api.maxLogprobs, o.api.maxBiases,
      o.api.maxMessages, o.api.maxJsonDepth, o.api.maxTemplateNodes, o.api.maxSaltBytes,
      static_cast<unsigned long long>(runtime::maxPromptScores));
  add("access: %zu keys%s", o.keys.all().size(), o.keys.empty() ? ", nobody needs one" : "");
  return lines;
}

} // namespace lathe::server
