//===- Kernels.h - the emitters' parameters ------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Every emitter appends one func.func with the ABI of LatheKernelFn (include/lathe/artifact/Step.h)
// to a module. Buffers and items are those of docs/kernels.md, arithmetic that of docs/exactness.md.
// All pointers are 64-byte aligned but "columns of a merged buffer", which are 64-byte aligned when their
// column is a multiple of 16; all widths and strides count elements unless said otherwise. Emitters report what they
// cannot do as a diagnostic on the module and return failure; parameters never reach an assert.
//
// Padding: f32 vectors (norm weights, biases) are padded with zeros to a multiple of 16, rows f32 buffers
// have a row capacity rounded up to 16.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/Codegen/Layout.h"
#include "lathe/artifact/Format.h"
#include "lathe/artifact/Packing.h"
#include "lathe/artifact/Program.h"
#include "llvm/ADT/StringRef.h"
#include <cstdint>

namespace mlir {
class ModuleOp;
}
namespace llvm {
struct LogicalResult;
}

namespace lathe::codegen {

/// The CPU a kernel is emitted for.
struct X86Target {
  artifact::Variant variant = artifact::Variant::avx2;
  bool has512() const { return variant == artifact::Variant::avx512vnni || hasBf16(); }
  bool hasVnni() const { return has512(); }
  bool hasBf16() const { return variant == artifact::Variant::avx512bf16 || hasTiles(); }
  /// AMX: 8-bit dot products of 16 rows and 16 outputs in one instruction.
  bool hasTiles() const { return variant == artifact::Variant::amx; }
  /// Whether activations of |f| are kept as 16 bits each, for VDPBF16PS; elsewhere bf16 values are kept as float32.
  bool packsBf16(ActFormat f) const { return hasBf16() && f == ActFormat::bf16; }
};

enum class Activation { silu, geluTanh, geluErf, relu };

/// What a launch costs, for `explain` and the roofline.
struct KernelCost {
  uint64_t weightBytes = 0; ///< read once a launch
  uint64_t macsPerRow = 0;
  uint64_t bytesPerRow = 0; ///< activations read and written
  /// The same for each row and each KV entry that it sees.
  uint64_t bytesPerEntry = 0;
  uint64_t macsPerEntry = 0;
  Arithmetic arithmetic = Arithmetic::int8; ///< of the multiply-adds
};

/// y = W x. Args: activations, weights, out, bias? [n padded to 16], residual? (rows f32, stride outStride; may be
/// the out buffer itself). Items: matmulUnits(); every call does all row blocks of its units.
///
/// gateUp: weight rows come in units of 64: 32 gate rows, then the 32 up rows of the same outputs; n = 2 * outputs,
/// outputs padded with zero rows to a multiple of 32. out = activations [K = n / 2] in outAct, without bias and residual.
///
/// argmax: out = rows f32 of the largest output of every argmaxRun outputs, then of their indexes (ArgmaxParams with pairs), without residual.
struct MatmulParams {
  StorageType type = StorageType::q4_0;
  int64_t n = 0, k = 0;
  ActFormat act = ActFormat::int8;
  bool halves = false; ///< the input has half sums (needed for types with subK 16)
  enum Epilogue { store, gateUp, argmax } epilogue = store;
  Activation activation = Activation::silu; ///< silu or geluTanh
  bool bias = false, residual = false;
  int64_t outStride = 0;
  bool outRows = false; ///< rows = step->outRows instead of step->rows
  ActFormat outAct = ActFormat::int8;
  bool outHalves = false;
};
/// Output tiles (of 16) one item covers: 1, or 4 with gateUp, 16 with argmax.
int64_t matmulTilesPerUnit(const MatmulParams &p);
int64_t matmulUnits(const MatmulParams &p);

/// RMSNorm or LayerNorm of a row. Args: x rows, weight [k], out, bias? [k], residual?. One row an item.
struct NormParams {
  int64_t k = 0;
  bool layerNorm = false;
  float eps = 1e-5f;
  bool bias = false;
  bool outRows = false; ///< items are step->outRows rows; x is read at step->outRow[i], out written compactly at i
  int64_t inStride = 0;
  enum class Out { rows, activations } out = Out::activations;
  ActFormat act = ActFormat::int8;
  bool halves = false;
  int64_t outStride = 0;          ///< Out::rows
  bool postScaleResidual = false; ///< out rows = residual + norm(x) (Out::rows; residual has stride outStride, may be out)
};

/// Args: x rows, out act. One row an item.
struct QuantizeParams {
  int64_t k = 0, inStride = 0;
  ActFormat act = ActFormat::int8;
  bool halves = false;
  bool outRows = false;
};

/// out = f(gate) * up, or f(gate) without up, quantized. Args: gate rows, up rows?, out act. gate and up share inStride.
struct ActivationParams {
  int64_t k = 0, inStride = 0;
  bool up = true;
  ActFormat act = ActFormat::int8;
  bool halves = false;
  Activation activation = Activation::silu;
};

/// Embedding rows. Args: weights packed, out rows, positions? (f32 [.][k] learned positions, stride rowStride(k)).
/// Honours step->embedding.
struct GatherParams {
  StorageType type = StorageType::f16;
  int64_t n = 0, k = 0;
  float scale = 1.0f;
  int64_t outStride = 0;
  bool addPositions = false;
};

/// Args: invfreq f32 [half], out rows f32 [2 * half] (stride rowStride(2 * half)).
struct AnglesParams {
  int64_t half = 0;
  float attentionFactor = 1.0f;
};

/// RoPE of q and k in place, head norms before it, then append of k and v to the cache. Args: q rows, k rows, v rows,
/// angles, kv base of the layer, qNorm? [headDim], kNorm? [headDim]. q, k and v share qkvStride (columns of one buffer).
struct RopeAppendParams {
  int64_t qHeads = 0, kvHeads = 0, headDim = 0, valueDim = 0, rotaryDim = 0;
  bool rope = true, interleaved = false;
  bool qNorm = false, kNorm = false;
  float eps = 1e-6f;
  int64_t qkvStride = 0;
  bool appendKV = true;
  KVFormat k = KVFormat::f16, v = KVFormat::f16;
  int64_t page = 16, blockStride = 0, headStride = 0; ///< strides in bytes
  uint32_t group = 0;
};

/// Args: whole: q rows, kv base, out; split: q rows, kv base, partials; combine: partials, out.
/// out: rows f32 [qHeads * valueDim], or activations of that K when quantize.
struct AttentionParams {
  int64_t qHeads = 0, kvHeads = 0, headDim = 0, valueDim = 0;
  float scale = 1.0f, softcap = 0.0f;
  int64_t window = 0; ///< 0: none
  int64_t chunk = 256;
  KVFormat k = KVFormat::f16, v = KVFormat::f16;
  int64_t page = 16, blockStride = 0, headStride = 0; ///< strides in bytes
  uint32_t group = 0;
  int64_t qStride = 0, outStride = 0;
  enum Form { whole, split, combine } form = whole;
  int64_t maxChunks = 0; ///< split, combine: chunks of a (row, query head) in the partials: ceil(longest sequence / chunk)
  bool quantize = false; ///< valueDim % 32 == 0
  ActFormat act = ActFormat::int8;
  bool halves = false;
};
/// Rows one item of the whole form covers.
int64_t attentionRowBlock(const AttentionParams &p);
/// Bytes of the partials of |rows| rows: [row][query head][maxChunks] of a 64-byte header and rowStride(valueDim) floats.
uint64_t partialsBytes(const AttentionParams &p, int64_t rows);

/// out row = {index, value, 0, ...}: the largest of |width| values of a row, of equals the one with the lowest index. NaN and +infinity are larger than
/// anything else and equal to each other. Args: x rows, out rows (stride outStride). One row an item.
struct ArgmaxParams {
  int64_t width = 0; ///< 1 .. 2^24
  int64_t inStride = 0, outStride = 16;
  bool pairs = false;  ///< value i has the index that follows as float i + width of the row, ascending; else i
  bool outRows = false; ///< items are step->outRows rows
};

/// row = cap * tanha(row * (1 / cap)) in place over step->outRows rows. Args: rows.
struct SoftcapParams {
  int64_t n = 0, stride = 0;
  float cap = 0.0f;
};

llvm::LogicalResult emitMatmul(mlir::ModuleOp module, llvm::StringRef symbol, const MatmulParams &p, X86Target target);
llvm::LogicalResult emitNorm(mlir::ModuleOp module, llvm::StringRef symbol, const NormParams &p, X86Target target);
llvm::LogicalResult emitQuantize(mlir::ModuleOp module, llvm::StringRef symbol, const QuantizeParams &p, X86Target target);
llvm::LogicalResult emitActivation(mlir::ModuleOp module, llvm::StringRef symbol, const ActivationParams &p, X86Target target);
llvm::LogicalResult emitGather(mlir::ModuleOp module, llvm::StringRef symbol, const GatherParams &p, X86Target target);
llvm::LogicalResult emitAngles(mlir::ModuleOp module, llvm::StringRef symbol, const AnglesParams &p, X86Target target);
llvm::LogicalResult emitRopeAppend(mlir::ModuleOp module, llvm::StringRef symbol, const RopeAppendParams &p, X86Target target);
llvm::LogicalResult emitAttention(mlir::ModuleOp module, llvm::StringRef symbol, const AttentionParams &p, X86Target target);
llvm::LogicalResult emitArgmax(mlir::ModuleOp module, llvm::StringRef symbol, const ArgmaxParams &p, X86Target target);
llvm::LogicalResult emitSoftcap(mlir::ModuleOp module, llvm::StringRef symbol, const SoftcapParams &p, X86Target target);

KernelCost cost(const MatmulParams &p);
KernelCost cost(const NormParams &p);
KernelCost cost(const QuantizeParams &p);
KernelCost cost(const ActivationParams &p);
KernelCost cost(const GatherParams &p);
KernelCost cost(const AnglesParams &p);
KernelCost cost(const RopeAppendParams &p);
KernelCost cost(const AttentionParams &p);
KernelCost cost(const ArgmaxParams &p);
KernelCost cost(const SoftcapParams &p);

/// Bytes of LatheKernelFn's |scratch| a kernel needs; 0 for most.
uint64_t scratchBytes(const MatmulParams &p);
uint64_t scratchBytes(const AttentionParams &p);

} // namespace lathe::codegen
