//===- Engine.cpp ---------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/engine/Engine.h"
#include "runtime/engine/KVBudget.h"
#include <algorithm>

namespace lathe::runtime {
namespace {

constexpr uint64_t logitSliceBytes = 16 << 20;

} // namespace

Result<std::unique_ptr<Engine>> Engine::create(std::shared_ptr<LoadedArtifact> artifact, const EngineOptions &options,
                                               Device *device) {
  std::unique_ptr<Engine> e(new Engine(std::move(artifact)));
  const Program &p = e->program();
  LATHE_RETURN_IF_ERROR(checkSequences(*e->artifact, options.contextTokens, options.maxSequences));
  e->chunkRows = options.chunkRows ? std::min(options.chunkRows, p.maxRows) : p.maxRows;
  e->shape = {options.maxSequences, options.contextTokens ? options.contextTokens : p.maxSeq, options.kvTokens,
              e->chunkRows};
  LATHE_RETURN_IF_ERROR(fitBudget(p, options.memoryBudget, e->shape));
  ExecutableOptions prepare{options.threads, options.pin, kvBlocksFor(p, e->shape)};
  e->kv = std::make_unique<KVCache>(p, e->shape, prepare.kvBlocks);
  std::unique_ptr<Device> own;
  if (!device) device = (own = makeCpuDevice()).get();
  LATHE_ASSIGN_OR_RETURN(e->device, device->prepare(e->artifact, prepare));
  e->slots.resize(options.maxSequences);
  for (Slot &s : e->slots)
    s.tokens.reserve(e->shape.contextTokens);
  for (auto *list : {&e->token, &e->position, &e->slot, &e->sequence, &e->parent})
    list->resize(e->chunkRows);
  e->outRow.reserve(e->chunkRows);
  e->outOrigin.reserve(e->chunkRows);

  if (options.shuffleBlocks)
    for (uint32_t g = 0; g < e->kv->groups(); ++g)
      e->kv->pool(g).shuffle(options.shuffleBlocks + g);
  if ((e->poison = options.poisonFreeBlocks)) {
    e->kv->recordReleases(true);
    for (uint32_t g = 0; g < e->kv->groups(); ++g)
      for (int32_t block : e->kv->pool(g).freeList())
        LATHE_RETURN_IF_ERROR(e->device->fillBlock(g, static_cast<uint32_t>(block), 0xff));
  }
  return e;
}

Result<SequenceId> Engine::open() {
  for (SequenceId s = 0; s < slots.size(); ++s)
    if (!slots[s].open) {
      slots[s].open = true;
      return s;
    }
  return makeError(StatusCode::resourceExhausted, "%zu sequences are open, which is the limit", slots.size());
}

void Engine::close(SequenceId s) {
  if (s >= slots.size() || !slots[s].open) return;
  kv->release(s);
  slots[s].open = false;
  slots[s].length = 0;
  slots[s].tokens.clear();
  slots[s].tree.clear();
  poisonReleased();
}

uint32_t Engine::truncate(SequenceId s, uint32_t newLength) {
  Slot &state = slots[s];
  if (newLength >= state.length) return state.length;
  state.tree.clear();
  if (kv->truncate(s, newLength)) {
    state.length = newLength;
  } else {
    kv->release(s);
    state.length = 0;
  }
  state.tokens.resize(state.length);
  poisonReleased();
  return state.length;
}

Status Engine::keepPath(SequenceId s, std::span<const uint32_t> path) {
  if (!isOpen(s) || slots[s].tree.empty()) return makeError(StatusCode::invalidArgument, "sequence %u has no tree to choose from", s);
  Slot &state = slots[s];
  auto begin = state.length - static_cast<uint32_t>(state.tree.size());
  for (size_t i = 0; i < path.size(); ++i)
    if (path[i] >= state.tree.size() || state.tree[path[i]] != (i ? static_cast<int32_t>(path[i - 1]) : -1))
      return makeError(StatusCode::invalidArgument, "token %zu of a path: %u does not follow the one before it in the tree", i, path[i]);
  // Ascending: an entry is moved to a place of no later one of the path.
  for (uint32_t i = 0; i < path.size(); ++i) {
    if (path[i] == i) continue;
    state.tokens[begin + i] = state.tokens[begin + path[i]];
    for (uint32_t g = 0; g < kv->groups(); ++g) {
      uint32_t page = program().kvGroups[g].pageTokens, from = begin + path[i], to = begin + i;
      const int32_t *table = kv->tables()[g] + uint64_t(s) * kv->strides()[g];
      LATHE_RETURN_IF_ERROR(device->copyEntry(g, static_cast<uint32_t>(table[from / page]), from % page, static_cast<uint32_t>(table[to / page]), to % page));
    }
  }
  state.tree.clear();
  truncate(s, begin + static_cast<uint32_t>(path.size()));
  kv->trim(s, state.length);
  poisonReleased();
  return Status();
}

uint32_t Engine::keepPrefix(SequenceId s, std::span<const int32_t> prompt) {
  uint32_t common = 0;
  while (common < slots[s].length && common + 1 < prompt.size() && slots[s].tokens[common] == prompt[common])
    ++common;
  return truncate(s, common);
}

void Engine::poisonReleased() {
  if (!poison) return;
  for (auto [group, block] : kv->takeReleased())
    (void)device->fillBlock(group, static_cast<uint32_t>(block), 0xff).ok();
}

Status Engine::checkWork(std::span<const Work> work) const {
  for (size_t k = 0; k < work.size(); ++k) {
    const Work &w = work[k];
    if (w.sequence >= slots.size() || !slots[w.sequence].open)
      return makeError(StatusCode::invalidArgument, "sequence %u is not open", w.sequence);
    for (size_t before = 0; before < k; ++before)
      if (work[before].sequence == w.sequence && !work[before].parents.empty())
        return makeError(StatusCode::invalidArgument, "sequence %u: expected nothing behind its tree in one call, found more work", w.sequence);
    for (size_t i = 0; i < w.tokens.size(); ++i)
      if (w.tokens[i] < 0 || static_cast<uint32_t>(w.tokens[i]) >= program().vocabulary)
        return makeError(StatusCode::invalidArgument, "token %zu: expected an id in 0..%u, found %d", i,
                         program().vocabulary - 1, w.tokens[i]);
    if (!slots[w.sequence].tree.empty()) return makeError(StatusCode::invalidArgument, "sequence %u has a tree of which no path was chosen", w.sequence);
    if (w.parents.empty()) continue;
    size_t most = std::min<size_t>(chunkRows, maxTreeSlots + 1);
    if (w.parents.size() != w.tokens.size() || w.tokens.size() > most)
      return makeError(StatusCode::invalidArgument, "expected a tree of at most %zu tokens and a parent of each, found %zu tokens and %zu parents", most,
                       w.tokens.size(), w.parents.size());
    for (size_t i = 0; i < w.parents.size(); ++i)
      if (i ? w.parents[i] < 0 || static_cast<size_t>(w.parents[i]) >= i : w.parents[i] != -1)
        return makeError(StatusCode::invalidArgument, "parent of token %zu of a tree: expected %s, found %d", i, i ? "an earlier token" : "-1", w.parents[i]);
  }
  return Status();
}

Status Engine::forward(std::span<const Work> work, const RowSink &logits, const RowSink &hidden, const RowSink &choices) {
  const Sinks sinks{logits, hidden, choices};
  if (hidden && artifact->graph())
    return Status(StatusCode::unsupported, "a general graph has no hidden states");
  LATHE_RETURN_IF_ERROR(checkWork(work));
  rows = 0;
  outRow.clear();
  outOrigin.clear();
  for (size_t w = 0; w < work.size(); ++w) {
    std::span<const int32_t> tokens = work[w].tokens;
    SequenceId s = work[w].sequence;
    for (size_t done = 0; done < tokens.size();) {
      const bool tree = !work[w].parents.empty();
      if (rows == chunkRows || (tree && rows + tokens.size() > chunkRows)) LATHE_RETURN_IF_ERROR(runStep(sinks));
      auto n = static_cast<uint32_t>(std::min<size_t>(chunkRows - rows, tokens.size() - done));
      uint32_t begin = slots[s].length;
      if (Status status = kv->reserve(s, begin + n); !status.ok()) {
        // What is already in the step is sound: finish it, so that lengths and cache agree.
        LATHE_RETURN_IF_ERROR(runStep(sinks));
        if (!kv->reserve(s, begin + n).ok()) return status; // blocks left of a window may have come back
      }
      for (uint32_t i = 0; i < n; ++i, ++rows) {
        token[rows] = tokens[done + i];
        position[rows] = slot[rows] = static_cast<int32_t>(begin + i);
        parent[rows] = -1;
        if (tree && i) {
          parent[rows] = static_cast<int32_t>(rows - i) + work[w].parents[i];
          position[rows] = position[static_cast<size_t>(parent[rows])] + 1;
          trees = true;
        }
        sequence[rows] = static_cast<int32_t>(s);
        bool wanted =
            work[w].output == OutputRows::all || (work[w].output == OutputRows::last && done + i + 1 == tokens.size());
        if (wanted && sinks) {
          outRow.push_back(static_cast<int32_t>(rows));
          outOrigin.push_back({static_cast<uint32_t>(w), static_cast<uint32_t>(done + i)});
        }
      }
      if (tree) slots[s].tree.assign(work[w].parents.begin(), work[w].parents.end());
      slots[s].length += n;
      slots[s].tokens.insert(slots[s].tokens.end(), tokens.begin() + static_cast<long>(done),
                             tokens.begin() + static_cast<long>(done + n));
      done += n;
    }
  }
  return runStep(sinks);
}

Status Engine::runStep(const Sinks &sinks) {
  if (!rows) return Status();
  const Program &p = program();
  if (cancelled && cancelled->load()) {
    for (uint32_t r = rows; r-- > 0;) { // these rows were never computed
      Slot &s = slots[static_cast<size_t>(sequence[r])];
      s.tokens.resize(--s.length);
      s.tree.clear();
    }
    rows = 0;
    trees = false;
    return Status(StatusCode::cancelled, "cancelled");
  }
  LatheStep step{};
  step.size = sizeof step;
  step.rows = rows;
  step.sequences = kv->sequences();
  step.token = token.data();
  step.position = position.data();
  step.slot = slot.data();
  step.sequence = sequence.data();
  step.parent = trees ? parent.data() : nullptr;
  step.outRow = outRow.data();
  step.blockTable = kv->tables();
  step.tableStride = kv->strides();
  LATHE_ASSIGN_OR_RETURN(Ticket ticket, device->submit(EntryKind::step, step));
  LATHE_RETURN_IF_ERROR(device->wait(ticket));
  if (sinks.hidden)
    for (size_t i = 0; i < outRow.size(); ++i)
      LATHE_RETURN_IF_ERROR(sinks.hidden(outOrigin[i].work, outOrigin[i].token,
                                   {device->hidden(static_cast<uint32_t>(outRow[i])), p.hiddenSize}));
  for (const RowSink *sink : {&sinks.logits, &sinks.choices}) {
    if (!*sink) continue;
    const bool whole = sink == &sinks.logits;
    uint64_t slice = std::clamp<uint64_t>(logitSliceBytes / (uint64_t(whole ? p.logitsStride : 16) * 4), 1, p.maxOutRows);
    for (size_t first = 0; first < outRow.size(); first += slice) {
      step.outRows = static_cast<uint32_t>(std::min<uint64_t>(slice, outRow.size() - first));
      step.outRow = outRow.data() + first;
      LATHE_ASSIGN_OR_RETURN(ticket, device->submit(whole ? EntryKind::head : EntryKind::headChoices, step));
      LATHE_RETURN_IF_ERROR(device->wait(ticket));
      for (uint32_t i = 0; i < step.outRows; ++i) {
        auto row = whole ? std::span(device->logits(i), p.vocabulary) : std::span(device->choice(i), 2);
        LATHE_RETURN_IF_ERROR((*sink)(outOrigin[first + i].work, outOrigin[first + i].token, row));
      }
    }
  }
  for (uint32_t r = 0; r < rows; ++r) {
    auto s = static_cast<SequenceId>(sequence[r]);
    if (slots[s].tree.empty() && (r + 1 == rows || sequence[r + 1] != sequence[r])) kv->trim(s, slots[s].length);
  }
  poisonReleased();
  rows = 0;
  trees = false;
  outRow.clear();
  outOrigin.clear();
  return Status();
}

} // namespace lathe::runtime
