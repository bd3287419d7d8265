//===- AccessTest.cpp - keys, hosts, origins -----------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "TestServer.h"
#include "runtime/server/Access.h"
#include <fstream>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace lathe;
using namespace lathe::server;
using namespace lathe::test;

TEST(Keys, ReadsLines) {
  auto table = KeyTable::parse("# two teams\n{\"name\":\"a\",\"key\":\"sk-aaaaaaaa\",\"tenant\":\"red\",\"priority\":-3,\"concurrency\":2}\n\n"
                               "{\"name\":\"b\",\"key\":\"sk-bbbbbbbb\"}");
  ASSERT_TRUE(table.ok()) << table.status().message();
  ASSERT_EQ(table->all().size(), 2u);
  EXPECT_EQ(table->all()[0].tenant, "red");
  EXPECT_EQ(table->all()[0].priority, -3);
  EXPECT_EQ(table->all()[0].concurrency, 2u);
  EXPECT_EQ(table->all()[1].tenant, "b");
  EXPECT_EQ(table->find("sk-aaaaaaaa"), 0);
  EXPECT_EQ(table->find("sk-bbbbbbbb"), 1);
  for (const char *wrong : {"", "sk-aaaaaaa", "sk-aaaaaaaaa", "sk-aaaaaaab", "SK-aaaaaaaa"})
    EXPECT_EQ(table->find(wrong), -1) << wrong;
  EXPECT_EQ(table->find(std::string(1000, 'x')), -1);
  EXPECT_EQ(table->find(std::string("sk-aaaaaaaa\0", 12)), -1);
}

TEST(Keys, SaysWhatIsWrong) {
  auto message = [](const char *text) { return KeyTable::parse(text).status().message(); };
  EXPECT_EQ(message("\n"), "expected at least one key, found none");
  EXPECT_EQ(message("\nx"), "line 2: expected a JSON object with 'name' and 'key'");
  EXPECT_EQ(message("{\"key\":\"sk-aaaaaaaa\"}"), "line 1: expected a string for 'name'");
  EXPECT_EQ(message("{\"name\":\"a\",\"key\":\"short\"}"),
            "line 1: expected 8..256 printable ASCII characters without spaces for 'key'");
  EXPECT_EQ(message("{\"name\":\"a\",\"key\":\"sk-aaaaaaaa\",\"priority\":\"high\"}"),
            "line 1: expected a number in -2147483648..2147483647 for 'priority', found \"high\"");
  EXPECT_EQ(message("{\"name\":\"a\",\"key\":\"sk-aaaaaaaa\",\"rights\":1}"),
            "line 1: unknown field 'rights', expected name, key, tenant, priority or concurrency");
  EXPECT_EQ(message("{\"name\":\"a\",\"key\":\"sk-aaaaaaaa\"}\n{\"name\":\"b\",\"key\":\"sk-aaaaaaaa\"}"),
            "line 2: the key of 'b' is taken by 'a'");
}

TEST(Keys, RefusesAFileThatOthersCanRead) {
  std::ofstream("server-test.keys") << "{\"name\":\"a\",\"key\":\"sk-aaaaaaaa\"}\n";
  chmod("server-test.keys", 0644);
  EXPECT_EQ(KeyTable::load("server-test.keys").status().message(),
            "key file 'server-test.keys': others may read or change it; 'chmod 600' it");
  chmod("server-test.keys", 0600);
  EXPECT_TRUE(KeyTable::load("server-test.keys").ok());
  unlink("server-test.keys");
  EXPECT_EQ(KeyTable::load("server-test.keys").status().message(), "key file 'server-test.keys': cannot read it");
}

TEST(Access, Hosts) {
  for (const char *host : {"127.0.0.1", "127.0.0.1:8000", "localhost:1", "[::1]:80", "10.1.2.3", "Box", "box:80"})
    EXPECT_TRUE(hostAllowed(host, "box", {})) << host;
  for (const char *host : {"", "evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost.evil", "1.2.3"})
    EXPECT_FALSE(hostAllowed(host, "box", {})) << host;
  EXPECT_TRUE(hostAllowed("Api.Example:443", "box", {"api.example"}));
  EXPECT_TRUE(hostAllowed("anything", "box", {"*"}));
  EXPECT_TRUE(isLoopback("127.0.0.1") && isLoopback("127.9.9.9") && isLoopback("::1") && isLoopback("localhost"));
  EXPECT_FALSE(isLoopback("0.0.0.0") || isLoopback("10.0.0.1") || isLoopback("::") || isLoopback("box"));
}

