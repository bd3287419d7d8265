//===- LLMOps.td - operations of the llm dialect -------------*- tablegen -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Every example below is a complete step that test/lit/Dialect/LLM/examples.test extracts and runs on
// the reference interpreter.
//===----------------------------------------------------------------------===//
#ifndef LATHE_LLM_OPS_TD
#define LATHE_LLM_OPS_TD

include "dialects/LLM/LLMAttrs.td"
include "mlir/IR/BuiltinAttributes.td"
include "mlir/IR/BuiltinTypes.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

class LLM_Op<string mnemonic, list<Trait> traits = []> : Op<LLM_Dialect, mnemonic, traits>;
class LLM_PureOp<string mnemonic, list<Trait> traits = []> : LLM_Op<mnemonic, [Pure] # traits>;

/// [rows, width] float32.
def LLM_Rows : 2DTensorOf<[F32]>;
/// [rows, width] of activations rounded for a linear.
def LLM_ActRows : Type<And<[CPred<"::llvm::isa<::mlir::RankedTensorType>($_self)">,
    CPred<"::llvm::cast<::mlir::RankedTensorType>($_self).getRank() == 2">,
    CPred<"::llvm::isa<::lathe::llm::ActType>(::llvm::cast<::mlir::RankedTensorType>($_self).getElementType())">]>,
    "2D tensor of !llm.act", "::mlir::RankedTensorType">;
def LLM_Weight : AnyTypeOf<[2DTensorOf<[F32, F16, BF16, LLM_QType]>, 1DTensorOf<[F32, F16, BF16]>], "a weight tensor">;
def LLM_Vector : 1DTensorOf<[F32, F16, BF16]>;
def LLM_Matrix : 2DTensorOf<[F32, F16, BF16, LLM_QType]>;

//===----------------------------------------------------------------------===//
// Module-level declarations
//===----------------------------------------------------------------------===//

def LLM_ParamOp : LLM_Op<"param", [Symbol]> {
  let summary = "declare a weight by reference";
  let description = [{
    Names a weight and says which bytes it is made of. The type gives its shape and storage; the verifier checks that the
    expression has that shape and storage. Reading the file is left to packing and to the interpreter: a file that is gone
    or too short is an error there, with the tensor's name.

    Example:
    ```mlir
    llm.param @w : tensor<2x2xf32> = dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>
    func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x2xf32>, !llm.kv) {
      %w = llm.weight @w : tensor<2x2xf32>
      %x = llm.embed %b, %w : tensor<2x2xf32> -> tensor<?x2xf32>
      return %x, %kv : tensor<?x2xf32>, !llm.kv
    }
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, AnyAttr:$value, TypeAttrOf<LLM_Weight>:$type);
  let assemblyFormat = "$sym_name `:` $type `=` $value attr-dict";
  let hasVerifier = 1;
}

def LLM_KVGroupOp : LLM_Op<"kv_group", [Symbol]> {
  let summary = "declare layers that share a block table";
  let description = [{
    One entry of `layers` for each layer of the group, in the order in which `llm.kv.append` numbers them. `window` 0 keeps the
    whole history; W keeps the last W tokens, and entries left of the window may be gone. `page` 0 is contiguous storage per
    sequence (what the importers write); `llm-page-kv` sets the tokens per page. K and V are rounded to `key` and `value`
    when appended; int8 and e4m3 with a float32 scale for each token and head.

    Example:
    ```mlir
    llm.kv_group @kv layers [#llm.kv_layer<1, 2, 2>] key f32 value f32 window 0 page 0
    llm.param @w : tensor<2x2xf32> = dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>
    func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x2xf32>, !llm.kv) {
      %w = llm.weight @w : tensor<2x2xf32>
      %x = llm.embed %b, %w : tensor<2x2xf32> -> tensor<?x2xf32>
      %kv1 = llm.kv.append %kv, %x, %x, %b group @kv layer 0 : tensor<?x2xf32>, tensor<?x2xf32>
      %y = llm.attention %x, %kv1, %b group @kv layer 0 heads 1 scale 1.0 : tensor<?x2xf32> -> tensor<?x2xf32>
      return %y, %kv1 : tensor<?x2xf32>, !llm.kv
    }
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, ArrayAttr:$layers, LLM_KVFormatAttr:$key, LLM_KVFormatAttr:$value,
                       I64Attr:$window, I64Attr:$page);
  let assemblyFormat = "$sym_name `layers` $layers `key` $key `value` $value `window` $window `page` $page attr-dict";
  let hasVerifier = 1;
}

def LLM_WeightOp : LLM_PureOp<"weight", [DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "the value of a param";
  let description = [{
    The tensor that `llm.param` declares; the types must be equal.

    Example: see `llm.param`.
  }];
  let arguments = (ins FlatSymbolRefAttr:$param);
  let results = (outs LLM_Weight:$result);
  let assemblyFormat = "$param attr-dict `:` type($result)";
}

//===----------------------------------------------------------------------===//
// Rows in, rows out
//===----------------------------------------------------------------------===//

def LLM_EmbedOp : LLM_PureOp<"embed"> {
  let summary = "look up the embedding of each row's token";
  let description = [{
    Row r is row `token[r]` of the weight, dequantized, times `scale`. With `positions` the row index is the row's position (learned
    position embeddings). A batch that gives an embedding row instead of a token yields that row (unscaled) and is not looked up.
    Undefined for a token outside the weight: callers check.

    Example: see `llm.param`.
  }];
  let arguments = (ins LLM_BatchType:$batch, LLM_Matrix:$weight, DefaultValuedAttr<F32Attr, "1.0f">:$scale, UnitAttr:$positions);
  let results = (outs LLM_Rows:$result);
  let assemblyFormat = "$batch `,` $weight (`positions` $positions^)? attr-dict `:` type($weight) `->` type($result)";
  let hasVerifier = 1;
}

