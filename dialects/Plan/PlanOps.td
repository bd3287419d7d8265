//===- PlanOps.td - the plan dialect -------------------------*- tablegen -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#ifndef LATHE_PLAN_OPS_TD
#define LATHE_PLAN_OPS_TD

include "mlir/IR/BuiltinAttributes.td"
include "mlir/IR/OpBase.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Plan_Dialect : Dialect {
  let name = "plan";
  let cppNamespace = "::lathe::plan";
  let summary = "a step laid out: buffers at offsets, launches in order";
  let description = [{
    What the PROGRAM section of an artifact holds (include/lathe/artifact/Program.h), as IR: it can be read, checked by `plan-verify` and
    emitted without the ops it came from.
  }];
}

class Plan_Op<string mnemonic, list<Trait> traits = []> : Op<Plan_Dialect, mnemonic, traits>;

def Plan_ProgramOp : Plan_Op<"program", [SymbolTable, NoTerminator, SingleBlock, IsolatedFromAbove]> {
  let summary = "a compiled step";
  let description = [{
    Sizes of the step, and in its body buffers, weights, kernels and entries. `embeddingOffset` and `embeddingStride` are there if the entry "embed" is, `choicesOffset` and
    `choicesStride` if "head_choices" is, `draftMaxSeq` (positions that
    the draft was made for) and the place of its logits if the entries "draft" and "draft_head" are. `draftInputSize` and the place of its input are there if the draft takes
    rows, `draftMoreLogits` has the places of the logits of its further heads, and `draftMethod` (DraftMethod of include/lathe/artifact/Program.h) says what made it.
    A draft over features has its own rows at `draftOwnOffset`, `draftFeatures` has the places of the step's features (none: the hidden rows), and `draftTokens` says what each token of a reduced vocabulary is.

    Example: `plan.program max_rows 512 max_out_rows 16 max_seq 8192 vocabulary 49152 hidden 576 arena 1048576 { ... }`
  }];
  let arguments = (ins I64Attr:$maxRows, I64Attr:$maxOutRows, I64Attr:$maxSeq, I64Attr:$vocabulary, I64Attr:$hidden, I64Attr:$arenaBytes,
                       I64Attr:$hiddenOffset, I64Attr:$hiddenStride, I64Attr:$logitsOffset, I64Attr:$logitsStride,
                       OptionalAttr<I64Attr>:$embeddingOffset, OptionalAttr<I64Attr>:$embeddingStride,
                       OptionalAttr<I64Attr>:$draftMaxSeq, OptionalAttr<I64Attr>:$draftLogitsOffset, OptionalAttr<I64Attr>:$draftLogitsStride,
                       OptionalAttr<I64Attr>:$draftMethod, OptionalAttr<I64Attr>:$draftInputOffset, OptionalAttr<I64Attr>:$draftInputStride,
                       OptionalAttr<I64Attr>:$draftInputSize, OptionalAttr<DenseI64ArrayAttr>:$draftMoreLogits,
                       OptionalAttr<I64Attr>:$choicesOffset, OptionalAttr<I64Attr>:$choicesStride,
                       OptionalAttr<I64Attr>:$draftOwnOffset, OptionalAttr<DenseI64ArrayAttr>:$draftFeatures, OptionalAttr<I32ElementsAttr>:$draftTokens);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    `max_rows` $maxRows `max_out_rows` $maxOutRows `max_seq` $maxSeq `vocabulary` $vocabulary `hidden` $hidden `arena` $arenaBytes
    `hidden_at` $hiddenOffset `stride` $hiddenStride `logits_at` $logitsOffset `stride` $logitsStride attr-dict-with-keyword $body
  }];
}

