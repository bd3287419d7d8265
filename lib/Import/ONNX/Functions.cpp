//===- Functions.cpp - inlines a model's functions -------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Internal.h"
#include "lathe/import/Quote.h"
#include <algorithm>

namespace lathe::onnxfile {
namespace {

constexpr int maxDepth = 32;
constexpr size_t maxNodes = size_t(1) << 20; ///< calls and copies count as well: functions may hold nothing but calls
constexpr size_t maxBytes = size_t(1) << 28; ///< of names and attributes of the nodes that inlining makes

class Inliner {
public:
  explicit Inliner(const FunctionTable &functions) : functions(functions) {}
  Status run(Graph &graph, int depth);

private:
  using Renames = std::unordered_map<std::string, std::string>;
  Status expand(const Node &call, const Function &function, std::vector<Node> &out, int depth);
  static void rename(std::string &name, const Renames &renames) {
    if (auto it = renames.find(name); it != renames.end()) name = it->second;
  }
  static Status renameCaptured(Graph &graph, const Renames &renames);
  Status subgraphs(Node &node, int depth) {
    return forEachSubgraph(node, [&](Graph &graph) { return run(graph, depth + 1); });
  }

  /// Counts one more node or call; false when there are too many.
  bool count(const Node &node) {
    bytes += bytesOf(node);
    return ++made <= maxNodes && bytes <= maxBytes;
  }
  static size_t bytesOf(const Node &node);

