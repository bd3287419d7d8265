//===- Utils.cpp - what the llm passes share --------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Utils.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace lathe::llm {

void missed(Operation *op, const char *pass, const char *why) {
  remark::missed(op->getLoc(), remark::RemarkOpts::name(op->getName().getStringRef()).category(pass)) << remark::reason(why);
}

bool canFuse(ArrayRef<Operation *> ops) {
  for (Operation *op : ops) {
    if (op->getBlock() != ops.back()->getBlock()) return false;
    for (Operation *user : op->getUsers())
      if (!llvm::is_contained(ops, user) && (user->getBlock() != op->getBlock() || user->isBeforeInBlock(ops.back()))) return false;
  }
  return true;
}

FusedOp fuse(StringRef kind, ArrayRef<Operation *> ops) {
  llvm::SetVector<Value> inputs;
  SmallVector<Value> results;
  SmallVector<Location> locations;
  for (Operation *op : ops) {
    locations.push_back(op->getLoc());
    for (Value operand : op->getOperands())
      if (!llvm::is_contained(ops, operand.getDefiningOp())) inputs.insert(operand);
    for (Value result : op->getResults())
      if (llvm::any_of(result.getUsers(), [&](Operation *user) { return !llvm::is_contained(ops, user); })) results.push_back(result);
  }
  OpBuilder b(ops.back());
  Location loc = FusedLoc::get(b.getContext(), locations);
  auto fused = FusedOp::create(b, loc, TypeRange(ValueRange(results)), kind, inputs.getArrayRef());
  Block *body = b.createBlock(&fused.getBody());
  for (Value input : inputs) body->addArgument(input.getType(), input.getLoc());
  for (Operation *op : ops) {
    op->moveBefore(body, body->end());
    for (OpOperand &operand : op->getOpOperands())
      if (auto at = llvm::find(inputs, operand.get()); at != inputs.end())
        operand.set(body->getArgument(std::distance(inputs.begin(), at)));
  }
  b.setInsertionPointToEnd(body);
  auto yield = YieldOp::create(b, loc, results);
  for (auto [result, value] : llvm::zip(fused.getResults(), results))
    value.replaceUsesWithIf(result, [&](OpOperand &use) { return use.getOwner()->getBlock() != body && use.getOwner() != yield; });
  return fused;
}

Location derivedLoc(Value of, StringRef suffix) {
  auto named = dyn_cast<NameLoc>(of.getLoc());
  if (!named) return of.getLoc();
  return NameLoc::get(StringAttr::get(of.getContext(), named.getName().getValue() + suffix), named.getChildLoc());
}

} // namespace lathe::llm
