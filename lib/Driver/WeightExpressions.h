//===- WeightExpressions.h - params to rows of files ----------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "dialects/LLM/LLM.h"
#include "lathe/base/MappedFile.h"
#include "lathe/weights/WeightRows.h"
#include <map>
#include <memory>

namespace lathe {

/// Opens each file once.
class FileCache {
public:
  Result<std::shared_ptr<const MappedFile>> open(const std::string &path);

private:
  std::map<std::string, std::shared_ptr<const MappedFile>> files;
};

/// A weight expression (dialects/LLM/LLMAttrs.td) as rows. Nothing is read yet.
Result<WeightRows> weightRows(mlir::Attribute expression, FileCache &files);

} // namespace lathe
