//===- DraftProgram.cpp ---------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/engine/DraftProgram.h"
#include <algorithm>

namespace lathe::runtime {

DraftProgram::DraftProgram(StepDevice &device, const Program &program, const KVShape &shape,
                           std::span<const uint32_t> blocks, DraftBlocks blocksBeside, bool poison)
    : device(device), program(program), extra(std::move(blocksBeside)),
      cache(std::span(program.kvGroups).subspan(program.stepGroups()), shape, blocks.subspan(program.stepGroups())) {
  cache.recordReleases(poison);
  sequences.resize(shape.maxSequences);
  began.reserve(shape.maxSequences);
  tails.resize(extra.tails.size());
  for (size_t g = 0; g < extra.tails.size(); ++g) {
    firstTail[g] = blocks[g] - extra.tails[g];
    reads |= extra.tails[g] > 0;
    uint32_t page = program.kvGroups[g].pageTokens;
    if (extra.tails[g]) tails[g].assign(uint64_t(shape.maxSequences) * ((shape.contextTokens + page - 1) / page), -1);
  }
  tables.resize(program.kvGroups.size());
  strides.resize(program.kvGroups.size());
  for (auto *list : {&token, &position, &slot, &sequence, &parent})
    list->resize(program.maxRows);
  outRow.reserve(program.maxOutRows);
  if (!overFeatures()) return;
  taken.resize(program.draftInputSize);
  ownRows.resize(size_t(program.maxOutRows) * program.hiddenSize);
}

Status DraftProgram::poisonAll() {
  auto first = static_cast<uint32_t>(program.stepGroups());
  for (uint32_t g = 0; g < cache.groups(); ++g)
    for (int32_t block : cache.pool(g).freeList())
      LATHE_RETURN_IF_ERROR(device.executable().fillBlock(first + g, static_cast<uint32_t>(block), 0xff));
  for (uint32_t g = 0; g < first; ++g)
    for (uint32_t t = 0; t < extra.tails[g]; ++t)
      LATHE_RETURN_IF_ERROR(device.executable().fillBlock(g, firstTail[g] + t, 0xff));
  return Status();
}

void DraftProgram::drop(uint32_t row) {
  cache.release(row);
  sequences[row] = {};
}

void DraftProgram::truncate(Sequence &s, uint32_t row, uint32_t length) {
  if (!cache.truncate(row, length - s.base)) { // a window's blocks are gone
    cache.release(row);
    length = s.base;
  }
  s.computed = length;
}

uint32_t DraftProgram::lag(uint32_t row, Owner owner, uint32_t known, uint32_t earliest) const {
  const Sequence &s = sequences[row];
  if (reads || !goesOn()) return 1;
  uint32_t computed = s.used && s.owner == owner ? std::min({s.computed, s.known, known - 1}) : 0;
  return known - std::max(computed, earliest);
}

uint32_t DraftProgram::begin(uint32_t row, Owner owner, std::span<const int32_t> text, uint32_t earliest) {
  Sequence &s = sequences[row];
  if (s.used && (s.owner != owner || s.known > text.size())) drop(row);
  s.owner = owner;
  s.used = s.drafts = true;
  began.push_back(row);
  auto known = static_cast<uint32_t>(text.size());
  if (reads || !goesOn()) {
    s.known = known;
    return s.computed = known - 1;
  }
  // What was guessed and computed stays as far as it came true.
  uint32_t right = 0;
  while (!overFeatures() && right < s.guesses && s.known + right < known && s.guess[right] == text[s.known + right])
    ++right;
  // The last known token is always computed: its logits are wanted.
  truncate(s, row, std::max(s.base, std::min({s.computed, s.known + right, known - 1})));
  if (s.computed < earliest) {
    cache.release(row);
    s.base = s.computed = earliest;
  }
  s.known = known;
  s.guesses = 0;
  return s.computed;
}

bool DraftProgram::reserve(uint32_t row, uint32_t tokens) {
  if (reads) return shared < extra.sequences;
  if (!goesOn()) return true;
  while (!cache.reserve(row, tokens - sequences[row].base).ok()) {
    uint32_t idle = 0;
    while (idle < sequences.size() && (!sequences[idle].used || sequences[idle].drafts))
      ++idle;
    if (idle == sequences.size()) return false;
    drop(idle);
  }
  return true;
}

Status DraftProgram::shareWith(uint32_t row, uint32_t known, const KVCache &step) {
  if (!reads) return Status();
  uint32_t place = shared++;
  for (uint32_t g = 0; g < extra.tails.size(); ++g) {
    if (!extra.tails[g]) continue;
    const KVGroup &group = program.kvGroups[g];
    uint32_t stride = step.strides()[g], pages = draftTailPages(group), first = (known - 1) / group.pageTokens;
    const int32_t *theirs = step.tables()[g] + uint64_t(row) * stride;
    int32_t *own = tails[g].data() + uint64_t(row) * stride;
    std::copy_n(theirs, std::min(first, stride), own);
    for (uint32_t page = 0; page < pages && first + page < stride; ++page)
      own[first + page] = static_cast<int32_t>(firstTail[g] + place * pages + page);
    if ((known - 1) % group.pageTokens)
      LATHE_RETURN_IF_ERROR(device.executable().copyBlock(g, static_cast<uint32_t>(theirs[first]),
                                                          static_cast<uint32_t>(own[first])));
  }
  return Status();
}

Status DraftProgram::run(std::span<const Piece> pieces, const KVCache &step) {
  auto stepGroups = static_cast<uint32_t>(program.stepGroups());
  for (auto [group, block] : cache.takeReleased())
    LATHE_RETURN_IF_ERROR(device.executable().fillBlock(stepGroups + group, static_cast<uint32_t>(block), 0xff));
  uint32_t rows = 0;
  bool trees = false;
  outRow.clear();
  for (const Piece &piece : pieces) {
    if (!goesOn()) LATHE_RETURN_IF_ERROR(device.executable().setDraftInput(rows, piece.input));
    const auto begin = rows, count = static_cast<uint32_t>(piece.tokens.size());
    for (uint32_t i = 0; i < count; ++i, ++rows) {
      if (overFeatures()) LATHE_RETURN_IF_ERROR(takeRow(rows, piece, i));
      token[rows] = piece.tokens[i];
      slot[rows] = static_cast<int32_t>(piece.first + i - sequences[piece.row].base);
      int32_t before = piece.tree ? piece.tree->parents()[i] : -1;
      parent[rows] = before < 0 ? -1 : static_cast<int32_t>(begin) + before;
      position[rows] = before < 0 ? slot[rows] : position[begin + static_cast<uint32_t>(before)] + 1;
      sequence[rows] = static_cast<int32_t>(piece.row);
    }
    trees |= piece.tree != nullptr;
    for (uint32_t i = count - piece.results; i < count; ++i) outRow.push_back(static_cast<int32_t>(begin + i));
  }
  for (uint32_t g = 0; g < program.kvGroups.size(); ++g) {
    bool own = g >= stepGroups;
    tables[g] = own ? cache.tables()[g - stepGroups] : extra.tails[g] ? tails[g].data() : step.tables()[g];
    strides[g] = own ? cache.strides()[g - stepGroups] : step.strides()[g];
  }
  LatheStep s{};
  s.size = sizeof s;
  s.rows = rows;
  s.sequences = step.sequences();
  s.token = token.data();
  s.position = position.data();
  s.slot = slot.data();
  s.sequence = sequence.data();
  if (trees) s.parent = parent.data();
  s.blockTable = tables.data();
  s.tableStride = strides.data();
  LATHE_RETURN_IF_ERROR(device.runEntry(EntryKind::draft, s));
  for (const Piece &piece : pieces)
    sequences[piece.row].computed = piece.first + (piece.tree ? 1 : static_cast<uint32_t>(piece.tokens.size()));
  if (outRow.empty()) return Status();
  s.outRows = static_cast<uint32_t>(outRow.size());
  s.outRow = outRow.data();
  LATHE_RETURN_IF_ERROR(device.runEntry(EntryKind::draftHead, s));
  // What goes on from a row overwrites it.
  for (size_t i = 0; overFeatures() && i < outRow.size(); ++i)
    std::copy_n(device.executable().draftOwn(static_cast<uint32_t>(outRow[i])), program.hiddenSize, ownRows.begin() + static_cast<ptrdiff_t>(i * program.hiddenSize));
  return Status();
}

/// Row |row| of the next run: [own | features] of the token before the piece's |index|-th.
Status DraftProgram::takeRow(uint32_t row, const Piece &piece, uint32_t index) {
  uint32_t place = piece.first + index;
  bool known = piece.features && place && piece.features->holds(place - 1) && !(piece.tree && index);
  std::span<const float> from = known ? piece.features->row(place - 1) : piece.tree ? piece.tree->input(index) : piece.input;
  std::fill(taken.begin(), taken.end(), 0.0f);
  std::copy(from.begin(), from.end(), taken.begin() + (known ? program.hiddenSize : 0));
  return device.executable().setDraftInput(row, taken);
}

std::span<const float> DraftProgram::logits(uint32_t index, uint32_t head) {
  return {device.executable().draftLogits(index, head), program.draftVocabulary()};
}

void DraftProgram::guessed(uint32_t row, std::span<const int32_t> tokens) {
  Sequence &s = sequences[row];
  s.guesses = static_cast<uint32_t>(std::min<size_t>(tokens.size(), maxDraftTokens));
  std::copy_n(tokens.begin(), s.guesses, s.guess.begin());
}

void DraftProgram::endRound() {
  for (uint32_t row : began) {
    sequences[row].drafts = false;
    // What is final moves a window on; what was guessed may be taken back.
    cache.trim(row, std::max(sequences[row].base, std::min(sequences[row].computed, sequences[row].known - 1)) - sequences[row].base);
  }
  began.clear();
  shared = 0;
}

void DraftProgram::forget(Owner owner) {
  for (uint32_t row = 0; row < sequences.size(); ++row)
    if (sequences[row].used && sequences[row].owner == owner) drop(row);
}

uint64_t DraftProgram::blocksUsed() const {
  uint64_t used = 0;
  for (uint32_t g = 0; g < cache.groups(); ++g)
    used += cache.pool(g).total() - cache.pool(g).available();
  return used;
}

} // namespace lathe::runtime