def LLM_LinearOp : LLM_PureOp<"linear", [AttrSizedOperandSegments]> {
  let summary = "multiply rows by the transposes of weights";
  let description = [{
    `y[r] = concat(x[r] . W0^T, x[r] . W1^T, ...) + bias`. More than one weight is a merged linear; each may have its own storage.
    The input is float32 rows (exact) or rows rounded by `llm.quantize`. The bias has the width of the result.

    Example:
    ```mlir
    llm.param @w : tensor<2x2xf32> = dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>
    func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x2xf32>, !llm.kv) {
      %w = llm.weight @w : tensor<2x2xf32>
      %x = llm.embed %b, %w : tensor<2x2xf32> -> tensor<?x2xf32>
      %q = llm.quantize %x : tensor<?x2xf32> -> tensor<?x2x!llm.act<bf16>>
      %y = llm.linear %q, %w : (tensor<?x2x!llm.act<bf16>>, tensor<2x2xf32>) -> tensor<?x2xf32>
      return %y, %kv : tensor<?x2xf32>, !llm.kv
    }
    ```
  }];
  let arguments = (ins AnyTypeOf<[LLM_Rows, LLM_ActRows]>:$input, Variadic<LLM_Matrix>:$weights, Optional<LLM_Vector>:$bias);
  let results = (outs LLM_Rows:$result);
  let assemblyFormat = [{
    $input `,` $weights (`bias` $bias^ `:` type($bias))? attr-dict `:` `(` type($input) `,` type($weights) `)` `->` type($result)
  }];
  let hasVerifier = 1;
}

def LLM_QuantizeOp : LLM_PureOp<"quantize"> {
  let summary = "round rows to the format in which they enter a linear";
  let description = [{
    int8: groups of 32, symmetric, one float32 scale; int8z: with a zero point; e4m3: the same groups and scales with 8-bit floats; bf16: round to nearest even; f32: unchanged.
    The exact arithmetic is in docs/exactness.md.

    Example: see `llm.linear`.
  }];
  let arguments = (ins LLM_Rows:$input);
  let results = (outs LLM_ActRows:$result);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($result)";
}

class LLM_Elementwise<string mnemonic, list<Trait> traits = []> : LLM_PureOp<mnemonic, [SameOperandsAndResultType] # traits>;

