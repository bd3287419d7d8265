//===- StopMatcher.cpp - stop strings in streamed text ----------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "StopMatcher.h"
#include <algorithm>

namespace lathe {

StopMatcher::StopMatcher(std::vector<std::string> texts, bool includeStop) : include(includeStop) {
  for (size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].empty()) continue;
    Stop stop;
    stop.text = std::move(texts[i]);
    stop.index = static_cast<int32_t>(i);
    stop.fail.assign(stop.text.size(), 0);
    for (uint32_t at = 1, border = 0; at < stop.text.size(); ++at) {
      while (border > 0 && stop.text[at] != stop.text[border])
        border = stop.fail[border - 1];
      if (stop.text[at] == stop.text[border]) ++border;
      stop.fail[at] = border;
    }
    stops.push_back(std::move(stop));
  }
}

std::string StopMatcher::push(std::string_view piece) {
  std::string out;
  push(piece, out);
  return out;
}

void StopMatcher::push(std::string_view piece, std::string &out) {
  if (stopped()) return;
  held += piece;
  // |held| = what was held back, then |piece|; the automata have seen all but |piece|.
  for (size_t at = held.size() - piece.size(); at < held.size(); ++at) {
    const Stop *hit = nullptr;
    for (Stop &stop : stops) {
      while (stop.matched > 0 && stop.text[stop.matched] != held[at])
        stop.matched = stop.fail[stop.matched - 1];
      if (stop.text[stop.matched] == held[at]) ++stop.matched;
      // A full match ends the stream, so matched never stays at the full length.
      if (stop.matched == stop.text.size() && (!hit || stop.text.size() > hit->text.size())) hit = &stop;
    }
    if (!hit) continue;
    found = hit->index;
    out.append(held, 0, at + 1 - (include ? 0 : hit->text.size()));
    held.clear();
    return;
  }
  size_t keep = 0;
  for (const Stop &stop : stops)
    keep = std::max<size_t>(keep, stop.matched);
  size_t safe = held.size() - keep;
  out.append(held, 0, safe);
  held.erase(0, safe);
}

std::string StopMatcher::finish() {
  std::string out;
  finish(out);
  return out;
}

void StopMatcher::finish(std::string &out) {
  out += held;
  held.clear();
}

std::string_view StopMatcher::stopText() const {
  for (const Stop &stop : stops)
    if (stop.index == found) return stop.text;
  return {};
}

} // namespace lathe
