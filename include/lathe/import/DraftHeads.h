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

/// Of the model that an EAGLE layer drafts for.
struct EagleShape : HeadShape {
  int64_t layers = 0;
  int64_t maxSequence = 0; ///< positions the model is made for
  bool third = false;      ///< EAGLE-3
};

/// A layer in the format of EAGLE's authors (Li, Wei, Zhang, Zhang: "EAGLE: Speculative Sampling Requires Rethinking Feature Uncertainty", 2024, and
/// "EAGLE-3", 2025; docs/speculation.md has the tensors): |directory| has config.json, whose fields are those of a model of one layer (llama, qwen2 or
/// qwen3), and model.safetensors or shards of it.
///
/// The module has `func @layer(batch, kv, embedding rows, feature rows) -> (own rows, kv)`; EAGLE-3's takes `(batch, kv, embedding rows, own rows, feature
/// rows of a low, a middle and a high layer)`, one of own and feature rows being zeros, and there is `func @head(rows) -> logits`. A KV group, params which refer to the file, and the
/// attribute `llm.eagle`: `features`, the layers in front of which the features are, `tokens`, what each token of a reduced vocabulary is in the
/// model's, and `max_sequence`. Errors: notFound; unsupported for PyTorch's own archives, types and families that Lathe does not compute with; invalidArgument with what was expected and
/// found.
Result<mlir::OwningOpRef<mlir::ModuleOp>> importEagle(mlir::MLIRContext &context, const std::string &directory, EagleShape shape);

} // namespace lathe
