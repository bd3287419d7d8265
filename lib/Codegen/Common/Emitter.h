//===- Emitter.h - an expression layer for kernels -----------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Makes kernels read like intrinsics code: every function emits one op at the insertion point and
// returns its value. Arithmetic is strict (no fast-math flags, so nothing is contracted or
// reassociated): what is written here is the order that docs/exactness.md promises. Vectors are 16
// lanes; LLVM splits them for AVX2.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/Codegen/Kernels.h"
#include "lathe/artifact/Step.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"

namespace lathe::codegen {
using namespace mlir;
using Values = SmallVector<Value>;

struct Emitter {
  OpBuilder b;
  Location loc;
  X86Target target;
  Type i1, i8, i16, i32, i64, f16, bf16, f32, f64, ptr;
  VectorType vf, vi, vh, vb; ///< 16 x f32, 16 x i32, 16 x f16, 64 x i8

  Emitter(ModuleOp module, StringRef symbol, X86Target target);

  //===-- the kernel function --------------------------------------------------------------------===//
  Value args, step, begin, end, stride, scratch; ///< parameters of LatheKernelFn
  /// Opens `symbol` with the ABI of LatheKernelFn; everything is emitted into its body until finish().
  void start(ModuleOp module, StringRef symbol);
  /// Base address of argument |i| of the launch.
  Value arg(int i) { return ld(ptr, args, 8 * i, 8); }
  void finish() { func::ReturnOp::create(b, loc); }
  /// Calls |body| for every item of this call.
  void items(llvm::function_ref<void(Value item)> body);
  /// step->rows or step->outRows, as i64. |offset| is offsetof(LatheStep, field).
  Value stepCount(size_t offset) { return zext(i64, ld(i32, step, offset, 4)); }
  Value rowCount(bool outRows) { return stepCount(outRows ? offsetof(LatheStep, outRows) : offsetof(LatheStep, rows)); }
  /// A pointer field of the step.
  Value stepPtr(size_t offset) { return ld(ptr, step, offset, 8); }
  /// step->field[row] of an int32 array, as i64.
  Value stepInt(size_t offset, Value row) { return sext(i64, ld(i32, gep(stepPtr(offset), mulc(row, 4)), 0, 4)); }

  //===-- types and constants --------------------------------------------------------------------===//
  VectorType vec(int64_t n, Type t) { return VectorType::get({n}, t); }
  /// |t| with the shape of |like| (scalar or vector).
  Type shaped(Value like, Type t) {
    auto v = dyn_cast<VectorType>(like.getType());
    return v ? Type(vec(v.getNumElements(), t)) : t;
  }
  Value ci(Type t, int64_t v) { return arith::ConstantOp::create(b, loc, b.getIntegerAttr(t, v)); }
  Value c(int64_t v) { return ci(i64, v); }
  Value splatI(VectorType t, int64_t v) {
    Type e = t.getElementType();
    return arith::ConstantOp::create(b, loc, DenseElementsAttr::get(t, b.getIntegerAttr(e, APInt(e.getIntOrFloatBitWidth(), v, true, true))));
  }
  Value cf(float v) { return arith::ConstantOp::create(b, loc, b.getF32FloatAttr(v)); }
  Value cd(double v) { return arith::ConstantOp::create(b, loc, b.getF64FloatAttr(v)); }
  Value splatF(VectorType t, double v) {
    return arith::ConstantOp::create(b, loc, DenseElementsAttr::get(t, b.getFloatAttr(t.getElementType(), v)));
  }
  /// The float32 (float64 for f64) constant |v| in the shape of |like|.
  Value constLike(Value like, double v) {
    if (auto t = dyn_cast<VectorType>(like.getType())) return splatF(t, t.getElementType().isF32() ? double(float(v)) : v);
    return like.getType().isF64() ? cd(v) : cf(float(v));
  }
  Value constLikeI(Value like, int64_t v) {
    if (auto t = dyn_cast<VectorType>(like.getType())) return splatI(t, v);
    return ci(like.getType(), v);
  }

