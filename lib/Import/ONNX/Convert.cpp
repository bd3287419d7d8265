//===- Convert.cpp - ModelProto to the reader's graph ----------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Internal.h"
#include "lathe/import/Quote.h"
#include "onnx.pb.h"
#include <charconv>
#include <google/protobuf/unknown_field_set.h>
#include <set>

namespace lathe::onnxfile {
namespace {

using Opsets = std::map<std::string, int64_t>;

/// "ai.onnx" is another name of the standard's domain.
std::string domainName(const std::string &domain) { return domain == "ai.onnx" ? "" : domain; }

Status bad(const std::string &what) { return Status(StatusCode::invalidArgument, what); }

class Converter {
public:
  Converter(FileContext &file, FunctionTable &functions) : file(file), functions(functions) {}
  Result<Model> model(const ::onnx::ModelProto &proto);

private:
  static Result<Opsets> opsetsOf(const google::protobuf::RepeatedPtrField<::onnx::OperatorSetIdProto> &list);
  static Value value(const ::onnx::ValueInfoProto &proto);
  Result<Attribute> attribute(const ::onnx::AttributeProto &proto, const Opsets &opsets);
  Result<Node> node(const ::onnx::NodeProto &proto, const Opsets &opsets);
  Result<Graph> graph(const ::onnx::GraphProto &proto, const Opsets &opsets);
  Status function(const ::onnx::FunctionProto &proto);

