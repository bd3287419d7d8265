//===- Loops.cpp - elementwise bodies over rows ------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Common/Emitter.h"
#include "dialects/Kernel/Kernel.h"
#include "lathe/Codegen/Loops.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;

namespace lathe::codegen {
namespace {

FailureOr<Value> function(Emitter &e, StringRef name, Value x) {
  if (name == "silu") return e.silu(x);
  if (name == "gelu_tanh") return e.geluTanh(x);
  if (name == "tanh") return e.tanha(x);
  if (name == "relu") return e.select(e.fcmp(arith::CmpFPredicate::OGT, x, e.constLike(x, 0)), x, e.constLike(x, 0));
  return failure();
}

/// The scalar body on 16 lanes: elementwise ops are cloned with vector types.
FailureOr<Value> vectorBody(Emitter &e, Region &body, ArrayRef<Value> inputs) {
  IRMapping map;
  Block &block = body.front();
  for (auto [argument, value] : llvm::zip(block.getArguments(), inputs))
    map.map(argument, value);
  for (Operation &op : block) {
    if (isa<kernel::YieldOp>(op)) return map.lookup(op.getOperand(0));
    if (auto constant = dyn_cast<arith::ConstantOp>(op)) {
      auto value = dyn_cast<FloatAttr>(constant.getValue());
      if (!value || !value.getType().isF32()) return op.emitError() << "unsupported: a constant of type " << constant.getType() << " in loops, expected f32";
      map.map(constant.getResult(), e.splatF(e.vf, value.getValue().convertToFloat()));
      continue;
    }
    if (auto call = dyn_cast<kernel::FunctionOp>(op)) {
      auto value = function(e, call.getName(), map.lookup(call.getInput()));
      if (failed(value)) return op.emitError() << "unsupported: function '" << call.getName() << "', expected silu, gelu_tanh, relu or tanh";
      map.map(call.getResult(), *value);
      continue;
    }
    if (!op.hasTrait<OpTrait::Elementwise>() || op.getNumResults() != 1 || !op.getResult(0).getType().isF32())
      return op.emitError() << "unsupported: op in loops, expected elementwise arith and math ops on f32";
    OperationState state(e.loc, op.getName());
    for (Value operand : op.getOperands())
      state.addOperands(map.lookup(operand));
    state.addTypes(e.vf);
    state.addAttributes(op.getAttrs());
    map.map(op.getResult(0), e.b.create(state)->getResult(0));
  }
  return failure();
}

} // namespace

LogicalResult emitLoops(ModuleOp module, StringRef symbol, const LoopsParams &p, Region *body, X86Target target) {
  Emitter e(module, symbol, target);
  const int64_t strides[] = {p.stride0, p.stride1, p.stride2};
  LogicalResult result = success();
  Values in;
  for (int64_t i = 0; i < p.inputs; ++i)
    in.push_back(e.arg(i));
  Value out = e.arg(p.inputs);
  e.items([&](Value item) {
    Value from = p.select ? e.stepInt(offsetof(LatheStep, outRow), item) : item;
    auto vector = [&](Value column, int64_t tail) {
      Values values;
      Value offset = e.mulc(column, 4);
      for (int64_t i = 0; i < p.inputs; ++i) // inputs may be columns of a wider buffer: any float may be the first
        values.push_back(e.ldv(e.gep(e.at(in[i], from, strides[i] * 4), offset), 0, 4));
      FailureOr<Value> value = values[0];
      if (body) value = vectorBody(e, *body, values);
      if (failed(value)) {
        result = failure();
        return;
      }
      if (tail) *value = e.select(e.ltS(e.iota(16), e.splatI(e.vi, tail)), *value, e.splatF(e.vf, 0));
      e.st(*value, e.gep(e.at(out, item, p.outStride * 4), offset), 0, 64);
    };
    int64_t whole = p.width / 16 * 16;
    if (whole) e.loop(e.c(0), e.c(whole), 16, [&](Value column) { vector(column, 0); });
    if (p.width % 16) vector(e.c(whole), p.width % 16);
  });
  e.finish();
  return result;
}

} // namespace lathe::codegen