  const FunctionTable &functions;
  size_t made = 0, calls = 0, bytes = 0;
};

size_t Inliner::bytesOf(const Node &node) {
  size_t sum = sizeof(Node) + node.name.size();
  for (const auto *list : {&node.inputs, &node.outputs})
    for (const std::string &name : *list)
      sum += sizeof(std::string) + name.size();
  for (const Attribute &attribute : node.attributes) {
    sum += sizeof(Attribute) + attribute.s.size() + attribute.fs.size() * sizeof(float) + attribute.is.size() * sizeof(int64_t);
    for (const std::string &text : attribute.ss)
      sum += sizeof(std::string) + text.size();
    for (const Tensor &tensor : attribute.ts) {
      sum += sizeof(Tensor) + tensor.name.size() + tensor.path.size() + tensor.dims.size() * sizeof(int64_t) + tensor.data.size();
      for (const std::string &text : tensor.strings)
        sum += sizeof(std::string) + text.size();
    }
    for (const auto &graph : attribute.gs) // copied with their nodes
      for (const Node &inner : graph->nodes)
        sum += bytesOf(inner);
  }
  return sum;
}

/// Names that a subgraph of a function's node takes from around it.
Status Inliner::renameCaptured(Graph &graph, const Renames &renames) {
  Renames visible = renames;
  for (const Value &input : graph.inputs)
    visible.erase(input.name);
  for (const Tensor &tensor : graph.initializers)
    visible.erase(tensor.name);
  for (const Node &node : graph.nodes)
    for (const std::string &output : node.outputs)
      visible.erase(output);
  for (Node &node : graph.nodes) {
    for (std::string &input : node.inputs)
      rename(input, visible);
    LATHE_RETURN_IF_ERROR(forEachSubgraph(node, [&](Graph &inner) { return renameCaptured(inner, visible); }));
  }
  for (Value &output : graph.outputs)
    rename(output.name, visible);
  return Status();
}

Status Inliner::expand(const Node &call, const Function &function, std::vector<Node> &out, int depth) {
  auto bad = [&](const std::string &what) {
    return Status(StatusCode::invalidArgument, nodeText(call) + ": function " + quoteName(function.name) + what);
  };
  if (depth > maxDepth) return bad(" calls itself, or functions are nested deeper than " + std::to_string(maxDepth));
  if (call.inputs.size() > function.inputs.size() || call.outputs.size() > function.outputs.size())
    return bad(" has " + std::to_string(function.inputs.size()) + " inputs and " + std::to_string(function.outputs.size()) +
               " outputs, found " + std::to_string(call.inputs.size()) + " and " + std::to_string(call.outputs.size()));
  auto tooMuch = [&] { return bad(": inlining makes more than " + std::to_string(maxNodes) + " nodes, or names and attributes of more than " + std::to_string(maxBytes) + " bytes"); };
  if (!count(call)) return tooMuch();
  // A name of its own for every value inside; \x01 cannot be confused with what other exporters write.
  std::string prefix = call.name + "\x01" + std::to_string(calls++) + "/";
  Renames renames;
  for (size_t i = 0; i < function.inputs.size(); ++i)
    renames[function.inputs[i]] = i < call.inputs.size() ? call.inputs[i] : "";
  for (size_t i = 0; i < call.outputs.size(); ++i)
    if (!call.outputs[i].empty() && !renames.count(function.outputs[i])) renames[function.outputs[i]] = call.outputs[i];
  for (const Node &node : function.nodes)
    for (const std::string &output : node.outputs) {
      if (output.empty()) continue;
      bytes += prefix.size() + output.size();
      if (bytes > maxBytes) return tooMuch();
      renames.emplace(output, prefix + output);
    }
  for (size_t i = 0; i < function.nodes.size(); ++i) {
    Node node = function.nodes[i];
    node.name = call.name.empty() ? node.name : call.name + "/" + node.name;
    for (const auto &[own, theirs] : function.references[i]) {
      const Attribute *given = call.attribute(theirs);
      if (auto it = function.defaults.find(theirs); !given && it != function.defaults.end()) given = &it->second;
      if (!given) continue; // the node's own default holds
      node.attributes.push_back(*given);
      node.attributes.back().name = own;
    }
    for (std::string &input : node.inputs)
      rename(input, renames);
    for (std::string &output : node.outputs)
      rename(output, renames);
    LATHE_RETURN_IF_ERROR(forEachSubgraph(node, [&](Graph &graph) { return renameCaptured(graph, renames); }));
    auto found = functions.find(functionKey(node.domain, node.op, node.overload));
    if (found != functions.end()) {
      LATHE_RETURN_IF_ERROR(expand(node, found->second, out, depth + 1));
      continue;
    }
    LATHE_RETURN_IF_ERROR(subgraphs(node, depth));
    if (!count(node)) return tooMuch();
    out.push_back(std::move(node));
  }
  // An output that is an input, or one value under two names.
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const std::string &inner = renames[function.outputs[i]];
    if (call.outputs[i].empty() || inner == call.outputs[i]) continue;
    Node copy;
    copy.op = "Identity";
    copy.opset = 1;
    copy.inputs = {inner};
    copy.outputs = {call.outputs[i]};
    if (!count(copy)) return tooMuch();
    out.push_back(std::move(copy));
  }
  return Status();
}

Status Inliner::run(Graph &graph, int depth) {
  std::vector<Node> out;
  for (Node &node : graph.nodes) {
    auto found = functions.find(functionKey(node.domain, node.op, node.overload));
    if (found == functions.end()) {
      LATHE_RETURN_IF_ERROR(subgraphs(node, depth));
      out.push_back(std::move(node));
    } else {
      LATHE_RETURN_IF_ERROR(expand(node, found->second, out, depth));
    }
  }
  graph.nodes = std::move(out);
  return Status();
}

} // namespace

Status forEachSubgraph(Node &node, const std::function<Status(Graph &)> &visit) {
  for (Attribute &attribute : node.attributes)
    for (auto &graph : attribute.gs) {
      auto copy = std::make_shared<Graph>(*graph);
      LATHE_RETURN_IF_ERROR(visit(*copy));
      graph = std::move(copy);
    }
  return Status();
}

Status inlineFunctions(Graph &graph, const FunctionTable &functions) {
  if (functions.empty()) return Status();
  return Inliner(functions).run(graph, 0);
}

} // namespace lathe::onnxfile
