//===- LLMAttrs.td - weight expressions and KV layers --------*- tablegen -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// A weight expression says which bytes of which files a parameter is made of. It is evaluated row by
// row while the artifact is packed; nothing is read before that.
//===----------------------------------------------------------------------===//
#ifndef LATHE_LLM_ATTRS_TD
#define LATHE_LLM_ATTRS_TD

include "dialects/LLM/LLMTypes.td"

class LLM_Attr<string name, string attrMnemonic> : AttrDef<LLM_Dialect, name> { let mnemonic = attrMnemonic; }

def LLM_FileAttr : LLM_Attr<"File", "file"> {
  let summary = "a tensor in a file";
  let description = [{
    `#llm.file<"model.gguf", "blk.0.attn_q.weight", 1184, q4_1, [576, 576]>`: path, tensor name (for messages), byte offset, storage,
    shape with the innermost dimension last.
  }];
  let parameters = (ins StringRefParameter<"path">:$path, StringRefParameter<"tensor name">:$name, "int64_t":$offset,
                        EnumParameter<LLM_Storage>:$storage, ArrayRefParameter<"int64_t">:$shape);
  let assemblyFormat = "`<` $path `,` $name `,` $offset `,` $storage `,` `[` $shape `]` `>`";
}

def LLM_NBitsAttr : LLM_Attr<"NBits", "nbits"> {
  let summary = "a block-quantized matrix in ONNX Runtime's layout (MatMulNBits)";
  let description = [{
    `#llm.nbits<"w", 4, block = 32, [576, 576], codes = "m.data" 0, scales = "m.data" 165888 f32, zeros = "" 0>`: name, bits (4 or 8), columns that share a
    scale, [rows, columns]; then where codes (rows x blocks x block * bits / 8 bytes, low nibble first), scales (rows x blocks) and, optionally, 4-bit
    zero points are. The storage is int4 in groups (with a minimum when there are zero points) or q8_0: scales are rounded to f16.
    Groups are blocks or, where the last block of a row is not full, the largest halves of them that the columns are whole multiples of.
  }];
  let parameters = (ins StringRefParameter<"tensor name">:$name, "int64_t":$bits, "int64_t":$block, ArrayRefParameter<"int64_t">:$shape,
                        StringRefParameter<"path">:$codes, "int64_t":$codesOffset, StringRefParameter<"path">:$scales, "int64_t":$scalesOffset,
                        EnumParameter<LLM_Storage>:$scaleStorage, StringRefParameter<"path, empty: none">:$zeros, "int64_t":$zerosOffset);
  let assemblyFormat = [{
    `<` $name `,` $bits `,` `block` `=` $block `,` `[` $shape `]` `,` `codes` `=` $codes $codesOffset `,` `scales` `=` $scales $scalesOffset $scaleStorage `,`
    `zeros` `=` $zeros $zerosOffset `>`
  }];
}

def LLM_QDQAttr : LLM_Attr<"QDQ", "qdq"> {
  let summary = "a matrix behind ONNX's DequantizeLinear";
  let description = [{
    `#llm.qdq<"w", "int4", int4_g64, [576, 1536], rows = 1, block = [64, 1], codes = "m.data" 0, scales = "m.data" 442368 f32 [],
    zeros = "" 0 [0]>`: name, type of the codes (int8, uint8, int4 or uint4), storage that rows are made in, [rows, columns]; which axis of the
    stored codes the rows are on (0, or 1: they are transposed), how many codes along each of their axes share a scale; then where codes, scales and zero
    points are. Scales are in the file or, with an empty path, the numbers that follow; zero points too, and there one number may stand for all. A value is
    (code - zero) * scale. The storage is what `qdqStorage` gives (WeightRows.h), or f32, which holds every value as it is.
  }];
  let parameters = (ins StringRefParameter<"tensor name">:$name, StringRefParameter<"type of the codes">:$code, EnumParameter<LLM_Storage>:$storage,
                        ArrayRefParameter<"int64_t">:$shape, "int64_t":$rowAxis, ArrayRefParameter<"int64_t">:$block,
                        StringRefParameter<"path">:$codes, "int64_t":$codesOffset,
                        StringRefParameter<"path, empty: values">:$scales, "int64_t":$scalesOffset, EnumParameter<LLM_Storage>:$scaleStorage,
                        "mlir::DenseF32ArrayAttr":$scaleValues,
                        StringRefParameter<"path, empty: values">:$zeros, "int64_t":$zerosOffset, "mlir::DenseI64ArrayAttr":$zeroValues);
  let assemblyFormat = [{
    `<` $name `,` $code `,` $storage `,` `[` $shape `]` `,` `rows` `=` $rowAxis `,` `block` `=` `[` $block `]` `,` `codes` `=` $codes $codesOffset `,`
    `scales` `=` $scales $scalesOffset $scaleStorage $scaleValues `,` `zeros` `=` $zeros $zerosOffset $zeroValues `>`
  }];
}

