//===- Params.h - kernel parameters as attributes and back ----------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Each parameter struct of Kernels.h lists its fields once (visitFields); from that list come the dictionary of
// plan.kernel and its reading back.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/Codegen/Kernels.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinAttributes.h"

namespace lathe::codegen {

/// An elementwise body over rows (kernel.loops), or the copy of the output rows (kernel.select, body is the identity).
/// Args: inputs (f32 rows), out. One row an item.
struct LoopsParams {
  int64_t width = 0;
  int64_t inputs = 1;
  int64_t stride0 = 0, stride1 = 0, stride2 = 0; ///< of the inputs, floats
  int64_t outStride = 0;
  bool outRows = false; ///< rows = step->outRows
  bool select = false;  ///< input row i is row step->outRow[i]
};

template <typename V>
void visitFields(MatmulParams &p, V &&v) {
  v("type", p.type), v("n", p.n), v("k", p.k), v("act", p.act), v("halves", p.halves), v("epilogue", p.epilogue),
      v("activation", p.activation), v("bias", p.bias), v("residual", p.residual), v("out_stride", p.outStride),
      v("out_rows", p.outRows), v("out_act", p.outAct), v("out_halves", p.outHalves);
}
template <typename V>
void visitFields(NormParams &p, V &&v) {
  v("k", p.k), v("layer_norm", p.layerNorm), v("eps", p.eps), v("bias", p.bias), v("out_rows", p.outRows),
      v("in_stride", p.inStride), v("out", p.out), v("act", p.act), v("halves", p.halves), v("out_stride", p.outStride),
      v("post_scale_residual", p.postScaleResidual);
}
template <typename V>
void visitFields(QuantizeParams &p, V &&v) {
  v("k", p.k), v("in_stride", p.inStride), v("act", p.act), v("halves", p.halves), v("out_rows", p.outRows);
}
template <typename V>
void visitFields(ActivationParams &p, V &&v) {
  v("k", p.k), v("in_stride", p.inStride), v("up", p.up), v("act", p.act), v("halves", p.halves), v("activation", p.activation);
}
template <typename V>
void visitFields(GatherParams &p, V &&v) {
  v("type", p.type), v("n", p.n), v("k", p.k), v("scale", p.scale), v("out_stride", p.outStride), v("add_positions", p.addPositions);
}
template <typename V>
void visitFields(AnglesParams &p, V &&v) {
  v("half", p.half), v("attention_factor", p.attentionFactor);
}
template <typename V>
void visitFields(RopeAppendParams &p, V &&v) {
  v("q_heads", p.qHeads), v("kv_heads", p.kvHeads), v("head_dim", p.headDim), v("value_dim", p.valueDim),
      v("rotary_dim", p.rotaryDim), v("rope", p.rope), v("interleaved", p.interleaved), v("q_norm", p.qNorm),
      v("k_norm", p.kNorm), v("eps", p.eps), v("qkv_stride", p.qkvStride), v("append_kv", p.appendKV), v("key", p.k),
      v("value", p.v), v("page", p.page), v("block_stride", p.blockStride), v("head_stride", p.headStride), v("group", p.group);
}
template <typename V>
void visitFields(AttentionParams &p, V &&v) {
  v("q_heads", p.qHeads), v("kv_heads", p.kvHeads), v("head_dim", p.headDim), v("value_dim", p.valueDim), v("scale", p.scale),
      v("softcap", p.softcap), v("window", p.window), v("chunk", p.chunk), v("key", p.k), v("value", p.v), v("page", p.page),
      v("block_stride", p.blockStride), v("head_stride", p.headStride), v("group", p.group), v("q_stride", p.qStride),
      v("out_stride", p.outStride), v("max_chunks", p.maxChunks), v("form", p.form), v("quantize", p.quantize), v("act", p.act), v("halves", p.halves);
}
template <typename V>
void visitFields(ArgmaxParams &p, V &&v) {
  v("width", p.width), v("in_stride", p.inStride), v("out_stride", p.outStride), v("pairs", p.pairs), v("out_rows", p.outRows);
}
template <typename V>
void visitFields(LoopsParams &p, V &&v) {
  v("width", p.width), v("inputs", p.inputs), v("stride0", p.stride0), v("stride1", p.stride1), v("stride2", p.stride2),
      v("out_stride", p.outStride), v("out_rows", p.outRows), v("select", p.select);
}

template <typename P>
mlir::DictionaryAttr toDictionary(mlir::MLIRContext *context, P p) {
  mlir::Builder b(context);
  llvm::SmallVector<mlir::NamedAttribute> fields;
  visitFields(p, [&](llvm::StringRef name, auto &value) {
    using T = std::decay_t<decltype(value)>;
    mlir::Attribute attr;
    if constexpr (std::is_same_v<T, float>)
      attr = b.getF32FloatAttr(value);
    else if constexpr (std::is_same_v<T, bool>)
      attr = b.getBoolAttr(value);
    else
      attr = b.getI64IntegerAttr(static_cast<int64_t>(value));
    fields.push_back(b.getNamedAttr(name, attr));
  });
  return b.getDictionaryAttr(fields);
}

/// Fails when a field is missing or of another kind.
template <typename P>
mlir::FailureOr<P> fromDictionary(mlir::DictionaryAttr dictionary) {
  P p;
  bool good = true;
  visitFields(p, [&](llvm::StringRef name, auto &value) {
    using T = std::decay_t<decltype(value)>;
    mlir::Attribute attr = dictionary.get(name);
    if constexpr (std::is_same_v<T, float>) {
      if (auto f = llvm::dyn_cast_if_present<mlir::FloatAttr>(attr)) value = f.getValue().convertToFloat();
      else good = false;
    } else if constexpr (std::is_same_v<T, bool>) {
      if (auto f = llvm::dyn_cast_if_present<mlir::BoolAttr>(attr)) value = f.getValue();
      else good = false;
    } else {
      if (auto f = llvm::dyn_cast_if_present<mlir::IntegerAttr>(attr)) value = static_cast<T>(f.getInt());
      else good = false;
    }
  });
  if (!good) return mlir::failure();
  return p;
}

} // namespace lathe::codegen
