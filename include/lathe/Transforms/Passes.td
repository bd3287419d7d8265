//===- Passes.td - llm -> llm passes --------------------------*- tablegen -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Every pass leaves what the module computes as it is, except those that say which rounding they add.
// A pass that could have done something and did not says why in a remark (category: the pass's name).
//===----------------------------------------------------------------------===//
#ifndef LATHE_TRANSFORMS_PASSES_TD
#define LATHE_TRANSFORMS_PASSES_TD

include "mlir/Pass/PassBase.td"

class LLM_Pass<string name, string anchor> : Pass<name, anchor> { let dependentDialects = ["::lathe::llm::LLMDialect"]; }

//===----------------------------------------------------------------------===//
// Speculate: a second program
//===----------------------------------------------------------------------===//

def LLMSpeculatePass : LLM_Pass<"llm-speculate", "::mlir::ModuleOp"> {
  let summary = "put a draft program beside the step";
  let description = [{
    Adds `func @draft`, which guesses what `@step` would say, with the type of `@step` (of heads and layers over features: with rows more, and perhaps several results), and the attribute `llm.draft` of the module. The step computes what it did: drafts are verified by the step and
    change no token (docs/speculation.md). Run first: all other passes treat both functions alike.

    `method=draft`: the nested `module @draft` becomes the draft program. Its params and KV groups get the prefix `draft.`; a param of equal type and value is shared.
    `method=medusa`: the nested `module @draft` has `func @heads(rows) -> (logits...)`. The draft takes a third argument, the hidden rows of the step (what its
    `llm.select_rows` reads); it makes of them what the step's last linear reads and gives it to the heads. Head i guesses the token i + 2 places behind the row's.
    `method=eagle`, `eagle2`: the nested `module @draft` has `func @layer(batch, kv, embedding rows, feature rows) -> (own rows, kv)` and a KV group. The draft takes a third argument, rows of
    [own | hidden] one part of which is zeros; it embeds tokens as the step does, norms the hidden part with the step's last norm, adds both, gives them to the layer and the layer's own rows to the step's
    last linear. The row of a token takes what the step had (or, behind guesses, the layer itself made) for the token before it. `eagle2` differs in how the engine drafts.
    `method=eagle3`: `func @layer(batch, kv, embedding rows, own rows, low, middle, high rows) -> (own rows, kv)` and `func @head(rows) -> logits`, and the attribute `llm.eagle` of the nested
    module with `features`, three layers of the step. `@step` returns the rows in front of these layers behind its logits, and the draft takes rows of [own | low | middle | high]. `tokens` of
    `llm.eagle`, what each of the head's tokens is in the model's vocabulary, becomes part of `llm.draft`.
    `method=layerskip layers=E`: the first E layers, then the step's last norm and head; the KV groups and params are the step's own, and what the rest of the layers computes is not there.

    Before (`method=draft`): `func.func @step(...)`, `module @draft { llm.kv_group @kv ..., llm.param @w ..., func.func @step(...) }`.
    After: `llm.kv_group @draft.kv ...`, `llm.param @draft.w ...`, `func.func @step(...)`, `func.func @draft(...)`.
  }];
  let options = [Option<"method", "method", "std::string", "\"draft\"", "draft, layerskip, medusa, eagle, eagle2 or eagle3">,
                 Option<"layers", "layers", "int64_t", "0", "layerskip: layers of the draft, fewer than the model has">];
  let statistics = [Statistic<"numParams", "params", "params of the draft's own">, Statistic<"numShared", "shared", "params that draft and step share">];
}

//===----------------------------------------------------------------------===//
// Configure: these add roundings
//===----------------------------------------------------------------------===//

def LLMQuantizePass : LLM_Pass<"llm-quantize", "::mlir::ModuleOp"> {
  let summary = "round the weights of linears to a smaller storage";
  let description = [{
    Params that only linears and embeddings read become `#llm.round` of what they were; types follow. Weights whose name matches an expression of `skip`, whose
    rows do not divide into the type's groups, or that are smaller already are left. Run before `llm-set-activations`.

    Before: `llm.param @w : tensor<64x64xf16> = #llm.file<...>`.
    After: `llm.param @w : tensor<64x64x!llm.q<int8>> = #llm.round<#llm.file<...>, int8>`.
  }];
  let options = [
    Option<"type", "type", "std::string", "\"int8\"", "int8, int4-g32, int4-g64, int4-g128, e4m3, q8_0, q4_0, f16 or bf16">,
    Option<"asymmetric", "asymmetric", "bool", "false", "int4 with a minimum per group">,
    ListOption<"skip", "skip", "std::string", "regular expressions of weight names to leave">,
  ];
  let statistics = [Statistic<"numRounded", "rounded", "weights rounded">, Statistic<"numLeft", "left", "weights of linears left">];
}

