//===- Tables.h - lookup tables of a tokenizer --------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace lathe::tokenizer {

inline uint64_t mix(uint64_t h) {
  h ^= h >> 32;
  h *= 0x9fb21c651e98df25ull;
  h ^= h >> 28;
  return h;
}

inline uint64_t hashBytes(std::string_view text) {
  uint64_t h = text.size() * 0x9e3779b97f4a7c15ull;
  size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    uint64_t part;
    std::memcpy(&part, text.data() + i, 8);
    h = mix(h ^ part);
  }
  if (i < text.size()) {
    uint64_t part = 0;
    std::memcpy(&part, text.data() + i, text.size() - i);
    h = mix(h ^ part);
  }
  return mix(h);
}

/// Text to id. Keys are views: their text must outlive the map.
class PieceMap {
public:
  void reserve(size_t count) {
    slots.assign(std::bit_ceil(count * 2 + 2), {});
    mask = slots.size() - 1;
  }
  /// Keeps the first id of a text. At most as many as reserved.
  void add(std::string_view text, uint32_t id) {
    uint64_t h = hashBytes(text);
    for (size_t i = h & mask;; i = (i + 1) & mask) {
      Slot &slot = slots[i];
      if (slot.id == absent) {
        slot = {static_cast<uint32_t>(h >> 32), static_cast<uint32_t>(id), text};
        longest = text.size() > longest ? text.size() : longest;
        return;
      }
      if (slot.text == text) return;
    }
  }
  /// The id, or -1.
  int32_t find(std::string_view text) const {
    if (slots.empty() || text.size() > longest) return -1;
    uint64_t h = hashBytes(text);
    for (size_t i = h & mask;; i = (i + 1) & mask) {
      const Slot &slot = slots[i];
      if (slot.id == absent) return -1;
      if (slot.tag == static_cast<uint32_t>(h >> 32) && slot.text == text) return static_cast<int32_t>(slot.id);
    }
  }
  size_t longestKey() const { return longest; }

private:
  static constexpr uint32_t absent = 0xffffffffu;
  struct Slot {
    uint32_t tag = 0;
    uint32_t id = absent;
    std::string_view text;
  };
  std::vector<Slot> slots;
  size_t mask = 0, longest = 0;
};

/// (left id, right id) to the merge.
class MergeMap {
public:
  struct Entry {
    uint32_t rank = 0, result = 0;
  };
  void reserve(size_t count) {
    slots.assign(std::bit_ceil(count * 2 + 2), {});
    mask = slots.size() - 1;
  }
  /// Keeps the first merge of a pair.
  void add(uint32_t left, uint32_t right, Entry entry) {
    uint64_t key = static_cast<uint64_t>(left) << 32 | right;
    for (size_t i = mix(key) & mask;; i = (i + 1) & mask) {
      if (slots[i].key == key) return;
      if (slots[i].key == absent) {
        slots[i] = {key, entry};
        return;
      }
    }
  }
  const Entry *find(uint32_t left, uint32_t right) const {
    uint64_t key = static_cast<uint64_t>(left) << 32 | right;
    for (size_t i = mix(key) & mask;; i = (i + 1) & mask) {
      if (slots[i].key == key) return &slots[i].entry;
      if (slots[i].key == absent) return nullptr;
    }
  }

private:
  static constexpr uint64_t absent = ~0ull; // ids are below 2^31
  struct Slot {
    uint64_t key = absent;
    Entry entry;
  };
  std::vector<Slot> slots;
  size_t mask = 0;
};

/// Byte trie for longest and all prefix matches. Built once from sorted keys.
class Trie {
public:
  static constexpr uint32_t root = 0, none = 0xffffffffu;
  struct Key {
    std::string_view text;
    uint32_t value;
  };
  /// Of equal texts the smallest value counts; empty texts are left out.
  void build(std::vector<Key> keys);
  bool empty() const { return nodes.size() <= 1; }
  /// Node below |node| by |byte|, or none.
  uint32_t child(uint32_t node, uint8_t byte) const {
    const Node &n = nodes[node];
    const uint8_t *first = labels.data() + n.first;
    if (n.count > 8) {
      uint32_t low = 0, high = n.count;
      while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (first[middle] < byte)
          low = middle + 1;
        else
          high = middle;
      }
      return low < n.count && first[low] == byte ? n.first + low + 1 : none;
    }
    for (uint32_t i = 0; i < n.count; ++i)
      if (first[i] == byte) return n.first + i + 1;
    return none;
  }
  /// Value at |node|, or none.
  uint32_t value(uint32_t node) const { return nodes[node].value; }

private:
  struct Node {
    uint32_t first = 0; ///< its children are nodes first+1 .. first+count, with labels from |first|
    uint32_t count = 0, value = none;
  };
  std::vector<Node> nodes;
  std::vector<uint8_t> labels; ///< labels[i] leads to node i+1
};

} // namespace lathe::tokenizer
