//===- Emitter.cpp ---------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Emitter.h"

namespace lathe::codegen {

Emitter::Emitter(ModuleOp module, StringRef symbol, X86Target target) : Emitter(module, symbol) {
  this->target = target;
  start(module, symbol);
}

Emitter::Emitter(ModuleOp module, StringRef symbol)
    : b(module.getContext()), loc(NameLoc::get(StringAttr::get(module.getContext(), symbol))) {
  module.getContext()->loadDialect<arith::ArithDialect, func::FuncDialect, LLVM::LLVMDialect, math::MathDialect, scf::SCFDialect,
                                   vector::VectorDialect>();
  i1 = b.getI1Type(); i8 = b.getI8Type(); i16 = b.getI16Type(); i32 = b.getI32Type(); i64 = b.getI64Type();
  f16 = b.getF16Type(); bf16 = b.getBF16Type(); f32 = b.getF32Type(); f64 = b.getF64Type();
  ptr = LLVM::LLVMPointerType::get(module.getContext());
  vf = vec(16, f32); vi = vec(16, i32); vh = vec(16, f16); vb = vec(64, i8);
}

void Emitter::start(ModuleOp module, StringRef symbol) {
  b.setInsertionPointToEnd(module.getBody());
  auto f = func::FuncOp::create(b, loc, symbol, b.getFunctionType({ptr, ptr, i64, i64, i64, ptr}, {}));
  for (int i : {0, 1, 5}) {
    f.setArgAttr(i, "llvm.noalias", b.getUnitAttr()); // the args array, the step and the scratch; not what args point to
    f.setArgAttr(i, "llvm.nonnull", b.getUnitAttr());
  }
  b.setInsertionPointToStart(f.addEntryBlock());
  args = f.getArgument(0); step = f.getArgument(1); begin = f.getArgument(2);
  end = f.getArgument(3); stride = f.getArgument(4); scratch = f.getArgument(5);
}

void Emitter::items(llvm::function_ref<void(Value)> body) {
  loop(begin, end, stride, {}, [&](Value i, ValueRange) { body(i); return Values(); });
}

Value Emitter::roundBf16(Value x) {
  // bits + 0x7fff + (lowest kept bit), low half cleared; a NaN could overflow into a zero: keep it quiet instead.
  Type it = shaped(x, i32);
  Value bits = bitcast(it, x);
  Value rounded = add(add(bits, constLikeI(bits, 0x7fff)), andc(shru(bits, 16), 1));
  rounded = andc(rounded, int32_t(0xffff0000));
  Value nan = fcmp(arith::CmpFPredicate::UNO, x, x);
  Value quiet = ori(andc(bits, int32_t(0xffff0000)), constLikeI(bits, 0x400000));
  return bitcast(x.getType(), select(nan, quiet, rounded));
}

Value Emitter::expa(Value x) {
  x = fmin(fmax(x, constLike(x, -87.0)), constLike(x, 88.0));
  Value n = roundEven(fmul(x, constLike(x, 1.44269504088896341)));
  Value r = fma(n, constLike(x, -0.693359375), x);
  r = fma(n, constLike(x, 2.12194440e-4), r);
  Value p = constLike(x, 1.9875691500e-4);
  for (double k : {1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1}) p = fma(p, r, constLike(x, k));
  p = fma(p, fmul(r, r), r);
  return timesPowerOfTwo(fadd(p, constLike(x, 1.0)), n);
}

Value Emitter::timesPowerOfTwo(Value p, Value n) {
  // The clamped range keeps every result normal, so one scaling instruction gives the bits of the integer addition.
  if (target.has512() && p.getType() == vf)
    return intrinsic("llvm.x86.avx512.mask.scalef.ps.512", vf, {p, n, p, ci(i16, -1), ci(i32, 4)});
  Type it = shaped(p, i32);
  return bitcast(p.getType(), add(bitcast(it, p), shl(f2i(i32, n), 23)));
}

Value Emitter::tanha(Value x) {
  Value one = constLike(x, 1.0), two = constLike(x, 2.0);
  return fsub(one, fdiv(two, fadd(expa(fmul(two, x)), one)));
}

Value Emitter::silu(Value x) { return fdiv(x, fadd(constLike(x, 1.0), expa(fneg(x)))); }

Value Emitter::geluTanh(Value g) {
  Value inner = fma(fmul(fmul(constLike(g, 0.044715), g), g), g, g);
  Value t = tanha(fmul(constLike(g, 0.7978845608028654), inner));
  return fmul(fmul(constLike(g, 0.5), g), fadd(constLike(g, 1.0), t));
}

void Emitter::assembly(const Twine &text, ValueRange operands) {
  std::string constraints;
  for (size_t i = 0; i < operands.size(); ++i) constraints += "r,";
  LLVM::InlineAsmOp::create(b, loc, TypeRange(), operands, text.str(), constraints + "~{memory}", /*has_side_effects=*/true, /*is_align_stack=*/false,
                            LLVM::TailCallKind::None, LLVM::AsmDialectAttr(), ArrayAttr());
}

Value Emitter::concat(Value x, Value y) {
  SmallVector<int64_t> mask;
  int64_t n = cast<VectorType>(x.getType()).getNumElements() + cast<VectorType>(y.getType()).getNumElements();
  for (int64_t i = 0; i < n; ++i) mask.push_back(i);
  return shuffle(x, y, mask);
}

Value Emitter::tree(Value v, llvm::function_ref<Value(Value, Value)> op) {
  for (int64_t n = cast<VectorType>(v.getType()).getNumElements(); n > 1; n /= 2) v = op(slice(v, 0, n / 2), slice(v, n / 2, n / 2));
  return lane(v, 0);
}

Value Emitter::iota(int64_t n) {
  SmallVector<int32_t> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(int32_t(i));
  return arith::ConstantOp::create(b, loc, DenseElementsAttr::get(vec(n, i32), ArrayRef<int32_t>(values)));
}

Values Emitter::loop(Value lo, Value hi, Value step, ArrayRef<Value> init, llvm::function_ref<Values(Value, ValueRange)> body) {
  auto f = scf::ForOp::create(b, loc, lo, hi, step, init);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(f.getBody());
  Values next = body(f.getInductionVar(), f.getRegionIterArgs());
  if (!init.empty()) { // without carried values ForOp::build has made the yield itself
    b.setInsertionPointToEnd(f.getBody());
    scf::YieldOp::create(b, loc, next);
  }
  return Values(f.getResults());
}

Values Emitter::whileLoop(Values init, llvm::function_ref<Value(ValueRange)> cond,
                 llvm::function_ref<Values(ValueRange)> body) {
  SmallVector<Type> types;
  for (Value v : init)
    types.push_back(v.getType());
  auto w = scf::WhileOp::create(
      b, loc, types, init,
      [&](OpBuilder &, Location, ValueRange now) {
        OpBuilder::InsertionGuard guard(b);
        b.setInsertionPointToEnd(now.front().getParentBlock());
        Value go = cond(now);
        scf::ConditionOp::create(b, loc, go, now);
      },
      [&](OpBuilder &, Location, ValueRange now) {
        OpBuilder::InsertionGuard guard(b);
        b.setInsertionPointToEnd(now.front().getParentBlock());
        Values next = body(now);
        scf::YieldOp::create(b, loc, next);
      });
  return Values(w.getResults());
}

void Emitter::when(Value cond, llvm::function_ref<void()> body) {
  auto f = scf::IfOp::create(b, loc, cond, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(f.thenBlock());
  body();
}

Values Emitter::ifElse(Value cond, TypeRange types, llvm::function_ref<Values()> yes, llvm::function_ref<Values()> no) {
  auto f = scf::IfOp::create(b, loc, types, cond, /*addThenBlock=*/true, /*addElseBlock=*/true);
  OpBuilder::InsertionGuard guard(b);
  for (bool side : {true, false}) {
    b.setInsertionPointToStart(side ? f.thenBlock() : f.elseBlock());
    Values r = side ? yes() : no();
    scf::YieldOp::create(b, loc, r);
  }
  return Values(f.getResults());
}

void Emitter::rowBlocks(ActFormat format, Value first, Value rows, llvm::function_ref<void(Value, Value, int64_t)> body) {
  Value full = divc(addc(rows, 16 - partFrom(format, 16)), 16);
  loop(first, full, 1, [&](Value block) { body(block, c(0), 16); });
  Value left = sub(rows, mulc(full, 16)), at = c(0); // 0 or negative when the last block is one of 16
  for (int64_t size : llvm::drop_begin(partSizes)) {
    Value some = leS(c(partFrom(format, size)), left);
    when(some, [&] { body(full, at, size); });
    Value taken = select(some, c(size), c(0));
    at = add(at, taken), left = sub(left, taken);
  }
}

} // namespace lathe::codegen
