//===- SuffixAutomaton.cpp ------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/speculation/SuffixAutomaton.h"
#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

namespace lathe::runtime {

static constexpr uint32_t noLink = UINT32_MAX;

uint64_t SuffixAutomaton::bytesFor(uint32_t room) {
  room = std::clamp(room, 1u, 1u << 24);
  return (uint64_t(room) * 2 + 1) * sizeof(Node) + uint64_t(std::bit_ceil(room * 4u + 8)) * sizeof(Edge);
}

SuffixAutomaton::SuffixAutomaton(uint32_t room) : capacity(std::clamp(room, 1u, 1u << 24)) {
  // 2 states and 3 edges a token, and edges at most three quarters of the table.
  mask = std::bit_ceil(capacity * 4u + 8) - 1;
  nodes.reset(static_cast<Node *>(std::calloc(size_t(capacity) * 2 + 1, sizeof(Node))));
  edges.reset(static_cast<Edge *>(std::calloc(size_t(mask) + 1, sizeof(Edge))));
  if (!nodes || !edges) capacity = 0; // then it is full from the start
  if (nodes && edges) nodes[newState(0)].link = noLink;
}

void SuffixAutomaton::clear() {
  if (!capacity) return;
  std::memset(edges.get(), 0, (size_t(mask) + 1) * sizeof(Edge));
  states = tokens = 0;
  nodes[newState(0)].link = noLink;
}

SuffixAutomaton::State SuffixAutomaton::newState(uint32_t length) {
  nodes[states] = {length, root, 0, 0};
  return states++;
}

uint32_t SuffixAutomaton::slotOf(State state, int32_t token) const {
  uint64_t hash = (uint64_t(state) << 32 | static_cast<uint32_t>(token)) * 0x9e3779b97f4a7c15u;
  auto slot = static_cast<uint32_t>(hash >> 32) & mask;
  while (edges[slot].state1 && (edges[slot].state1 != state + 1 || edges[slot].token != token))
    slot = (slot + 1) & mask;
  return slot;
}

const SuffixAutomaton::Edge *SuffixAutomaton::find(State state, int32_t token) const {
  const Edge &edge = edges[slotOf(state, token)];
  return edge.state1 ? &edge : nullptr;
}

void SuffixAutomaton::link(State state, int32_t token, State target) {
  uint32_t slot = slotOf(state, token);
  Edge &edge = edges[slot];
  if (!edge.state1) {
    edge = {state + 1, token, target, nodes[state].firstEdge};
    nodes[state].firstEdge = slot + 1;
  }
  edge.target = target;
}

SuffixAutomaton::State SuffixAutomaton::append(State last, int32_t token) {
  ++tokens;
  // The state of the sequence with its new token: there already if another sequence contains it, ...
  auto split = [&](State p, State q) {
    if (nodes[q].length == nodes[p].length + 1) return q;
    State clone = newState(nodes[p].length + 1);
    nodes[clone].link = nodes[q].link;
    nodes[clone].count = nodes[q].count;
    for (uint32_t e = nodes[q].firstEdge; e; e = edges[e - 1].next)
      link(clone, edges[e - 1].token, edges[e - 1].target);
    nodes[q].link = clone;
    for (; p != noLink; p = nodes[p].link) {
      uint32_t slot = slotOf(p, token);
      if (!edges[slot].state1 || edges[slot].target != q) break;
      edges[slot].target = clone;
    }
    return clone;
  };
  State current;
  if (const Edge *edge = find(last, token)) {
    current = split(last, edge->target);
  } else { // ... a new one if not.
    current = newState(nodes[last].length + 1);
    State p = last;
    const Edge *there = nullptr;
    for (; p != noLink && !(there = find(p, token)); p = nodes[p].link)
      link(p, token, current);
    nodes[current].link = p == noLink ? root : split(p, there->target);
  }
  State s = current;
  for (int depth = 0; s != root && s != noLink && depth < 64; ++depth, s = nodes[s].link)
    ++nodes[s].count;
  return current;
}

/// A state may have been split since the match was made: its short substrings went to a clone further up.
void SuffixAutomaton::normalise(Match &match) const {
  while (match.state != root && match.length <= nodes[nodes[match.state].link].length)
    match.state = nodes[match.state].link;
}

void SuffixAutomaton::advance(Match &match, int32_t token) const {
  if (!capacity) return;
  normalise(match);
  while (true) {
    if (const Edge *edge = find(match.state, token)) {
      match.state = edge->target;
      ++match.length;
      return;
    }
    if (match.state == root) {
      match.length = 0;
      return;
    }
    match.state = nodes[match.state].link;
    match.length = nodes[match.state].length;
  }
}

SuffixAutomaton::Match SuffixAutomaton::repeated(State last) const {
  if (last == root) return {};
  // A sequence that is the prefix of another shares its state, and then occurs there as a whole.
  if (nodes[last].count > 1) return {last, nodes[last].length};
  return {nodes[last].link, nodes[nodes[last].link].length};
}

SuffixAutomaton::Next SuffixAutomaton::follow(Match &match, uint32_t shortest) const {
  if (!capacity) return {};
  normalise(match);
  while (match.state != root && match.length >= shortest) {
    uint64_t all = 0;
    const Edge *best = nullptr;
    uint32_t e = nodes[match.state].firstEdge;
    for (uint32_t looked = 0; e && looked < mostFollowers; ++looked, e = edges[e - 1].next) {
      const Edge &edge = edges[e - 1];
      uint32_t count = nodes[edge.target].count;
      all += count;
      if (!best || count > nodes[best->target].count ||
          (count == nodes[best->target].count && edge.token < best->token))
        best = &edge;
    }
    if (e) all = std::max<uint64_t>(all, nodes[match.state].count);
    if (best && all) {
      Next next{best->token, static_cast<float>(nodes[best->target].count) / static_cast<float>(all)};
      match = {best->target, match.length + 1};
      return next;
    }
    match.state = nodes[match.state].link;
    match.length = nodes[match.state].length;
  }
  return {};
}

uint32_t SuffixAutomaton::followers(Match match, uint32_t shortest, std::span<Next> out, std::span<Match> behind) const {
  if (!capacity) return 0;
  normalise(match);
  for (; match.state != root && match.length >= shortest; match.state = nodes[match.state].link, match.length = nodes[match.state].length) {
    uint64_t all = 0;
    uint32_t count = 0, e = nodes[match.state].firstEdge;
    for (uint32_t looked = 0; e && looked < mostFollowers; ++looked, e = edges[e - 1].next) {
      const Edge &edge = edges[e - 1];
      auto here = static_cast<float>(nodes[edge.target].count);
      all += nodes[edge.target].count;
      uint32_t at = count;
      for (; at > 0 && (out[at - 1].share < here || (out[at - 1].share == here && out[at - 1].token > edge.token)); --at)
        if (at < out.size()) out[at] = out[at - 1], behind[at] = behind[at - 1];
      if (at >= out.size()) continue;
      out[at] = {edge.token, here};
      behind[at] = {edge.target, match.length + 1};
      count = std::min(count + 1, static_cast<uint32_t>(out.size()));
    }
    if (e) all = std::max<uint64_t>(all, nodes[match.state].count);
    for (uint32_t i = 0; all && i < count; ++i)
      out[i].share /= static_cast<float>(all);
    if (all && count) return count;
  }
  return 0;
}

uint32_t SuffixAutomaton::occurrences(Match match) const {
  if (!capacity) return 0;
  normalise(match);
  return match.state == root ? 0 : nodes[match.state].count;
}

} // namespace lathe::runtime
