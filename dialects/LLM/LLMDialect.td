//===- LLMDialect.td - the llm dialect -----------------------*- tablegen -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#ifndef LATHE_LLM_DIALECT_TD
#define LATHE_LLM_DIALECT_TD

include "mlir/IR/OpBase.td"

def LLM_Dialect : Dialect {
  let name = "llm";
  let cppNamespace = "::lathe::llm";
  let summary = "what a language model means";
  let description = [{
    Value semantics on tensors, in the field's own words. One function with the step's signature
    describes a model: it takes a ragged batch (`!llm.batch`: T token rows of S sequences) and the KV
    cache (`!llm.kv`), and returns one logits row per requested output row. Weights are `llm.param`
    symbols that refer to bytes of files; no weight byte is in the IR.

    Every rounding is an op or a type: what an activation is quantized to, what the KV cache stores.
    The reference interpreter executes these; compiled code may differ from it by the order of
    float32 sums only. See Rationale.md.
  }];
  let useDefaultAttributePrinterParser = 1;
  let useDefaultTypePrinterParser = 1;
  let hasConstantMaterializer = 0;
}

#endif