def LLM_AddOp : LLM_Elementwise<"add", [Commutative]> {
  let summary = "add rows";
  let description = [{
    Elementwise float32 sum: residual connections, position embeddings.

    Example:
    ```mlir
    llm.param @w : tensor<2x2xf32> = dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>
    func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x2xf32>, !llm.kv) {
      %w = llm.weight @w : tensor<2x2xf32>
      %x = llm.embed %b, %w : tensor<2x2xf32> -> tensor<?x2xf32>
      %y = llm.add %x, %x : tensor<?x2xf32>
      %z = llm.mul %y, %x : tensor<?x2xf32>
      %s = llm.scale %z by 0.5 : tensor<?x2xf32>
      return %s, %kv : tensor<?x2xf32>, !llm.kv
    }
    ```
  }];
  let arguments = (ins LLM_Rows:$lhs, LLM_Rows:$rhs);
  let results = (outs LLM_Rows:$result);
  let assemblyFormat = "$lhs `,` $rhs attr-dict `:` type($result)";
}

def LLM_MulOp : LLM_Elementwise<"mul", [Commutative]> {
  let summary = "multiply rows element by element";
  let description = "Elementwise float32 product.\n\nExample: see `llm.add`.";
  let arguments = (ins LLM_Rows:$lhs, LLM_Rows:$rhs);
  let results = (outs LLM_Rows:$result);
  let assemblyFormat = "$lhs `,` $rhs attr-dict `:` type($result)";
}

def LLM_ScaleOp : LLM_Elementwise<"scale"> {
  let summary = "multiply rows by a constant";
  let description = "One float32 product per element.\n\nExample: see `llm.add`.";
  let arguments = (ins LLM_Rows:$input, F32Attr:$factor);
  let results = (outs LLM_Rows:$result);
  let assemblyFormat = "$input `by` $factor attr-dict `:` type($result)";
  let hasFolder = 1;
}

def LLM_SoftcapOp : LLM_Elementwise<"softcap"> {
  let summary = "cap * tanh(x / cap)";
  let description = [{
    Soft capping of logits (Gemma 2). `cap` must be positive.

    Example:
    ```mlir
    llm.param @w : tensor<2x2xf32> = dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>
    func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x2xf32>, !llm.kv) {
      %w = llm.weight @w : tensor<2x2xf32>
      %x = llm.embed %b, %w : tensor<2x2xf32> -> tensor<?x2xf32>
      %y = llm.softcap %x cap 2.0 : tensor<?x2xf32>
      return %y, %kv : tensor<?x2xf32>, !llm.kv
    }
    ```
  }];
  let arguments = (ins LLM_Rows:$input, F32Attr:$cap);
  let results = (outs LLM_Rows:$result);
  let assemblyFormat = "$input `cap` $cap attr-dict `:` type($result)";
  let hasVerifier = 1;
}

def LLM_ActivationOp : LLM_Elementwise<"activation"> {
  let summary = "apply an activation function";
  let description = [{
    silu, gelu_tanh, gelu_erf or relu, element by element.

    Example: see `llm.glu`.
  }];
  let arguments = (ins LLM_ActivationAttr:$kind, LLM_Rows:$input);
  let results = (outs LLM_Rows:$result);
  let assemblyFormat = "$kind $input attr-dict `:` type($result)";
}

def LLM_GluOp : LLM_Elementwise<"glu"> {
  let summary = "activation(gate) * up";
  let description = [{
    SwiGLU (silu) and GeGLU (gelu).

    Example:
    ```mlir
    llm.param @w : tensor<2x2xf32> = dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>
    func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x2xf32>, !llm.kv) {
      %w = llm.weight @w : tensor<2x2xf32>
      %x = llm.embed %b, %w : tensor<2x2xf32> -> tensor<?x2xf32>
      %a = llm.activation gelu_tanh %x : tensor<?x2xf32>
      %y = llm.glu silu %x, %a : tensor<?x2xf32>
      return %y, %kv : tensor<?x2xf32>, !llm.kv
    }
    ```
  }];
  let arguments = (ins LLM_ActivationAttr:$kind, LLM_Rows:$gate, LLM_Rows:$up);
  let results = (outs LLM_Rows:$result);
  let assemblyFormat = "$kind $gate `,` $up attr-dict `:` type($result)";
}

