//===- Inspect.cpp - lathe inspect --------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Session.h"
#include "lathe/artifact/Hash.h"
#include "lathe/artifact/ProgramCodec.h"
#include "lathe/artifact/Reader.h"
#include <cstdio>

namespace lathe::tool {
using namespace artifact;
using Json = nlohmann::ordered_json;

namespace {

double kvBytesPerToken(const Program &p) {
  double bytes = 0;
  for (const KVGroup &g : p.kvGroups)
    bytes += static_cast<double>(g.blockBytes) / g.pageTokens;
  return bytes;
}

Json describe(const std::string &path, const ArtifactView &view, const Program &p) {
  Json sections = Json::array();
  for (const Section &s : view.sections()) {
    Json section = {{"kind", artifact::toString(static_cast<SectionKind>(s.kind))}};
    if (s.variant) section["variant"] = artifact::toString(static_cast<Variant>(s.variant));
    section["offset"] = s.offset;
    section["bytes"] = s.bytes;
    section["hash"] = toHex(s.hash);
    sections.push_back(std::move(section));
  }
  // A general graph has one cache without pages, and its tensors no place in an arena: there is no plan to take a peak from.
  bool planned = !view.find(SectionKind::graph);
  Json groups = Json::array();
  for (const KVGroup &g : p.kvGroups) {
    if (!planned) {
      groups.push_back({{"kind", "contiguous"}, {"layers", g.layers}});
      continue;
    }
    groups.push_back({{"kind", g.kind ? "window" : "full"},
                      {"window", g.window},
                      {"page_tokens", g.pageTokens},
                      {"layers", g.layers},
                      {"block_bytes", g.blockBytes},
                      {"draft", g.draft != 0}});
  }
  auto metadata = Json::parse(view.text(SectionKind::metadata), nullptr, false);
  uint64_t weights = p.syntheticWeightBytes ? p.syntheticWeightBytes : view.weights().size();
  return {{"file", path},
          {"format", formatVersion},
          {"bytes", view.file().size()},
          {"content_hash", toHex(view.contentHash())},
          {"metadata", metadata.is_discarded() ? Json() : metadata},
          {"sections", sections},
          {"program",
           {{"max_rows", p.maxRows},
            {"max_out_rows", p.maxOutRows},
            {"max_seq", p.maxSeq},
            {"vocabulary", p.vocabulary},
            {"hidden_size", p.hiddenSize},
            {"kernels", p.kernels.size()},
            {"launches", p.launches.size()},
            {"draft_max_seq", p.draftMaxSeq},
            {"draft_heads", p.draftMethod == DraftMethod::medusa ? p.draftHeads() : 0},
            {"draft_features", goesOnFromItself(p.draftMethod) ? p.draftFeatureSize() : 0},
            {"draft_vocabulary", p.draftMaxSeq ? p.draftVocabulary() : 0},
            {"kv_groups", groups}}},
          {"memory",
           {{"planned", planned},
            {"weight_bytes", weights},
            {"synthetic_weights", p.syntheticWeightBytes != 0},
            {"arena_bytes", p.arenaBytes},
            {"scratch_bytes_per_thread", p.scratchBytes},
            {"kv_bytes_per_token", kvBytesPerToken(p)}}}};
}

void print(const Json &d) {
  std::printf("%s: artifact format %u, %.1f MB, content %s\n", d["file"].get<std::string>().c_str(), formatVersion,
              d["bytes"].get<double>() / 1e6, d["content_hash"].get<std::string>().c_str());
  if (d["metadata"].is_object())
    for (const auto &[key, value] : d["metadata"].items())
      std::printf("  %s: %s\n", key.c_str(), value.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
  std::printf("sections:\n");
  for (const Json &s : d["sections"])
    std::printf("  %-14s %-11s %12llu bytes at %llu\n", s["kind"].get<std::string>().c_str(),
                s.contains("variant") ? s["variant"].get<std::string>().c_str() : "",
                static_cast<unsigned long long>(s["bytes"].get<uint64_t>()),
                static_cast<unsigned long long>(s["offset"].get<uint64_t>()));
  const Json &p = d["program"], &m = d["memory"];
  std::printf("program: %u rows a step, context %u, vocabulary %u, %u kernels in %u launches\n",
              p["max_rows"].get<unsigned>(), p["max_seq"].get<unsigned>(), p["vocabulary"].get<unsigned>(),
              p["kernels"].get<unsigned>(), p["launches"].get<unsigned>());
  if (p["draft_max_seq"].get<unsigned>()) {
    unsigned heads = p["draft_heads"].get<unsigned>(), features = p["draft_features"].get<unsigned>();
    bool own = false; // another model has a KV cache of its own, the first layers that of the step
    for (const Json &g : p["kv_groups"]) own |= g["draft"].get<bool>();
    std::printf("draft program: context %u%s\n", p["draft_max_seq"].get<unsigned>(), heads ? (", " + std::to_string(heads) + " heads over hidden rows").c_str() : features ? (", a layer over features of " + std::to_string(features) + ", " + std::to_string(p["draft_vocabulary"].get<unsigned>()) + " tokens").c_str() : own ? ", a model of its own" : ", the first layers (layerskip)");
  }
  bool planned = m["planned"].get<bool>();
  for (const Json &g : p["kv_groups"]) {
    if (!planned) {
      std::printf("KV cache: %u layers, contiguous, of one sequence\n", g["layers"].get<unsigned>());
      continue;
    }
    std::printf("KV group%s: %u layers, %s attention%s, pages of %u tokens, %llu bytes a page\n", g["draft"].get<bool>() ? " of the draft program" : "",
                g["layers"].get<unsigned>(), g["kind"].get<std::string>().c_str(),
                g["kind"] == "window" ? (" over " + std::to_string(g["window"].get<unsigned>()) + " tokens").c_str()
                                      : "",
                g["page_tokens"].get<unsigned>(), static_cast<unsigned long long>(g["block_bytes"].get<uint64_t>()));
  }
  if (!planned) {
    std::printf("memory: weights %.1f MB + %.1f KB a token of context, twice while a step runs + the tensors of a step, which are not planned: no peak is known\n",
                m["weight_bytes"].get<double>() / 1e6, m["kv_bytes_per_token"].get<double>() / 1e3);
    return;
  }
  double fixed = m["weight_bytes"].get<double>() + m["arena_bytes"].get<double>();
  std::printf(
      "memory: weights %.1f MB%s + work space %.1f MB + %.2f MB a thread + %.1f KB a token of context; peak for the "
      "whole context %.1f MB\n",
      m["weight_bytes"].get<double>() / 1e6, m["synthetic_weights"].get<bool>() ? " (made up at load)" : "", m["arena_bytes"].get<double>() / 1e6,
      m["scratch_bytes_per_thread"].get<double>() / 1e6, m["kv_bytes_per_token"].get<double>() / 1e3,
      (fixed + m["kv_bytes_per_token"].get<double>() * p["max_seq"].get<double>()) / 1e6);
}

} // namespace

Result<int> inspectCommand(const Args &args) {
  bool verify = false, json = false;
  Options o("lathe inspect FILE.lathe [options]", "Shows what is in an artifact. Enters no code of it.");
  o.flag("--verify", "read all weights and compare their hash", verify);
  o.flag("--json", "one line of JSON", json);
  Args positional;
  LATHE_ASSIGN_OR_RETURN(bool go, parseOptions(o, args, positional));
  if (!go) return 0;
  LATHE_ASSIGN_OR_RETURN(std::string path, onePositional(positional, "an artifact"));
  LATHE_ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
  auto inFile = [&](Status status) { return std::move(status).at("'" + path + "'"); };
  auto view = ArtifactView::parse(file.bytes());
  if (!view.ok()) return withCompileHint(inFile(view.status()), path);
  auto bytes = view->find(SectionKind::program);
  for (const Section &s : view->sections()) // a GPU's, when there is no other
    if (!bytes && s.kind == static_cast<uint32_t>(SectionKind::program)) bytes = view->find(SectionKind::program, static_cast<Variant>(s.variant));
  if (!bytes) return inFile(Status(StatusCode::dataLoss, "section 'program' is missing"));
  auto program = decodeProgram(*bytes);
  if (!program.ok()) return inFile(program.status());
  if (Status s = validateProgram(*program, view->weights().size()); !s.ok()) return inFile(std::move(s));
  if (verify)
    if (Status s = view->verifyWeights(); !s.ok()) return inFile(std::move(s));
  LATHE_RETURN_IF_ERROR(file.check());
  Json description = describe(path, *view, *program);
  if (verify) description["verified"] = true;
  if (json) {
    std::printf("%s\n", dumpLine(description).c_str());
  } else {
    print(description);
    if (verify) std::printf("all hashes match\n");
  }
  return 0;
}

} // namespace lathe::tool
