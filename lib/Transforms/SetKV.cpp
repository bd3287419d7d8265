//===- SetKV.cpp - formats of the KV cache ----------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Utils.h"
#include "lathe/Transforms/Passes.h"

namespace lathe {
#define GEN_PASS_DEF_LLMSETKVPASS
#include "lathe/Transforms/Passes.h.inc"
} // namespace lathe

using namespace mlir;
using namespace lathe::llm;

namespace {

struct SetKVPass : lathe::impl::LLMSetKVPassBase<SetKVPass> {
  using LLMSetKVPassBase::LLMSetKVPassBase;

  void runOnOperation() override {
    FailureOr<KVFormat> keyFormat = parse("key", key), valueFormat = parse("value", value);
    if (failed(keyFormat) || failed(valueFormat)) return signalPassFailure();
    for (KVGroupOp group : getOperation().getOps<KVGroupOp>()) {
      if (group.getKey() == *keyFormat && group.getValue() == *valueFormat) continue;
      group.setKey(*keyFormat);
      group.setValue(*valueFormat);
      ++numGroups;
    }
  }

  FailureOr<KVFormat> parse(StringRef option, StringRef text) {
    if (std::optional<KVFormat> format = symbolizeKVFormat(text)) return *format;
    return getOperation().emitError() << "llm-set-kv: expected " << option << " f32, f16, bf16, int8 or e4m3, found '" << text << "'";
  }
};

} // namespace
