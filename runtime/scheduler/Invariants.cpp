//===- Invariants.cpp - what must hold after every event ------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/scheduler/SchedulerImpl.h"
#include <algorithm>

namespace lathe::runtime {

Status SchedulerImpl::checkInvariants() const {
  LATHE_RETURN_IF_ERROR(cache.check());
  auto broken = [](const char *what, uint64_t where, uint64_t expected, uint64_t found) {
    return makeError(StatusCode::internal, "%s %llu: expected %llu, found %llu", what,
                     static_cast<unsigned long long>(where), static_cast<unsigned long long>(expected),
                     static_cast<unsigned long long>(found));
  };
  // Rows: each is free, or the row of one living choice.
  uint32_t used = 0, running = 0;
  for (uint32_t i = 0; i < rows.size(); ++i) {
    const Row &row = rows[i];
    for (uint32_t g = 0; g < cache.groups(); ++g) {
      auto [first, end] = cache.held(i, g);
      if (row.request == none || row.reserved) {
        if (first != end) return broken("blocks of the idle row", i, 0, end - first);
        continue;
      }
      uint32_t size = cache.page(g), slots = end * size, window = cache.window(g);
      if (!inFlight && slots != (row.computed + size - 1) / size * size)
        return broken("slots of row", i, (row.computed + size - 1) / size * size, slots);
      uint32_t seen = window && row.computed + 1 > window ? row.computed + 1 - window : 0;
      if (first * size > seen) return broken("first slot of row", i, seen, first * size);
    }
    if (row.request == none) continue;
    ++used;
    running += !row.reserved;
    const RequestState &r = requests[row.request];
    if (row.choice >= r.choices.size() || r.choices[row.choice].row != i)
      return broken("choice of row", i, i, row.choice);
    auto state = r.choices[row.choice].state;
    if (state != (row.reserved ? Choice::State::reserved : Choice::State::running))
      return broken("state of row", i, row.reserved, static_cast<uint64_t>(state));
    if (row.reserved) {
      if (r.forked || r.choices[0].state != Choice::State::running) return broken("fork's origin, row", i, 1, 0);
      continue;
    }
    if (row.computed >= row.known || row.known > options.contextTokens)
      return broken("tokens of row", i, row.known, row.computed);
    if (std::count(active.begin(), active.end(), i) != 1) return broken("times in order, row", i, 1, 0);
    if (!inFlight && (row.piece != none || row.restored)) return broken("piece of row", i, none, row.piece);
  }
  if (used + freeRows.size() != rows.size()) return broken("rows", 0, rows.size(), used + freeRows.size());
  if (running != active.size()) return broken("running sequences", 0, running, active.size());
  for (size_t i = 1; i < active.size(); ++i)
    if (rows[active[i - 1]].admitted > rows[active[i]].admitted) return broken("order of admission at", i, 0, 1);

  // Queues: sorted, and each choice that waits is in its queue once.
  uint64_t queued = 0, held = 0;
  for (const Tenant &t : tenants) {
    if (!std::is_sorted(t.queue.begin(), t.queue.end())) return broken("order of a queue", 0, 0, 1);
    queued += t.queue.size();
    held += t.rows;
    for (const Item &item : t.queue) {
      const RequestState &r = requests[item.request];
      if (r.choices[item.choice].state != Choice::State::waiting || (item.choice && !r.forked) || !r.left)
        return broken("queued choice of request", r.spec.id, 0, item.choice);
    }
  }
  if (held != used) return broken("rows of tenants", 0, used, held);
  if (queued != waitingItems) return broken("queued choices", 0, queued, waitingItems);
  uint64_t waiting = 0, inside = 0, tokens = 0, bytes = 0, firsts = 0;
  for (const auto &[id, index] : byId) {
    const RequestState &r = requests[index];
    if (r.spec.id != id || !r.left) return broken("request", id, r.spec.id, r.left);
    ++inside;
    uint32_t left = 0;
    for (uint32_t c = 0; c < r.choices.size(); ++c) {
      const Choice &choice = r.choices[c];
      left += choice.state != Choice::State::ended;
      waiting += choice.state == Choice::State::waiting && (r.forked || !c);
      if (choice.preemptions > maxPreemptions)
        return broken("preemptions of request", id, maxPreemptions, choice.preemptions);
      if (!choice.hasSaved && !choice.saved.blocks.empty())
        return broken("saved blocks of request", id, 0, choice.saved.blocks.size());
      for (const SavedSequence::Block &block : choice.saved.blocks)
        bytes += store.blockBytes(block.group);
    }
    if (left != r.left) return broken("choices left of request", id, left, r.left);
    if (!r.admitted) ++firsts, tokens += r.spec.prompt.size();
  }
  if (waiting != waitingItems) return broken("waiting choices", 0, waiting, waitingItems);
  if (firsts != waitingRequests) return broken("waiting requests", 0, firsts, waitingRequests);
  if (tokens != waitingTokens) return broken("waiting tokens", 0, tokens, waitingTokens);
  if (bytes != store.bytesUsed()) return broken("saved bytes", 0, bytes, store.bytesUsed());
  if (inside + freeRequests.size() != requests.size())
    return broken("requests", 0, requests.size(), inside + freeRequests.size());

  // Idle: nothing is owned.
  if (byId.empty())
    for (uint32_t g = 0; g < cache.groups(); ++g)
      if (cache.pool(g).available() != cache.pool(g).total())
        return broken("free blocks of idle group", g, cache.pool(g).total(), cache.pool(g).available());
  // Whoever got a promise can have its blocks. (A window group's are counted when they are not shared any more.)
  if (!inFlight)
    for (uint32_t g = 0; g < cache.groups(); ++g) {
      uint64_t promised = 0;
      for (uint32_t index : active)
        promised += outstandingOf(rows[index], index, g);
      if (!cache.window(g) && promised > cache.pool(g).available())
        return broken("promised blocks of group", g, cache.pool(g).available(), promised);
    }
  return Status();
}

} // namespace lathe::runtime
