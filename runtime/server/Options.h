//===- Options.h - what a server is told at start -----------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/engine/RequestEngine.h"
#include "runtime/server/Keys.h"
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace lathe::metrics {
class ModelMetrics;
}

namespace lathe::server {

// What no flag changes.
constexpr uint32_t maxPipelined = 16u << 10; ///< bytes of further requests that are read while one is answered
constexpr double lingerSeconds = 2; ///< in which a client may still send what is thrown away, so that it gets to read why
constexpr uint32_t keepAliveSeconds = 75; ///< after which the kernel gives up a client that vanished without a word
constexpr size_t maxWarnedNames = 100; ///< of unknown fields in the log: they come from clients, what is remembered stays small

/// Bounds of a request body's fields; docs/serving.md lists them.
struct ApiLimits {
  uint32_t maxChoices = 16;       ///< n
  uint32_t maxPrompts = 64;       ///< prompts of one request, or inputs of an embeddings request
  uint32_t maxStops = 4;          ///< stop strings
  uint32_t maxStopBytes = 256;    ///< of one stop string
  uint32_t maxStopTokens = 64;    ///< stop_token_ids
  uint32_t maxLogprobs = 20;      ///< logprobs, top_logprobs, prompt_logprobs
  uint32_t maxBiases = 1024;      ///< entries of logit_bias
  uint32_t maxMessages = 4096;    ///< of a conversation
  uint32_t maxSaltBytes = 256;    ///< cache_salt
  uint32_t maxTemplateNodes = 10000; ///< JSON values in chat_template_kwargs
  uint32_t maxJsonDepth = 64;
};

struct ServerOptions {
  std::string host = "127.0.0.1"; ///< an address, or "localhost"
  uint16_t port = 8000;           ///< 0: any free one, see Server::port()
  KeyTable keys;                  ///< empty: nobody needs a key
  bool noAuth = false;            ///< allow another host than loopback without keys
  std::vector<std::string> allowedHosts; ///< names in the Host header beside loopback, addresses and this machine's; "*": any
  std::vector<std::string> corsOrigins;  ///< origins of other sites that may call; "*": any
  uint32_t maxConnections = 1024;
  double headerTimeout = 10;  ///< seconds from the first byte of a request, or from the connection, to the end of its header
  double bodyTimeout = 60;    ///< seconds for the body
  double idleTimeout = 75;    ///< seconds between two requests of a connection
  double writeTimeout = 60;   ///< seconds without a byte taken by the client
  double pingSeconds = 15;    ///< silence of a stream after which a comment is sent
  double requestTimeout = 600; ///< seconds until a request is ended; 0: never
  double shutdownTimeout = 30; ///< seconds that requests have to finish after the first signal
  uint32_t maxHeaderBytes = 16u << 10;
  uint64_t maxBodyBytes = 8u << 20;
  uint64_t maxBodiesBytes = 256u << 20; ///< of all bodies that are being read or parsed
  uint64_t maxUnsentBytes = 1u << 20;   ///< of one stream, beyond what the kernel took; past it the request is cancelled
  unsigned workers = 2;                 ///< threads for JSON, templates and tokenization
  bool vllmMetrics = false;             ///< the metrics also under vLLM's names
  std::string accessLog;                ///< a file for one JSON line a request, "-": standard output, empty: none
  ApiLimits api;
};

/// One artifact being served. The engine is destroyed before the observer it reports to.
struct ServedModel {
  std::string name;        ///< the `model` of requests
  std::string path;        ///< for /v1/models
  std::vector<std::string> about; ///< lines for the start: what runs it, and how
  std::string fingerprint; ///< artifact, variant and runtime: what the bits depend on
  std::shared_ptr<const runtime::TextModel> text; ///< null: only token ids
  SamplingParams defaults; ///< for fields that a request leaves out
  uint32_t defaultMaxTokens = 0; ///< of a chat, when the request says nothing; 0: what the context holds
  uint32_t vocabulary = 0, contextTokens = 0, hiddenSize = 0;
  double ttftTarget = 0, tpotTarget = 0; ///< seconds, for the deadline policy; 0: none, and any target may be asked for; else only a longer one
  runtime::Pooling pooling = runtime::Pooling::last;
  std::shared_ptr<metrics::ModelMetrics> metrics;
  std::shared_ptr<runtime::Device> device; ///< outlives the engine
  std::shared_ptr<runtime::RequestEngine> engine;
};

} // namespace lathe::server
