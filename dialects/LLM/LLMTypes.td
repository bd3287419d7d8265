//===- LLMTypes.td - types of the llm dialect ----------------*- tablegen -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#ifndef LATHE_LLM_TYPES_TD
#define LATHE_LLM_TYPES_TD

include "dialects/LLM/LLMDialect.td"
include "dialects/LLM/LLMEnums.td"
include "mlir/IR/AttrTypeBase.td"

class LLM_Type<string name, string typeMnemonic> : TypeDef<LLM_Dialect, name> { let mnemonic = typeMnemonic; }

def LLM_QType : LLM_Type<"Q", "q"> {
  let summary = "an element of a block-quantized weight";
  let description = [{
    Element type of a weight tensor whose rows are stored in blocks: `tensor<576x1536x!llm.q<q4_1>>`. What a block
    means (codes, scales, the order of roundings) is in docs/exactness.md. K-quants need a last dimension that
    is a multiple of 256, other block types one of 32. `int8` and `e4m3` have one scale a row and any size.
  }];
  let parameters = (ins EnumParameter<LLM_Storage>:$storage);
  let assemblyFormat = "`<` $storage `>`";
}

def LLM_ActType : LLM_Type<"Act", "act"> {
  let summary = "an element of activations rounded for a linear";
  let description = [{
    `tensor<?x576x!llm.act<int8>>`: rows of 576 values in groups of 32 with one scale each (docs/exactness.md,
    "Activation quantization"). Made by `llm.quantize`, read by `llm.linear`.
  }];
  let parameters = (ins EnumParameter<LLM_ActFormat>:$format);
  let assemblyFormat = "`<` $format `>`";
}

def LLM_BatchType : LLM_Type<"Batch", "batch"> {
  let summary = "the rows of one step: tokens, positions, sequences, KV slots, parents in draft trees, requested outputs";
}

def LLM_KVType : LLM_Type<"KV", "kv"> {
  let summary = "the KV cache of all sequences, all groups";
  let description = "Value semantics: `llm.kv.append` returns the cache with the rows' entries written.";
}

#endif