def LLM_RmsNormOp : LLM_PureOp<"rms_norm", [AllTypesMatch<["input", "result"]>]> {
  let summary = "root mean square norm";
  let description = [{
    `y = x / sqrt(mean(x^2) + eps) * w` over a row, or over each of `heads` equal parts of it with one weight of the part's
    size (query and key norms).

    Example:
    ```mlir
    llm.param @w : tensor<2x2xf32> = dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>
    llm.param @n : tensor<2xf32> = dense<[1.0, 0.5]> : tensor<2xf32>
    func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x2xf32>, !llm.kv) {
      %w = llm.weight @w : tensor<2x2xf32>
      %n = llm.weight @n : tensor<2xf32>
      %x = llm.embed %b, %w : tensor<2x2xf32> -> tensor<?x2xf32>
      %y = llm.rms_norm %x, %n eps 1.0e-5 : tensor<?x2xf32>, tensor<2xf32>
      %z = llm.layer_norm %y, %n, %n eps 1.0e-5 : tensor<?x2xf32>, tensor<2xf32>
      return %z, %kv : tensor<?x2xf32>, !llm.kv
    }
    ```
  }];
  let arguments = (ins LLM_Rows:$input, LLM_Vector:$weight, F32Attr:$eps, DefaultValuedAttr<I64Attr, "1">:$heads);
  let results = (outs LLM_Rows:$result);
  let assemblyFormat = "$input `,` $weight `eps` $eps (`heads` $heads^)? attr-dict `:` type($input) `,` type($weight)";
  let hasVerifier = 1;
}

def LLM_LayerNormOp : LLM_PureOp<"layer_norm", [AllTypesMatch<["input", "result"]>, AllTypesMatch<["weight", "bias"]>]> {
  let summary = "layer norm with weight and bias";
  let description = "`y = (x - mean) / sqrt(var + eps) * w + b`, the variance divided by the width.\n\nExample: see `llm.rms_norm`.";
  let arguments = (ins LLM_Rows:$input, LLM_Vector:$weight, LLM_Vector:$bias, F32Attr:$eps);
  let results = (outs LLM_Rows:$result);
  let assemblyFormat = "$input `,` $weight `,` $bias `eps` $eps attr-dict `:` type($input) `,` type($weight)";
  let hasVerifier = 1;
}

