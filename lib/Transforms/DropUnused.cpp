//===- DropUnused.cpp - params and KV groups that nobody names --------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Utils.h"
#include "lathe/Transforms/Passes.h"

namespace lathe {
#define GEN_PASS_DEF_LLMDROPUNUSEDPASS
#include "lathe/Transforms/Passes.h.inc"
} // namespace lathe

using namespace mlir;
using namespace lathe::llm;

namespace {

struct DropUnusedPass : lathe::impl::LLMDropUnusedPassBase<DropUnusedPass> {
  void runOnOperation() override {
    SymbolTableCollection tables;
    SymbolUserMap users(tables, getOperation());
    for (Operation &op : llvm::make_early_inc_range(*getOperation().getBody()))
      if (isa<ParamOp, KVGroupOp>(op) && users.useEmpty(&op)) {
        op.erase();
        ++numErased;
      }
  }
};

} // namespace
