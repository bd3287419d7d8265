//===- BlockPool.cpp ------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/kv/BlockPool.h"

namespace lathe::runtime {

BlockPool::BlockPool(uint32_t count) : blocks(count) {
  freeBlocks.reserve(count);
  for (uint32_t i = count; i-- > 0;)
    freeBlocks.push_back(static_cast<int32_t>(i)); // block 0 is handed out first
}

void BlockPool::unlink(int32_t block) {
  Block &b = blocks[static_cast<size_t>(block)];
  (b.previous >= 0 ? blocks[static_cast<size_t>(b.previous)].next : head) = b.next;
  (b.next >= 0 ? blocks[static_cast<size_t>(b.next)].previous : tail) = b.previous;
  b.next = b.previous = -1;
  --cached;
}

int32_t BlockPool::allocate() {
  int32_t block;
  if (!freeBlocks.empty()) {
    block = freeBlocks.back();
    freeBlocks.pop_back();
  } else if (head >= 0) {
    unlink(block = head);
    const Block &b = blocks[static_cast<size_t>(block)];
    durations.lifetime.add(now - b.taken);
    durations.idleBeforeEvict.add(now - b.released);
  } else {
    return -1;
  }
  Block &b = blocks[static_cast<size_t>(block)];
  b.owners = 1;
  b.taken = now;
  return block;
}

void BlockPool::share(int32_t block) {
  Block &b = blocks[static_cast<size_t>(block)];
  if (b.owners++) return;
  unlink(block);
  durations.reuseGap.add(now - b.released);
}

void BlockPool::release(int32_t block) {
  Block &b = blocks[static_cast<size_t>(block)];
  if (--b.owners) return;
  if (b.entry < 0) {
    freeBlocks.push_back(block);
    return;
  }
  b.released = now;
  b.previous = tail;
  (tail >= 0 ? blocks[static_cast<size_t>(tail)].next : head) = block;
  tail = block;
  ++cached;
}

void BlockPool::setEntry(int32_t block, int32_t entry) {
  Block &b = blocks[static_cast<size_t>(block)];
  if (entry < 0 && b.entry >= 0 && b.owners == 0) {
    unlink(block);
    freeBlocks.push_back(block);
  }
  b.entry = entry;
}

void BlockPool::shuffle(uint64_t seed) {
  for (size_t i = freeBlocks.size(); i > 1; --i) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    std::swap(freeBlocks[i - 1], freeBlocks[(seed >> 33) % i]);
  }
}

} // namespace lathe::runtime
