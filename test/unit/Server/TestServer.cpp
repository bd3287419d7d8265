//===- TestServer.cpp -----------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "TestServer.h"
#include "ToyArtifact.h"
#include "runtime/metrics/ModelMetrics.h"
#include <algorithm>
#include <arpa/inet.h>
#include <cstdio>
#include <cstdlib>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

namespace lathe::test {

static std::shared_ptr<const runtime::TextModel> toyText() {
  static auto text = [] {
    std::string path = "server-test-" + std::to_string(getpid()) + ".lathe";
    ToyOptions toy;
    toy.words = true;
    std::shared_ptr<const runtime::TextModel> result;
    if (writeToyArtifact(path, toy).ok())
      if (auto loaded = runtime::LoadedArtifact::load(path); loaded.ok())
        if (auto made = runtime::TextModel::create(**loaded); made.ok())
          result = std::make_shared<runtime::TextModel>(*std::move(made));
    unlink(path.c_str());
    if (!result) std::abort(); // the toy artifact is tested elsewhere
    return result;
  }();
  return text;
}

server::ServedModel toyModel(std::shared_ptr<FakeEngine> engine) {
  server::ServedModel model;
  model.name = "toy";
  model.path = "toy.lathe";
  model.fingerprint = "fp_toy";
  model.text = toyText();
  model.vocabulary = toyVocabulary;
  model.contextTokens = 256;
  model.hiddenSize = 3;
  model.metrics = std::make_shared<metrics::ModelMetrics>("toy", 1e9);
  model.engine = std::move(engine);
  return model;
}

std::vector<std::string> Answer::events() const {
  std::vector<std::string> out;
  for (size_t at = 0, end; (end = body.find("\n\n", at)) != std::string::npos; at = end + 2)
    if (body.compare(at, 6, "data: ") == 0) out.push_back(body.substr(at + 6, end - at - 6));
  return out;
}

Client::Client(uint16_t port, int receiveBuffer) {
  fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (receiveBuffer) setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &receiveBuffer, sizeof receiveBuffer);
  timeval limit{20, 0};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<sockaddr *>(&address), sizeof address) != 0) close();
}

Client::~Client() { close(); }

void Client::close() {
  if (fd >= 0) ::close(fd);
  fd = -1;
}

void Client::halfClose() { shutdown(fd, SHUT_WR); }

void Client::send(std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t n = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
}

bool Client::more() {
  char chunk[16384];
  ssize_t n = recv(fd, chunk, sizeof chunk, 0);
  if (n > 0) buffer.append(chunk, static_cast<size_t>(n));
  return n > 0;
}

bool Client::readUntil(std::string_view text) {
  while (buffer.find(text) == std::string::npos)
    if (!more()) return false;
  return true;
}

bool Client::closed() {
  char byte;
  while (recv(fd, &byte, 1, 0) > 0) {
  }
  return errno != EAGAIN && errno != EWOULDBLOCK;
}

Answer Client::read(bool headOnly) {
  Answer answer;
  if (!readUntil("\r\n\r\n")) return answer;
  size_t end = buffer.find("\r\n\r\n");
  std::string head = buffer.substr(0, end + 2);
  buffer.erase(0, end + 4);
  int status = std::atoi(head.c_str() + 9);
  for (size_t at = head.find("\r\n") + 2; at < head.size();) {
    size_t stop = head.find("\r\n", at), colon = head.find(':', at);
    std::string name = head.substr(at, colon - at);
    std::transform(name.begin(), name.end(), name.begin(), ::tolower);
    answer.headers[name] = head.substr(colon + 2, stop - colon - 2);
    at = stop + 2;
  }
  if (status == 100) return read(headOnly);
  if (headOnly || status == 204) {
    answer.status = status;
    return answer;
  }
  if (answer.headers.count("transfer-encoding")) {
    while (true) {
      if (!readUntil("\r\n")) return answer;
      size_t size = std::strtoul(buffer.c_str(), nullptr, 16);
      buffer.erase(0, buffer.find("\r\n") + 2);
      while (buffer.size() < size + 2)
        if (!more()) return answer;
      answer.body += buffer.substr(0, size);
      buffer.erase(0, size + 2);
      if (!size) break;
    }
  } else if (answer.headers.count("content-length")) {
    size_t size = std::strtoul(answer.headers["content-length"].c_str(), nullptr, 10);
    while (buffer.size() < size)
      if (!more()) return answer;
    answer.body = buffer.substr(0, size);
    buffer.erase(0, size);
  } else {
    while (more()) {
    }
    answer.body = std::exchange(buffer, "");
  }
  answer.status = status;
  return answer;
}

std::string request(const std::string &path, const std::string &body, const std::string &headers) {
  std::string text = (body.empty() ? "GET " : "POST ") + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\n" + headers;
  if (!body.empty()) text += "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n";
  return text + "\r\n" + body;
}

TestServer::TestServer(std::shared_ptr<FakeEngine> engine, server::ServerOptions options,
                       std::vector<server::ServedModel> more) {
  options.port = 0;
  more.insert(more.begin(), toyModel(std::move(engine)));
  auto made = server::Server::create(std::move(more), std::move(options));
  if (!made.ok()) {
    std::fprintf(stderr, "%s\n", made.status().message().c_str());
    std::abort();
  }
  server = *std::move(made);
  thread = std::thread([this] { result = server->run(); });
}

TestServer::~TestServer() {
  if (!thread.joinable()) return;
  server->shutDown();
  server->shutDown();
  thread.join();
}

bool TestServer::join() {
  thread.join();
  return result;
}

Answer TestServer::send(const std::string &bytes) {
  Client client(port());
  client.send(bytes);
  return client.read();
}

double TestServer::metric(const std::string &name, const std::string &headers) {
  std::string text = "\n" + get("/metrics", headers).body;
  size_t at = text.find("\n" + name + " ");
  return at == std::string::npos ? -1 : std::strtod(text.c_str() + at + name.size() + 2, nullptr);
}

bool eventually(const std::function<bool()> &condition) {
  for (int i = 0; i < 4000; ++i) {
    if (condition()) return true;
    usleep(5000);
  }
  return false;
}

} // namespace lathe::test
