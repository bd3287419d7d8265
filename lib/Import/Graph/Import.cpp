//===- Import.cpp - finds out what kind of model a path is ------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "lathe/import/Import.h"
#include "lathe/import/GGUF.h"
#include "lathe/import/HuggingFace.h"
#include <sys/stat.h>

namespace lathe {

Result<mlir::OwningOpRef<mlir::ModuleOp>> importModel(mlir::MLIRContext &context, const std::string &path,
                                                      const ImportOptions &options) {
  struct stat info{};
  if (stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
    LATHE_ASSIGN_OR_RETURN(HuggingFaceModel model, HuggingFaceModel::open(path, options));
    return buildModule(context, model.config, model.weights);
  }
  LATHE_ASSIGN_OR_RETURN(gguf::File file, gguf::File::open(path));
  LATHE_ASSIGN_OR_RETURN(ModelConfig config, readModelConfig(file, options));
  LATHE_ASSIGN_OR_RETURN(WeightMap weights, WeightMap::fromGGUF(config, file));
  return buildModule(context, config, weights);
}

} // namespace lathe
