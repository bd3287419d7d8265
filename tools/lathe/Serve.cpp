//===- Serve.cpp - lathe serve --------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Commands.h"
#include "Limits.h"
#include "Speculate.h"
#include "lathe/base/Topology.h"
#include "runtime/engine/KVBudget.h"
#include "runtime/engine/RequestEngine.h"
#include "runtime/metrics/ModelMetrics.h"
#include "runtime/server/Defaults.h"
#include "runtime/server/Server.h"
#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace lathe::tool {
using namespace runtime;

namespace {

struct ServeFlags {
  EngineFlags engine;
  server::ServerOptions server;
  std::vector<std::string> names;
  std::string keyFile, policy = "fcfs", preemption = "auto", pooling = "last", generation = "auto", speculate = "off", draftCost = "measured", trace;
  uint64_t port = 8000, queue = 256, queueTokens = 0, stepTokens = 0;
  std::optional<uint64_t> sequences, savedKv;
  std::optional<double> itl, ttft, tpot, header, body, idle, write, ping, request, shutdown;
  uint64_t connections = 1024, bodyMb = 8, bodiesMb = 256, unsentKb = 1024, workers = 2;
  bool noPrefixCache = false;
};

Options declare(ServeFlags &f) {
  Options o("lathe serve FILE.lathe... [options]",
            "Answers OpenAI clients over HTTP, with continuous batching. Several files: the `model` of a request chooses.\n"
            "docs/serving.md describes endpoints, limits, metrics and errors.");
  o.text("--host", "ADDRESS", "address to listen on (default: 127.0.0.1)", f.server.host);
  o.number("--port", "N", "port to listen on; 0: a free one, which is printed (default: 8000)", f.port, 0, 65535);
  o.texts("--served-name", "NAME", "name of a model in requests, once for each file (default: the file's name)", f.names);
  o.heading("Who may call");
  o.text("--api-key-file", "FILE", "keys, a line of JSON each: name, key, tenant, priority, concurrency", f.keyFile);
  o.flag("--no-auth", "let everybody in though --host is open to others", f.server.noAuth);
  o.texts("--allowed-host", "NAME", "a name in the Host header beside addresses, localhost and this machine's", f.server.allowedHosts);
  o.texts("--cors-origin", "URL", "a web site whose pages may call", f.server.corsOrigins);
  o.heading("Engine");
  f.engine.declare(o);
  o.number("--max-seqs", "N", "sequences computed at one time (default: 64; 1 for a general graph)", f.sequences, 1, 4096);
  o.number("--saved-kv", "MB", "host memory for KV blocks of preempted requests; 0: they are computed again (default: an eighth of what is free, at most a fourth of --memory)", f.savedKv, 0, uint64_t(1) << 32);
  o.number("--step-tokens", "N", "rows of a step: at most the artifact's --max-rows, at least --max-seqs (default: 256)", f.stepTokens, 0, 1 << 20);
  o.text("--policy", "P", "order of requests: fcfs, priority, fair or deadline (default: fcfs)", f.policy);
  o.text("--preemption", "P", "what a stopped request costs later: auto, recompute or save (default: auto)", f.preemption);
  o.real("--itl", "MS", "time between tokens that prompts may not exceed (default: one prompt at most doubles it)", f.itl, 0, 1e6);
  o.real("--ttft", "MS", "--policy deadline: until the first token, for requests that do not say (default: none)", f.ttft, 1, 1e9);
  o.real("--tpot", "MS", "--policy deadline: between tokens, for requests that do not say (default: none)", f.tpot, 1, 1e9);
  o.flag("--no-prefix-cache", "compute every prompt anew", f.noPrefixCache);
  o.text("--speculate", "M", "who drafts tokens: off, auto, draft or layerskip (the artifact's draft program), medusa, eagle, eagle2 or eagle3 (one of that kind), ngram, suffix or suffix-tree; changes no token (default: off)", f.speculate);
  o.text("--draft-cost", "C", "which drafts are verified: those that pay by the measured cost of their rows (measured), or all that there are and have room (none), to compare drafters (default: measured)", f.draftCost);
  o.text("--pooling", "P", "of /v1/embeddings: last or mean (default: last)", f.pooling);
  o.text("--generation-config", "G", "defaults for sampling: auto (the model's own) or none (default: auto)", f.generation);
  o.text("--trace", "FILE", "write the scheduler's decisions, for 'lathe replay'", f.trace);
  o.heading("Limits");
  o.number("--max-queue", "N", "requests that wait; one more gets 429 (default: 256)", f.queue, 1, 1 << 20);
  o.number("--max-queue-tokens", "N", "prompt tokens that wait; 0: no bound (default: 0)", f.queueTokens, 0, uint64_t(1) << 40);
  o.number("--max-connections", "N", "open connections (default: 1024)", f.connections, 1, 1 << 20);
  o.number("--max-body", "MB", "a request's body (default: 8)", f.bodyMb, 1, 1024);
  o.number("--max-bodies", "MB", "all bodies that are being read (default: 256)", f.bodiesMb, 1, 1 << 20);
  o.number("--max-unsent", "KB", "what a stream's client may leave unread; past it the request is cancelled (default: 1024)", f.unsentKb, 1, 1 << 20);
  o.real("--header-timeout", "S", "for a request's header (default: 10)", f.header, 0.01, 86400);
  o.real("--body-timeout", "S", "for its body (default: 60)", f.body, 0.01, 86400);
  o.real("--idle-timeout", "S", "between two requests of a connection (default: 75)", f.idle, 0.01, 86400);
  o.real("--write-timeout", "S", "without a byte taken by the client (default: 60)", f.write, 0.01, 86400);
  o.real("--request-timeout", "S", "until a request is ended; 0: never (default: 600)", f.request, 0, 1e7);
  o.real("--shutdown-timeout", "S", "for requests to finish after SIGTERM (default: 30)", f.shutdown, 0, 86400);
  o.number("--workers", "N", "threads for JSON, templates and tokenization (default: 2)", f.workers, 1, 64);
  o.heading("Observing");
  o.text("--access-log", "FILE", "a line of JSON for each request; -: standard output", f.server.accessLog);
  o.real("--ping", "S", "silence of a stream after which a comment is sent (default: 15)", f.ping, 0.01, 86400);
  o.flag("--vllm-metrics", "the metrics also under vLLM's names", f.server.vllmMetrics);
  return o;
}

Status apply(ServeFlags &f) {
  server::ServerOptions &o = f.server;
  auto set = [](double &to, const std::optional<double> &from) {
    if (from) to = *from;
  };
  set(o.headerTimeout, f.header);
  set(o.bodyTimeout, f.body);
  set(o.idleTimeout, f.idle);
  set(o.writeTimeout, f.write);
  set(o.pingSeconds, f.ping);
  set(o.requestTimeout, f.request);
  set(o.shutdownTimeout, f.shutdown);
  o.port = static_cast<uint16_t>(f.port);
  o.maxConnections = static_cast<uint32_t>(f.connections);
  o.maxBodyBytes = f.bodyMb << 20;
  o.maxBodiesBytes = std::max(f.bodiesMb, f.bodyMb) << 20;
  o.maxUnsentBytes = f.unsentKb << 10;
  o.workers = static_cast<unsigned>(f.workers);
  if (!f.keyFile.empty()) {
    LATHE_ASSIGN_OR_RETURN(o.keys, server::KeyTable::load(f.keyFile));
  }
  auto oneOf = [](const char *option, const std::string &value, std::initializer_list<const char *> known, const char *expected) {
    for (const char *name : known)
      if (value == name) return Status();
    return makeError(StatusCode::invalidArgument, "option '%s': expected %s, found '%s'", option, expected, value.c_str());
  };
  LATHE_RETURN_IF_ERROR(oneOf("--preemption", f.preemption, {"auto", "recompute", "save"}, "auto, recompute or save"));
  LATHE_RETURN_IF_ERROR(oneOf("--pooling", f.pooling, {"last", "mean"}, "last or mean"));
  return oneOf("--generation-config", f.generation, {"auto", "none"}, "auto or none");
}

/// What a step of one row is made of, and how the weights are stored.
std::string stepLine(const Program &p) {
  std::map<std::string, int> kinds, weights;
  int merged = 0, launches = 0;
  for (const Entry &entry : p.entries) {
    if ((entry.name != "step" && entry.name != "head") || entry.buckets.empty()) continue;
    const Bucket &bucket = entry.buckets.front();
    for (uint32_t i = 0; i < bucket.launchCount; ++i, ++launches) {
      const Launch &l = p.launches[bucket.firstLaunch + i];
      const std::string &name = p.names[l.name]; // "layer.q+layer.k (kind)"
      size_t kind = name.rfind('(');
      ++kinds[kind == std::string::npos ? name : name.substr(kind + 1, name.size() - kind - 2)];
      if (!l.weightBytes || !l.macsPerRow) continue;
      merged += name.find('+') != std::string::npos;
      char bits[64];
      std::snprintf(bits, sizeof bits, "%.2g bits in %s", 8.0 * static_cast<double>(l.weightBytes) / static_cast<double>(l.macsPerRow),
                    l.arithmetic == Arithmetic::int8   ? "int8"
                    : l.arithmetic == Arithmetic::bf16 ? "bf16"
                                                       : "f32");
      ++weights[bits];
    }
  }
  std::string line = std::to_string(launches) + " launches a step:";
  for (const auto &[kind, count] : kinds)
    line += " " + std::to_string(count) + " " + kind;
  line += ", " + std::to_string(merged) + " matmuls of several merged; weights:";
  for (const auto &[bits, count] : weights)
    line += (line.back() == ':' ? " " : ", ") + std::to_string(count) + " of " + bits;
  return line;
}

/// Lines for the start: who computes, in which order, with what.
std::vector<std::string> aboutModel(const LoadedArtifact &artifact, const ServeFlags &f, const Device &device, bool text) {
  char line[600];
  std::string targets, drafts = f.speculate + (f.draftCost == "none" ? " whatever they cost" : "");
  for (auto [name, value] : {std::pair{"ITL", f.itl}, {"TTFT", f.ttft}, {"TPOT", f.tpot}})
    if (value) {
      std::snprintf(line, sizeof line, ", %s %g ms", name, *value);
      targets += line;
    }
  std::snprintf(line, sizeof line, "device %s (%s), policy %s%s, preemption %s, drafts %s, prefix cache %s, pooling %s", device.name(),
                artifact::toString(artifact.variant()), f.policy.c_str(), targets.c_str(), f.preemption.c_str(), drafts.c_str(),
                f.noPrefixCache || artifact.graph() ? "off" : "on", f.pooling.c_str());
  std::vector<std::string> lines{line};
  auto metadata = nlohmann::json::parse(artifact.view().text(artifact::SectionKind::metadata), nullptr, false);
  std::string compiled;
  if (metadata.is_object() && metadata.contains("options") && metadata["options"].is_object())
    for (const auto &[key, value] : metadata["options"].items())
      compiled += (compiled.empty() ? "" : ", ") + key + " " + (value.is_string() ? value.get<std::string>() : value.dump());
  lines.push_back("compiled with " + (compiled.empty() ? "unknown options" : compiled) + "; tokenizer " + (text ? "" : "not ") + "in the file, chat template " +
                  (artifact.view().find(artifact::SectionKind::chatTemplate) ? "" : "not ") + "in the file, sampling defaults " +
                  (f.generation == "auto" ? "the file's" : "none"));
  if (!artifact.graph()) lines.push_back(stepLine(artifact.program()));
  return lines;
}

Result<server::ServedModel> openServed(const std::string &path, const std::string &name, const ServeFlags &f,
                                       size_t models, double readLimit) {
  server::ServedModel m;
  LATHE_ASSIGN_OR_RETURN(m.device, openDevice(f.engine));
  LATHE_ASSIGN_OR_RETURN(auto artifact, openModel(path, f.engine, *m.device));
  m.name = name;
  m.path = path;
  char fingerprint[96];
  std::snprintf(fingerprint, sizeof fingerprint, "lathe-" LATHE_VERSION "-%s-%016" PRIx64,
                artifact::toString(artifact->variant()), artifact->view().contentHash().low);
  m.fingerprint = fingerprint;
  if (artifact->view().find(artifact::SectionKind::tokenizer)) {
    LATHE_ASSIGN_OR_RETURN(TextModel text, TextModel::create(*artifact));
    m.text = std::make_shared<TextModel>(std::move(text));
  }
  if (f.generation == "auto") {
    LATHE_RETURN_IF_ERROR(server::readDefaults(artifact->view().text(artifact::SectionKind::generation), m));
  }
  RequestEngineOptions o;
  o.threads = static_cast<unsigned>(f.engine.threads);
  o.pin = f.engine.pin;
  o.contextTokens = static_cast<uint32_t>(f.engine.context);
  // What is free is shared by all models. Half of it for what runs; the rest is other people's, but for what is saved.
  std::optional<uint64_t> free = availableMemory();
  if (free) *free /= std::max<size_t>(1, models);
  uint64_t available = free.value_or(0);
  o.memoryBudget = f.engine.memory ? *f.engine.memory << 20 : defaultBudget(free);
  o.maxSequences = static_cast<uint32_t>(f.sequences.value_or(artifact->graph() ? 1 : 64));
  // Not more than a fourth of a budget that was given: it is meant for small machines too.
  uint64_t spare = f.engine.memory ? std::min(available / 8, o.memoryBudget / 4) : available / 8;
  o.savedKvBytes = f.savedKv ? *f.savedKv << 20 : artifact->graph() ? 0 : spare;
  o.stepTokens = static_cast<uint32_t>(f.stepTokens);
  o.maxQueued = static_cast<uint32_t>(f.queue);
  o.maxQueuedTokens = f.queueTokens;
  LATHE_ASSIGN_OR_RETURN(o.policy, parsePolicy(f.policy));
  o.preemption = f.preemption == "save"        ? PreemptionMode::save
                 : f.preemption == "recompute" ? PreemptionMode::recompute
                                               : PreemptionMode::automatic;
  o.prefixCache = !f.noPrefixCache;
  LATHE_ASSIGN_OR_RETURN(o.speculate, speculationOption(f.speculate));
  LATHE_ASSIGN_OR_RETURN(o.freeDrafts, draftCostOption(f.draftCost));
  o.itlTarget = f.itl.value_or(0) / 1e3;
  o.tracePath = f.trace;
  m.metrics = std::make_shared<metrics::ModelMetrics>(name, readLimit);
  LATHE_ASSIGN_OR_RETURN(m.engine, RequestEngine::create(artifact, m.text, o, m.device.get(), m.metrics.get()));
  m.about = aboutModel(*artifact, f, *m.device, m.text != nullptr);
  m.vocabulary = artifact->program().vocabulary;
  m.hiddenSize = artifact->program().hiddenSize;
  m.contextTokens = m.engine->limits().contextTokens;
  m.ttftTarget = f.ttft.value_or(0) / 1e3;
  m.tpotTarget = f.tpot.value_or(0) / 1e3;
  m.pooling = f.pooling == "mean" ? Pooling::mean : Pooling::last;
  return m;
}

} // namespace