def LLMSetActivationsPass : LLM_Pass<"llm-set-activations", "::mlir::func::FuncOp"> {
  let summary = "say how activations enter the linears";
  let description = [{
    Puts an `llm.quantize` before every linear whose input is float32 rows; linears of one input share it. With `auto`, linears with integer weights get int8, or int8z when
    they are reached behind `llm.select_rows` only (the head); bf16 and e4m3 weights get bf16; f32 and f16 weights get f32. int8 and int8z
    need integer weights: other linears get what `auto` says. e4m3 needs e4m3 weights: other linears get bf16.

    Before: `%y = llm.linear %x, %w : ...`.
    After: `%q = llm.quantize %x : ... -> tensor<?x64x!llm.act<int8>>`, `%y = llm.linear %q, %w : ...`.
  }];
  let options = [Option<"format", "format", "std::string", "\"auto\"", "auto, int8, int8z, e4m3, bf16 or f32">];
  let statistics = [Statistic<"numQuantize", "quantize", "llm.quantize ops made">, Statistic<"numLinears", "linears", "linears rewired">];
}

def LLMSetKVPass : LLM_Pass<"llm-set-kv", "::mlir::ModuleOp"> {
  let summary = "say how K and V are stored";
  let description = [{
    Sets the formats of every KV group.

    Before: `llm.kv_group @kv layers [...] key f32 value f32 window 0 page 0`.
    After (`key=f16 value=int8`): `llm.kv_group @kv layers [...] key f16 value int8 window 0 page 0`.
  }];
  let options = [Option<"key", "key", "std::string", "\"f16\"", "f32, f16, bf16, int8 or e4m3">,
                 Option<"value", "value", "std::string", "\"f16\"", "f32, f16, bf16, int8 or e4m3">];
  let statistics = [Statistic<"numGroups", "groups", "KV groups changed">];
}

def LLMPageKVPass : LLM_Pass<"llm-page-kv", "::mlir::ModuleOp"> {
  let summary = "store the KV cache in pages with a block table";
  let description = [{
    Sets the tokens per page of every KV group; results do not depend on it.

    Before: `llm.kv_group @kv layers [...] key f16 value f16 window 0 page 0`.
    After (`page=32`): `llm.kv_group @kv layers [...] key f16 value f16 window 0 page 32`.
  }];
  let options = [Option<"page", "page", "int64_t", "32", "tokens per page, a multiple of 16; 0: contiguous">];
  let statistics = [Statistic<"numGroups", "groups", "KV groups changed">];
}

def LLMDropUnusedPass : LLM_Pass<"llm-drop-unused", "::mlir::ModuleOp"> {
  let summary = "erase params and KV groups that nobody names";
  let description = [{
    For reducing modules, and behind transformations by hand; the packer skips what is not used anyway.

    Before: `llm.param @a ...`, `llm.param @b ...` and a step that reads `@a`. After: `llm.param @a ...`.
  }];
  let statistics = [Statistic<"numErased", "erased", "params and groups erased">];
}

//===----------------------------------------------------------------------===//
// Fuse: these change no value
//===----------------------------------------------------------------------===//

def LLMMergeLinearsPass : LLM_Pass<"llm-merge-linears", "::mlir::ModuleOp"> {
  let summary = "make one linear of the linears of one input";
  let description = [{
    Linears of one input become one with several weights; each former result is an `llm.columns` of it. Neighbouring weights of equal storage that nobody else reads
    become one param, a `#llm.concat`; others stay segments. A gate and up pair that `llm-fuse-glu` will take is left to it, and linears that `@draft` returns stay apart: each head's logits
    have rows of their own.

    Before: `%q = llm.linear %x, %wq : ...`, `%k = llm.linear %x, %wk : ...`.
    After: `%m = llm.linear %x, %wqk : ...`, `%q = llm.columns %m from 0 : ...`, `%k = llm.columns %m from 64 : ...`.
  }];
  let options = [Option<"concat", "concat", "bool", "true", "join weights of equal storage">,
                 Option<"glu", "glu", "bool", "false", "merge gate and up pairs too">];
  let statistics = [Statistic<"numMerged", "merged", "linears merged away">, Statistic<"numJoined", "joined", "params joined into another">];
}

def LLMFuseGluPass : LLM_Pass<"llm-fuse-glu", "::mlir::func::FuncOp"> {
  let summary = "fuse gate and up linears, their activation and its rounding";
  let description = [{
    `llm.fused "glu_linear"` with the body linear (gate), linear (up), glu, quantize. Both linears have one weight of equal type and no bias;
    the lowering interleaves the weights by blocks of rows.

    Before: `%g = llm.linear %x, %wg`, `%u = llm.linear %x, %wu`, `%y = llm.glu silu %g, %u`, `%q = llm.quantize %y`.
    After: `%q = llm.fused "glu_linear" (%x, %wg, %wu) { ... }`.
  }];
  let statistics = [Statistic<"numFused", "fused", "llm.fused ops made">];
}

