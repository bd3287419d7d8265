//===- Unicode.cpp --------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "lathe/base/Unicode.h"
#include "Tables.h"
#include <algorithm>
#include <array>
#include <memory>

namespace lathe::unicode {
namespace tables {
#include "Tables.inc"

const std::span<const uint32_t> categories(categoryRanges);
const std::span<const uint32_t> combining(combiningRanges);
const std::span<const uint32_t> decomposed(decompositions);
const std::span<const Composition> composed(compositions);
} // namespace tables

namespace {
constexpr const char *categoryNames[] = {"Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd",
                                         "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm",
                                         "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co"};

/// Category of every code point in blocks of 256; equal blocks are stored once.
struct CategoryTable {
  std::array<uint8_t, (limit >> 8)> block;
  std::vector<uint8_t> data;

  CategoryTable() {
    std::span<const uint32_t> ranges = tables::categories;
    std::array<uint8_t, 256> current;
    std::vector<std::array<uint8_t, 256>> blocks;
    size_t r = 0;
    for (uint32_t b = 0; b < block.size(); ++b) {
      for (uint32_t i = 0; i < 256; ++i) {
        uint32_t cp = b << 8 | i;
        while (r + 1 < ranges.size() && (ranges[r + 1] >> 8) <= cp)
          ++r;
        current[i] = ranges[r] & 0xff;
      }
      // Searching from the back: long uniform stretches repeat the latest block.
      size_t at = blocks.size();
      while (at > 0 && blocks[at - 1] != current)
        --at;
      if (at == 0) {
        blocks.push_back(current);
        at = blocks.size();
      }
      block[b] = static_cast<uint8_t>(at - 1);
    }
    for (const auto &each : blocks)
      data.insert(data.end(), each.begin(), each.end());
  }
};
const CategoryTable &categoryTable() {
  static const CategoryTable table;
  return table;
}

const tables::CodePair *findPair(std::span<const tables::CodePair> pairs, uint32_t cp) {
  auto it = std::lower_bound(pairs.begin(), pairs.end(), cp,
                             [](const tables::CodePair &pair, uint32_t value) { return pair.from < value; });
  return it != pairs.end() && it->from == cp ? &*it : nullptr;
}
} // namespace

Category category(uint32_t cp) {
  if (cp >= limit) return Category::none;
  const CategoryTable &table = categoryTable();
  return static_cast<Category>(table.data[static_cast<size_t>(table.block[cp >> 8]) << 8 | (cp & 0xff)]);
}

bool isSpace(uint32_t cp) {
  if (cp < 0x80) return cp == ' ' || (cp >= 9 && cp <= 13);
  return cp == 0x85 || cp == 0xa0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 || cp == 0x2029 ||
         cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

uint32_t categoriesByName(std::string_view name) {
  if (name == "L&" || name == "LC") return 0xe;
  uint32_t bits = 0;
  if (name.size() == 1 || name.size() == 2)
    for (uint32_t i = 0; i < std::size(categoryNames); ++i)
      if (std::string_view(categoryNames[i]).substr(0, name.size()) == name) bits |= 1u << i;
  return bits;
}

std::vector<Range> scriptByName(std::string_view name) {
  std::vector<Range> out;
  for (const tables::ScriptRange &range : tables::scriptRanges)
    if (name == tables::scriptNames[range.script]) out.push_back({range.first, range.last});
  return out;
}

std::vector<Range> rangesOf(uint32_t categories) {
  std::vector<Range> out;
  std::span<const uint32_t> ranges = tables::categories;
  for (size_t i = 0; i < ranges.size(); ++i) {
    if (!(categories >> (ranges[i] & 0xff) & 1)) continue;
    uint32_t first = ranges[i] >> 8, last = i + 1 < ranges.size() ? (ranges[i + 1] >> 8) - 1 : limit - 1;
    if (!out.empty() && out.back().last + 1 == first)
      out.back().last = last;
    else
      out.push_back({first, last});
  }
  return out;
}

std::vector<uint32_t> caseVariants(uint32_t cp) {
  const tables::CodePair *own = findPair(tables::foldPairs, cp);
  uint32_t fold = own ? own->to : cp;
  std::vector<uint32_t> out = {fold};
  for (const tables::CodePair &pair : tables::foldPairs)
    if (pair.to == fold) out.push_back(pair.from);
  return out;
}

void appendLower(uint32_t cp, std::string &out) {
  if (cp < 0x80) {
    out += static_cast<char>(cp >= 'A' && cp <= 'Z' ? cp + 32 : cp);
    return;
  }
  for (const tables::LowerLong &entry : tables::lowerLong)
    if (entry.from == cp) {
      for (uint32_t to : entry.to)
        if (to) append(to, out);
      return;
    }
  const tables::CodePair *pair = findPair(tables::lowerPairs, cp);
  append(pair ? pair->to : cp, out);
}

uint32_t decode(std::string_view text, size_t at, unsigned &length) {
  auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  uint32_t lead = byte(at);
  length = 1;
  if (lead < 0x80) return lead;
  if (lead < 0xc2 || lead > 0xf4) return invalid;
  unsigned want = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
  if (text.size() - at < want) return invalid;
  uint32_t cp = lead & (0x7fu >> want);
  for (unsigned i = 1; i < want; ++i) {
    uint32_t next = byte(at + i);
    if ((next & 0xc0) != 0x80) return invalid;
    cp = cp << 6 | (next & 0x3f);
  }
  // overlong forms, surrogates, beyond the end
  if ((want == 3 && (cp < 0x800 || (cp >= 0xd800 && cp < 0xe000))) || (want == 4 && (cp < 0x10000 || cp >= limit)))
    return invalid;
  length = want;
  return cp;
}

void append(uint32_t cp, std::string &out) {
  if (cp < 0x80) {
    out += static_cast<char>(cp);
  } else if (cp < 0x800) {
    out += static_cast<char>(0xc0 | cp >> 6);
    out += static_cast<char>(0x80 | (cp & 0x3f));
  } else if (cp < 0x10000) {
    out += static_cast<char>(0xe0 | cp >> 12);
    out += static_cast<char>(0x80 | (cp >> 6 & 0x3f));
    out += static_cast<char>(0x80 | (cp & 0x3f));
  } else {
    out += static_cast<char>(0xf0 | cp >> 18);
    out += static_cast<char>(0x80 | (cp >> 12 & 0x3f));
    out += static_cast<char>(0x80 | (cp >> 6 & 0x3f));
    out += static_cast<char>(0x80 | (cp & 0x3f));
  }
}

size_t validPrefix(std::string_view text, size_t at) {
  uint8_t lead = static_cast<uint8_t>(text[at]);
  if (lead < 0xc2 || lead > 0xf4) return 0;
  size_t want = lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4, have = 1;
  for (; have < want && at + have < text.size(); ++have) {
    uint8_t next = static_cast<uint8_t>(text[at + have]);
    // The second byte has a narrower range after some leads (no surrogates, no overlong forms).
    uint8_t low = have == 1 && lead == 0xe0 ? 0xa0 : have == 1 && lead == 0xf0 ? 0x90 : 0x80;
    uint8_t high = have == 1 && lead == 0xed ? 0x9f : have == 1 && lead == 0xf4 ? 0x8f : 0xbf;
    if (next < low || next > high) break;
  }
  return have;
}

bool isValid(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    unsigned length;
    if (decode(text, i, length) == invalid) return false;
    i += length;
  }
  return true;
}

uint8_t combiningClass(uint32_t cp) {
  std::span<const uint32_t> ranges = tables::combining;
  auto it = std::upper_bound(ranges.begin(), ranges.end(), cp << 8 | 0xff);
  return it == ranges.begin() ? 0 : *(it - 1) & 0xff;
}

} // namespace lathe::unicode
