//===- JsonRope.h - RoPE parameters of a config.json ---------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/import/ModelConfig.h"

namespace lathe {

/// Fills config.ropes and every layer's rope. Sizes, positions and windows are read already.
Status readRopes(const nlohmann::json &json, ModelConfig &config);

} // namespace lathe