Result<int> serveCommand(const Args &args) {
  ServeFlags f;
  Options options = declare(f);
  Args files;
  LATHE_ASSIGN_OR_RETURN(bool go, parseOptions(options, args, files));
  if (!go) return 0;
  if (files.empty()) return makeError(StatusCode::invalidArgument, "expected at least one artifact; see '--help'");
  if (!f.names.empty() && f.names.size() != files.size())
    return makeError(StatusCode::invalidArgument, "option '--served-name': expected one for each of the %zu files, found %zu",
                     files.size(), f.names.size());
  if (!f.trace.empty() && files.size() > 1)
    return makeError(StatusCode::invalidArgument, "option '--trace': expected one file with it, found %zu", files.size());
  LATHE_RETURN_IF_ERROR(apply(f));
  signal(SIGPIPE, SIG_IGN);

  std::vector<server::ServedModel> models;
  double readLimit = 0;
  for (size_t i = 0; i < files.size(); ++i) {
    if (i == 0) {
      unsigned threads = f.engine.threads ? static_cast<unsigned>(f.engine.threads) : Topology::detect().defaultThreads();
      readLimit = measureRead(threads, artifact::Variant::avx2, 3, 96 << 20); // fewer bytes: a quick start
    }
    std::string name = f.names.empty() ? std::filesystem::path(files[i]).stem().string() : f.names[i];
    auto model = openServed(files[i], name, f, files.size(), readLimit);
    if (!model.ok()) return model.status();
    models.push_back(*std::move(model));
  }
  std::vector<std::string> limits = limitLines(models, f.server);
  LATHE_ASSIGN_OR_RETURN(auto server, server::Server::create(std::move(models), f.server));
  for (const std::string &line : limits)
    std::fprintf(stderr, "lathe: %s\n", line.c_str());
  std::fprintf(stderr, "lathe: reading memory: %.1f GB/s\n", readLimit / 1e9);
  bool v6 = f.server.host.find(':') != std::string::npos;
  std::printf("listening on http://%s%s%s:%u\n", v6 ? "[" : "", f.server.host.c_str(), v6 ? "]" : "", server->port());
  std::fflush(stdout);
  bool complete = server->run(true);
  server.reset();
  std::fprintf(stderr, complete ? "lathe: every request was answered\n" : "lathe: some requests were ended early\n");
  return complete ? 0 : 1;
}

} // namespace lathe::tool
