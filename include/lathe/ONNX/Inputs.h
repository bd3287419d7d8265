//===- Inputs.h - what a model's inputs are to a step ---------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// The names that exporters give the inputs and results of a decoder with a cache. Raising does not need them; who runs a graph as it is does.
//===----------------------------------------------------------------------===//
#pragma once
#include "dialects/ONNX/ONNX.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace lathe::onnx {

enum class StepInput {
  tokens,     ///< input_ids [batch, step]
  mask,       ///< attention_mask [batch, total], of integers or floats
  positions,  ///< position_ids [batch, step]
  writeIndex, ///< write_indices [batch]: tokens before this step's, where TensorScatter writes
  lengths,    ///< nonpad_kv_seqlen [batch]: tokens after this step
  past,       ///< past_key_values.*, past*
  other,
};
/// By name, and whether element type and rank fit.
StepInput stepInput(llvm::StringRef name, mlir::Type type);
/// The result that holds what |past| becomes: present.0.key for past_key_values.0.key, present_0 for past_0; "" for what is no past.
std::string presentName(llvm::StringRef past);
/// "onnx.name" of an argument or result, "" without one.
std::string inputName(mlir::func::FuncOp graph, unsigned argument);
std::string resultName(mlir::func::FuncOp graph, unsigned result);
/// An input of how many of the last tokens logits are wanted, num_logits_to_keep or logits_to_keep: one integer.
bool asksForLogits(llvm::StringRef name, mlir::Type type);
/// What such an input says for all tokens of a step, however many there are: more than any step has.
constexpr int64_t everyToken = int64_t(1) << 30;
/// Makes constants of inputs of |graph| that choose what it does: everyToken of such ones; and exports of two graphs in one choose by `use_cache_branch`,
/// a bool, which becomes true: the graph that reads a cache, an empty one as well.
void fixChoices(mlir::func::FuncOp graph);
/// Whether |value| is a cache of fixed length that TensorScatter writes into.
bool isScattered(mlir::Value value);

} // namespace lathe::onnx
