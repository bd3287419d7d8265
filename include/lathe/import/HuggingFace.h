//===- HuggingFace.h - a model's directory -------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/import/ModelConfig.h"
#include "lathe/import/Safetensors.h"
#include "lathe/import/WeightMap.h"

namespace lathe {

/// config.json and safetensors of a directory, checked against each other.
struct HuggingFaceModel {
  ModelConfig config;
  safetensors::Model tensors;
  WeightMap weights;

  static Result<HuggingFaceModel> open(const std::string &directory, const ImportOptions &options);
};

} // namespace lathe
