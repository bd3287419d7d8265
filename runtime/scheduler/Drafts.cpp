//===- Drafts.cpp - which draft tokens are worth their rows ---------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// The last part of a plan: what is decided without drafts stands, and drafts take rows and blocks that nobody else
// wants. So a request is never kept waiting, preempted or cut shorter by another one's speculation.
//===----------------------------------------------------------------------===//
#include "runtime/scheduler/SchedulerImpl.h"
#include <algorithm>
#include <bit>
#include <utility>

namespace lathe::runtime {

// The step with drafts must make this much more of a second: below it the estimates decide by chance.
static constexpr double leastGain = 1.02;

/// The row of a choice that decodes next, or none.
uint32_t SchedulerImpl::rowOf(RequestId id, uint32_t choice) const {
  auto found = byId.find(id);
  if (found == byId.end() || inFlight) return none;
  const RequestState &r = requests[found->second];
  if (!r.forked || choice >= r.choices.size() || r.choices[choice].state != Choice::State::running) return none;
  uint32_t index = r.choices[choice].row;
  return rows[index].known - rows[index].computed == 1 ? index : none;
}

uint32_t SchedulerImpl::draftRoom(RequestId id, uint32_t choice) const {
  uint32_t index = rowOf(id, choice);
  if (index == none) return 0;
  const Row &row = rows[index];
  // The token sampled from the last row is one more.
  uint32_t context = options.contextTokens - row.known, answer = requests[row.request].spec.maxTokens - row.generated;
  return std::min({context, answer - std::min(answer, 1u), options.stepTokens - 1, maxDraftTokens});
}

void SchedulerImpl::propose(RequestId id, uint32_t choice, std::span<const int32_t> tokens,
                            std::span<const float> chances, std::span<const int8_t> parents) {
  auto count =
      std::min({static_cast<uint32_t>(tokens.size()), static_cast<uint32_t>(chances.size()), draftRoom(id, choice)});
  bool tree = !parents.empty();
  for (uint32_t i = 0; tree && i < count; ++i) // what follows no earlier draft is cut
    if (i >= parents.size() || parents[i] < -1 || parents[i] >= static_cast<int32_t>(i)) count = i;
  if (!count) return;
  if (trace) {
    trace.line('D').number(id).number(choice).number(count);
    for (uint32_t i = 0; i < count; ++i)
      trace.integer(tokens[i]).number(std::bit_cast<uint32_t>(chances[i]));
    for (uint32_t i = 0; tree && i < count; ++i)
      trace.integer(parents[i]);
    trace.end();
  }
  uint32_t index = rowOf(id, choice);
  Row &row = rows[index];
  proposals += !row.drafts;
  row.drafts = count;
  row.draftTree = tree;
  if (tree) std::copy_n(parents.begin(), count, draftParents.get() + uint64_t(index) * maxDraftTokens);
  std::copy_n(tokens.begin(), count, tokensOf(index) + row.known);
  float *chance = draftChances.get() + uint64_t(index) * maxDraftTokens;
  for (uint32_t i = 0; i < count; ++i) // never rising, and NaN counts as hopeless
    chance[i] = std::min(i ? chance[i - 1] : 1.0f, chances[i] > 0 ? chances[i] : 0.0f);
}

uint32_t SchedulerImpl::decodingChoices() const {
  uint32_t decoding = 0;
  for (uint32_t index : active)
    decoding += rows[index].known - rows[index].computed == 1;
  return decoding;
}

bool SchedulerImpl::draftsMayPay() const {
  uint32_t decoding = decodingChoices();
  if (!decoding || decoding >= options.stepTokens) return false;
  if (options.freeDrafts) return true;
  double work = 0;
  for (uint32_t index : active)
    if (rows[index].known - rows[index].computed == 1) work += options.cost.work(1, rows[index].known);
  double seconds = options.cost.seconds(work), perRow = work / decoding;
  for (uint32_t more = 1; more <= decoding * maxDraftTokens && decoding + more <= options.stepTokens; more *= 2)
    if ((decoding + 0.95 * more) * seconds > leastGain * decoding * options.cost.seconds(work + more * perRow)) return true;
  return false;
}

/// Makes the piece of |index| longer by |count| drafts, if their slots can be had without taking what is promised.
bool SchedulerImpl::addDrafts(uint32_t index, uint32_t count) {
  Row &row = rows[index];
  uint32_t end = row.computed + 1 + count;
  for (uint32_t g = 0; g < cache.groups(); ++g) {
    uint32_t lacking = cache.lacking(index, g, row.computed, end);
    uint32_t own = row.promise > row.computed ? cache.lacking(index, g, row.computed, std::min(end, row.promise)) : 0;
    if (lacking - std::min(lacking, own) > spare(g)) return false;
  }
  if (!extendRow(index, 1 + count)) return false;
  StepPiece &piece = current.pieces[row.piece];
  piece.tokens = 1 + count;
  piece.drafts = count;
  piece.resultFrom = 0;
  piece.parents = row.draftTree ? draftParents.get() + uint64_t(index) * maxDraftTokens : nullptr;
  current.rows += count;
  budget -= count;
  return true;
}

/// Tokens per second: of all rows of the step, those that run anyway count one each and a draft its chance. The drafts
/// are taken in the order of their chances, as many as make the most of a second; where they are free, all.
void SchedulerImpl::planDrafts() {
  draftRows.clear();
  uint32_t most = budget;
  if (options.maxResults) {
    uint32_t results = 0;
    for (const StepPiece &piece : current.pieces)
      results += piece.tokens ? piece.tokens - piece.resultFrom : 0;
    most = std::min(most, options.maxResults - std::min(options.maxResults, results));
  }
  for (uint32_t index : active) {
    Row &row = rows[index];
    uint32_t drafts = std::exchange(row.drafts, 0);
    if (!drafts || row.piece == none || current.pieces[row.piece].tokens != 1) continue;
    const float *chance = draftChances.get() + uint64_t(index) * maxDraftTokens;
    for (uint32_t i = 0; i < drafts; ++i)
      draftRows.push_back({chance[i], index, i + 1});
  }
  proposals = 0;
  if (draftRows.empty() || !most) return;
  std::sort(draftRows.begin(), draftRows.end(), [](const DraftRow &a, const DraftRow &b) {
    if (a.chance != b.chance) return a.chance > b.chance;
    return a.depth != b.depth ? a.depth < b.depth : a.row < b.row;
  });
  double base = current.rows, work = 0, gain = 0;
  for (const StepPiece &piece : current.pieces)
    work += workOf(piece);
  double best = leastGain * base / options.cost.seconds(work);
  size_t count = std::min<size_t>(draftRows.size(), most), taken = options.freeDrafts ? count : 0;
  for (size_t i = taken; i < count; ++i) {
    gain += static_cast<double>(draftRows[i].chance);
    work += options.cost.work(1, rows[draftRows[i].row].known + draftRows[i].depth);
    double rate = (base + gain) / options.cost.seconds(work);
    if (rate > best) best = rate, taken = i + 1;
  }
  // Chances of a row never rise, so what is taken of it are its first drafts: of a tree its best nodes, and with each those that
  // lead to it.
  for (size_t i = 0; i < taken; ++i)
    rows[draftRows[i].row].drafts = std::max(rows[draftRows[i].row].drafts, draftRows[i].depth);
  for (uint32_t index : active) {
    uint32_t drafts = std::exchange(rows[index].drafts, 0);
    while (drafts && !addDrafts(index, drafts))
      --drafts;
  }
}

} // namespace lathe::runtime