def LLMFuseActivatePass : LLM_Pass<"llm-fuse-activate", "::mlir::func::FuncOp"> {
  let summary = "fuse an activation and the rounding of its result";
  let description = [{
    `llm.fused "activate"` with the body glu or activation, quantize: what `llm-fuse-glu` could not take.

    Before: `%y = llm.activation gelu_tanh %x`, `%q = llm.quantize %y`. After: `%q = llm.fused "activate" (%x) { ... }`.
  }];
  let statistics = [Statistic<"numFused", "fused", "llm.fused ops made">];
}

def LLMFuseResidualPass : LLM_Pass<"llm-fuse-residual", "::mlir::func::FuncOp"> {
  let summary = "fuse a linear and the addition of its result to the residual";
  let description = [{
    `llm.fused "residual_linear"` with the body linear, add. The linear has one weight, its result one use.

    Before: `%y = llm.linear %q, %w`, `%s = llm.add %x, %y`. After: `%s = llm.fused "residual_linear" (%q, %w, %x) { ... }`.
  }];
  let statistics = [Statistic<"numFused", "fused", "llm.fused ops made">];
}

def LLMFuseRopeAppendPass : LLM_Pass<"llm-fuse-rope-append", "::mlir::func::FuncOp"> {
  let summary = "fuse head norms, rotation of q and k, and the append";
  let description = [{
    `llm.fused "rope_append"` with the body [rms_norm of q], rope of q, [rms_norm of k], rope of k, kv.append; it yields q, then the cache. q is the
    query of the attention of the appended layer. Head norms are taken only in pairs with equal eps, rotations only with the same angles.

    Before: `%qr = llm.rope %q, %a`, `%kr = llm.rope %k, %a`, `%kv1 = llm.kv.append %kv, %kr, %v, %b`.
    After: `%f:2 = llm.fused "rope_append" (%q, %a, %k, %kv, %v, %b) { ... }`.
  }];
  let statistics = [Statistic<"numFused", "fused", "llm.fused ops made">];
}

def LLMFuseAttentionQuantizePass : LLM_Pass<"llm-fuse-attention-quantize", "::mlir::func::FuncOp"> {
  let summary = "fuse attention and the rounding of its result";
  let description = [{
    `llm.fused "attention"` with the body attention, quantize. The V size has to be a multiple of 32, so that no group of the rounding spans two heads.

    Before: `%o = llm.attention %q, %kv, %b ...`, `%r = llm.quantize %o`. After: `%r = llm.fused "attention" (%q, %kv, %b) { ... }`.
  }];
  let statistics = [Statistic<"numFused", "fused", "llm.fused ops made">];
}

def LLMFuseNormPass : LLM_Pass<"llm-fuse-norm", "::mlir::func::FuncOp"> {
  let summary = "fuse a norm with the rounding of its result, or with the addition behind it";
  let description = [{
    `llm.fused "norm"` with the body rms_norm or layer_norm, quantize; or rms_norm, add (norms behind a sublayer). Head norms are left.

    Before: `%n = llm.rms_norm %x, %w eps 1.0e-5`, `%q = llm.quantize %n`. After: `%q = llm.fused "norm" (%x, %w) { ... }`.
  }];
  let statistics = [Statistic<"numFused", "fused", "llm.fused ops made">];
}

def LLMFuseHeadPass : LLM_Pass<"llm-fuse-head", "::mlir::func::FuncOp"> {
  let summary = "give the step a second result: the largest logit of each row and its token";
  let description = [{
    When the logits of `@step` are the result of a linear with one weight, the step also returns `llm.fused "argmax_linear"` with the body linear, argmax, a copy of that linear. Compiled
    code computes either the logits or this: where all rows of a step are sampled greedily, no logits are written or read. The logits stay as they are, and the tokens are those
    that the sampler takes from them. Run last: other passes expect a step of two results. Other functions are left.

    With `epilogue=false` the argmax reads the logits (GPUs, where it saves their way to the host).

    Before: `%y = llm.linear %q, %w`, `return %y, %kv`.
    After: `%y = llm.linear %q, %w`, `%c = llm.fused "argmax_linear" (%q, %w) { ... }`, `return %y, %c, %kv`.
  }];
  let options = [Option<"epilogue", "epilogue", "bool", "true", "one op for the linear and the argmax">];
  let statistics = [Statistic<"numFused", "fused", "second results made">];
}

#endif
