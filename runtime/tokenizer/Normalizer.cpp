//===- Normalizer.cpp -----------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Steps.h"
#include "lathe/base/Unicode.h"
#include <cstring>

namespace lathe::tokenizer {
namespace {
using Kind = TokenizerSpec::Normalizer::Kind;
namespace uc = unicode;

/// Calls |each|(code point or uc::invalid, bytes of it) over |text|.
template <typename F> void forEach(std::string_view text, F each) {
  for (size_t i = 0; i < text.size();) {
    unsigned length;
    uint32_t cp = uc::decode(text, i, length);
    each(cp, text.substr(i, length));
    i += length;
  }
}

std::string replaceAll(std::string_view text, std::string_view from, std::string_view to) {
  if (from.empty()) return std::string(text);
  std::string out;
  out.reserve(text.size() + text.size() / 4);
  size_t at = 0;
  for (size_t hit; (hit = text.find(from, at)) != std::string_view::npos; at = hit + from.size()) {
    out += text.substr(at, hit - at);
    out += to;
  }
  out += text.substr(at);
  return out;
}

std::string lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  forEach(text, [&](uint32_t cp, std::string_view bytes) {
    if (cp == uc::invalid)
      out += bytes;
    else
      uc::appendLower(cp, out);
  });
  return out;
}

std::string dropCategories(std::string_view text, uint32_t categories) {
  std::string out;
  out.reserve(text.size());
  forEach(text, [&](uint32_t cp, std::string_view bytes) {
    if (cp == uc::invalid || !uc::isIn(cp, categories)) out += bytes;
  });
  return out;
}

bool isCjk(uint32_t cp) {
  return (cp >= 0x4e00 && cp <= 0x9fff) || (cp >= 0x3400 && cp <= 0x4dbf) || (cp >= 0x20000 && cp <= 0x2a6df) ||
         (cp >= 0x2a700 && cp <= 0x2b73f) || (cp >= 0x2b740 && cp <= 0x2b81f) || (cp >= 0x2b920 && cp <= 0x2ceaf) ||
         (cp >= 0xf900 && cp <= 0xfaff) || (cp >= 0x2f800 && cp <= 0x2fa1f);
}

std::string bert(std::string text, uint32_t flags) {
  if (flags & 3) {
    std::string out;
    out.reserve(text.size());
    forEach(text, [&](uint32_t cp, std::string_view bytes) {
      if (flags & 1) {
        if (cp == 0 || cp == 0xfffd || cp == uc::invalid) return;
        bool blank = cp == '\t' || cp == '\n' || cp == '\r';
        if (!blank && uc::isIn(cp, uc::others & ~uc::categoryBit(uc::Category::none))) return;
        if (blank || uc::isSpace(cp)) {
          out += ' ';
          return;
        }
      }
      if ((flags & 2) && isCjk(cp)) {
        out += ' ';
        out += bytes;
        out += ' ';
      } else {
        out += bytes;
      }
    });
    text = std::move(out);
  }
  if (flags & 4) text = dropCategories(uc::normalize(text, uc::Form::nfd), uc::categoryBit(uc::Category::Mn));
  if (flags & 8) text = lower(text);
  return text;
}

std::string strip(std::string_view text, uint32_t flags) {
  size_t first = 0, last = text.size();
  unsigned length;
  while ((flags & 1) && first < last) {
    uint32_t cp = uc::decode(text, first, length);
    if (cp == uc::invalid || !uc::isSpace(cp)) break;
    first += length;
  }
  while ((flags & 2) && first < last) {
    size_t start = last - 1;
    while (start > first && (static_cast<uint8_t>(text[start]) & 0xc0) == 0x80)
      --start;
    uint32_t cp = uc::decode(text, start, length);
    if (cp == uc::invalid || start + length != last || !uc::isSpace(cp)) break;
    last = start;
  }
  return std::string(text.substr(first, last - first));
}

std::string mergeSpaces(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (char c : text) {
    if (c == ' ' && (out.empty() || out.back() == ' ')) continue;
    out += c;
  }
  if (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

/// SentencePiece's compiled map: the size of a double array, the array, then replacements that end in
/// zero bytes. The longest key at each place counts.
class CharsMap {
public:
  explicit CharsMap(std::string_view blob) {
    uint32_t size = 0;
    if (blob.size() < 4) return;
    std::memcpy(&size, blob.data(), 4);
    if (size % 4 != 0 || size > blob.size() - 4) return;
    units = blob.substr(4, size);
    texts = blob.substr(4 + size);
    valid = true;
  }
  bool valid = false;

  /// Bytes of the longest key at the start of |text| (0: none) and its replacement.
  size_t match(std::string_view text, std::string_view &replacement) const {
    size_t longest = 0;
    uint32_t unit, node = 0;
    if (!load(0, unit)) return 0;
    node = offset(unit);
    for (size_t i = 0; i < text.size(); ++i) {
      uint8_t c = static_cast<uint8_t>(text[i]);
      node ^= c;
      if (c == 0 || !load(node, unit) || (unit & 0x800000ffu) != c) break;
      bool leaf = unit >> 8 & 1;
      node ^= offset(unit);
      if (!leaf) continue;
      if (!load(node, unit)) break;
      uint32_t at = unit & 0x7fffffffu;
      size_t end = at < texts.size() ? texts.find('\0', at) : std::string_view::npos;
      if (end == std::string_view::npos) break;
      longest = i + 1;
      replacement = texts.substr(at, end - at);
    }
    return longest;
  }

private:
  static uint32_t offset(uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }
  bool load(uint32_t index, uint32_t &unit) const {
    if (index >= units.size() / 4) return false;
    std::memcpy(&unit, units.data() + static_cast<size_t>(index) * 4, 4);
    return true;
  }
  std::string_view units, texts;
};

std::string mapCharacters(std::string_view text, std::string_view blob) {
  CharsMap map(blob);
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    std::string_view replacement;
    if (size_t size = map.match(text.substr(i), replacement)) {
      out += replacement;
      i += size;
      continue;
    }
    unsigned length;
    if (uc::decode(text, i, length) == uc::invalid)
      out += "\xef\xbf\xbd";
    else
      out += text.substr(i, length);
    i += length;
  }
  return out;
}

} // namespace

Status NormalizerChain::init(const std::vector<TokenizerSpec::Normalizer> &steps) {
  for (const TokenizerSpec::Normalizer &spec : steps) {
    Step step{&spec, {}};
    if (spec.kind == Kind::replacePattern) {
      LATHE_ASSIGN_OR_RETURN(step.pattern, Pattern::compile(spec.text));
    }
    if (spec.kind == Kind::charsMap && !CharsMap(spec.text).valid)
      return makeError(StatusCode::invalidArgument,
                       "expected a compiled characters map, found %zu bytes of something else", spec.text.size());
    chain.push_back(std::move(step));
  }
  return Status();
}

std::string NormalizerChain::apply(std::string text) const {
  for (const Step &step : chain) {
    const TokenizerSpec::Normalizer &spec = *step.spec;
    switch (spec.kind) {
    case Kind::nfc:
      text = uc::normalize(text, uc::Form::nfc);
      break;
    case Kind::nfd:
      text = uc::normalize(text, uc::Form::nfd);
      break;
    case Kind::nfkc:
      text = uc::normalize(text, uc::Form::nfkc);
      break;
    case Kind::nfkd:
      text = uc::normalize(text, uc::Form::nfkd);
      break;
    case Kind::lowercase:
      text = lower(text);
      break;
    case Kind::stripAccents:
      text = dropCategories(text, uc::marks);
      break;
    case Kind::strip:
      text = strip(text, spec.flags);
      break;
    case Kind::replace:
      text = replaceAll(text, spec.text, spec.with);
      break;
    case Kind::replacePattern: {
      std::vector<Pattern::Match> matches;
      step.pattern.findAll(text, matches);
      if (matches.empty()) break;
      std::string out;
      size_t at = 0;
      for (const Pattern::Match &match : matches) {
        out.append(text, at, match.first - at);
        out += spec.with;
        at = match.last;
      }
      out.append(text, at, std::string::npos);
      text = std::move(out);
      break;
    }
    case Kind::prepend:
      if (!text.empty()) text.insert(0, spec.text);
      break;
    case Kind::bert:
      text = bert(std::move(text), spec.flags);
      break;
    case Kind::charsMap:
      text = mapCharacters(text, spec.text);
      break;
    case Kind::mergeSpaces:
      text = mergeSpaces(text);
      break;
    }
  }
  return text;
}

} // namespace lathe::tokenizer
