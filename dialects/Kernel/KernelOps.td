//===- KernelOps.td - the kernel dialect ---------------------*- tablegen -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#ifndef LATHE_KERNEL_OPS_TD
#define LATHE_KERNEL_OPS_TD

include "dialects/LLM/LLMTypes.td"
include "mlir/IR/OpBase.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/BuiltinAttributes.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Kernel_Dialect : Dialect {
  let name = "kernel";
  let cppNamespace = "::lathe::kernel";
  let summary = "what an emitter can build";
  let description = [{
    Each op is one kernel call (or a few calls of one kernel family) on buffers whose layouts are in docs/kernels.md.
    Values are buffers with value semantics; an op that works in place says which operand its result is. Nothing here names a target: packings
    and row programs are the same for all, `X86` and `NVPTX` emitters take the same parameters. See Rationale.md.
  }];
  let dependentDialects = ["::lathe::llm::LLMDialect"];
  let useDefaultTypePrinterParser = 1;
}

class Kernel_Type<string name, string typeMnemonic> : TypeDef<Kernel_Dialect, name> { let mnemonic = typeMnemonic; }

def Kernel_RowsType : Kernel_Type<"Rows", "rows"> {
  let summary = "float32 rows";
  let description = [{
    `!kernel.rows<576, 960>`: rows of 576 values, 960 floats apart. With `out` the rows are the step's output rows.
  }];
  let parameters = (ins "int64_t":$width, "int64_t":$stride, DefaultValuedParameter<"bool", "false">:$out);
  let assemblyFormat = "`<` $width `,` $stride (`,` $out^)? `>`";
}

def Kernel_ActType : Kernel_Type<"Act", "act"> {
  let summary = "activations of a matmul: row blocks of 16, groups of 32 along K";
  let description = "`!kernel.act<64, int8 halves true out true>`. `halves`: sums are kept for each half of a group (a consumer has scales for 16 values).";
  let parameters = (ins "int64_t":$k, EnumParameter<LLM_ActFormat>:$format, DefaultValuedParameter<"bool", "false">:$halves,
                        DefaultValuedParameter<"bool", "false">:$out);
  let assemblyFormat = "`<` $k `,` $format (`halves` $halves^)? (`out` $out^)? `>`";
}

def Kernel_PartialsType : Kernel_Type<"Partials", "partials"> {
  let summary = "attention over one chunk of history per row and head: maximum, sum, weighted values";
  let parameters = (ins "int64_t":$heads, "int64_t":$size, "int64_t":$chunks);
  let assemblyFormat = "`<` $heads `,` $size `,` $chunks `>`";
}

def Kernel_Buffer : AnyTypeOf<[Kernel_RowsType, Kernel_ActType, Kernel_PartialsType]>;
class Kernel_Op<string mnemonic, list<Trait> traits = []> : Op<Kernel_Dialect, mnemonic, traits>;