  //===-- integers -------------------------------------------------------------------------------===//
  Value add(Value x, Value y) { return arith::AddIOp::create(b, loc, x, y); }
  Value sub(Value x, Value y) { return arith::SubIOp::create(b, loc, x, y); }
  Value mul(Value x, Value y) { return arith::MulIOp::create(b, loc, x, y); }
  Value mulc(Value x, int64_t k) { return k == 1 ? x : mul(x, constLikeI(x, k)); }
  Value addc(Value x, int64_t k) { return k == 0 ? x : add(x, constLikeI(x, k)); }
  Value divc(Value x, int64_t k) { return k == 1 ? x : Value(arith::DivUIOp::create(b, loc, x, constLikeI(x, k))); }
  Value remc(Value x, int64_t k) { return arith::RemUIOp::create(b, loc, x, constLikeI(x, k)); }
  Value divu(Value x, Value y) { return arith::DivUIOp::create(b, loc, x, y); }
  Value remu(Value x, Value y) { return arith::RemUIOp::create(b, loc, x, y); }
  Value minu(Value x, Value y) { return arith::MinUIOp::create(b, loc, x, y); }
  Value mins(Value x, Value y) { return arith::MinSIOp::create(b, loc, x, y); }
  Value maxs(Value x, Value y) { return arith::MaxSIOp::create(b, loc, x, y); }
  Value andi(Value x, Value y) { return arith::AndIOp::create(b, loc, x, y); }
  Value andc(Value x, int64_t k) { return andi(x, constLikeI(x, k)); }
  Value ori(Value x, Value y) { return arith::OrIOp::create(b, loc, x, y); }
  Value xori(Value x, Value y) { return arith::XOrIOp::create(b, loc, x, y); }
  Value shru(Value x, int64_t k) { return k == 0 ? x : Value(arith::ShRUIOp::create(b, loc, x, constLikeI(x, k))); }
  Value shrs(Value x, int64_t k) { return k == 0 ? x : Value(arith::ShRSIOp::create(b, loc, x, constLikeI(x, k))); }
  Value shl(Value x, int64_t k) { return k == 0 ? x : Value(arith::ShLIOp::create(b, loc, x, constLikeI(x, k))); }
  Value zext(Type t, Value x) { return arith::ExtUIOp::create(b, loc, shaped(x, t), x); }
  Value sext(Type t, Value x) { return arith::ExtSIOp::create(b, loc, shaped(x, t), x); }
  Value trunc(Type t, Value x) { return arith::TruncIOp::create(b, loc, shaped(x, t), x); }
  Value cmp(arith::CmpIPredicate p, Value x, Value y) { return arith::CmpIOp::create(b, loc, p, x, y); }
  Value eq(Value x, int64_t k) { return cmp(arith::CmpIPredicate::eq, x, constLikeI(x, k)); }
  Value ltS(Value x, Value y) { return cmp(arith::CmpIPredicate::slt, x, y); }
  Value leS(Value x, Value y) { return cmp(arith::CmpIPredicate::sle, x, y); }
  Value isNull(Value p) {
    return LLVM::ICmpOp::create(b, loc, LLVM::ICmpPredicate::eq, p, LLVM::ZeroOp::create(b, loc, p.getType()));
  }
  Value select(Value cond, Value x, Value y) { return arith::SelectOp::create(b, loc, cond, x, y); }

  //===-- floats ---------------------------------------------------------------------------------===//
  Value fadd(Value x, Value y) { return arith::AddFOp::create(b, loc, x, y); }
  Value fsub(Value x, Value y) { return arith::SubFOp::create(b, loc, x, y); }
  Value fmul(Value x, Value y) { return arith::MulFOp::create(b, loc, x, y); }
  Value fdiv(Value x, Value y) { return arith::DivFOp::create(b, loc, x, y); }
  Value fneg(Value x) { return arith::NegFOp::create(b, loc, x); }
  Value fabs(Value x) { return math::AbsFOp::create(b, loc, x); }
  Value sqrt(Value x) { return math::SqrtOp::create(b, loc, x); }
  Value fma(Value x, Value y, Value z) { return math::FmaOp::create(b, loc, x, y, z); }
  /// One instruction each: no NaN and no order of signed zeros is promised.
  Value fmax(Value x, Value y) {
    return arith::MaxNumFOp::create(b, loc, x, y, arith::FastMathFlags::nnan | arith::FastMathFlags::nsz);
  }
  Value fmin(Value x, Value y) {
    return arith::MinNumFOp::create(b, loc, x, y, arith::FastMathFlags::nnan | arith::FastMathFlags::nsz);
  }
  Value fcmp(arith::CmpFPredicate p, Value x, Value y) { return arith::CmpFOp::create(b, loc, p, x, y); }
  Value roundEven(Value x) { return math::RoundEvenOp::create(b, loc, x); }
  /// Truncation; exact for integral values in range.
  Value f2i(Type t, Value x) { return arith::FPToSIOp::create(b, loc, shaped(x, t), x); }
  Value i2f(Value x) { return arith::SIToFPOp::create(b, loc, shaped(x, f32), x); }
  Value ext(Value x) { return arith::ExtFOp::create(b, loc, shaped(x, f32), x); }         ///< f16/bf16 -> f32
  Value truncF(Type t, Value x) { return arith::TruncFOp::create(b, loc, shaped(x, t), x); } ///< f32 -> f16, round to nearest even
  /// roundeven(x) as int32 for |x| < 2^22, defined (some integer) for all others: no poison from hostile values.
  Value roundToInt(Value x) {
    return sub(bitcast(shaped(x, i32), fadd(x, constLike(x, 12582912.0))), intConst(x, 0x4B400000));
  }
  /// bfloat16 by round to nearest even, returned as float32. NaNs stay NaN.
  Value roundBf16(Value x);
  /// The bits of the same rounding as i16.
  Value bf16Bits(Value x) { return trunc(i16, shru(bitcast(shaped(x, i32), roundBf16(x)), 16)); }
  /// bf16 bits (i16) widened.
  Value fromBf16Bits(Value x) { return bitcast(shaped(x, f32), shl(zext(i32, x), 16)); }

