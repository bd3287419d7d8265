//===- Import.cpp - finds out what kind of model a path is ------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "lathe/import/Import.h"
#include "lathe/import/GGUF.h"
#include "lathe/import/HuggingFace.h"
#include "lathe/import/ONNXModule.h"
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

namespace lathe {

static bool endsWith(const std::string &text, std::string_view end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}
static bool exists(const std::string &path) { return access(path.c_str(), F_OK) == 0; }

/// Whether |path| is an .onnx file or a directory with one and without safetensors.
static bool isONNX(const std::string &path, bool directory) {
  if (!directory) return endsWith(path, ".onnx");
  return !exists(path + "/model.safetensors") && !exists(path + "/model.safetensors.index.json") && findONNXFile(path).status().code() != StatusCode::notFound;
}

Result<mlir::OwningOpRef<mlir::ModuleOp>> importModel(mlir::MLIRContext &context, const std::string &path,
                                                      const ImportOptions &options) {
  struct stat info{};
  bool directory = stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
  if (isONNX(path, directory)) {
    LATHE_ASSIGN_OR_RETURN(std::string file, findONNXFile(path));
    return importONNX(context, file);
  }
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
