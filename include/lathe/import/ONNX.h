//===- ONNX.h - reader of ONNX models ------------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// ModelProto of IR versions 3 to 14. Weights stay in their files: every tensor that is stored as raw
// data, inside the model's file or in an external one, is a (file, offset, length) reference. Functions
// are inlined, nodes are in topological order, and names are checked, so that what is returned is a
// graph: every use has one definition before it. Plain C++, no MLIR.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/base/Status.h"
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lathe::onnxfile {

/// TensorProto.DataType, by value: numbers newer than the installed schema are read as well.
enum class DataType : int32_t {
  undefined = 0, float32 = 1, uint8 = 2, int8 = 3, uint16 = 4, int16 = 5, int32 = 6, int64 = 7, string = 8, boolean = 9,
  float16 = 10, float64 = 11, uint32 = 12, uint64 = 13, complex64 = 14, complex128 = 15, bfloat16 = 16, float8e4m3fn = 17,
  float8e4m3fnuz = 18, float8e5m2 = 19, float8e5m2fnuz = 20, uint4 = 21, int4 = 22, float4e2m1 = 23, float8e8m0 = 24,
  uint2 = 25, int2 = 26,
};
/// "float32", "int4", ...; "type 99" for a number without a name.
std::string dataTypeName(DataType type);
/// Bits of an element as stored; 0 for strings and unknown types.
int dataTypeBits(DataType type);

/// A tensor that is not read yet, or a small one whose bytes are at hand.
struct Tensor {
  std::string name;
  DataType type = DataType::undefined;
  std::vector<int64_t> dims; ///< outermost first; empty: a scalar
  /// Where the bytes are; empty: in |data|.
  std::string path;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  /// Elements in row-major order, little-endian, types below 8 bits packed from the low bits up.
  std::vector<uint8_t> data;
  std::vector<std::string> strings; ///< of a string tensor
  int64_t elements() const {
    int64_t n = 1;
    for (int64_t dim : dims)
      n *= dim; // the reader has checked that this does not overflow
    return n;
  }
};

/// A size of a value: a number, a name, or neither.
struct Dim {
  int64_t value = -1;
  std::string name;
};

/// A graph's input, output, or an annotated value in between.
struct Value {
  std::string name;
  DataType type = DataType::undefined; ///< undefined: not a tensor, or not said
  bool hasShape = false;
  std::vector<Dim> dims;
};

struct Graph;
struct Attribute {
  enum Kind { number, integer, string, tensor, graph, numbers, integers, strings, tensors, graphs } kind = integer;
  std::string name;
  float f = 0;
  int64_t i = 0;
  std::string s;
  std::vector<float> fs;
  std::vector<int64_t> is;
  std::vector<std::string> ss;
  std::vector<Tensor> ts;                     ///< of tensor: one
  std::vector<std::shared_ptr<const Graph>> gs; ///< of graph: one
};

struct Node {
  std::string name, op;
  std::string domain;  ///< "" is the standard's
  std::string overload;
  int64_t opset = 0;   ///< version of the domain's operator set that the node was written for
  std::vector<std::string> inputs, outputs; ///< "" is an absent optional one
  std::vector<Attribute> attributes;
  /// (attribute, attribute of the function) where a function's node takes what a call gives; none once functions are inlined.
  std::vector<std::pair<std::string, std::string>> references;
  const Attribute *attribute(std::string_view name) const;
};

struct Graph {
  std::string name;
  std::vector<Node> nodes; ///< in topological order
  std::vector<Tensor> initializers;
  std::vector<Value> inputs;  ///< those that no initializer has the name of
  std::vector<Value> outputs;
  std::map<std::string, Value> values; ///< annotated, by name
};

struct Model {
  std::string path, producer;
  int64_t irVersion = 0;
  std::map<std::string, int64_t> opsets; ///< by domain
  Graph graph;
};

/// Reads the model at |path|. External data lies in regular files of its directory (resolveInside); it is checked to
/// be long enough and not read.
///
/// Errors: notFound (the file, or external data), invalidArgument (damaged; not a graph; a tensor's bytes do
/// not fit its shape: says which tensor or node), unsupported (an IR version, a file above 2 GB, sparse
/// tensors, element types without a size).
Result<Model> read(const std::string &path);
/// The same over memory; |path| is what tensors refer to and what messages say. External data is looked for in |directory|.
Result<Model> parse(std::span<const uint8_t> bytes, const std::string &path, const std::string &directory);

} // namespace lathe::onnxfile
