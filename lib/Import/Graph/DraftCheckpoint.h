//===- DraftCheckpoint.h - tensors of a drafter as params -----------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "dialects/LLM/LLM.h"
#include "lathe/import/Quote.h"
#include "lathe/import/Safetensors.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"
#include <unistd.h>

namespace lathe {

inline bool exists(const std::string &path) { return access(path.c_str(), F_OK) == 0; }

/// Builds functions over the tensors of a checkpoint, which must all be used.
class DraftCheckpoint {
protected:
  DraftCheckpoint(mlir::MLIRContext &context, const safetensors::Model &file) : file(file), b(&context) {
    context.loadDialect<llm::LLMDialect, mlir::func::FuncDialect>();
  }

  static std::string shapeText(llvm::ArrayRef<int64_t> shape) {
    std::string text = "[";
    for (int64_t size : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(size);
    return text + "]";
  }
  mlir::RankedTensorType rows(int64_t width) { return mlir::RankedTensorType::get({mlir::ShapedType::kDynamic, width}, b.getF32Type()); }
  mlir::Location at(const std::string &name) { return mlir::NameLoc::get(b.getStringAttr(name)); }

  /// The tensor called |name|, which must have the shape |wanted|. Errors: notFound, invalidArgument.
  Result<const safetensors::TensorInfo *> tensor(const std::string &name, llvm::ArrayRef<int64_t> wanted) {
    const safetensors::TensorInfo *info = file.tensor(name);
    if (!info) return makeError(StatusCode::notFound, "expected a tensor %s of shape %s, found none", quoteName(name).c_str(), shapeText(wanted).c_str());
    llvm::SmallVector<int64_t> found(info->shape.begin(), info->shape.end());
    used.insert(name);
    if (llvm::ArrayRef(found) != wanted)
      return makeError(StatusCode::invalidArgument, "tensor %s: expected shape %s, which is that of the model, found %s", quoteName(name).c_str(), shapeText(wanted).c_str(),
                       shapeText(found).c_str());
    return info;
  }

  /// Its value where |b| is, or that of its columns begin .. end - 1 (0, 0: all); a param is declared in front of the function for the first.
  Result<mlir::Value> weight(const std::string &name, llvm::ArrayRef<int64_t> wanted, int64_t begin = 0, int64_t end = 0) {
    if (const safetensors::TensorInfo *info = file.tensor(name)) LATHE_RETURN_IF_ERROR(info->checkUsable());
    LATHE_ASSIGN_OR_RETURN(const safetensors::TensorInfo *info, tensor(name, wanted));
    auto storage = info->dtype == safetensors::DType::f32 ? llm::Storage::f32 : info->dtype == safetensors::DType::f16 ? llm::Storage::f16 : llm::Storage::bf16;
    mlir::Attribute value = llm::FileAttr::get(b.getContext(), file.files()[info->file]->path(), name, info->offset, storage, wanted);
    llvm::SmallVector<int64_t> shape(wanted);
    std::string symbol = name;
    if (end) {
      value = llm::ColumnsAttr::get(b.getContext(), value, begin, end);
      shape[1] = end - begin;
      symbol += "." + std::to_string(begin);
    }
    auto type = mlir::RankedTensorType::get(shape, llm::elementType(b.getContext(), storage));
    if (params.insert(symbol).second) {
      mlir::OpBuilder::InsertionGuard guard(b);
      b.setInsertionPoint(b.getBlock()->getParentOp());
      llm::ParamOp::create(b, at(name), b.getStringAttr(symbol), value, mlir::TypeAttr::get(type));
    }
    return mlir::Value(llm::WeightOp::create(b, at(name), type, symbol));
  }

  /// A tensor that no call of tensor() or weight() named, or null.
  const safetensors::TensorInfo *unused() const {
    for (const safetensors::TensorInfo &info : file.tensors())
      if (!used.contains(info.name)) return &info;
    return nullptr;
  }

  const safetensors::Model &file;
  mlir::OpBuilder b;
  llvm::StringSet<> used, params;
};

} // namespace lathe
