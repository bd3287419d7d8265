//===- PageKV.cpp - pages of the KV cache -----------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Utils.h"
#include "lathe/Transforms/Passes.h"

namespace lathe {
#define GEN_PASS_DEF_LLMPAGEKVPASS
#include "lathe/Transforms/Passes.h.inc"
} // namespace lathe

using namespace mlir;
using namespace lathe::llm;

namespace {

struct PageKVPass : lathe::impl::LLMPageKVPassBase<PageKVPass> {
  using LLMPageKVPassBase::LLMPageKVPassBase;

  void runOnOperation() override {
    if (page < 0 || page % 16) {
      getOperation().emitError() << "llm-page-kv: expected page 0 or a multiple of 16 tokens, found " << int64_t(page);
      return signalPassFailure();
    }
    for (KVGroupOp group : getOperation().getOps<KVGroupOp>()) {
      if (int64_t(group.getPage()) == page) continue;
      group.setPage(page);
      ++numGroups;
    }
  }
};

} // namespace