TEST(Access, OriginsAndEscapes) {
  EXPECT_TRUE(originAllowed("", "127.0.0.1:8000", {}));
  EXPECT_TRUE(originAllowed("http://127.0.0.1:8000", "127.0.0.1:8000", {}));
  EXPECT_FALSE(originAllowed("http://evil.example", "127.0.0.1:8000", {}));
  EXPECT_FALSE(originAllowed("null", "127.0.0.1:8000", {}));
  EXPECT_TRUE(originAllowed("http://app.example", "127.0.0.1:8000", {"http://app.example"}));
  EXPECT_EQ(percentDecoded("a%2Fb%zz%4"), "a/b%zz%4");
}

namespace {

ServerOptions withKeys() {
  ServerOptions options;
  options.keys = *KeyTable::parse("{\"name\":\"red\",\"key\":\"sk-red-key\",\"tenant\":\"team-red\",\"priority\":2,\"concurrency\":1}\n"
                                  "{\"name\":\"blue\",\"key\":\"sk-blue-key\",\"priority\":-5}");
  return options;
}
const std::string red = "Authorization: Bearer sk-red-key\r\n", blue = "Authorization: Bearer sk-blue-key\r\n";
const std::string chat = R"({"model":"toy","messages":[{"role":"user","content":"hi"}]})";

} // namespace

TEST(Access, EverythingButHealthAndThePageNeedsAKey) {
  TestServer server(std::make_shared<FakeEngine>(), withKeys());
  for (const char *path : {"/health", "/ready", "/", "/page.js", "/page.css"})
    EXPECT_EQ(server.get(path).status, 200) << path;
  for (const char *path : {"/v1/models", "/v1/models/toy", "/version", "/metrics", "/nowhere"})
    EXPECT_EQ(server.get(path).status, 401) << path;
  for (const char *path : {"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/tokenize", "/detokenize"})
    EXPECT_EQ(server.post(path, chat).status, 401) << path;
  Answer refused = server.post("/v1/chat/completions", chat, "Authorization: Bearer sk-red-kez\r\n");
  EXPECT_EQ(refused.status, 401);
  EXPECT_EQ(refused.json()["error"]["code"], "invalid_api_key");
  EXPECT_EQ(refused.headers["www-authenticate"], "Bearer");
  EXPECT_EQ(server.post("/v1/chat/completions", chat, "Authorization: Basic sk-red-key\r\n").status, 401);
  EXPECT_EQ(server.post("/v1/chat/completions", chat, red).status, 200);
  // The scheme's case does not matter, the key's does.
  EXPECT_EQ(server.post("/v1/chat/completions", chat, "Authorization: bearer sk-red-key\r\n").status, 200);
  EXPECT_EQ(server.post("/v1/chat/completions", chat, "Authorization: BEARER sk-red-key\r\n").status, 200);
  EXPECT_EQ(server.post("/v1/chat/completions", chat, "Authorization: Bearer SK-RED-KEY\r\n").status, 401);
  EXPECT_EQ(server.post("/v1/chat/completions", chat, "Authorization: Bearer \r\n").status, 401);
}

TEST(Access, TenantAndPriorityComeFromTheKey) {
  auto engine = std::make_shared<FakeEngine>();
  TestServer server(engine, withKeys());
  auto ask = [&](const std::string &more, const std::string &key) {
    return server.post("/v1/chat/completions", R"({"messages":[{"role":"user","content":"hi"}])" + more + "}", key);
  };
  EXPECT_EQ(ask(R"(,"tenant":"team-blue","cache_salt":"s")", red).status, 200);
  EXPECT_EQ(ask(R"(,"priority":3)", red).status, 200);
  Answer refused = ask(R"(,"priority":1)", red);
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.json()["error"]["param"], "priority");
  EXPECT_EQ(ask(R"(,"priority":-5)", blue).status, 200);
  EXPECT_EQ(ask("", blue).status, 200);
  auto seen = engine->seen();
  ASSERT_EQ(seen.size(), 4u);
  EXPECT_EQ(seen[0].tenant, "team-red");
  EXPECT_EQ(seen[0].cacheSalt, "s");
  EXPECT_EQ(seen[0].priority, 2);
  EXPECT_EQ(seen[1].priority, 3);
  EXPECT_EQ(seen[2].priority, -5);
  EXPECT_EQ(seen[2].tenant, "blue");
  EXPECT_EQ(seen[3].priority, 0);
}