def Kernel_PackedOp : Kernel_Op<"packed", [Symbol]> {
  let summary = "a weight as kernels read it";
  let description = [{
    Rows of params one after the other, or in turn by blocks of `interleave` rows, in the packing of
    include/lathe/artifact/Packing.h. `n` counts rows with the padding of an interleave.

    Example: `kernel.packed @gu params [@gate, @up] storage q4_1 n 3072 k 576 interleave 32`
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, ArrayAttr:$params, LLM_StorageAttr:$storage, I64Attr:$n, I64Attr:$k,
                       I64Attr:$interleave);
  let assemblyFormat = "$sym_name `params` $params `storage` $storage `n` $n `k` $k `interleave` $interleave attr-dict";
}

def Kernel_VectorOp : Kernel_Op<"vector", [Symbol]> {
  let summary = "a small weight as float32";
  let description = [{
    Norm weights, biases, frequencies, position tables: row-major float32, each row padded to 16. With several params they follow each other.

    Example: `kernel.vector @n params [@blk.0.attn_norm] n 1 k 576`
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, ArrayAttr:$params, I64Attr:$n, I64Attr:$k);
  let assemblyFormat = "$sym_name `params` $params `n` $n `k` $k attr-dict";
}

def Kernel_GatherOp : Kernel_Op<"gather"> {
  let summary = "embedding rows of the step's tokens";
  let description = "Rows of a packed weight, dequantized, times `scale`; plus a row of `positions` when given.";
  let arguments = (ins FlatSymbolRefAttr:$weight, F32Attr:$scale, OptionalAttr<FlatSymbolRefAttr>:$positions);
  let results = (outs Kernel_RowsType:$result);
  let assemblyFormat = "$weight `scale` $scale (`positions` $positions^)? attr-dict `->` type($result)";
}

def Kernel_NormOp : Kernel_Op<"norm"> {
  let summary = "norm of rows, to rows or to activations";
  let description = [{
    RMS norm, or layer norm with `bias`. With `select` the input rows are those the step's outRow names. With a residual the result is
    residual + norm(input), and works in place on the residual.
  }];
  let arguments = (ins Kernel_RowsType:$input, Optional<Kernel_RowsType>:$residual, FlatSymbolRefAttr:$weight, OptionalAttr<FlatSymbolRefAttr>:$bias,
                       F32Attr:$eps, UnitAttr:$layerNorm, UnitAttr:$select);
  let results = (outs AnyTypeOf<[Kernel_RowsType, Kernel_ActType]>:$result);
  let assemblyFormat = [{
    $input (`residual` $residual^ `:` type($residual))? `weight` $weight (`bias` $bias^)? `eps` $eps (`layer_norm` $layerNorm^)? (`select` $select^)?
    attr-dict `:` type($input) `->` type($result)
  }];
}

def Kernel_QuantizeOp : Kernel_Op<"quantize"> {
  let summary = "round rows to activations";
  let description = "docs/exactness.md, \"Activation quantization\".";
  let arguments = (ins Kernel_RowsType:$input);
  let results = (outs Kernel_ActType:$result);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($result)";
}

def Kernel_ActivateOp : Kernel_Op<"activate"> {
  let summary = "activation(gate) * up, rounded to activations";
  let description = "Without `up` the activation alone.";
  let arguments = (ins LLM_ActivationAttr:$kind, Kernel_RowsType:$gate, Optional<Kernel_RowsType>:$up);
  let results = (outs Kernel_ActType:$result);
  let assemblyFormat = "$kind $gate (`up` $up^ `:` type($up))? attr-dict `:` type($gate) `->` type($result)";
}

def Kernel_MatmulOp : Kernel_Op<"matmul"> {
  let summary = "activations times packed weights";
  let description = [{
    Each weight fills the columns of the result from its entry of `columns` on. `biases` is empty or has one for each weight; bias and residual are added to the finished sums; with a residual the op may work in
    place on it. With `glu` the one weight is an interleave of gate and up, and the result is the activations of activation(gate) * up. With `argmax` the result is no product: of each run of 256
    columns (argmaxRun of include/lathe/Codegen/Layout.h) it has the largest value, then, from the middle of the row on, the index of each as a float32, both in the order of `kernel.argmax`.
  }];
  let arguments = (ins Kernel_ActType:$input, Optional<Kernel_RowsType>:$residual, ArrayAttr:$weights, DenseI64ArrayAttr:$columns,
                       ArrayAttr:$biases, OptionalAttr<LLM_ActivationAttr>:$glu, UnitAttr:$argmax);
  let results = (outs AnyTypeOf<[Kernel_RowsType, Kernel_ActType]>:$result);
  let assemblyFormat = [{
    $input (`residual` $residual^ `:` type($residual))? `weights` $weights `columns` $columns `bias` $biases (`glu` $glu^)? (`argmax` $argmax^)?
    attr-dict `:` type($input) `->` type($result)
  }];
  let hasVerifier = 1;
}

def Kernel_ArgmaxOp : Kernel_Op<"argmax"> {
  let summary = "the largest element of each row and its index";
  let description = [{
    `llm.argmax` over rows. With `pairs` the input is what `kernel.matmul ... argmax` makes: the first half of a row are values, the second their indexes.
  }];
  let arguments = (ins Kernel_RowsType:$input, UnitAttr:$pairs);
  let results = (outs Kernel_RowsType:$result);
  let assemblyFormat = "$input (`pairs` $pairs^)? attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
}

def Kernel_ViewOp : Kernel_Op<"view", [Pure]> {
  let summary = "columns of rows, without a copy";
  let description = "The result has the stride of the input.";
  let arguments = (ins Kernel_RowsType:$input, I64Attr:$begin);
  let results = (outs Kernel_RowsType:$result);
  let assemblyFormat = "$input `from` $begin attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
}

def Kernel_AnglesOp : Kernel_Op<"angles"> {
  let summary = "cosines and sines of the rows' positions";
  let description = "docs/exactness.md, \"RoPE\".";
  let arguments = (ins FlatSymbolRefAttr:$frequencies, F32Attr:$factor);
  let results = (outs Kernel_RowsType:$result);
  let assemblyFormat = "$frequencies `factor` $factor attr-dict `->` type($result)";
}

def Kernel_RopeAppendOp : Kernel_Op<"rope_append", [AttrSizedOperandSegments, AttrSizedResultSegments]> {
  let summary = "head norms and rotation of q and k, k and v into the KV cache";
  let description = [{
    Each part is optional: without `angles` nothing is rotated, without k and v nothing is appended, without q only the cache changes. q is changed in place and is the first
    result. The cache result orders attention behind the append.
  }];
  let arguments = (ins Optional<Kernel_RowsType>:$q, Optional<Kernel_RowsType>:$k, Optional<Kernel_RowsType>:$v, Optional<Kernel_RowsType>:$angles,
                       Optional<LLM_KVType>:$kv, I64Attr:$heads, OptionalAttr<FlatSymbolRefAttr>:$group, I64Attr:$layer, I64Attr:$kvHeads,
                       OptionalAttr<FlatSymbolRefAttr>:$qNorm, OptionalAttr<FlatSymbolRefAttr>:$kNorm, F32Attr:$eps, UnitAttr:$interleaved);
  let results = (outs Optional<Kernel_RowsType>:$rotated, Optional<LLM_KVType>:$cache);
}

def Kernel_AttentionOp : Kernel_Op<"attention"> {
  let summary = "paged attention over the rows' history";
  let description = "One canonical order of reduction (docs/exactness.md) in every form that the plan may choose.";
  let arguments = (ins Kernel_RowsType:$query, LLM_KVType:$kv, FlatSymbolRefAttr:$group, I64Attr:$layer, I64Attr:$heads, F32Attr:$scale, F32Attr:$softcap);
  let results = (outs AnyTypeOf<[Kernel_RowsType, Kernel_ActType]>:$result);
  let assemblyFormat = [{
    $query `,` $kv `group` $group `layer` $layer `heads` $heads `scale` $scale `softcap` $softcap attr-dict `:` type($query) `->` type($result)
  }];
}

def Kernel_SelectOp : Kernel_Op<"select"> {
  let summary = "the step's output rows, copied";
  let description = "What `norm ... select` does when the head starts with something else.";
  let arguments = (ins Kernel_RowsType:$input);
  let results = (outs Kernel_RowsType:$result);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($result)";
}

def Kernel_LoopsOp : Kernel_Op<"loops", [SingleBlock, IsolatedFromAbove]> {
  let summary = "a scalar body over all elements of rows";
  let description = [{
    For whatever has no emitter of its own. The body takes one float32 of each input and yields one; it may use arith and math ops on f32 and `kernel.function`.
    Inputs and result have one width.
  }];
  let arguments = (ins Variadic<Kernel_RowsType>:$inputs);
  let results = (outs Kernel_RowsType:$result);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "`(` $inputs `)` attr-dict `:` functional-type($inputs, $result) $body";
  let hasVerifier = 1;
}

def Kernel_FunctionOp : Kernel_Op<"function", [Pure]> {
  let summary = "an activation function or tanh of a scalar, as docs/exactness.md defines it";
  let description = "`name` is silu, gelu_tanh, gelu_erf, relu or tanh.";
  let arguments = (ins StrAttr:$name, F32:$input);
  let results = (outs F32:$result);
  let assemblyFormat = "$name $input attr-dict";
}

def Kernel_YieldOp : Kernel_Op<"yield", [Pure, Terminator]> {
  let summary = "the element that a loops body computed";
  let description = "See `kernel.loops`.";
  let arguments = (ins F32:$value);
  let assemblyFormat = "$value attr-dict";
}

def Kernel_OutputOp : Kernel_Op<"output", [AttrSizedOperandSegments]> {
  let summary = "marks the step's results";
  let description = [{
    `hidden`: the rows that the head starts from; `logits`: its result; `embedding`: the output rows behind the last norm, made by an op that serves
    nothing else and runs only when they are asked for; `choices`: what stands for the logits where only the largest one counts, and runs instead of them; `more`: logits of a draft program's further heads;
    `features`: rows that a draft over the step's features takes, which are there until the next step.
  }];
  let arguments = (ins Kernel_RowsType:$hidden, Kernel_RowsType:$logits, Optional<Kernel_RowsType>:$embedding, Optional<Kernel_RowsType>:$choices, Variadic<Kernel_RowsType>:$more,
                       Variadic<Kernel_RowsType>:$features);
  let assemblyFormat = [{
    `hidden` $hidden `logits` $logits (`more` `(` $more^ `:` type($more) `)`)? (`features` `(` $features^ `:` type($features) `)`)? (`embedding` $embedding^ `:` type($embedding) `,`)? (`choices` $choices^ `:` type($choices) `,`)? attr-dict `:`
    type($hidden) `,` type($logits)
  }];
}

#endif
