//===- ForwardingExecutable.h - what a device that watches another is made of --*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/device/Device.h"

namespace lathe::test {

/// Does everything as |inner| does it; a test overrides what it watches or breaks. Thread-safe as |inner| is.
class ForwardingExecutable : public runtime::Executable {
public:
  explicit ForwardingExecutable(std::unique_ptr<runtime::Executable> inner) : inner(std::move(inner)) {}
  Result<runtime::Ticket> submit(runtime::EntryKind entry, const LatheStep &step) override { return inner->submit(entry, step); }
  Status wait(runtime::Ticket ticket) override { return inner->wait(ticket); }
  const float *logits(uint32_t row) override { return inner->logits(row); }
  const float *choice(uint32_t row) override { return inner->choice(row); }
  const float *draftLogits(uint32_t row, uint32_t head) override { return inner->draftLogits(row, head); }
  Status setDraftInput(uint32_t row, std::span<const float> values) override { return inner->setDraftInput(row, values); }
  const float *hidden(uint32_t row) override { return inner->hidden(row); }
  const float *feature(uint32_t index, uint32_t row) override { return inner->feature(index, row); }
  const float *draftOwn(uint32_t row) override { return inner->draftOwn(row); }
  const float *embedding(uint32_t row) override { return inner->embedding(row); }
  Status saveBlock(uint32_t g, uint32_t block, std::span<uint8_t> out) override { return inner->saveBlock(g, block, out); }
  Status restoreBlock(uint32_t g, uint32_t block, std::span<const uint8_t> bytes) override { return inner->restoreBlock(g, block, bytes); }
  Status copyBlock(uint32_t g, uint32_t from, uint32_t to) override { return inner->copyBlock(g, from, to); }
  Status copyEntry(uint32_t g, uint32_t from, uint32_t fromToken, uint32_t to, uint32_t toToken) override {
    return inner->copyEntry(g, from, fromToken, to, toToken);
  }
  Status fillBlock(uint32_t g, uint32_t block, uint8_t value) override { return inner->fillBlock(g, block, value); }
  void setProfiling(bool on) override { inner->setProfiling(on); }
  std::vector<runtime::LaunchProfile> profile() const override { return inner->profile(); }
  unsigned threads() const override { return inner->threads(); }
  uint64_t memoryBytes() const override { return inner->memoryBytes(); }

protected:
  std::unique_ptr<runtime::Executable> inner;
};

} // namespace lathe::test