  FileContext &file;
  FunctionTable &functions;
  bool inFunction = false; ///< where nodes may refer to a call's attributes, in subgraphs too
};

/// A string field that the installed schema does not know yet.
std::string unknownString(const google::protobuf::UnknownFieldSet &fields, int number) {
  for (int i = 0; i < fields.field_count(); ++i)
    if (fields.field(i).number() == number && fields.field(i).type() == google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED)
      return fields.field(i).length_delimited();
  return "";
}

Result<Opsets> Converter::opsetsOf(const google::protobuf::RepeatedPtrField<::onnx::OperatorSetIdProto> &list) {
  Opsets opsets;
  for (const auto &entry : list)
    if (!opsets.emplace(domainName(entry.domain()), entry.version()).second)
      return bad("operator set " + quoteName(entry.domain()) + " is imported twice");
  return opsets;
}

Value Converter::value(const ::onnx::ValueInfoProto &proto) {
  Value value;
  value.name = proto.name();
  if (!proto.type().has_tensor_type()) return value;
  const auto &type = proto.type().tensor_type();
  value.type = static_cast<DataType>(type.elem_type());
  value.hasShape = type.has_shape();
  for (const auto &dim : type.shape().dim()) {
    Dim out;
    if (dim.has_dim_value() && dim.dim_value() >= 0) out.value = dim.dim_value();
    if (dim.has_dim_param()) out.name = dim.dim_param();
    // Some exporters write sizes as names, from 1 on and without leading zeros.
    const char *end = out.name.data() + out.name.size();
    if (uint32_t size = 0; out.value < 0 && !out.name.empty() && out.name.size() < 10 && out.name[0] != '0' && std::from_chars(out.name.data(), end, size).ptr == end) {
      out.value = size;
      out.name.clear();
    }
    value.dims.push_back(out);
  }
  return value;
}

Result<Attribute> Converter::attribute(const ::onnx::AttributeProto &proto, const Opsets &opsets) {
  Attribute out;
  out.name = proto.name();
  auto type = proto.type();
  if (!proto.has_type()) // IR version 1 had no discriminator
    type = proto.has_f()             ? ::onnx::AttributeProto::FLOAT
           : proto.has_i()           ? ::onnx::AttributeProto::INT
           : proto.has_s()           ? ::onnx::AttributeProto::STRING
           : proto.has_t()           ? ::onnx::AttributeProto::TENSOR
           : proto.has_g()           ? ::onnx::AttributeProto::GRAPH
           : proto.floats_size()     ? ::onnx::AttributeProto::FLOATS
           : proto.strings_size()    ? ::onnx::AttributeProto::STRINGS
                                     : ::onnx::AttributeProto::INTS;
  switch (type) {
  case ::onnx::AttributeProto::FLOAT:
    out.kind = Attribute::number, out.f = proto.f();
    return out;
  case ::onnx::AttributeProto::INT:
    out.kind = Attribute::integer, out.i = proto.i();
    return out;
  case ::onnx::AttributeProto::STRING:
    out.kind = Attribute::string, out.s = proto.s();
    return out;
  case ::onnx::AttributeProto::FLOATS:
    out.kind = Attribute::numbers, out.fs.assign(proto.floats().begin(), proto.floats().end());
    return out;
  case ::onnx::AttributeProto::INTS:
    out.kind = Attribute::integers, out.is.assign(proto.ints().begin(), proto.ints().end());
    return out;
  case ::onnx::AttributeProto::STRINGS:
    out.kind = Attribute::strings, out.ss.assign(proto.strings().begin(), proto.strings().end());
    return out;
  case ::onnx::AttributeProto::TENSOR: {
    out.kind = Attribute::tensor;
    LATHE_ASSIGN_OR_RETURN(Tensor t, convertTensor(proto.t(), file));
    out.ts.push_back(std::move(t));
    return out;
  }
  case ::onnx::AttributeProto::TENSORS:
    out.kind = Attribute::tensors;
    for (const auto &element : proto.tensors()) {
      LATHE_ASSIGN_OR_RETURN(Tensor t, convertTensor(element, file));
      out.ts.push_back(std::move(t));
    }
    return out;
  case ::onnx::AttributeProto::GRAPH: {
    out.kind = Attribute::graph;
    LATHE_ASSIGN_OR_RETURN(Graph g, graph(proto.g(), opsets));
    out.gs.push_back(std::make_shared<Graph>(std::move(g)));
    return out;
  }
  case ::onnx::AttributeProto::GRAPHS:
    out.kind = Attribute::graphs;
    for (const auto &element : proto.graphs()) {
      LATHE_ASSIGN_OR_RETURN(Graph g, graph(element, opsets));
      out.gs.push_back(std::make_shared<Graph>(std::move(g)));
    }
    return out;
  default:
    return Status(StatusCode::unsupported, "attribute " + quoteName(out.name) + ": type " + std::to_string(type) +
                                               " is not supported, only numbers, strings, dense tensors and graphs are");
  }
}

Result<Node> Converter::node(const ::onnx::NodeProto &proto, const Opsets &opsets) {
  Node out;
  out.name = proto.name();
  out.op = proto.op_type();
  out.domain = domainName(proto.domain());
  out.overload = unknownString(proto.unknown_fields(), 8);
  out.inputs.assign(proto.input().begin(), proto.input().end());
  out.outputs.assign(proto.output().begin(), proto.output().end());
  if (auto it = opsets.find(out.domain); it != opsets.end()) out.opset = it->second;
  std::set<std::string> seen;
  for (const auto &entry : proto.attribute()) {
    if (!seen.insert(entry.name()).second) return bad(nodeText(out) + ": attribute " + quoteName(entry.name()) + " is given twice");
    if (!entry.ref_attr_name().empty()) {
      if (!inFunction) return bad(nodeText(out) + ": attribute " + quoteName(entry.name()) + " refers to a function's attribute outside a function");
      out.references.push_back({entry.name(), entry.ref_attr_name()});
      continue;
    }
    auto converted = attribute(entry, opsets);
    if (!converted.ok()) return converted.status().at(nodeText(out));
    out.attributes.push_back(*std::move(converted));
  }
  return out;
}

Result<Graph> Converter::graph(const ::onnx::GraphProto &proto, const Opsets &opsets) {
  Graph out;
  out.name = proto.name();
  if (proto.sparse_initializer_size())
    return Status(StatusCode::unsupported, "sparse initializers are not supported, only dense ones are");
  std::set<std::string> initialized;
  for (const auto &entry : proto.initializer()) {
    LATHE_ASSIGN_OR_RETURN(Tensor tensor, convertTensor(entry, file));
    if (!initialized.insert(tensor.name).second) return bad("tensor " + quoteName(tensor.name) + " is given twice");
    out.initializers.push_back(std::move(tensor));
  }
  // Up to IR version 3 every initializer was an input too.
  for (const auto &entry : proto.input())
    if (!initialized.count(entry.name())) out.inputs.push_back(value(entry));
  for (const auto &entry : proto.output())
    out.outputs.push_back(value(entry));
  for (const auto &entry : proto.value_info())
    out.values[entry.name()] = value(entry);
  for (const auto &entry : proto.node()) {
    LATHE_ASSIGN_OR_RETURN(Node converted, node(entry, opsets));
    out.nodes.push_back(std::move(converted));
  }
  return out;
}

Status Converter::function(const ::onnx::FunctionProto &proto) {
  Function out;
  out.domain = domainName(proto.domain());
  out.name = proto.name();
  out.overload = unknownString(proto.unknown_fields(), 13);
  out.inputs.assign(proto.input().begin(), proto.input().end());
  out.outputs.assign(proto.output().begin(), proto.output().end());
  LATHE_ASSIGN_OR_RETURN(Opsets opsets, opsetsOf(proto.opset_import()));
  const auto &unknown = proto.unknown_fields();
  for (int i = 0; i < unknown.field_count(); ++i) { // attribute_proto, since IR version 9
    if (unknown.field(i).number() != 11 || unknown.field(i).type() != google::protobuf::UnknownField::TYPE_LENGTH_DELIMITED) continue;
    ::onnx::AttributeProto entry;
    if (!entry.ParseFromString(unknown.field(i).length_delimited())) return bad("function " + quoteName(out.name) + ": damaged attribute");
    LATHE_ASSIGN_OR_RETURN(Attribute converted, attribute(entry, opsets));
    out.defaults.emplace(entry.name(), std::move(converted));
  }
  inFunction = true;
  for (const auto &entry : proto.node()) {
    auto converted = node(entry, opsets);
    if (!converted.ok()) return converted.status().at("function " + quoteName(out.name));
    out.nodes.push_back(*std::move(converted));
  }
  inFunction = false;
  std::string key = functionKey(out.domain, out.name, out.overload);
  if (!functions.emplace(key, std::move(out)).second) return bad("function " + quoteName(proto.name()) + " is given twice");
  return Status();
}

Result<Model> Converter::model(const ::onnx::ModelProto &proto) {
  Model out;
  out.path = file.path;
  out.producer = proto.producer_name();
  out.irVersion = proto.ir_version();
  if (!proto.has_graph()) return bad("not an ONNX model: it has no graph");
  if (out.irVersion < 3 || out.irVersion > 14)
    return Status(StatusCode::unsupported, "IR version " + std::to_string(out.irVersion) + " is not supported, only 3 to 14 are");
  LATHE_ASSIGN_OR_RETURN(out.opsets, opsetsOf(proto.opset_import()));
  for (const auto &entry : proto.functions())
    LATHE_RETURN_IF_ERROR(function(entry));
  LATHE_ASSIGN_OR_RETURN(out.graph, graph(proto.graph(), out.opsets));
  return out;
}

} // namespace

std::string functionKey(std::string_view domain, std::string_view name, std::string_view overload) {
  std::string key(domain);
  key += '\0';
  key += name;
  key += '\0';
  key += overload;
  return key;
}

std::string nodeText(const Node &node) { return "node " + quoteName(node.name) + " (" + quoteName(node.op).substr(1, quoteName(node.op).size() - 2) + ")"; }

Result<Model> convertModel(const ::onnx::ModelProto &proto, FileContext &file, FunctionTable &functions) {
  return Converter(file, functions).model(proto);
}

} // namespace lathe::onnxfile