TEST(Access, AKeysConcurrencyIsBounded) {
  auto engine = std::make_shared<FakeEngine>([](auto &) {
    Script s;
    s.secondsBefore = 100;
    return s;
  });
  TestServer server(engine, withKeys());
  Client first(server.port());
  first.send(request("/v1/chat/completions", chat, red));
  ASSERT_TRUE(eventually([&] { return engine->running == 1; }));
  Answer refused = server.post("/v1/chat/completions", chat, red);
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.headers["retry-after"], "1");
  EXPECT_EQ(refused.json()["error"]["message"], "the key allows 1 requests at one time");
  EXPECT_EQ(server.get("/v1/models", red).status, 200);
  first.close(); // and the place is free again
  ASSERT_TRUE(eventually([&] { return engine->running == 0; }));
  Client second(server.port());
  second.send(request("/v1/chat/completions", chat, red));
  EXPECT_TRUE(eventually([&] { return engine->running == 1; }));
}

TEST(Access, WhoOnlyLooksUsesNothingUp) {
  auto engine = std::make_shared<FakeEngine>();
  TestServer server(engine, withKeys());
  Client looks(server.port());
  {
    std::lock_guard slow(engine->gate);
    looks.send(request("/metrics", "", red));
    EXPECT_TRUE(eventually([&] { return engine->asked == 1; }));
    EXPECT_EQ(server.post("/v1/chat/completions", chat, red).status, 200);
  }
  EXPECT_EQ(looks.read().status, 200);
}

TEST(Access, HostAndOriginAreChecked) {
  TestServer server(std::make_shared<FakeEngine>());
  EXPECT_EQ(server.send("GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n").status, 403);
  EXPECT_EQ(server.send("GET /health HTTP/1.1\r\n\r\n").status, 400);
  EXPECT_EQ(server.send("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").status, 200);
  EXPECT_EQ(server.get("/health", "Origin: http://evil.example\r\n").json()["error"]["code"], "origin_not_allowed");
  Answer same = server.get("/health", "Origin: http://127.0.0.1\r\n");
  EXPECT_EQ(same.status, 200);
  EXPECT_EQ(same.headers.count("access-control-allow-origin"), 0u);
  EXPECT_EQ(server.send("OPTIONS /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n").status, 405);
}

TEST(Access, ConfiguredOriginsMayCall) {
  ServerOptions options = withKeys();
  options.corsOrigins = {"http://app.example"};
  options.allowedHosts = {"api.example"};
  TestServer server(std::make_shared<FakeEngine>(), options);
  Client client(server.port());
  client.send("OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: api.example\r\nOrigin: http://app.example\r\n"
              "Access-Control-Request-Headers: authorization\r\n\r\n");
  Answer preflight = client.read();
  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(preflight.headers["access-control-allow-origin"], "http://app.example");
  EXPECT_EQ(preflight.headers["access-control-allow-headers"], "authorization");
  Answer answer = server.post("/v1/chat/completions", chat, blue + "Origin: http://app.example\r\n");
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers["access-control-allow-origin"], "http://app.example");
}

TEST(Access, OtherHostsNeedKeys) {
  ServerOptions options;
  options.host = "0.0.0.0";
  options.port = 0;
  auto make = [&] { return Server::create({toyModel(std::make_shared<FakeEngine>())}, options).status().message(); };
  EXPECT_EQ(make(), "host '0.0.0.0' is open to others: expected --api-key-file, or --no-auth to let everybody in");
  options.noAuth = true;
  EXPECT_EQ(make(), "");
  options.noAuth = false;
  options.keys = withKeys().keys;
  EXPECT_EQ(make(), "");
  options.host = "nowhere.example";
  EXPECT_EQ(make(), "host: expected an address or localhost, found 'nowhere.example'");
}

TEST(Access, ThePageIsStaticAndStrict) {
  TestServer server(std::make_shared<FakeEngine>(), withKeys());
  Answer page = server.get("/");
  EXPECT_EQ(page.headers["content-type"], "text/html; charset=utf-8");
  EXPECT_EQ(page.headers["content-security-policy"].rfind("default-src 'self';", 0), 0u);
  EXPECT_NE(page.body.find("<script src=\"page.js\">"), std::string::npos);
  EXPECT_EQ(page.body.find("<style"), std::string::npos); // the policy would refuse it
  std::string script = server.get("/page.js").body;
  for (const char *unsafe : {"innerHTML", "insertAdjacentHTML", "document.write", "eval(", "localStorage", "document.cookie"})
    EXPECT_EQ(script.find(unsafe), std::string::npos) << unsafe;
  Client client(server.port());
  client.send("HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  Answer head = client.read(true);
  EXPECT_EQ(head.headers["content-length"], std::to_string(page.body.size()));
  EXPECT_EQ(client.read().body, "{\"status\":\"ok\"}"); // and no body came before it
}
