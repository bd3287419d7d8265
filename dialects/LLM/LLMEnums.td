//===- LLMEnums.td - formats and kinds ------------------------*- tablegen -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#ifndef LATHE_LLM_ENUMS_TD
#define LATHE_LLM_ENUMS_TD

include "mlir/IR/EnumAttr.td"

// The values are those of lathe::StorageType (include/lathe/artifact/Packing.h); LLMDialect.cpp checks it.
def LLM_Storage : I32EnumAttr<"Storage", "how a weight is stored", [
    I32EnumAttrCase<"f32", 0>, I32EnumAttrCase<"f16", 1>, I32EnumAttrCase<"bf16", 2>,
    I32EnumAttrCase<"q4_0", 3>, I32EnumAttrCase<"q4_1", 4>, I32EnumAttrCase<"q5_0", 5>, I32EnumAttrCase<"q5_1", 6>,
    I32EnumAttrCase<"q8_0", 7>, I32EnumAttrCase<"q2_k", 8>, I32EnumAttrCase<"q3_k", 9>, I32EnumAttrCase<"q4_k", 10>,
    I32EnumAttrCase<"q5_k", 11>, I32EnumAttrCase<"q6_k", 12>, I32EnumAttrCase<"iq4_nl", 13>,
    I32EnumAttrCase<"int8", 14>,
    I32EnumAttrCase<"int4_g32", 15>, I32EnumAttrCase<"int4_g64", 16>, I32EnumAttrCase<"int4_g128", 17>,
    I32EnumAttrCase<"int4z_g32", 18>, I32EnumAttrCase<"int4z_g64", 19>, I32EnumAttrCase<"int4z_g128", 20>,
    I32EnumAttrCase<"e4m3", 21>]> {
  let cppNamespace = "::lathe::llm";
  let genSpecializedAttr = 0;
}

def LLM_StorageAttr : EnumAttr<LLM_Dialect, LLM_Storage, "storage">;

def LLM_ActFormat : I32EnumAttr<"ActFormat", "how activations enter a linear", [
    I32EnumAttrCase<"f32", 0>, I32EnumAttrCase<"bf16", 1>, I32EnumAttrCase<"int8", 2>, I32EnumAttrCase<"int8z", 3>, I32EnumAttrCase<"e4m3", 4>]> {
  let cppNamespace = "::lathe::llm";
  let genSpecializedAttr = 0;
}

def LLM_KVFormat : I32EnumAttr<"KVFormat", "how K or V is stored", [
    I32EnumAttrCase<"f32", 0>, I32EnumAttrCase<"f16", 1>, I32EnumAttrCase<"bf16", 2>, I32EnumAttrCase<"int8", 3>, I32EnumAttrCase<"e4m3", 4>]> {
  let cppNamespace = "::lathe::llm";
  let genSpecializedAttr = 0;
}
def LLM_KVFormatAttr : EnumAttr<LLM_Dialect, LLM_KVFormat, "kv_format">;

def LLM_Activation : I32EnumAttr<"Activation", "an activation function", [
    I32EnumAttrCase<"silu", 0>, I32EnumAttrCase<"gelu_tanh", 1>, I32EnumAttrCase<"gelu_erf", 2>, I32EnumAttrCase<"relu", 3>]> {
  let cppNamespace = "::lathe::llm";
  let genSpecializedAttr = 0;
}
def LLM_ActivationAttr : EnumAttr<LLM_Dialect, LLM_Activation, "activation">;

#endif
