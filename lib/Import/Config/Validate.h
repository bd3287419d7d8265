//===- Validate.h - checks that both readers end with --------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/import/ModelConfig.h"

namespace lathe {

/// Sizes inside what Lathe can represent, heads that divide, windows no longer than the sequence
/// turned into none. |where| names the file.
Status validateConfig(ModelConfig &config, const std::string &where);

} // namespace lathe
