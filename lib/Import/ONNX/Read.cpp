//===- Read.cpp - an ONNX file to a graph ----------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Internal.h"
#include "lathe/base/MappedFile.h"
#include "onnx.pb.h"
#include <google/protobuf/stubs/logging.h>
#include <mutex>

namespace lathe::onnxfile {

Result<Model> parse(std::span<const uint8_t> bytes, const std::string &path, const std::string &directory) {
  // Protobuf writes to stderr what it does not like; our message says it.
  static std::once_flag once;
  std::call_once(once, [] { google::protobuf::SetLogHandler(nullptr); });
  if (bytes.size() > INT32_MAX)
    return makeError(StatusCode::unsupported, "a protobuf of %zu bytes is not supported, the limit is 2 GB: store the weights as external data",
                     bytes.size());
  FileContext file{path, directory, bytes};
  FunctionTable functions;
  Result<Model> model = [&]() -> Result<Model> {
    LATHE_ASSIGN_OR_RETURN(std::string stripped, stripWeights(bytes));
    ::onnx::ModelProto proto;
    if (!proto.ParseFromString(stripped)) return Status(StatusCode::invalidArgument, "not an ONNX model: expected messages of onnx.proto, found bytes that are none");
    stripped = std::string();
    return convertModel(proto, file, functions);
  }();
  if (!model.ok()) return model.status();
  LATHE_RETURN_IF_ERROR(inlineFunctions(model->graph, functions));
  LATHE_RETURN_IF_ERROR(orderNodes(model->graph));
  return model;
}

Result<Model> read(const std::string &path) {
  LATHE_ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
  size_t slash = path.rfind('/');
  auto model = parse(file.bytes(), path, slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash));
  if (!model.ok()) return model.status().at(path);
  LATHE_RETURN_IF_ERROR(file.check());
  return model;
}

} // namespace lathe::onnxfile