  /// docs/exactness.md: expa, tanha, silu, gelu_tanh, on scalars or vectors.
  Value expa(Value x);
  Value tanha(Value x);
  Value silu(Value x);
  Value geluTanh(Value x);

  //===-- vectors --------------------------------------------------------------------------------===//
  Value splat(VectorType t, Value s) { return vector::BroadcastOp::create(b, loc, t, s); }
  Value splat(Value s) { return splat(vec(16, s.getType()), s); }
  Value bitcast(Type t, Value v) {
    if (v.getType() == t) return v;
    if (auto vt = dyn_cast<VectorType>(t)) return vector::BitCastOp::create(b, loc, vt, v);
    return arith::BitcastOp::create(b, loc, t, v);
  }
  Value lane(Value v, int64_t i) { return vector::ExtractOp::create(b, loc, v, i); }
  Value shuffle(Value x, Value y, ArrayRef<int64_t> mask) { return vector::ShuffleOp::create(b, loc, x, y, mask); }
  /// Lanes |from| .. |from| + n - 1.
  Value slice(Value v, int64_t from, int64_t n) {
    SmallVector<int64_t> mask;
    for (int64_t i = 0; i < n; ++i) mask.push_back(from + i);
    return shuffle(v, v, mask);
  }
  Value concat(Value x, Value y);
  /// tree(v) of docs/exactness.md over a vector whose size is a power of two: lanes i + n/2, then n/4, ...
  Value tree(Value v, llvm::function_ref<Value(Value, Value)> op);
  Value treeAdd(Value v) { return tree(v, [&](Value x, Value y) { return fadd(x, y); }); }
  Value treeMax(Value v) { return tree(v, [&](Value x, Value y) { return fmax(x, y); }); }
  Value treeMin(Value v) { return tree(v, [&](Value x, Value y) { return fmin(x, y); }); }
  Value treeAddI(Value v) { return tree(v, [&](Value x, Value y) { return add(x, y); }); }
  /// 0, 1, 2, ... n - 1 as int32.
  Value iota(int64_t n);

