//===- Decode.cpp - ids to text -------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Impl.h"
#include "lathe/base/Unicode.h"
#include <algorithm>

namespace lathe {
using Decoder = TokenizerSpec::Decoder;

void Tokenizer::Impl::appendPiece(int32_t id, bool keepSpecial, bool first, std::string &out) const {
  if (id < 0 || static_cast<size_t>(id) >= spec.pieces.size()) return;
  if (special[id] && !keepSpecial) return;
  std::string_view piece = spec.pieces[id];
  if (special[id]) {
    out += piece;
    return;
  }
  switch (spec.decoder) {
  case Decoder::plain:
  case Decoder::byteLevel:
    if (!spec.endOfWord.empty() && piece.ends_with(spec.endOfWord)) {
      out += piece.substr(0, piece.size() - spec.endOfWord.size());
      out += ' ';
    } else {
      out += piece;
    }
    break;
  case Decoder::metaspace: {
    if (spec.metaspace.empty()) {
      out += piece;
      break;
    }
    size_t at = 0;
    for (size_t hit; (hit = piece.find(spec.metaspace, at)) != std::string_view::npos;
         at = hit + spec.metaspace.size()) {
      out += piece.substr(at, hit - at);
      out += ' ';
    }
    out += piece.substr(at);
    break;
  }
  case Decoder::wordPiece: {
    bool joined = !spec.continuation.empty() && piece.starts_with(spec.continuation);
    bool mark = spec.cleanUp && piece.size() == 1 && std::string_view(".,!?").find(piece[0]) != std::string_view::npos;
    if (!first && !joined && !mark) out += ' ';
    out += joined && !first ? piece.substr(spec.continuation.size()) : piece;
    break;
  }
  }
}

std::string Tokenizer::decode(const std::vector<int32_t> &ids, bool keepSpecial) const {
  std::string out;
  uint32_t strip = impl->spec.stripStart;
  for (int32_t id : ids) {
    bool special = isSpecial(id);
    size_t before = out.size();
    impl->appendPiece(id, keepSpecial, out.empty(), out);
    if (special) continue;
    // Leading spaces go with the first piece of text.
    while (strip > 0 && out.size() > before && out[before] == ' ') {
      out.erase(before, 1);
      --strip;
    }
    if (out.size() > before) strip = 0;
  }
  return out;
}

std::string Tokenizer::tokenToPiece(int32_t id, bool keepSpecial) const {
  std::string out;
  impl->appendPiece(id, keepSpecial, false, out);
  return out;
}

StreamDecoder::StreamDecoder(const Tokenizer &tokenizer, bool keepSpecial, bool continues)
    : tokenizer(&tokenizer), keepSpecial(keepSpecial), started(continues),
      strip(continues ? 0 : tokenizer.spec().stripStart) {}

void StreamDecoder::push(int32_t id, std::string &out) {
  size_t before = held.size();
  tokenizer->impl->appendPiece(id, keepSpecial, !started, held);
  if (held.size() > before) started = true;
  if (!tokenizer->isSpecial(id)) {
    while (strip > 0 && held.size() > before && held[before] == ' ') {
      held.erase(before, 1);
      --strip;
    }
    if (held.size() > before) strip = 0;
  }
  complete(false, out);
}

std::string StreamDecoder::push(int32_t id) {
  std::string out;
  push(id, out);
  return out;
}

std::string StreamDecoder::flush() {
  std::string out;
  complete(true, out);
  return out;
}

/// Takes whole characters off |held|. What can no longer become one is replaced: the longest start of
/// a valid character counts as one error.
void StreamDecoder::complete(bool last, std::string &out) {
  size_t at = 0;
  while (at < held.size()) {
    unsigned length;
    if (unicode::decode(held, at, length) != unicode::invalid) {
      out.append(held, at, length);
      at += length;
      continue;
    }
    size_t part = unicode::validPrefix(held, at);
    if (at + part == held.size() && part > 0 && !last) break; // may still become a character
    out += "\xef\xbf\xbd";
    at += part > 0 ? part : 1;
  }
  held.erase(0, at);
}

} // namespace lathe
