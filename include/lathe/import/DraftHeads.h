//===- DraftHeads.h - checkpoints of heads that draft ---------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/base/Status.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"

namespace lathe {

/// Of the model that heads draft for.
struct HeadShape {
  int64_t hidden = 0, vocabulary = 0;
};

/// Heads in the format of Medusa's authors (Cai and others: "Medusa: Simple LLM Inference Acceleration Framework with Multiple Decoding
/// Heads", 2024): |directory| has medusa_lm_head.safetensors (or model.safetensors) with, for head h from 0, blocks l from 0
/// `h.l.linear.weight` [hidden, hidden] and `h.l.linear.bias`, each x + silu(linear x), and behind them `h.L.weight` [vocabulary, hidden]; all perhaps
/// behind `medusa_head.`. A config.json may say `medusa_num_heads` and `medusa_num_layers`; then they are compared.
///
/// The module has `func @heads(rows) -> (logits...)`, one result a head, and a param a tensor, which refers to the file. Errors: notFound; unsupported
/// for PyTorch's own archives and types that Lathe does not compute with; invalidArgument with what was expected and found.
Result<mlir::OwningOpRef<mlir::ModuleOp>> importMedusaHeads(mlir::MLIRContext &context, const std::string &directory, HeadShape shape);

} // namespace lathe
