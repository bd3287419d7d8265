//===- Rows.cpp - norm, quantize, activation, softcap, loops -----------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// One block a row. A warp holds a group of 32 in its lanes where activations are written.
//===----------------------------------------------------------------------===//
#include "NVPTX/GpuEmitter.h"
#include "NVPTX/Kernels.h"
#include "dialects/Kernel/Kernel.h"
#include "mlir/IR/IRMapping.h"

namespace lathe::codegen::nvptx {
namespace {

/// Static shared memory must stay below 48 KB.
constexpr int64_t stagedFloats = 11 * 1024;

struct Norm : GpuEmitter {
  const NormParams &p;
  static SmallVector<Use> uses(const NormParams &p) {
    SmallVector<Use> u{Use::in, Use::constant, Use::inout};
    if (p.bias) u.push_back(Use::constant);
    if (p.postScaleResidual) u.push_back(Use::inout); // may be the out buffer
    return u;
  }
  Norm(ModuleOp m, StringRef symbol, const NormParams &p, const Chip &chip) : GpuEmitter(m, symbol, chip, 128, uses(p)), p(p) {}

  /// tree() over the 16 virtual lanes, each a chain over the row, in every thread. Every warp does it for itself: a chain
  /// of k / 16 steps is not worth a barrier. |x|: 4-byte elements in shared or global memory.
  Value reduce(Value x, llvm::function_ref<Value(Value acc, Value v)> f) {
    Value l = andc(lane, 15);
    int64_t whole = p.k / 16, unroll = 8;
    auto at = [&](Value i, int64_t u) { return ld(f32, gepc(gep(x, shl(add(shl(i, 4), l), 2)), 64 * u), 0, 4); };
    auto run = [&](int64_t lo, int64_t hi, int64_t n, Value acc) {
      if (lo >= hi) return acc;
      return loop(c(lo), c(hi), n, acc, [&](Value i, ValueRange now) {
        Values v;
        for (int64_t u = 0; u < n; ++u) v.push_back(at(i, u));
        Value a = now[0];
        for (Value e : v) a = f(a, e);
        return Values{a};
      })[0];
    };
    Value acc = run(0, whole / unroll * unroll, unroll, cf(0));
    acc = run(whole / unroll * unroll, whole, 1, acc);
    if (int64_t tail = p.k % 16)
      acc = ifElse(
          lt(l, tail), f32, [&] { return Values{f(acc, at(c(whole), 0))}; }, [&] { return Values{acc}; })[0];
    return halfTree(acc);
  }