  //===-- memory ---------------------------------------------------------------------------------===//
  Value gep(Value p, Value byteOffset) {
    return LLVM::GEPOp::create(b, loc, p.getType(), i8, p, ArrayRef<LLVM::GEPArg>{byteOffset}, LLVM::GEPNoWrapFlags::inbounds);
  }
  Value gepc(Value p, int64_t offset) {
    if (offset == 0) return p;
    if (offset != int32_t(offset)) return gep(p, c(offset));
    return LLVM::GEPOp::create(b, loc, p.getType(), i8, p, ArrayRef<LLVM::GEPArg>{int32_t(offset)}, LLVM::GEPNoWrapFlags::inbounds);
  }
  /// p + index * scale bytes.
  Value at(Value p, Value index, int64_t scale) { return gep(p, mulc(index, scale)); }
  Value ld(Type t, Value p, int64_t offset = 0, unsigned align = 1) { return LLVM::LoadOp::create(b, loc, t, gepc(p, offset), align); }
  void st(Value v, Value p, int64_t offset = 0, unsigned align = 1) { LLVM::StoreOp::create(b, loc, v, gepc(p, offset), align); }
  /// A store whose value LLVM may not forward to later loads in registers (a broadcast from memory is cheaper than one
  /// from a lane).
  void stVolatile(Value v, Value p, int64_t offset = 0, unsigned align = 1) {
    LLVM::StoreOp::create(b, loc, v, gepc(p, offset), align, /*isVolatile=*/true);
  }
  /// 16 floats at p + offset.
  Value ldv(Value p, int64_t offset = 0, unsigned align = 64) { return ld(vf, p, offset, align); }
  /// The float (or int32) at p + offset in all 16 lanes.
  Value ldSplat(Value p, int64_t offset = 0) { return splat(ld(f32, p, offset, 4)); }
  Value ldSplatI(Value p, int64_t offset = 0) { return splat(ld(i32, p, offset, 4)); }
  enum class Cache : int32_t { l2 = 2, l1 = 3 }; ///< LLVM's locality
  void prefetch(Value p, int64_t offset = 0, Cache into = Cache::l1) {
    LLVM::Prefetch::create(b, loc, gepc(p, offset), /*rw=*/0, static_cast<int32_t>(into), /*cache=*/1);
  }
  /// Takes the line away from other cores, to be written here.
  void prefetchToWrite(Value p, int64_t offset = 0) {
    LLVM::Prefetch::create(b, loc, gepc(p, offset), /*rw=*/1, static_cast<int32_t>(Cache::l1), /*cache=*/1);
  }
  /// Instructions of the target's own in AT&T syntax, which read and write memory; |operands| ($0, $1, ...) in registers.
  void assembly(const Twine &text, ValueRange operands);
  Value intrinsic(StringRef name, Type result, ValueRange operands) {
    return LLVM::CallIntrinsicOp::create(b, loc, result, b.getStringAttr(name), operands).getResult(0);
  }

  //===-- control --------------------------------------------------------------------------------===//
  /// for (i = lo; i < hi; i += step) with carried values; |body| returns the next ones. i64, signed.
  Values loop(Value lo, Value hi, Value step, ArrayRef<Value> init, llvm::function_ref<Values(Value i, ValueRange carried)> body);
  Values loop(Value lo, Value hi, int64_t step, ArrayRef<Value> init, llvm::function_ref<Values(Value i, ValueRange carried)> body) {
    return loop(lo, hi, c(step), init, body);
  }
  void loop(Value lo, Value hi, int64_t step, llvm::function_ref<void(Value i)> body) {
    loop(lo, hi, c(step), {}, [&](Value i, ValueRange) { body(i); return Values(); });
  }
  /// while (|cond|(carried)) carried = |body|(carried).
  Values whileLoop(Values init, llvm::function_ref<Value(ValueRange)> cond, llvm::function_ref<Values(ValueRange)> body);
  void when(Value cond, llvm::function_ref<void()> body);
  Values ifElse(Value cond, TypeRange types, llvm::function_ref<Values()> yes, llvm::function_ref<Values()> no);

  //===-- row blocks -----------------------------------------------------------------------------===//
  /// Parts of the row blocks |first| .. ceil(rows / 16) (see partFrom): |body| with mb = 16 in a loop, then for each smaller
  /// part of the last one. |at|: rows of the block before the part.
  void rowBlocks(ActFormat format, Value first, Value rows, llvm::function_ref<void(Value block, Value at, int64_t mb)> body);

protected:
  /// Types and dialects only: another target opens a function of its own kind.
  Emitter(ModuleOp module, StringRef symbol);

private:
  /// The last step of expa: p * 2^n.
  Value timesPowerOfTwo(Value p, Value n);
  /// The int32 constant |v| in the shape of |x|.
  Value intConst(Value x, int64_t v) {
    auto t = dyn_cast<VectorType>(x.getType());
    return t ? splatI(vec(t.getNumElements(), i32), v) : ci(i32, v);
  }
};

/// Where a row lives in an activations buffer.
struct ActivationRow {
  Value block;  ///< address of its block
  Value mb;     ///< rows of its part, i64
  Value row;    ///< 0..15 within the part, i64
  Value before; ///< G times the rows of the block before the part: what a plane of one value a group and row has of them, i64
  /// The place of (|group|, row) among |planes| values a group; |which| of these.
  Value place(Emitter &e, Value group, int64_t planes = 1, int64_t which = 0) const {
    return e.add(e.add(e.mul(e.addc(e.mulc(group, planes), which), mb), row), e.mulc(before, planes));
  }
};
ActivationRow activationRow(Emitter &e, Value buffer, const ActivationLayout &l, ActFormat format, Value row, Value rows);

/// Writes group |g| (i64) of a row: 32 values in two vectors, quantized as docs/exactness.md says.
void storeActivations(Emitter &e, const ActivationLayout &l, ActFormat format, const ActivationRow &at, Value g, Value x0, Value x1);

} // namespace lathe::codegen
