//===- Import.h - model files to the llm dialect -------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/import/ModelConfig.h"
#include "lathe/import/WeightMap.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"

namespace lathe {

/// Reads a model and builds its step function. |path| is a .gguf file or a directory with a config.json and
/// safetensors. An .onnx file, or a directory with one and no safetensors, becomes `func @main` of the onnx dialect (ONNXModule.h), which
/// the raise phase turns into the step. Anything else is an error that says how each kind is known. No weight is read: params refer to the files by path.
///
/// The module has one function `step(!llm.batch, !llm.kv) -> (logits, !llm.kv)`, a param for every
/// weight, a KV group for every distinct window, and the attribute `llm.model`, a dictionary with
/// family, name, vocabulary, max_sequence, model_positions and rope (kinds, for people).
/// KV formats are f16, pages 0; all arithmetic is float32 until the configure phase.
Result<mlir::OwningOpRef<mlir::ModuleOp>> importModel(mlir::MLIRContext &context, const std::string &path,
                                                      const ImportOptions &options);

/// Whether |directory| has model.safetensors or its index, which importModel takes before an .onnx file.
bool hasSafetensors(const std::string &directory);

/// The builder behind importModel, for other sources of a configuration. internal: the module does
/// not verify.
Result<mlir::OwningOpRef<mlir::ModuleOp>> buildModule(mlir::MLIRContext &context, const ModelConfig &config,
                                                      const WeightMap &weights);

} // namespace lathe