def LLM_ScaledAttr : LLM_Attr<"Scaled", "scaled"> {
  let summary = "a matrix of e4m3 with its scales in another tensor (safetensors F8_E4M3)";
  let description = [{
    `#llm.scaled<"w", [576, 1536], codes = "m.safetensors" 4096, scales = "m.safetensors" 888832 bf16, per_row = true>`: name, [rows, columns]; where codes
    (a byte each, row-major) and scales are: one a row, or one for all. The storage is e4m3, whose rows have a scale each.
  }];
  let parameters = (ins StringRefParameter<"tensor name">:$name, ArrayRefParameter<"int64_t">:$shape,
                        StringRefParameter<"path">:$codes, "int64_t":$codesOffset, StringRefParameter<"path">:$scales, "int64_t":$scalesOffset,
                        EnumParameter<LLM_Storage>:$scaleStorage, "bool":$perRow);
  let assemblyFormat = [{
    `<` $name `,` `[` $shape `]` `,` `codes` `=` $codes $codesOffset `,` `scales` `=` $scales $scalesOffset $scaleStorage `,` `per_row` `=` $perRow `>`
  }];
}

def LLM_ConcatAttr : LLM_Attr<"Concat", "concat"> {
  let summary = "rows of several expressions, one after the other";
  let parameters = (ins OptionalArrayRefParameter<"mlir::Attribute">:$parts); // empty: a message of the verifier
  let assemblyFormat = "`<` `[` (`]` `>`) : ($parts^ `]` `>`)?";
}

def LLM_InterleaveAttr : LLM_Attr<"Interleave", "interleave"> {
  let summary = "blocks of rows of two expressions in turn: gate and up for a fused activation";
  let description = "`block` rows of the first, `block` of the second, and so on; a last short block is padded with zero rows.";
  let parameters = (ins "mlir::Attribute":$first, "mlir::Attribute":$second, "int64_t":$block);
  let assemblyFormat = "`<` $first `,` $second `,` $block `>`";
}

def LLM_UnropeAttr : LLM_Attr<"Unrope", "unrope"> {
  let summary = "undoes GGUF's row order of Llama's q and k";
  let description = [{
    Within each of `heads` heads of d rows, row i of the result is row 2i of the source for i < d/2 and row 2(i - d/2) + 1 else:
    interleaved rotation pairs become halves.
  }];
  let parameters = (ins "mlir::Attribute":$source, "int64_t":$heads);
  let assemblyFormat = "`<` $source `,` $heads `>`";
}

def LLM_SliceAttr : LLM_Attr<"Slice", "slice"> {
  let summary = "rows begin .. end-1 of an expression";
  let parameters = (ins "mlir::Attribute":$source, "int64_t":$begin, "int64_t":$end);
  let assemblyFormat = "`<` $source `,` $begin `,` $end `>`";
}

def LLM_ColumnsAttr : LLM_Attr<"Columns", "columns"> {
  let summary = "columns begin .. end-1 of an unquantized matrix (one input's part of a linear over several)";
  let parameters = (ins "mlir::Attribute":$source, "int64_t":$begin, "int64_t":$end);
  let assemblyFormat = "`<` $source `,` $begin `,` $end `>`";
}

def LLM_TransposeAttr : LLM_Attr<"Transpose", "transpose"> {
  let summary = "transpose of an unquantized matrix (GPT-2 stores [in, out])";
  let parameters = (ins "mlir::Attribute":$source);
  let assemblyFormat = "`<` $source `>`";
}

def LLM_AddOneAttr : LLM_Attr<"AddOne", "add_one"> {
  let summary = "1 + w: Gemma's norm weights in their HuggingFace form";
  let parameters = (ins "mlir::Attribute":$source);
  let assemblyFormat = "`<` $source `>`";
}

def LLM_RoundAttr : LLM_Attr<"Round", "round"> {
  let summary = "an expression rounded to nearest into another storage (made by llm-quantize)";
  let parameters = (ins "mlir::Attribute":$source, EnumParameter<LLM_Storage>:$storage);
  let assemblyFormat = "`<` $source `,` $storage `>`";
}

def LLM_SyntheticAttr : LLM_Attr<"Synthetic", "synthetic"> {
  let summary = "random blocks from a seed, for benchmarks of large shapes";
  let parameters = (ins "int64_t":$seed, EnumParameter<LLM_Storage>:$storage, ArrayRefParameter<"int64_t">:$shape);
  let assemblyFormat = "`<` $seed `,` $storage `,` `[` $shape `]` `>`";
}

def LLM_KVLayerAttr : LLM_Attr<"KVLayer", "kv_layer"> {
  let summary = "the KV heads of one layer: count, size of a K row, size of a V row";
  let parameters = (ins "int64_t":$heads, "int64_t":$keySize, "int64_t":$valueSize);
  let assemblyFormat = "`<` $heads `,` $keySize `,` $valueSize `>`";
}

#endif