def LLM_ColumnsOp : LLM_PureOp<"columns"> {
  let summary = "columns begin .. begin + width of rows";
  let description = [{
    Takes a merged linear's result apart. The width is that of the result type.

    Example:
    ```mlir
    llm.param @w : tensor<2x2xf32> = dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>
    func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x1xf32>, !llm.kv) {
      %w = llm.weight @w : tensor<2x2xf32>
      %x = llm.embed %b, %w : tensor<2x2xf32> -> tensor<?x2xf32>
      %y = llm.columns %x from 1 : tensor<?x2xf32> -> tensor<?x1xf32>
      return %y, %kv : tensor<?x1xf32>, !llm.kv
    }
    ```
  }];
  let arguments = (ins LLM_Rows:$input, I64Attr:$begin);
  let results = (outs LLM_Rows:$result);
  let assemblyFormat = "$input `from` $begin attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

def LLM_SelectRowsOp : LLM_PureOp<"select_rows", [AllTypesMatch<["input", "result"]>]> {
  let summary = "the rows that need an output";
  let description = [{
    Row i of the result is row `outRow[i]` of the input. Everything behind it is the head: it runs for requested rows only.

    Example:
    ```mlir
    llm.param @w : tensor<2x2xf32> = dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>
    func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x2xf32>, !llm.kv) {
      %w = llm.weight @w : tensor<2x2xf32>
      %x = llm.embed %b, %w : tensor<2x2xf32> -> tensor<?x2xf32>
      %y = llm.select_rows %x, %b : tensor<?x2xf32>
      return %y, %kv : tensor<?x2xf32>, !llm.kv
    }
    ```
  }];
  let arguments = (ins LLM_Rows:$input, LLM_BatchType:$batch);
  let results = (outs LLM_Rows:$result);
  let assemblyFormat = "$input `,` $batch attr-dict `:` type($result)";
}

def LLM_ArgmaxOp : LLM_PureOp<"argmax"> {
  let summary = "the largest element of each row and where it is";
  let description = [{
    Row r of the result is {i, x[r][i]}: the index of the row's largest element, of equals the lowest, and the element. A NaN or +infinity is larger
    than anything else, and equal to every other such element: the first one shows that the row is damaged. The index is exact as a float32, which a
    width of at most 2^24 makes sure.

    Example:
    ```mlir
    llm.param @w : tensor<2x2xf32> = dense<[[1.0, 2.0], [4.0, 3.0]]> : tensor<2x2xf32>
    func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x2xf32>, tensor<?x2xf32>, !llm.kv) {
      %w = llm.weight @w : tensor<2x2xf32>
      %x = llm.embed %b, %w : tensor<2x2xf32> -> tensor<?x2xf32>
      %c = llm.argmax %x : tensor<?x2xf32> -> tensor<?x2xf32>
      return %c, %x, %kv : tensor<?x2xf32>, tensor<?x2xf32>, !llm.kv
    }
    ```
  }];
  let arguments = (ins LLM_Rows:$input);
  let results = (outs LLM_Rows:$result);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($result)";
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Positions, KV cache, attention
//===----------------------------------------------------------------------===//

def LLM_AnglesOp : LLM_PureOp<"angles"> {
  let summary = "cosines and sines of every row's position";
  let description = [{
    For H frequencies the result has 2H columns: `cos(position * freq[i]) * factor`, then the sines. The frequencies are those of the
    model's RoPE kind (default, linear, llama3, yarn, longrope), computed by the importer; `factor` is yarn's and longrope's
    attention factor.

    Example: see `llm.rope`.
  }];
  let arguments = (ins LLM_BatchType:$batch, LLM_Vector:$frequencies, DefaultValuedAttr<F32Attr, "1.0f">:$factor);
  let results = (outs LLM_Rows:$result);
  let assemblyFormat = "$batch `,` $frequencies attr-dict `:` type($frequencies) `->` type($result)";
  let hasVerifier = 1;
}

def LLM_RopeOp : LLM_PureOp<"rope", [AllTypesMatch<["input", "result"]>]> {
  let summary = "rotate the heads of rows by their positions";
  let description = [{
    The input is `heads` heads of equal size d. With H angles per row, elements i and i + H of each head are rotated for i < H (halves), or
    2i and 2i + 1 with `interleaved`; elements from 2H on are left (partial rotary).

    Example:
    ```mlir
    llm.param @w : tensor<2x2xf32> = dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>
    llm.param @f : tensor<1xf32> = dense<[1.0]> : tensor<1xf32>
    func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x2xf32>, !llm.kv) {
      %w = llm.weight @w : tensor<2x2xf32>
      %f = llm.weight @f : tensor<1xf32>
      %x = llm.embed %b, %w : tensor<2x2xf32> -> tensor<?x2xf32>
      %a = llm.angles %b, %f : tensor<1xf32> -> tensor<?x2xf32>
      %y = llm.rope %x, %a heads 1 : tensor<?x2xf32>, tensor<?x2xf32>
      return %y, %kv : tensor<?x2xf32>, !llm.kv
    }
    ```
  }];
  let arguments = (ins LLM_Rows:$input, LLM_Rows:$angles, I64Attr:$heads, UnitAttr:$interleaved);
  let results = (outs LLM_Rows:$result);
  let assemblyFormat = "$input `,` $angles `heads` $heads (`interleaved` $interleaved^)? attr-dict `:` type($input) `,` type($angles)";
  let hasVerifier = 1;
}

def LLM_KVAppendOp : LLM_PureOp<"kv.append", [DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "write the rows' K and V into the cache";
  let description = [{
    Entry `slot[r]` of sequence `sequence[r]` in layer `layer` of the group becomes row r of `key` and `value`, rounded to the
    group's formats. Rows of one step see each other's entries (append precedes attention).

    Example: see `llm.kv_group`.
  }];
  let arguments = (ins LLM_KVType:$kv, LLM_Rows:$key, LLM_Rows:$value, LLM_BatchType:$batch, FlatSymbolRefAttr:$group, I64Attr:$layer);
  let results = (outs LLM_KVType:$result);
  let assemblyFormat = "$kv `,` $key `,` $value `,` $batch `group` $group `layer` $layer attr-dict `:` type($key) `,` type($value)";
}

def LLM_AttentionOp : LLM_PureOp<"attention", [DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "causal attention of rows over their sequences' history";
  let description = [{
    The query has `heads` heads; query head h reads KV head `h / (heads / kv heads)`. Row r sees its history, entries 0 .. slot[r] of its sequence, with a
    window W of the group only the last W of them. In a draft tree, where a row may have a parent (a row of the step), its history is its parent's and its own entry. Scores are `q . k * scale`, soft-capped when `softcap` > 0, softmax, weighted sum of V.
    Undefined if an entry that a row sees was never appended.

    Example: see `llm.kv_group`.
  }];
  let arguments = (ins LLM_Rows:$query, LLM_KVType:$kv, LLM_BatchType:$batch, FlatSymbolRefAttr:$group, I64Attr:$layer, I64Attr:$heads,
                       F32Attr:$scale, DefaultValuedAttr<F32Attr, "0.0f">:$softcap);
  let results = (outs LLM_Rows:$result);
  let assemblyFormat = [{
    $query `,` $kv `,` $batch `group` $group `layer` $layer `heads` $heads `scale` $scale attr-dict `:` type($query) `->` type($result)
  }];
}

//===----------------------------------------------------------------------===//
// Fusion
//===----------------------------------------------------------------------===//

def LLM_FusedOp : LLM_Op<"fused", [IsolatedFromAbove, RecursiveMemoryEffects, SingleBlock]> {
  let summary = "ops that become one kernel";
  let description = [{
    Holds the ops it replaces: what it means is what its body means, so the interpreter just runs the body. `kind` names the kernel family
    that the fusion pass had in mind (norm, rope_append, glu_linear, residual_linear, argmax_linear); lowering checks that the body has that shape and otherwise lowers
    the body op by op.

    Example:
    ```mlir
    llm.param @w : tensor<2x2xf32> = dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>
    llm.param @n : tensor<2xf32> = dense<[1.0, 0.5]> : tensor<2xf32>
    func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x2xf32>, !llm.kv) {
      %w = llm.weight @w : tensor<2x2xf32>
      %n = llm.weight @n : tensor<2xf32>
      %x = llm.embed %b, %w : tensor<2x2xf32> -> tensor<?x2xf32>
      %q = llm.fused "norm" (%x, %n) : (tensor<?x2xf32>, tensor<2xf32>) -> tensor<?x2x!llm.act<bf16>> {
      ^bb0(%a: tensor<?x2xf32>, %m: tensor<2xf32>):
        %y = llm.rms_norm %a, %m eps 1.0e-5 : tensor<?x2xf32>, tensor<2xf32>
        %r = llm.quantize %y : tensor<?x2xf32> -> tensor<?x2x!llm.act<bf16>>
        llm.yield %r : tensor<?x2x!llm.act<bf16>>
      }
      %z = llm.linear %q, %w : (tensor<?x2x!llm.act<bf16>>, tensor<2x2xf32>) -> tensor<?x2xf32>
      return %z, %kv : tensor<?x2xf32>, !llm.kv
    }
    ```
  }];
  let arguments = (ins StrAttr:$kind, Variadic<AnyType>:$inputs);
  let results = (outs Variadic<AnyType>:$results);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$kind `(` $inputs `)` attr-dict `:` functional-type($inputs, $results) $body";
  let hasVerifier = 1;
}

def LLM_YieldOp : LLM_Op<"yield", [Pure, Terminator, ReturnLike, HasParent<"FusedOp">]> {
  let summary = "results of a fused body";
  let description = "Example: see `llm.fused`.";
  let arguments = (ins Variadic<AnyType>:$values);
  let assemblyFormat = "$values `:` type($values) attr-dict";
}

#endif
