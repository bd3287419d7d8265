//===- CodeSet.cpp --------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "CodeSet.h"
#include <algorithm>

namespace lathe::pattern {

void CodeSet::normalize() {
  dirty = false;
  std::sort(ranges.begin(), ranges.end(),
            [](const unicode::Range &a, const unicode::Range &b) { return a.first < b.first; });
  size_t kept = 0;
  for (size_t i = 0; i < ranges.size(); ++i) {
    if (kept > 0 && ranges[i].first <= ranges[kept - 1].last + 1)
      ranges[kept - 1].last = std::max(ranges[kept - 1].last, ranges[i].last);
    else
      ranges[kept++] = ranges[i];
  }
  ranges.resize(kept);
}

CodeSet CodeSet::spaces() {
  return CodeSet({{9, 13},
                  {32, 32},
                  {0x85, 0x85},
                  {0xa0, 0xa0},
                  {0x1680, 0x1680},
                  {0x2000, 0x200a},
                  {0x2028, 0x2029},
                  {0x202f, 0x202f},
                  {0x205f, 0x205f},
                  {0x3000, 0x3000}});
}

CodeSet CodeSet::wordCharacters() {
  CodeSet set(unicode::rangesOf(unicode::letters | unicode::marks | unicode::categoryBit(unicode::Category::Nd) |
                                unicode::categoryBit(unicode::Category::Nl) |
                                unicode::categoryBit(unicode::Category::Pc)));
  // Symbols with the property Alphabetic: letters in circles and squares.
  for (auto [first, last] :
       {std::pair(0x24b6u, 0x24e9u), {0x1f130u, 0x1f149u}, {0x1f150u, 0x1f169u}, {0x1f170u, 0x1f189u}})
    set.add(first, last);
  // Oniguruma's own: it has its table of Latin-1 from elsewhere, with superscripts and fractions.
  for (auto [first, last] : {std::pair(0xb2u, 0xb3u), {0xb9u, 0xb9u}, {0xbcu, 0xbeu}})
    set.add(first, last);
  return set;
}

CodeSet CodeSet::complement() const {
  CodeSet out;
  uint32_t next = 0;
  for (const unicode::Range &range : parts()) {
    if (range.first > next) out.ranges.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next < unicode::limit) out.ranges.push_back({next, unicode::limit - 1});
  return out;
}

CodeSet CodeSet::intersect(const CodeSet &other) const {
  CodeSet out;
  const auto &a = parts(), &b = other.parts();
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    uint32_t first = std::max(a[i].first, b[j].first), last = std::min(a[i].last, b[j].last);
    if (first <= last) out.ranges.push_back({first, last});
    a[i].last < b[j].last ? ++i : ++j;
  }
  return out;
}

bool CodeSet::contains(uint32_t cp) const {
  const auto &list = parts();
  auto it = std::upper_bound(list.begin(), list.end(), cp,
                             [](uint32_t value, const unicode::Range &range) { return value < range.first; });
  return it != list.begin() && cp <= (it - 1)->last;
}

} // namespace lathe::pattern
