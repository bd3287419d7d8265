//===- Names.cpp - one definition before every use -------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Internal.h"
#include "lathe/import/Quote.h"
#include <queue>
#include <set>

namespace lathe::onnxfile {
namespace {

/// The names that a graph defines, and where from: a node, or -1 for what is there from the start. Around them those of the graphs that it lies in:
/// a copy for each subgraph would take as long as there are names and subgraphs together, multiplied.
struct Names {
  std::unordered_map<std::string, int> own;
  const Names *outer = nullptr;
  bool visible(const std::string &name) const { return own.count(name) || (outer && outer->visible(name)); }
};
constexpr int maxDepth = 32;

Status bad(const std::string &what) { return Status(StatusCode::invalidArgument, what); }

/// Names that |graph| uses and does not define.
void captured(const Graph &graph, std::set<std::string> &out) {
  std::set<std::string> own;
  for (const Value &input : graph.inputs)
    own.insert(input.name);
  for (const Tensor &tensor : graph.initializers)
    own.insert(tensor.name);
  for (const Node &node : graph.nodes)
    own.insert(node.outputs.begin(), node.outputs.end());
  auto use = [&](const std::string &name) {
    if (!own.count(name)) out.insert(name);
  };
  for (const Node &node : graph.nodes) {
    for (const std::string &input : node.inputs)
      use(input);
    for (const Attribute &attribute : node.attributes)
      for (const auto &inner : attribute.gs) {
        std::set<std::string> names;
        captured(*inner, names);
        for (const std::string &name : names)
          use(name);
      }
  }
  for (const Value &output : graph.outputs)
    use(output.name);
}

} // namespace

const Attribute *Node::attribute(std::string_view wanted) const {
  for (const Attribute &entry : attributes)
    if (entry.name == wanted) return &entry;
  return nullptr;
}

namespace {

Status order(Graph &graph, const Names *outer, int depth) {
  if (depth > maxDepth) return bad("graphs are nested deeper than " + std::to_string(maxDepth));
  Names names;
  names.outer = outer;
  auto &defined = names.own;
  auto define = [&](const std::string &name, int node) {
    if (name.empty()) return bad("a graph's input, output or initializer has no name");
    if (!defined.emplace(name, node).second) return bad("value " + quoteName(name) + " has two definitions");
    return Status();
  };
  for (const Value &input : graph.inputs)
    LATHE_RETURN_IF_ERROR(define(input.name, -1));
  for (const Tensor &tensor : graph.initializers)
    LATHE_RETURN_IF_ERROR(define(tensor.name, -1));
  auto count = static_cast<int>(graph.nodes.size());
  for (int i = 0; i < count; ++i)
    for (const std::string &output : graph.nodes[static_cast<size_t>(i)].outputs)
      if (!output.empty()) LATHE_RETURN_IF_ERROR(define(output, i));

  // Kahn's algorithm, earliest node first: a sorted graph keeps its order.
  std::vector<std::vector<int>> users(graph.nodes.size());
  std::vector<int> missing(graph.nodes.size(), 0);
  for (int i = 0; i < count; ++i) {
    const Node &node = graph.nodes[static_cast<size_t>(i)];
    std::set<std::string> uses(node.inputs.begin(), node.inputs.end());
    for (const Attribute &attribute : node.attributes)
      for (const auto &inner : attribute.gs)
        captured(*inner, uses);
    for (const std::string &name : uses) {
      if (name.empty()) continue;
      auto it = defined.find(name);
      if (it == defined.end()) {
        if (!names.visible(name)) return bad(nodeText(node) + ": input " + quoteName(name) + " has no definition");
        continue;
      }
      if (it->second < 0) continue;
      users[static_cast<size_t>(it->second)].push_back(i);
      ++missing[static_cast<size_t>(i)];
    }
  }
  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  for (int i = 0; i < count; ++i)
    if (!missing[static_cast<size_t>(i)]) ready.push(i);
  std::vector<Node> ordered;
  ordered.reserve(graph.nodes.size());
  std::vector<bool> done(graph.nodes.size(), false);
  while (!ready.empty()) {
    int i = ready.top();
    ready.pop();
    done[static_cast<size_t>(i)] = true;
    for (int user : users[static_cast<size_t>(i)])
      if (!--missing[static_cast<size_t>(user)]) ready.push(user);
    ordered.push_back(std::move(graph.nodes[static_cast<size_t>(i)]));
  }
  for (int i = 0; i < count; ++i)
    if (!done[static_cast<size_t>(i)]) return bad(nodeText(graph.nodes[static_cast<size_t>(i)]) + " is part of a cycle");
  graph.nodes = std::move(ordered);

  for (const Value &output : graph.outputs)
    if (!names.visible(output.name)) return bad("output " + quoteName(output.name) + " has no definition");
  for (Node &node : graph.nodes)
    LATHE_RETURN_IF_ERROR(forEachSubgraph(node, [&](Graph &inner) { return order(inner, &names, depth + 1); }));
  return Status();
}

} // namespace

Status orderNodes(Graph &graph) { return order(graph, nullptr, 0); }

} // namespace lathe::onnxfile
