//===- Functions.cpp - inlines a model's functions -------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Internal.h"
#include "lathe/import/Quote.h"
#include <algorithm>
#include <unordered_set>

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
  /// Names that graphs inside a function's node define, innermost first: those are not the function's.
  struct Hidden {
    std::unordered_set<std::string> own;
    const Hidden *outer = nullptr;
    bool has(const std::string &name) const { return own.count(name) || (outer && outer->has(name)); }
  };
  /// False when the names are too long in all.
  bool rename(std::string &name, const Renames &renames, const Hidden *hidden = nullptr) {
    auto it = renames.find(name);
    if (it == renames.end() || (hidden && hidden->has(name))) return true;
    bytes += it->second.size();
    if (bytes > maxBytes) return false;
    name = it->second;
    return true;
  }
  bool renameCaptured(Graph &graph, const Renames &renames, const Hidden *outer);
  void fillReferences(Node &node, const Node &call, const Function &function);
  Status subgraphs(Node &node, int depth) {
    return forEachSubgraph(node, [&](Graph &graph) { return run(graph, depth + 1); });
  }

  /// Counts one more node or call; false when there are too many.
  bool count(const Node &node) {
    bytes += bytesOf(node);
    return ++made <= maxNodes && bytes <= maxBytes;
  }
  static size_t bytesOf(const Node &node);
  static size_t bytesOf(const Tensor &tensor);
  static size_t bytesOf(const Value &value);
  static size_t bytesOf(const Graph &graph);

  const FunctionTable &functions;
  size_t made = 0, calls = 0, bytes = 0;
};

size_t Inliner::bytesOf(const Tensor &tensor) {
  size_t sum = sizeof(Tensor) + tensor.name.size() + tensor.path.size() + tensor.dims.size() * sizeof(int64_t) + tensor.data.size();
  for (const std::string &text : tensor.strings)
    sum += sizeof(std::string) + text.size();
  return sum;
}

size_t Inliner::bytesOf(const Value &value) {
  size_t sum = sizeof(Value) + value.name.size();
  for (const Dim &dim : value.dims)
    sum += sizeof(Dim) + dim.name.size();
  return sum;
}

/// All that a copy of the graph holds.
size_t Inliner::bytesOf(const Graph &graph) {
  size_t sum = sizeof(Graph) + graph.name.size();
  for (const Node &node : graph.nodes)
    sum += bytesOf(node);
  for (const Tensor &tensor : graph.initializers)
    sum += bytesOf(tensor);
  for (const auto *list : {&graph.inputs, &graph.outputs})
    for (const Value &value : *list)
      sum += bytesOf(value);
  for (const auto &[name, value] : graph.values)
    sum += sizeof(name) + name.size() + bytesOf(value);
  return sum;
}

size_t Inliner::bytesOf(const Node &node) {
  size_t sum = sizeof(Node) + node.name.size();
  for (const auto *list : {&node.inputs, &node.outputs})
    for (const std::string &name : *list)
      sum += sizeof(std::string) + name.size();
  for (const Attribute &attribute : node.attributes) {
    sum += sizeof(Attribute) + attribute.s.size() + attribute.fs.size() * sizeof(float) + attribute.is.size() * sizeof(int64_t);
    for (const std::string &text : attribute.ss)
      sum += sizeof(std::string) + text.size();
    for (const Tensor &tensor : attribute.ts)
      sum += bytesOf(tensor);
    for (const auto &graph : attribute.gs)
      sum += bytesOf(*graph);
  }
  for (const auto &[own, theirs] : node.references)
    sum += 2 * sizeof(std::string) + own.size() + theirs.size();
  return sum;
}

/// Names that a subgraph of a function's node takes from around it.
bool Inliner::renameCaptured(Graph &graph, const Renames &renames, const Hidden *outer) {
  Hidden hidden;
  hidden.outer = outer;
  for (const Value &input : graph.inputs)
    hidden.own.insert(input.name);
  for (const Tensor &tensor : graph.initializers)
    hidden.own.insert(tensor.name);
  for (const Node &node : graph.nodes)
    hidden.own.insert(node.outputs.begin(), node.outputs.end());
  bool fits = true;
  for (Node &node : graph.nodes) {
    for (std::string &input : node.inputs)
      fits = fits && rename(input, renames, &hidden);
    (void)forEachSubgraph(node, [&](Graph &inner) {
      fits = fits && renameCaptured(inner, renames, &hidden);
      return Status();
    });
  }
  for (Value &output : graph.outputs)
    fits = fits && rename(output.name, renames, &hidden);
  return fits;
}

/// Attributes that a function's node, or one in its subgraphs, takes from the call.
void Inliner::fillReferences(Node &node, const Node &call, const Function &function) {
  for (const auto &[own, theirs] : node.references) {
    const Attribute *given = call.attribute(theirs);
    if (auto it = function.defaults.find(theirs); !given && it != function.defaults.end()) given = &it->second;
    if (!given) continue; // the node's own default holds
    node.attributes.push_back(*given);
    node.attributes.back().name = own;
  }
  node.references.clear();
  (void)forEachSubgraph(node, [&](Graph &graph) {
    for (Node &inner : graph.nodes)
      fillReferences(inner, call, function);
    return Status();
  });
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
  for (const Node &source : function.nodes) {
    if (bytes + bytesOf(source) > maxBytes) return tooMuch(); // before it is copied
    Node node = source;
    node.name = call.name.empty() ? node.name : call.name + "/" + node.name;
    fillReferences(node, call, function);
    if (bytes + bytesOf(node) > maxBytes) return tooMuch();
    bool fits = true;
    for (auto *list : {&node.inputs, &node.outputs})
      for (std::string &name : *list)
        fits = fits && rename(name, renames);
    (void)forEachSubgraph(node, [&](Graph &graph) {
      fits = fits && renameCaptured(graph, renames, nullptr);
      return Status();
    });
    if (!fits) return tooMuch();
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