def Plan_BufferOp : Plan_Op<"buffer", [Symbol]> {
  let summary = "bytes of the arena, and when they hold a value";
  let description = [{
    Live from launch `first` to launch `last`, counted over all entries in order; -1 as `last` means until the next step.

    Example: `plan.buffer @x at 0 bytes 36864 live 0 to 12`
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, I64Attr:$offset, I64Attr:$bytes, I64Attr:$first, I64Attr:$last);
  let assemblyFormat = "$sym_name `at` $offset `bytes` $bytes `live` $first `to` $last attr-dict";
}

def Plan_WeightOp : Plan_Op<"weight", [Symbol]> {
  let summary = "a packed weight's place in the WEIGHTS section";
  let description = [{
    `source` names the kernel.packed or kernel.vector op that says what it is made of.

    Example: `plan.weight @w source @w at 4096 bytes 1048576`
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, FlatSymbolRefAttr:$source, I64Attr:$offset, I64Attr:$bytes);
  let assemblyFormat = "$sym_name `source` $source `at` $offset `bytes` $bytes attr-dict";
}

def Plan_KernelOp : Plan_Op<"kernel", [Symbol]> {
  let summary = "a kernel to emit";
  let description = [{
    `family` names the emitter, `params` its parameters by field name (include/lathe/Codegen/Kernels.h).

    Example: `plan.kernel @k0 family "norm" {k = 576, ...}`
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, StrAttr:$family, DictionaryAttr:$params);
  let regions = (region AnyRegion:$body);
  let assemblyFormat = "$sym_name `family` $family $params attr-dict-with-keyword $body";
}

def Plan_KVGroupOp : Plan_Op<"kv_group", [Symbol]> {
  let summary = "block size of a KV group";
  let description = [{
    `draft`: only the draft program appends to it and reads it. Such groups follow the step's own.
    `planes` says where the bytes of an entry lie in a block, seven numbers a plane (KVPlane of include/lathe/artifact/Program.h, without the group).

    Example: `plan.kv_group @kv kind 1 window 512 page 16 layers 4 block_bytes 65536`
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, I64Attr:$kind, I64Attr:$window, I64Attr:$page, I64Attr:$layers, I64Attr:$blockBytes, UnitAttr:$draft,
                       OptionalAttr<DenseI64ArrayAttr>:$planes);
  let assemblyFormat = "$sym_name `kind` $kind `window` $window `page` $page `layers` $layers `block_bytes` $blockBytes (`draft` $draft^)? attr-dict";
}

def Plan_EntryOp : Plan_Op<"entry", [NoTerminator, SingleBlock, HasParent<"ProgramOp">]> {
  let summary = "launches that the runtime runs as one";
  let description = "Holds `plan.bucket` ops by ascending rows. Entries are \"step\", \"head\", perhaps \"embed\", perhaps \"head_choices\", and perhaps \"draft\" with \"draft_head\".";
  let arguments = (ins StrAttr:$entry);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$entry attr-dict-with-keyword $body";
}

def Plan_BucketOp : Plan_Op<"bucket", [NoTerminator, SingleBlock, HasParent<"EntryOp">]> {
  let summary = "launches for up to a number of rows";
  let description = "Buckets of an entry differ in how work is cut, never in bits.";
  let arguments = (ins I64Attr:$rows);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$rows attr-dict-with-keyword $body";
}

def Plan_LaunchOp : Plan_Op<"launch", [HasParent<"BucketOp">]> {
  let summary = "one kernel call over its items";
  let description = [{
    `args` are arena buffers, weights or KV layers, each with a byte offset: `[@x, 0]`. `items` and `item_rows` with the item kind and share kind of
    include/lathe/artifact/Program.h. `cost` is bytes of weights, multiply-adds a row and bytes a row; the attributes `bytes_per_entry`,
    `macs_per_entry` (for each row and KV entry it sees) and `arithmetic` (Arithmetic of Program.h) say more where it applies.
  }];
  let arguments = (ins StrAttr:$label, FlatSymbolRefAttr:$kernel, ArrayAttr:$args, DenseI64ArrayAttr:$offsets, I64Attr:$itemKind, I64Attr:$items,
                       I64Attr:$itemRows, I64Attr:$share, BoolAttr:$barrier, I64Attr:$time, I64Attr:$weightBytes, I64Attr:$macsPerRow, I64Attr:$bytesPerRow);
  let assemblyFormat = [{
    $label $kernel $args `+` $offsets `items` $itemKind `x` $items `rows` $itemRows `share` $share `barrier` $barrier `time` $time
    `cost` $weightBytes `,` $macsPerRow `,` $bytesPerRow attr-dict
  }];
}

#endif
