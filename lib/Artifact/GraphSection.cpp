//===- GraphSection.cpp ------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "lathe/artifact/GraphSection.h"
#include <nlohmann/json.hpp>

namespace lathe {
namespace {

using Json = nlohmann::ordered_json;
constexpr const char *roles[] = {"tokens", "mask", "positions", "past", "weight", "logits", "present", "unused"};
constexpr const char *types[] = {"f32", "f16", "bf16", "i64", "i32", "other"};
constexpr uint32_t widths[] = {4, 2, 2, 8, 4, 0};
constexpr size_t mostPorts = 1 << 16, mostRank = 8;
constexpr int64_t mostExtent = int64_t(1) << 31;

Json encodePort(const GraphPort &p) {
  return {{"role", roles[size_t(p.role)]}, {"type", types[size_t(p.type)]}, {"bytes", p.elementBytes}, {"dims", p.dims}, {"name", p.name},
          {"axis", p.axis}, {"peer", p.peer}, {"offset", p.offset}};
}

Status wrong(const char *list, size_t i, const std::string &expected) {
  return Status(StatusCode::dataLoss, std::string("graph: ") + list + " " + std::to_string(i) + ": expected " + expected);
}

bool number(const Json &object, const char *key, uint64_t most, uint64_t &out) {
  auto it = object.find(key);
  if (it == object.end() || !it->is_number_unsigned()) return false;
  out = it->get<uint64_t>();
  return out <= most;
}

Result<GraphPort> decodePort(const Json &object, const char *list, size_t i) {
  GraphPort p;
  if (!object.is_object()) return wrong(list, i, "an object");
  auto choice = [&](const char *key, auto &names) -> int {
    auto it = object.find(key);
    if (it == object.end() || !it->is_string()) return -1;
    int k = 0;
    for (const char *name : names) {
      if (it->template get_ref<const std::string &>() == name) return k;
      ++k;
    }
    return -1;
  };
  int role = choice("role", roles), type = choice("type", types);
  if (role < 0 || type < 0) return wrong(list, i, "a known role and type");
  p.role = GraphRole(role);
  p.type = GraphType(type);
  uint64_t bytes, axis, peer;
  if (!number(object, "bytes", 8, bytes) || !bytes || (widths[type] && bytes != widths[type])) return wrong(list, i, "the bytes of an element of its type");
  auto dims = object.find("dims"), name = object.find("name");
  if (dims == object.end() || !dims->is_array() || dims->size() > mostRank) return wrong(list, i, "at most 8 dimensions");
  double elements = 1;
  for (const Json &d : *dims) {
    if (!d.is_number_integer() || d.get<int64_t>() < -1 || d.get<int64_t>() > mostExtent) return wrong(list, i, "dimensions of -1 .. 2^31");
    p.dims.push_back(d.get<int64_t>());
    elements *= double(std::max<int64_t>(p.dims.back(), 1));
  }
  if (elements > double(int64_t(1) << 40)) return wrong(list, i, "at most 2^40 elements");
  if (name == object.end() || !name->is_string()) return wrong(list, i, "a name");
  p.name = name->get<std::string>();
  if (!number(object, "axis", mostRank, axis) || !number(object, "peer", mostPorts, peer) || !number(object, "offset", UINT64_MAX, p.offset)) return wrong(list, i, "axis, peer and offset");
  p.elementBytes = uint32_t(bytes);
  p.axis = uint32_t(axis);
  p.peer = uint32_t(peer);
  bool cache = p.role == GraphRole::past || p.role == GraphRole::present;
  if (cache && (p.axis >= p.dims.size() || p.dims[p.axis] != -1)) return wrong(list, i, "a sequence axis of unknown size");
  for (size_t k = 0; k < p.dims.size(); ++k)
    if (p.dims[k] == -1 && ((cache && k != p.axis) || p.role == GraphRole::weight)) return wrong(list, i, "known sizes beside the sequence axis");
  return p;
}

} // namespace

std::string encodeGraphSection(const GraphSection &graph) {
  Json inputs = Json::array(), outputs = Json::array();
  for (const GraphPort &p : graph.inputs)
    inputs.push_back(encodePort(p));
  for (const GraphPort &p : graph.outputs)
    outputs.push_back(encodePort(p));
  return Json{{"inputs", inputs}, {"outputs", outputs}, {"checks", graph.checks}}.dump();
}

Result<GraphSection> decodeGraphSection(std::span<const uint8_t> bytes, uint64_t weightBytes, uint64_t vocabulary) {
  Json json = Json::parse(bytes.begin(), bytes.end(), nullptr, false);
  if (!json.is_object() || !json.contains("inputs") || !json.contains("outputs") || !json.contains("checks") || !json["inputs"].is_array() || !json["outputs"].is_array() ||
      !json["checks"].is_array() || json["inputs"].size() > mostPorts || json["outputs"].size() > mostPorts)
    return Status(StatusCode::dataLoss, "graph: expected a JSON object with inputs, outputs and checks");
  GraphSection g;
  for (const Json &p : json["inputs"]) {
    LATHE_ASSIGN_OR_RETURN(GraphPort port, decodePort(p, "input", g.inputs.size()));
    g.inputs.push_back(std::move(port));
  }
  for (const Json &p : json["outputs"]) {
    LATHE_ASSIGN_OR_RETURN(GraphPort port, decodePort(p, "output", g.outputs.size()));
    g.outputs.push_back(std::move(port));
  }
  for (const Json &text : json["checks"]) {
    if (!text.is_string()) return Status(StatusCode::dataLoss, "graph: expected checks that are strings");
    g.checks.push_back(text.get<std::string>());
  }
  unsigned seen[8] = {};
  for (size_t i = 0; i < g.inputs.size(); ++i) {
    const GraphPort &p = g.inputs[i];
    ++seen[size_t(p.role)];
    switch (p.role) {
    case GraphRole::tokens: case GraphRole::mask: case GraphRole::positions:
      if (p.dims.size() != 2 || (p.type != GraphType::i64 && p.type != GraphType::i32)) return wrong("input", i, "integers of rank 2");
      break;
    case GraphRole::past:
      if (p.peer >= g.outputs.size() || g.outputs[p.peer].role != GraphRole::present || g.outputs[p.peer].type != p.type || g.outputs[p.peer].elementBytes != p.elementBytes ||
          g.outputs[p.peer].dims != p.dims || g.outputs[p.peer].axis != p.axis)
        return wrong("input", i, "a cache result of its type");
      break;
    case GraphRole::weight: {
      uint64_t size = p.elementBytes;
      for (int64_t d : p.dims)
        size *= uint64_t(d);
      if (p.offset > weightBytes || size > weightBytes - p.offset) return wrong("input", i, "a weight within WEIGHTS");
      break;
    }
    default:
      return wrong("input", i, "the role of an input");
    }
  }
  for (size_t i = 0; i < g.outputs.size(); ++i) {
    const GraphPort &p = g.outputs[i];
    ++seen[size_t(p.role)];
    if (p.role != GraphRole::logits && p.role != GraphRole::present && p.role != GraphRole::unused) return wrong("output", i, "the role of a result");
    if (p.role == GraphRole::logits && (p.dims.size() != 3 || p.dims[2] != int64_t(vocabulary) || p.type == GraphType::other || p.type == GraphType::i64 || p.type == GraphType::i32))
      return wrong("output", i, "logits of rank 3 over the vocabulary");
  }
  if (seen[size_t(GraphRole::tokens)] != 1 || seen[size_t(GraphRole::logits)] != 1 || seen[size_t(GraphRole::mask)] > 1 || seen[size_t(GraphRole::positions)] > 1)
    return Status(StatusCode::dataLoss, "graph: expected one tokens, one logits and at most one mask and positions");
  return g;
}

Status checkGraphInterface(const GraphSection &graph, std::span<const int64_t> words) {
  if (words.size() < 2 || words[0] != int64_t(graph.inputs.size()) || words[1] != int64_t(graph.outputs.size()))
    return makeError(StatusCode::dataLoss, "graph: expected %zu inputs and %zu results, found code with %lld and %lld", graph.inputs.size(), graph.outputs.size(),
                     words.size() < 2 ? -1LL : static_cast<long long>(words[0]), words.size() < 2 ? -1LL : static_cast<long long>(words[1]));
  size_t at = 2;
  for (const auto *ports : {&graph.inputs, &graph.outputs})
    for (size_t i = 0; i < ports->size(); ++i) {
      const GraphPort &p = (*ports)[i];
      size_t rank = p.dims.size();
      bool fits = words.size() - at >= 2 + rank && words[at] == int64_t(p.elementBytes) && words[at + 1] == int64_t(rank);
      // A size that the code knows is in its loops; a result's is looked at after the call.
      for (size_t k = 0; fits && k < rank; ++k)
        fits = words[at + 2 + k] == -1 || words[at + 2 + k] == p.dims[k] || ports == &graph.outputs;
      if (!fits) return wrong(ports == &graph.inputs ? "input" : "output", i, "the element, rank and sizes that the code has");
      at += 2 + rank;
    }
  return Status();
}

} // namespace lathe
