//===- FakeDevice.h - KV memory that remembers what was written ---------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// A slot holds a hash of everything its row may depend on: the name space and all tokens up to it. Reading compares, so
// that a block with another history, a copy that was not made, or a slot never written shows at once.
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/scheduler/Scheduler.h"
#include <gtest/gtest.h>
#include <map>
#include <vector>

namespace lathe::test {
using namespace lathe::runtime;

inline uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t z = (a ^ b * 0x9e3779b97f4a7c15u) + 0x2545f4914f6cdd1du;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

class FakeDevice {
public:
  FakeDevice(const Program &program, std::span<const uint32_t> blocks) : groups(program.kvGroups) {
    for (size_t g = 0; g < blocks.size(); ++g)
      memory.emplace_back(uint64_t(blocks[g]) * groups[g].pageTokens, 0);
  }
  /// Everything of a plan before its rows.
  void transfers(const StepPlan &plan, KVCache &kv) {
    for (const KVTransfer &t : plan.saves) {
      uint64_t *from = block(t.group, t.block);
      host[{t.group, t.slot}].assign(from, from + groups[t.group].pageTokens);
    }
    for (auto [g, b] : kv.takeReleased())
      std::fill_n(block(g, b), groups[g].pageTokens, 0);
    for (const KVCopy &c : plan.copies)
      std::copy_n(block(c.group, c.from), groups[c.group].pageTokens, block(c.group, c.to));
    for (const KVTransfer &t : plan.restores) {
      auto found = host.find({t.group, t.slot});
      ASSERT_NE(found, host.end()) << "slot " << t.slot;
      std::copy(found->second.begin(), found->second.end(), block(t.group, t.block));
    }
  }
  /// One row of |piece| at |position|, whose sequence has the |history| hashes: reads what it sees, writes its own.
  bool row(const StepPiece &piece, uint32_t position, const std::vector<uint64_t> &history, const KVCache &kv) {
    for (uint32_t g = 0; g < memory.size(); ++g) {
      const int32_t *table = kv.tables()[g] + uint64_t(piece.row) * kv.strides()[g];
      uint32_t page = groups[g].pageTokens, window = groups[g].kind == 1 ? groups[g].window : 0;
      for (uint32_t j = window && position + 1 > window ? position + 1 - window : 0; j < position; ++j) {
        int32_t b = table[j / page];
        if (b < 0 || block(g, b)[j % page] != history[j]) {
          ADD_FAILURE() << "request " << piece.request << " choice " << piece.choice << " at " << position << ": group "
                        << g << ", slot " << j << (b < 0 ? " has no block" : " holds something else");
          return false;
        }
      }
      int32_t b = table[position / page];
      if (b < 0) {
        ADD_FAILURE() << "no block to write at " << position;
        return false;
      }
      block(g, b)[position % page] = history[position];
    }
    return true;
  }
  /// A device that failed half way: anything may stand in the slots that the piece was to write.
  void scribble(const StepPiece &piece, const KVCache &kv, uint64_t value) {
    for (uint32_t g = 0; g < memory.size(); ++g)
      for (uint32_t p = piece.first; p < piece.first + piece.tokens; ++p)
        if (int32_t b = kv.tables()[g][uint64_t(piece.row) * kv.strides()[g] + p / groups[g].pageTokens]; b >= 0)
          block(g, b)[p % groups[g].pageTokens] = value;
  }

private:
  uint64_t *block(uint32_t group, int32_t b) {
    return &memory[group][static_cast<size_t>(b) * groups[group].pageTokens];
  }
  std::vector<KVGroup> groups;
  std::vector<std::vector<uint64_t>> memory;
  std::map<std::pair<uint32_t, uint32_t>, std::vector<uint64_t>> host;
};

} // namespace lathe::test
