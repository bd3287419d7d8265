//===- JsonSteps.cpp - normalizer, pre-tokenizer, decoder, template -------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Steps.h"
#include "lathe/import/Quote.h"

namespace lathe::tokenizerimport {
namespace {
using Normalizer = TokenizerSpec::Normalizer;
using Split = TokenizerSpec::Split;
using Decoder = TokenizerSpec::Decoder;

Status unsupported(const char *what, const std::string &type, const char *known) {
  return makeError(StatusCode::unsupported, "%s %s is not supported; supported are %s", what, quoteName(type).c_str(),
                   known);
}

/// Calls |each| for the members of the list |key|.
template <typename F> Status forEach(const Json &step, const char *key, const char *where, F each) {
  const Json *list = memberOf(step, key);
  if (!list || !list->is_array())
    return makeError(StatusCode::invalidArgument, "%s: expected the list '%s'", where, key);
  for (const Json &member : *list)
    LATHE_RETURN_IF_ERROR(each(member));
  return Status();
}

struct PatternText {
  std::string text;
  bool isPattern;
};
/// {"String": ..} or {"Regex": ..}
Result<PatternText> patternOf(const Json &step, const char *where) {
  const Json *pattern = memberOf(step, "pattern");
  if (pattern && pattern->is_object())
    for (const char *key : {"String", "Regex"})
      if (const Json *text = memberOf(*pattern, key); text && text->is_string())
        return PatternText{text->get<std::string>(), key[0] == 'R'};
  return makeError(StatusCode::invalidArgument, "%s: expected 'pattern' with a 'String' or a 'Regex'", where);
}

Result<std::string> fromBase64(const std::string &text) {
  std::string out;
  uint32_t bits = 0;
  int count = 0;
  for (char c : text) {
    uint32_t value = c >= 'A' && c <= 'Z'   ? c - 'A'
                     : c >= 'a' && c <= 'z' ? c - 'a' + 26
                     : c >= '0' && c <= '9' ? c - '0' + 52
                     : c == '+'             ? 62
                     : c == '/'             ? 63
                                            : 64;
    if (c == '=') break;
    if (value == 64) return makeError(StatusCode::invalidArgument, "'precompiled_charsmap': expected base64");
    bits = bits << 6 | value;
    if (++count % 4 == 0) {
      out += static_cast<char>(bits >> 16 & 0xff);
      out += static_cast<char>(bits >> 8 & 0xff);
      out += static_cast<char>(bits & 0xff);
    }
  }
  if (count % 4 == 2) out += static_cast<char>(bits >> 4 & 0xff);
  if (count % 4 == 3) {
    out += static_cast<char>(bits >> 10 & 0xff);
    out += static_cast<char>(bits >> 2 & 0xff);
  }
  return out;
}

Result<Split::Behavior> behaviorOf(const std::string &name) {
  if (name == "Isolated" || name == "isolated") return Split::Behavior::isolated;
  if (name == "Removed" || name == "removed") return Split::Behavior::removed;
  if (name == "MergedWithPrevious" || name == "merged_with_previous") return Split::Behavior::withPrevious;
  if (name == "MergedWithNext" || name == "merged_with_next") return Split::Behavior::withNext;
  if (name == "Contiguous" || name == "contiguous") return Split::Behavior::contiguous;
  return unsupported("split behavior", name, "Isolated, Removed, MergedWithPrevious, MergedWithNext, Contiguous");
}

Split patternSplit(const char *pattern, Split::Behavior behavior, bool invert = false) {
  Split split;
  split.pattern = pattern;
  split.behavior = behavior;
  split.invert = invert;
  return split;
}
constexpr const char *punctuation = "[\\p{P}$+<=>^`|~]";
constexpr const char *gpt2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

} // namespace

const Json *memberOf(const Json &object, const char *key) {
  if (!object.is_object()) return nullptr;
  auto it = object.find(key);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

Result<std::string> textOf(const Json &object, const char *key, const char *where) {
  const Json *member = memberOf(object, key);
  if (!member || !member->is_string())
    return makeError(StatusCode::invalidArgument, "%s: expected a string '%s', found %s", where, key,
                     member ? member->type_name() : "none");
  return member->get<std::string>();
}
Result<std::string> textOr(const Json &object, const char *key, std::string fallback, const char *where) {
  if (!memberOf(object, key)) return fallback;
  return textOf(object, key, where);
}
Result<bool> flagOr(const Json &object, const char *key, bool fallback, const char *where) {
  const Json *member = memberOf(object, key);
  if (!member) return fallback;
  if (!member->is_boolean())
    return makeError(StatusCode::invalidArgument, "%s: expected true or false as '%s', found %s", where, key,
                     member->type_name());
  return member->get<bool>();
}
Result<int64_t> integerOf(const Json &object, const char *key, const char *where) {
  const Json *member = memberOf(object, key);
  if (!member || !member->is_number_integer() || (member->is_number_unsigned() && member->get<uint64_t>() > 1u << 31))
    return makeError(StatusCode::invalidArgument, "%s: expected an integer '%s', found %s", where, key,
                     member ? member->type_name() : "none");
  return member->get<int64_t>();
}

Status readNormalizer(const Json &step, TokenizerSpec &spec) {
  const char *where = "normalizer";
  LATHE_ASSIGN_OR_RETURN(std::string type, textOf(step, "type", where));
  if (type == "Sequence")
    return forEach(step, "normalizers", where, [&](const Json &member) { return readNormalizer(member, spec); });
  Normalizer out;
  using Kind = Normalizer::Kind;
  static constexpr std::pair<const char *, Kind> plain[] = {{"NFC", Kind::nfc},
                                                            {"NFD", Kind::nfd},
                                                            {"NFKC", Kind::nfkc},
                                                            {"NFKD", Kind::nfkd},
                                                            {"Lowercase", Kind::lowercase},
                                                            {"StripAccents", Kind::stripAccents}};
  bool found = false;
  for (auto [name, kind] : plain)
    if (type == name) out.kind = kind, found = true;
  if (found) {
  } else if (type == "Strip") {
    LATHE_ASSIGN_OR_RETURN(bool left, flagOr(step, "strip_left", true, where));
    LATHE_ASSIGN_OR_RETURN(bool right, flagOr(step, "strip_right", true, where));
    out.kind = Kind::strip;
    out.flags = (left ? 1 : 0) | (right ? 2 : 0);
  } else if (type == "Replace") {
    LATHE_ASSIGN_OR_RETURN(PatternText pattern, patternOf(step, where));
    LATHE_ASSIGN_OR_RETURN(out.with, textOf(step, "content", where));
    out.kind = pattern.isPattern ? Kind::replacePattern : Kind::replace;
    out.text = std::move(pattern.text);
  } else if (type == "Prepend") {
    out.kind = Kind::prepend;
    LATHE_ASSIGN_OR_RETURN(out.text, textOf(step, "prepend", where));
  } else if (type == "BertNormalizer") {
    LATHE_ASSIGN_OR_RETURN(bool clean, flagOr(step, "clean_text", true, where));
    LATHE_ASSIGN_OR_RETURN(bool cjk, flagOr(step, "handle_chinese_chars", true, where));
    LATHE_ASSIGN_OR_RETURN(bool lower, flagOr(step, "lowercase", true, where));
    LATHE_ASSIGN_OR_RETURN(bool strip, flagOr(step, "strip_accents", lower, where));
    out.kind = Kind::bert;
    out.flags = (clean ? 1 : 0) | (cjk ? 2 : 0) | (strip ? 4 : 0) | (lower ? 8 : 0);
  } else if (type == "Precompiled") {
    LATHE_ASSIGN_OR_RETURN(std::string text, textOf(step, "precompiled_charsmap", where));
    LATHE_ASSIGN_OR_RETURN(out.text, fromBase64(text));
    out.kind = Kind::charsMap;
    if (out.text.empty()) return Status();
  } else {
    return unsupported("normalizer", type,
                       "Sequence, NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Replace, Prepend, "
                       "BertNormalizer, Precompiled");
  }
  spec.normalizers.push_back(std::move(out));
  return Status();
}

Status readPreTokenizer(const Json &step, ImportedTokenizer &out) {
  const char *where = "pre_tokenizer";
  TokenizerSpec &spec = out.spec;
  LATHE_ASSIGN_OR_RETURN(std::string type, textOf(step, "type", where));
  if (type == "Sequence")
    return forEach(step, "pretokenizers", where, [&](const Json &member) { return readPreTokenizer(member, out); });
  if (spec.byteLevel && spec.model == TokenizerSpec::Model::bpe)
    out.warnings.push_back("pre-tokenizer step " + quoteName(type) +
                           " follows ByteLevel: it is applied to characters, not to their bytes");
  using Behavior = Split::Behavior;
  auto &splits = spec.splits;
  if (type == "ByteLevel") {
    LATHE_ASSIGN_OR_RETURN(bool prefix, flagOr(step, "add_prefix_space", true, where));
    LATHE_ASSIGN_OR_RETURN(bool regex, flagOr(step, "use_regex", true, where));
    if (prefix) {
      Split split;
      split.kind = Split::Kind::prefixSpace;
      splits.push_back(split);
    }
    if (regex) splits.push_back(patternSplit(gpt2, Behavior::isolated));
    spec.byteLevel = true;
  } else if (type == "Split") {
    Split split;
    LATHE_ASSIGN_OR_RETURN(PatternText pattern, patternOf(step, where));
    LATHE_ASSIGN_OR_RETURN(std::string behavior, textOf(step, "behavior", where));
    LATHE_ASSIGN_OR_RETURN(split.behavior, behaviorOf(behavior));
    LATHE_ASSIGN_OR_RETURN(split.invert, flagOr(step, "invert", false, where));
    split.kind = pattern.isPattern ? Split::Kind::pattern : Split::Kind::literal;
    split.pattern = std::move(pattern.text);
    splits.push_back(std::move(split));
  } else if (type == "Digits") {
    LATHE_ASSIGN_OR_RETURN(bool single, flagOr(step, "individual_digits", false, where));
    splits.push_back(patternSplit(single ? "\\p{N}" : "\\p{N}+", Behavior::isolated));
  } else if (type == "Punctuation") {
    LATHE_ASSIGN_OR_RETURN(std::string name, textOr(step, "behavior", "Isolated", where));
    LATHE_ASSIGN_OR_RETURN(Behavior behavior, behaviorOf(name));
    splits.push_back(patternSplit(punctuation, behavior));
  } else if (type == "Whitespace") {
    // Written with another library's \w: joiners are part of words, superscripts and fractions are not.
    splits.push_back(patternSplit("(?:[\\w\\u200c\\u200d&&[^\\u00b2\\u00b3\\u00b9\\u00bc-\\u00be]])+|"
                                  "[[^\\w\\s\\u200c\\u200d]\\u00b2\\u00b3\\u00b9\\u00bc-\\u00be]+",
                                  Behavior::removed, true));
  } else if (type == "WhitespaceSplit") {
    splits.push_back(patternSplit("\\s", Behavior::removed));
  } else if (type == "BertPreTokenizer") {
    splits.push_back(patternSplit("\\s", Behavior::removed));
    splits.push_back(patternSplit(punctuation, Behavior::isolated));
  } else if (type == "CharDelimiterSplit") {
    Split split;
    split.kind = Split::Kind::literal;
    split.behavior = Behavior::removed;
    LATHE_ASSIGN_OR_RETURN(split.pattern, textOf(step, "delimiter", where));
    splits.push_back(std::move(split));
  } else if (type == "Metaspace") {
    Split split;
    split.kind = Split::Kind::metaspace;
    LATHE_ASSIGN_OR_RETURN(split.pattern, textOr(step, "replacement", "\xe2\x96\x81", where));
    // Older files say add_prefix_space, newer ones prepend_scheme.
    LATHE_ASSIGN_OR_RETURN(bool prefix, flagOr(step, "add_prefix_space", true, where));
    LATHE_ASSIGN_OR_RETURN(std::string scheme, textOr(step, "prepend_scheme", prefix ? "always" : "never", where));
    if (scheme != "always" && scheme != "first" && scheme != "never")
      return unsupported("'prepend_scheme'", scheme, "always, first, never");
    split.prefix = scheme == "always"  ? Split::Prefix::always
                   : scheme == "first" ? Split::Prefix::first
                                       : Split::Prefix::never;
    LATHE_ASSIGN_OR_RETURN(bool cut, flagOr(step, "split", true, where));
    split.behavior = cut ? Behavior::withNext : Behavior::none;
    splits.push_back(std::move(split));
  } else {
    return unsupported(
        "pre-tokenizer", type,
        "Sequence, ByteLevel, Split, Digits, Punctuation, Whitespace, WhitespaceSplit, BertPreTokenizer, "
        "CharDelimiterSplit, Metaspace");
  }
  return Status();
}

Status readDecoder(const Json &step, ImportedTokenizer &out) {
  const char *where = "decoder";
  TokenizerSpec &spec = out.spec;
  LATHE_ASSIGN_OR_RETURN(std::string type, textOf(step, "type", where));
  if (type == "Sequence")
    return forEach(step, "decoders", where, [&](const Json &member) { return readDecoder(member, out); });
  if (type == "ByteLevel") {
    spec.decoder = Decoder::byteLevel;
  } else if (type == "Replace") {
    LATHE_ASSIGN_OR_RETURN(PatternText pattern, patternOf(step, where));
    LATHE_ASSIGN_OR_RETURN(std::string content, textOf(step, "content", where));
    if (pattern.isPattern || content != " ")
      return makeError(StatusCode::unsupported, "decoder 'Replace' is only supported from a string to a space");
    spec.decoder = Decoder::metaspace;
    spec.metaspace = std::move(pattern.text);
  } else if (type == "Metaspace") {
    spec.decoder = Decoder::metaspace;
    LATHE_ASSIGN_OR_RETURN(spec.metaspace, textOr(step, "replacement", "\xe2\x96\x81", where));
    LATHE_ASSIGN_OR_RETURN(bool prefix, flagOr(step, "add_prefix_space", true, where));
    LATHE_ASSIGN_OR_RETURN(std::string scheme, textOr(step, "prepend_scheme", prefix ? "always" : "never", where));
    spec.stripStart = scheme == "never" ? 0 : 1;
  } else if (type == "Strip") {
    LATHE_ASSIGN_OR_RETURN(std::string content, textOf(step, "content", where));
    LATHE_ASSIGN_OR_RETURN(int64_t start, integerOf(step, "start", where));
    if (content != " " || start < 0 || start > 16)
      return makeError(StatusCode::unsupported, "decoder 'Strip' is only supported for up to 16 spaces at the start");
    spec.stripStart = static_cast<uint32_t>(start);
  } else if (type == "WordPiece") {
    spec.decoder = Decoder::wordPiece;
    LATHE_ASSIGN_OR_RETURN(spec.continuation, textOr(step, "prefix", "##", where));
    LATHE_ASSIGN_OR_RETURN(spec.cleanUp, flagOr(step, "cleanup", true, where));
  } else if (type == "BPEDecoder") {
    LATHE_ASSIGN_OR_RETURN(spec.endOfWord, textOr(step, "suffix", "</w>", where));
    spec.decoder = Decoder::plain;
  } else if (type != "ByteFallback" && type != "Fuse") { // both are what the runtime does anyway
    return unsupported("decoder", type,
                       "Sequence, ByteLevel, ByteFallback, Fuse, Replace, Metaspace, Strip, WordPiece, BPEDecoder");
  }
  return Status();
}

Status readPostProcessor(const Json &step, TokenizerSpec &spec) {
  const char *where = "post_processor";
  LATHE_ASSIGN_OR_RETURN(std::string type, textOf(step, "type", where));
  if (type == "Sequence")
    return forEach(step, "processors", where, [&](const Json &member) { return readPostProcessor(member, spec); });
  if (type == "ByteLevel") return Status(); // concerns offsets only
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    for (auto [key, list] : {std::pair("cls", &spec.prefix), {"sep", &spec.suffix}}) {
      const Json *pair = memberOf(step, key);
      if (!pair || !pair->is_array() || pair->size() != 2 || !(*pair)[1].is_number_unsigned() ||
          (*pair)[1].get<uint64_t>() > 1u << 30)
        return makeError(StatusCode::invalidArgument, "post_processor: expected '%s' to be a token and its id", key);
      list->push_back((*pair)[1].get<uint32_t>());
    }
    return Status();
  }
  if (type != "TemplateProcessing")
    return unsupported("post-processor", type,
                       "Sequence, ByteLevel, TemplateProcessing, BertProcessing, RobertaProcessing");
  const Json *known = memberOf(step, "special_tokens");
  bool after = false;
  return forEach(step, "single", where, [&](const Json &piece) -> Status {
    if (memberOf(piece, "Sequence")) {
      after = true;
      return Status();
    }
    const Json *token = memberOf(piece, "SpecialToken");
    if (!token)
      return makeError(StatusCode::invalidArgument, "post_processor: expected a 'Sequence' or a 'SpecialToken'");
    LATHE_ASSIGN_OR_RETURN(std::string name, textOf(*token, "id", where));
    const Json *entry = known ? memberOf(*known, name.c_str()) : nullptr;
    const Json *ids = entry ? memberOf(*entry, "ids") : nullptr;
    if (!ids || !ids->is_array())
      return makeError(StatusCode::invalidArgument, "post_processor: special token %s has no ids",
                       quoteName(name).c_str());
    for (const Json &id : *ids) {
      if (!id.is_number_unsigned() || id.get<uint64_t>() > 1u << 30)
        return makeError(StatusCode::invalidArgument, "post_processor: special token %s has an id that is no number",
                         quoteName(name).c_str());
      (after ? spec.suffix : spec.prefix).push_back(id.get<uint32_t>());
    }
    return Status();
  });
}

} // namespace lathe::tokenizerimport
