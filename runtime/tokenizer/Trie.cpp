//===- Trie.cpp -----------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Tables.h"
#include <algorithm>

namespace lathe::tokenizer {

void Trie::build(std::vector<Key> keys) {
  std::sort(keys.begin(), keys.end(), [](const Key &a, const Key &b) {
    int order = a.text.compare(b.text);
    return order != 0 ? order < 0 : a.value < b.value;
  });
  nodes.assign(1, {});
  labels.clear();
  // Level by level: each node stands for the keys [first, last) that share its path.
  struct Span {
    size_t first, last, depth;
  };
  std::vector<Span> spans = {{0, keys.size(), 0}};
  for (size_t n = 0; n < spans.size(); ++n) {
    Span span = spans[n];
    size_t i = span.first;
    for (; i < span.last && keys[i].text.size() == span.depth; ++i)
      if (span.depth > 0 && nodes[n].value == none) nodes[n].value = keys[i].value;
    nodes[n].first = static_cast<uint32_t>(labels.size());
    while (i < span.last) {
      uint8_t label = static_cast<uint8_t>(keys[i].text[span.depth]);
      size_t next = i + 1;
      while (next < span.last && static_cast<uint8_t>(keys[next].text[span.depth]) == label)
        ++next;
      labels.push_back(label);
      nodes.push_back({});
      spans.push_back({i, next, span.depth + 1});
      ++nodes[n].count;
      i = next;
    }
  }
}

} // namespace lathe::tokenizer
