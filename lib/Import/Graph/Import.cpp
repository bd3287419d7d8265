//===- Import.cpp - finds out what kind of model a path is ------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "lathe/import/Import.h"
#include "lathe/import/GGUF.h"
#include "lathe/import/HuggingFace.h"
#include "lathe/import/ONNXModule.h"
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace lathe {

static bool exists(const std::string &path) { return access(path.c_str(), F_OK) == 0; }

bool hasSafetensors(const std::string &directory) {
  return exists(directory + "/model.safetensors") || exists(directory + "/model.safetensors.index.json");
}

/// Whether |path| is an .onnx file or a directory with one and without safetensors.
static bool isONNX(const std::string &path, bool directory) {
  if (!directory) return isONNXName(path);
  return !hasSafetensors(path) && findONNXFile(path).status().code() != StatusCode::notFound;
}

/// Errors: a directory or file that is no model, with what would make it one. Whatever may be one goes on to its reader.
static Status checkKind(const std::string &path, bool directory) {
  if (directory) {
    if (hasSafetensors(path)) return Status();
    if (exists(path + "/onnx/.") && findONNXFile(path + "/onnx").status().code() != StatusCode::notFound)
      return makeError(StatusCode::notFound, "'%s': expected model.safetensors, model.safetensors.index.json or an .onnx file, found a directory 'onnx' with one: name that file, or the directory '%s/onnx'",
                       path.c_str(), path.c_str());
    if (!exists(path + "/config.json"))
      return makeError(StatusCode::notFound, "'%s': expected a model's directory, which has config.json with model.safetensors (or model.safetensors.index.json), or an .onnx file; found none of them",
                       path.c_str());
    return Status();
  }
  int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return Status(); // its reader says why
  char magic[4] = {};
  bool gguf = read(file, magic, sizeof magic) == sizeof magic && std::memcmp(magic, "GGUF", sizeof magic) == 0;
  close(file);
  if (gguf) return Status();
  return makeError(StatusCode::invalidArgument, "'%s': expected a model: a GGUF file, which begins with the bytes 'GGUF', a file whose name ends in .onnx, or the directory of a HuggingFace model or of an .onnx file",
                   path.c_str());
}

Result<mlir::OwningOpRef<mlir::ModuleOp>> importModel(mlir::MLIRContext &context, const std::string &path,
                                                      const ImportOptions &options) {
  struct stat info{};
  bool directory = stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
  if (isONNX(path, directory)) {
    LATHE_ASSIGN_OR_RETURN(std::string file, findONNXFile(path));
    return importONNX(context, file);
  }
  LATHE_RETURN_IF_ERROR(checkKind(path, directory));
  if (directory) {
    LATHE_ASSIGN_OR_RETURN(HuggingFaceModel model, HuggingFaceModel::open(path, options));
    return buildModule(context, model.config, model.weights);
  }
  LATHE_ASSIGN_OR_RETURN(gguf::File file, gguf::File::open(path));
  LATHE_ASSIGN_OR_RETURN(ModelConfig config, readModelConfig(file, options));
  LATHE_ASSIGN_OR_RETURN(WeightMap weights, WeightMap::fromGGUF(config, file));
  return buildModule(context, config, weights);
}

} // namespace lathe