  void body() {
    Value xRow = p.outRows ? stepInt(offsetof(LatheStep, outRow), block) : block;
    Value x = at(arg(0), xRow, p.inStride * 4), w = arg(1), bias = p.bias ? arg(3) : Value(), staged = x;
    if (p.k <= stagedFloats) {
      staged = sharedMemory(p.k * 4);
      eachThread(c(p.k), [&](Value i) { stf(ldf(x, i), staged, i); });
      barrier();
    }
    Value invK = cf(float(1.0 / double(p.k))), mean;
    if (p.layerNorm) mean = fmul(reduce(staged, [&](Value a, Value v) { return fadd(a, v); }), invK);
    Value ss = reduce(staged, [&](Value a, Value v) {
      Value d = mean ? fsub(v, mean) : v;
      return fma(d, d, a);
    });
    Value r = fdiv(cf(1), sqrt(fadd(fmul(ss, invK), cf(p.eps))));
    auto normalised = [&](Value i) {
      Value v = ldf(staged, i);
      if (mean) v = fsub(v, mean);
      v = fmul(v, r);
      return bias ? fma(v, ldf(w, i), ldf(bias, i)) : fmul(v, ldf(w, i));
    };
    auto guarded = [&](Value i) {
      return ifElse(
          lt(i, p.k), f32, [&] { return Values{normalised(i)}; }, [&] { return Values{cf(0)}; })[0];
    };
    if (p.out == NormParams::Out::rows) {
      Value out = at(arg(2), block, p.outStride * 4);
      Value residual = p.postScaleResidual ? at(arg(p.bias ? 4 : 3), block, p.outStride * 4) : Value();
      // Whole rows keep their padding zero.
      int64_t padded = rowStride(p.k) <= p.outStride ? rowStride(p.k) : p.k;
      eachThread(c(padded), [&](Value i) {
        Value v = padded > p.k ? guarded(i) : normalised(i);
        if (residual) v = fadd(ldf(residual, i), v);
        stf(v, out, i);
      });
      return;
    }
    ActLayout l = actLayout(p.k, p.act, p.halves);
    eachWarp(c(l.groups), [&](Value g) {
      Value i = add(shl(g, 5), lane);
      storeGroup(arg(2), l, p.act, block, g, p.k % 32 ? guarded(i) : normalised(i));
    });
  }
};

/// Row |block| into activations: |value|(i) is element i < k.
void quantizeRow(GpuEmitter &e, Value out, int64_t k, ActFormat act, bool halves, llvm::function_ref<Value(Value)> value) {
  ActLayout l = actLayout(k, act, halves);
  e.eachWarp(e.c(l.groups), [&](Value g) {
    Value i = e.add(e.shl(g, 5), e.lane);
    Value v = k % 32 == 0 ? value(i)
                          : e.ifElse(
                                e.lt(i, k), e.f32, [&] { return Values{value(i)}; }, [&] { return Values{e.cf(0)}; })[0];
    e.storeGroup(out, l, act, e.block, g, v);
  });
}

FailureOr<Value> function(GpuEmitter &e, StringRef name, Value x) {
  if (name == "silu") return e.silu(x);
  if (name == "gelu_tanh") return e.geluTanh(x);
  if (name == "tanh") return e.tanha(x);
  if (name == "relu") return activate(e, Activation::relu, x);
  return failure();
}

/// Ops that LLVM turns into library calls, which a GPU module has none of.
bool needsLibrary(Operation &op) {
  return op.getDialect() && op.getDialect()->getNamespace() == "math" &&
         !isa<math::FmaOp, math::AbsFOp, math::SqrtOp, math::RoundEvenOp, math::FloorOp, math::CeilOp, math::TruncOp, math::CopySignOp>(op);
}

FailureOr<Value> scalarBody(GpuEmitter &e, Region &body, ArrayRef<Value> inputs) {
  IRMapping map;
  Block &block = body.front();
  for (auto [argument, value] : llvm::zip(block.getArguments(), inputs)) map.map(argument, value);
  for (Operation &op : block) {
    if (isa<kernel::YieldOp>(op)) return map.lookup(op.getOperand(0));
    if (auto constant = dyn_cast<arith::ConstantOp>(op)) {
      auto value = dyn_cast<FloatAttr>(constant.getValue());
      if (!value || !value.getType().isF32()) return op.emitError() << "unsupported: a constant of type " << constant.getType() << " in loops, expected f32";
      map.map(constant.getResult(), e.cf(value.getValue().convertToFloat()));
      continue;
    }
    if (auto call = dyn_cast<kernel::FunctionOp>(op)) {
      auto value = function(e, call.getName(), map.lookup(call.getInput()));
      if (failed(value)) return op.emitError() << "unsupported: function '" << call.getName() << "', expected silu, gelu_tanh, relu or tanh";
      map.map(call.getResult(), *value);
      continue;
    }
    if (!op.hasTrait<OpTrait::Elementwise>() || op.getNumResults() != 1 || !op.getResult(0).getType().isF32() || needsLibrary(op))
      return op.emitError() << "unsupported: op in loops on a GPU, expected elementwise arith ops, fma, abs, sqrt or rounding on f32";
    map.map(op.getResult(0), e.b.clone(op, map)->getResult(0));
  }
  return failure();
}

} // namespace

LogicalResult emitNorm(ModuleOp module, StringRef symbol, const NormParams &p, const Chip &chip) {
  if (failed(checkRowSize(module, symbol, p.k, p.inStride))) return failure();
  if (p.out == NormParams::Out::rows && p.outStride < p.k)
    return refuse(module, symbol, "expected outStride of at least " + Twine(p.k) + ", found " + Twine(p.outStride));
  if (p.postScaleResidual && p.out != NormParams::Out::rows) return refuse(module, symbol, "a residual needs row output");
  Norm e(module, symbol, p, chip);
  e.body();
  e.finish();
  return success();
}

LogicalResult emitQuantize(ModuleOp module, StringRef symbol, const QuantizeParams &p, const Chip &chip) {
  if (failed(checkRowSize(module, symbol, p.k, p.inStride))) return failure();
  GpuEmitter e(module, symbol, chip, 128, {Use::in, Use::inout});
  Value x = e.at(e.arg(0), e.block, p.inStride * 4);
  quantizeRow(e, e.arg(1), p.k, p.act, p.halves, [&](Value i) { return e.ldf(x, i); });
  e.finish();
  return success();
}

LogicalResult emitActivation(ModuleOp module, StringRef symbol, const ActivationParams &p, const Chip &chip) {
  if (failed(checkRowSize(module, symbol, p.k, p.inStride))) return failure();
  SmallVector<Use> uses{Use::in};
  if (p.up) uses.push_back(Use::in);
  uses.push_back(Use::inout);
  GpuEmitter e(module, symbol, chip, 128, uses);
  Value gate = e.at(e.arg(0), e.block, p.inStride * 4), up = p.up ? e.at(e.arg(1), e.block, p.inStride * 4) : Value();
  quantizeRow(e, e.arg(p.up ? 2 : 1), p.k, p.act, p.halves, [&](Value i) {
    Value v = activate(e, p.activation, e.ldf(gate, i));
    return up ? e.fmul(v, e.ldf(up, i)) : v;
  });
  e.finish();
  return success();
}

LogicalResult emitSoftcap(ModuleOp module, StringRef symbol, const SoftcapParams &p, const Chip &chip) {
  if (failed(checkRowSize(module, symbol, p.n, p.stride))) return failure();
  if (!(p.cap > 0)) return refuse(module, symbol, "expected a positive cap");
  GpuEmitter e(module, symbol, chip, 256, {Use::inout});
  Value x = e.at(e.arg(0), e.block, p.stride * 4);
  e.eachThread(e.c(p.n), [&](Value i) { e.stf(e.fmul(e.cf(p.cap), e.tanha(e.fmul(e.ldf(x, i), e.cf(1.0f / p.cap)))), x, i); });
  e.finish();
  return success();
}

LogicalResult emitLoops(ModuleOp module, StringRef symbol, const LoopsParams &p, Region *body, const Chip &chip) {
  if (p.inputs < 1 || p.inputs > 3 || p.width < 1 || p.outStride < p.width)
    return refuse(module, symbol, "expected 1 to 3 inputs and a width of 1 to " + Twine(p.outStride) + ", found " + Twine(p.inputs) + " and " + Twine(p.width));
  SmallVector<Use> uses(p.inputs + 1, Use::inout); // inputs may be columns of the out buffer
  GpuEmitter e(module, symbol, chip, 128, uses);
  const int64_t strides[] = {p.stride0, p.stride1, p.stride2};
  Value from = p.select ? e.stepInt(offsetof(LatheStep, outRow), e.block) : e.block;
  Value out = e.at(e.arg(p.inputs), e.block, p.outStride * 4);
  LogicalResult result = success();
  int64_t padded = std::min(rowStride(p.width), p.outStride);
  e.eachThread(e.c(padded), [&](Value i) {
    auto compute = [&] {
      Values values;
      for (int64_t k = 0; k < p.inputs; ++k) values.push_back(e.ldf(e.at(e.arg(k), from, strides[k] * 4), i));
      FailureOr<Value> v = values[0];
      if (body) v = scalarBody(e, *body, values);
      if (failed(v)) {
        result = failure();
        v = e.cf(0);
      }
      return Values{*v};
    };
    Value v = padded == p.width ? compute()[0] : e.ifElse(e.lt(i, p.width), e.f32, compute, [&] { return Values{e.cf(0)}; })[0];
    e.stf(v, out, i);
  });
  e.finish();
  return result;
}

static LaunchShape rowShape(bool out, int64_t threads = 128) {
  LaunchShape s;
  s.threads = threads;
  s.items = out ? ItemKind::perOutRow : ItemKind::perRow;
  return s;
}
LaunchShape launchShape(const NormParams &p) { return rowShape(p.outRows); }
LaunchShape launchShape(const QuantizeParams &p) { return rowShape(p.outRows); }
LaunchShape launchShape(const ActivationParams &) { return rowShape(false); }
LaunchShape launchShape(const SoftcapParams &) { return rowShape(true, 256); }
LaunchShape launchShape(const LoopsParams &p) { return rowShape(p.outRows); }

} // namespace lathe::codegen::nvptx
