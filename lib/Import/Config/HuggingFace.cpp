//===- HuggingFace.cpp - a model's directory -------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "lathe/import/HuggingFace.h"
#include "lathe/import/Json.h"
#include <nlohmann/json.hpp>

namespace lathe {

Result<HuggingFaceModel> HuggingFaceModel::open(const std::string &directory, const ImportOptions &options) {
  LATHE_ASSIGN_OR_RETURN(std::string path, resolveInside(directory, "config.json"));
  LATHE_ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
  auto json = parseJson({reinterpret_cast<const char *>(file.bytes().data()), file.fileSize()});
  if (!json.ok()) return json.status().at(path);
  LATHE_RETURN_IF_ERROR(file.check());
  auto config = readModelConfig(*json, options);
  if (!config.ok()) return config.status().at(path);
  LATHE_ASSIGN_OR_RETURN(safetensors::Model tensors, safetensors::Model::openDirectory(directory));
  auto weights = WeightMap::fromSafetensors(*config, tensors);
  if (!weights.ok()) return weights.status().at(directory);
  return HuggingFaceModel{*std::move(config), std::move(tensors), *std::move(weights)};
}

} // namespace lathe
