//===- Internal.h - steps of the ONNX reader ------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/import/ONNX.h"
#include <cstdint>
#include <functional>
#include <unordered_map>

namespace onnx {
class TensorProto;
class ModelProto;
} // namespace onnx

namespace lathe::onnxfile {

/// Fields of TensorProto that stripWeights puts in place of raw_data: where in the file it was.
constexpr int rawOffsetField = 1000, rawLengthField = 1001;

/// A copy of a serialized ModelProto without the bytes of raw_data: Protobuf would copy them, and weights are not to be
/// in memory. invalidArgument with the byte offset for what is not wire format.
Result<std::string> stripWeights(std::span<const uint8_t> bytes);

struct FileContext {
  std::string path, directory;
  std::span<const uint8_t> bytes;
  std::map<std::string, std::pair<std::string, uint64_t>> external{}; ///< location: resolved path and size
};
Result<Tensor> convertTensor(const ::onnx::TensorProto &proto, FileContext &file);

/// A function of the model, not inlined yet.
struct Function {
  std::string domain, name, overload;
  std::vector<std::string> inputs, outputs;
  std::map<std::string, Attribute> defaults; ///< attributes that have one
  std::vector<Node> nodes;
};
using FunctionTable = std::map<std::string, Function>;
std::string functionKey(std::string_view domain, std::string_view name, std::string_view overload);

Result<Model> convertModel(const ::onnx::ModelProto &proto, FileContext &file, FunctionTable &functions);

/// Replaces calls of |functions| by their nodes, in subgraphs too. invalidArgument for a function that calls itself.
Status inlineFunctions(Graph &graph, const FunctionTable &functions);

/// Checks names and brings nodes into topological order, in subgraphs too.
Status orderNodes(Graph &graph);

/// Calls |visit| for each graph that is an attribute of |node|.
Status forEachSubgraph(Node &node, const std::function<Status(Graph &)> &visit);

/// "node 'name' (Op)" for messages.
std::string nodeText(const Node &node);

} // namespace lathe::onnxfile
