//===- ONNXModule.h - ONNX files to the onnx dialect ---------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/import/ONNX.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace lathe {

/// Reads the model at |path| and builds `func @main` of onnx ops (dialects/ONNX). Nodes have the location of their name (of their first
/// output, when they have none). Types are those that the file states; what it does not state is tensor<*x!onnx.any>.
///
/// Errors: those of onnxfile::read; unsupported names the node, operator, operator set and the nearest reason.
Result<mlir::OwningOpRef<mlir::ModuleOp>> importONNX(mlir::MLIRContext &context, const std::string &path);

/// The builder behind it.
Result<mlir::OwningOpRef<mlir::ModuleOp>> buildONNXModule(mlir::MLIRContext &context, const onnxfile::Model &model);

/// The .onnx file that |path| names: itself, or the one in a directory (model.onnx if there are several). notFound when a directory
/// has none; invalidArgument when it has several and no model.onnx.
Result<std::string> findONNXFile(const std::string &path);

} // namespace lathe
