//===- WeightReader.h - values of weight expressions ---------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "dialects/LLM/LLM.h"
#include "lathe/base/MappedFile.h"
#include "lathe/base/Status.h"
#include "llvm/ADT/DenseMap.h"
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace lathe::interp {

/// Evaluates the expressions of LLMAttrs.td to float32 values, row by row (a vector is rows of one element).
/// Independent of the packer's evaluation, which moves stored blocks.
class WeightReader {
public:
  /// Relative paths start at |directory|; at most |cacheBytes| of values are kept.
  WeightReader(std::string directory, int64_t cacheBytes) : directory(std::move(directory)), cacheLeft(cacheBytes) {}

  /// All values of |param|, kept from now on; null when they do not fit the cache. Not thread-safe.
  Result<const float *> whole(llm::ParamOp param, int threads);
  /// |out| = rows begin .. begin + count. Thread-safe.
  Status read(mlir::Attribute expression, int64_t begin, int64_t count, float *out);

private:
  struct Shape {
    int64_t rows, cols;
  };
  static Shape shapeOf(mlir::Attribute expression);
  Status readFile(llm::FileAttr file, int64_t begin, int64_t count, float *out);
  /// Of a #llm.nbits, a #llm.qdq or a #llm.scaled.
  Status readQuantized(mlir::Attribute a, int64_t begin, int64_t count, float *out);
  Status readInterleave(llm::InterleaveAttr a, int64_t begin, int64_t count, float *out);
  Status readColumns(llm::ColumnsAttr a, int64_t begin, int64_t count, float *out);
  Status readTranspose(llm::TransposeAttr a, int64_t begin, int64_t count, float *out);

  std::string directory;
  int64_t cacheLeft;
  llvm::DenseMap<mlir::Attribute, std::vector<float>> kept; ///< by expression
  std::mutex mutex;                                         ///< of files
  std::map<std::string, MappedFile> files;
  llvm::DenseMap<mlir::Attribute, std::unique_ptr<QuantizedMatrix>> quantized; ///< guarded by mutex like files
};

} // namespace lathe::interp
