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

/// Puts the config.json and genai_config.json of |directory|, which say what a graph does not (a family's name, how many positions the model was trained
/// for), into the attributes onnx.config and onnx.genai_config of |module|. One that is there already stays. importONNX does so with directoriesOfONNX.
/// Errors: invalidArgument for a file above 2^20 bytes.
Status addONNXConfigs(mlir::ModuleOp module, const std::string &directory);

/// Whether |path| ends in .onnx, in letters of any case.
bool isONNXName(llvm::StringRef path);

/// Where files beside the .onnx file |path| lie: its directory, and the one around it when that is named onnx, as on the HuggingFace hub.
std::vector<std::string> directoriesOfONNX(const std::string &path);

/// The builder behind it.
Result<mlir::OwningOpRef<mlir::ModuleOp>> buildONNXModule(mlir::MLIRContext &context, const onnxfile::Model &model);

/// The .onnx file that |path| names: itself, or the one in a directory (model.onnx if there are several). notFound when a directory
/// has none; invalidArgument when it has several and no model.onnx.
Result<std::string> findONNXFile(const std::string &path);

} // namespace lathe
