//===- Splitter.cpp -------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Steps.h"
#include <algorithm>

namespace lathe::tokenizer {
namespace {
using Split = TokenizerSpec::Split;

struct Part {
  size_t first, last;
  bool match;
};

/// Turns matches and gaps into pieces.
void arrange(std::vector<Part> &parts, const Split &spec, std::vector<Splitter::Piece> &out) {
  if (spec.invert)
    for (Part &part : parts)
      part.match = !part.match;
  size_t begin = out.size();
  switch (spec.behavior) {
  case Split::Behavior::isolated:
  case Split::Behavior::none:
    for (const Part &part : parts)
      out.push_back({part.first, part.last});
    break;
  case Split::Behavior::removed:
    for (const Part &part : parts)
      if (!part.match) out.push_back({part.first, part.last});
    break;
  case Split::Behavior::contiguous:
    for (size_t i = 0; i < parts.size(); ++i)
      if (i > 0 && parts[i].match == parts[i - 1].match)
        out.back().last = parts[i].last;
      else
        out.push_back({parts[i].first, parts[i].last});
    break;
  case Split::Behavior::withPrevious:
    for (size_t i = 0; i < parts.size(); ++i)
      if (i > 0 && parts[i].match && !parts[i - 1].match)
        out.back().last = parts[i].last;
      else
        out.push_back({parts[i].first, parts[i].last});
    break;
  case Split::Behavior::withNext:
    for (size_t i = parts.size(); i-- > 0;)
      if (i + 1 < parts.size() && parts[i].match && !parts[i + 1].match)
        out.back().first = parts[i].first;
      else
        out.push_back({parts[i].first, parts[i].last});
    std::reverse(out.begin() + static_cast<ptrdiff_t>(begin), out.end());
    break;
  }
}

} // namespace

Status Splitter::init(const std::vector<Split> &steps) {
  for (const Split &spec : steps) {
    Step step{&spec, {}};
    if (spec.kind == Split::Kind::pattern) {
      LATHE_ASSIGN_OR_RETURN(step.pattern, Pattern::compile(spec.pattern));
    } else if (spec.kind == Split::Kind::literal ||
               (spec.kind == Split::Kind::metaspace && spec.behavior != Split::Behavior::none)) {
      if (spec.pattern.empty())
        return makeError(StatusCode::invalidArgument, "expected a text to split at, found none");
      LATHE_ASSIGN_OR_RETURN(step.pattern, Pattern::literal(spec.pattern));
    }
    chain.push_back(std::move(step));
  }
  return Status();
}

void Splitter::apply(std::string &text, bool isFirst, std::vector<Piece> &out) const {
  out.clear();
  if (text.empty()) return;
  out.push_back({0, text.size()});
  std::vector<Pattern::Match> matches;
  std::vector<Part> parts;
  std::vector<Piece> next;
  for (const Step &step : chain) {
    const Split &spec = *step.spec;
    if (spec.kind == Split::Kind::prefixSpace || spec.kind == Split::Kind::metaspace) {
      std::string rewritten;
      rewritten.reserve(text.size() + text.size() / 4 + 8);
      for (Piece &piece : out) {
        std::string_view part(text.data() + piece.first, piece.last - piece.first);
        size_t start = rewritten.size();
        if (spec.kind == Split::Kind::prefixSpace) {
          if (!part.starts_with(' ')) rewritten += ' ';
          rewritten += part;
        } else {
          bool wanted = spec.prefix == Split::Prefix::always ||
                        (spec.prefix == Split::Prefix::first && isFirst && piece.first == 0);
          if (wanted && !part.starts_with(' ') && !part.starts_with(spec.pattern)) rewritten += spec.pattern;
          for (char c : part)
            if (c == ' ')
              rewritten += spec.pattern;
            else
              rewritten += c;
        }
        piece = {start, rewritten.size()};
      }
      text = std::move(rewritten);
      if (spec.kind == Split::Kind::prefixSpace || spec.behavior == Split::Behavior::none) continue;
    }
    next.clear();
    for (const Piece &piece : out) {
      matches.clear();
      parts.clear();
      step.pattern.findAll(std::string_view(text).substr(piece.first, piece.last - piece.first), matches);
      size_t at = piece.first;
      for (const Pattern::Match &match : matches) {
        if (piece.first + match.first > at) parts.push_back({at, piece.first + match.first, false});
        parts.push_back({piece.first + match.first, piece.first + match.last, true});
        at = piece.first + match.last;
      }
      if (at < piece.last) parts.push_back({at, piece.last, false});
      arrange(parts, spec, next);
    }
    next.erase(std::remove_if(next.begin(), next.end(), [](const Piece &p) { return p.first == p.last; }), next.end());
    out.swap(next);
  }
}

} // namespace lathe::tokenizer
