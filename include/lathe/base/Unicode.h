//===- Unicode.h - character data and UTF-8 -----------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// General categories, scripts, case and normalization of Unicode 16, from tables of our own: the C
// library's follow the machine's locale, and a token id must not. All functions are thread-safe.
//===----------------------------------------------------------------------===//
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lathe::unicode {

inline constexpr uint32_t limit = 0x110000; ///< one past the last code point

/// General category; `none` (Cn) is what is not assigned.
enum class Category : uint8_t {
  none,
  Lu,
  Ll,
  Lt,
  Lm,
  Lo,
  Mn,
  Mc,
  Me,
  Nd,
  Nl,
  No,
  Pc,
  Pd,
  Ps,
  Pe,
  Pi,
  Pf,
  Po,
  Sm,
  Sc,
  Sk,
  So,
  Zs,
  Zl,
  Zp,
  Cc,
  Cf,
  Cs,
  Co
};
inline constexpr uint32_t categoryBit(Category c) { return 1u << static_cast<uint32_t>(c); }
/// Sets of categories, bits as in categoryBit.
inline constexpr uint32_t letters = 0x3eu, marks = 0x1c0u, numbers = 0xe00u, punctuation = 0x7f000u,
                          symbols = 0x780000u, separators = 0x3800000u, others = 0x3c000001u;

/// Category of |cp|; Cn for what is not a code point.
Category category(uint32_t cp);
inline bool isIn(uint32_t cp, uint32_t categories) { return categoryBit(category(cp)) & categories; }
/// Property White_Space.
bool isSpace(uint32_t cp);
/// The bits of category name |name| ("L", "Lu", "P", ...); 0 when there is none of that name.
uint32_t categoriesByName(std::string_view name);

struct Range {
  uint32_t first, last;
};
/// Sorted ranges of a script ("Han", "Latin", ...; only those that pre-tokenizers name); empty when unknown.
std::vector<Range> scriptByName(std::string_view name);
/// Sorted ranges of the code points with a category in |categories|.
std::vector<Range> rangesOf(uint32_t categories);

/// Code points equal to |cp| but for case (simple folding), |cp| itself included.
std::vector<uint32_t> caseVariants(uint32_t cp);
/// Lower case, one code point to one or more.
void appendLower(uint32_t cp, std::string &out);

/// Decodes the character at |text|[|at|]. |length| gets its bytes: 1 for a byte that starts no valid
/// character, for which invalid is returned. Requires at < text.size().
inline constexpr uint32_t invalid = 0xFFFFFFFFu;
uint32_t decode(std::string_view text, size_t at, unsigned &length);
/// Appends |cp| in UTF-8; cp < limit.
void append(uint32_t cp, std::string &out);
/// Bytes at |text|[|at|] that begin a valid character but do not complete it before the next byte (or
/// the end) rules it out: the unit that one U+FFFD replaces. 0 for a byte that begins none.
size_t validPrefix(std::string_view text, size_t at);
/// True when |text| is valid UTF-8.
bool isValid(std::string_view text);

enum class Form { nfd, nfc, nfkd, nfkc };
/// Normalization; bytes that are not UTF-8 stay as they are.
std::string normalize(std::string_view text, Form form);
/// Canonical combining class.
uint8_t combiningClass(uint32_t cp);

} // namespace lathe::unicode
