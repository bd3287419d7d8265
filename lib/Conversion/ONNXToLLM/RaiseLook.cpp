//===- RaiseLook.cpp - runs of a graph for many sizes ---------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Raiser.h"

using namespace mlir;

namespace lathe::raise {

bool Raiser::runOnce(const Roles &roles, Sizes sizes, Parts &parts) {
  GraphRun run(main, roles, sizes, headSize, params);
  if (sizes.past == 0) run.usual = &branches;
  RunResult result = run.run();
  if (seen.empty()) branches = run.branches;
  beyond = run.beyond;
  sixteenBits = run.own != DataType::float32;
  for (StoredTable &table : run.tables)
    if (llvm::none_of(tables, [&](const StoredTable &old) {
          return old.axes == table.axes && (old.values == table.values || (old.values->shape == table.values->shape && old.values->i == table.values->i && old.values->f == table.values->f));
        }))
      tables.push_back(std::move(table));
  for (const auto &[op, values] : run.quotients)
    buckets |= quotients.try_emplace(op, values).first->second != values;
  for (auto [all, own] : {std::pair(&numbers, &run.numbers), {&thresholds, &run.thresholds}})
    if (all->empty()) *all = *own;
    else std::erase_if(*all, [own = own](int64_t n) { return !own->count(n); });
  if (!result.why.empty()) {
    why = result.why;
    at = result.at;
    remarks = recognised(run.terms);
    return false;
  }
  parts = assemble(run.terms, result, sizes);
  where.reset();
  differs.reset();
  if (seen.empty())
    for (size_t k = 0; k < run.terms.size(); ++k)
      seen.push_back(run.terms[static_cast<TermId>(k)]);
  // Where it is that two runs differ.
  for (size_t k = 0; k < run.terms.size() && !differs; ++k) {
    const Term &now = run.terms[static_cast<TermId>(k)];
    bool other = k >= seen.size() || now.kind != seen[k].kind || now.number != seen[k].number || now.name != seen[k].name ||
                 (now.kind != Kind::past && now.kind != Kind::history && now.a > 0 && seen[k].a > 0 && now.a != seen[k].a);
    if (other) differs = now.loc;
  }
  for (const std::string &output : result.unused)
    parts.layers.push_back(output + " is neither logits nor a cache and is left out");
  why = parts.why;
  at = nullptr;
  remarks = parts.layers;
  if (!why.empty()) llvm::append_range(remarks, recognised(run.terms));
  return why.empty();
}

bool Raiser::attempt(const Roles &roles, Parts &parts) {
  // Sizes that no weight has, so that axes cannot be mistaken; position 1 is among the first.
  bool ok = false;
  std::string firstWhy;
  Operation *firstAt = nullptr;
  std::vector<std::string> firstRemarks;
  // Exports of one sequence have its 1 in their shapes.
  bool alone = llvm::any_of(llvm::zip(main.getArguments(), roles), [](auto pair) {
    auto type = dyn_cast<RankedTensorType>(std::get<0>(pair).getType());
    return std::get<1>(pair) == Role::tokens && type && type.getRank() == 2 && type.getDimSize(0) == 1;
  });
  auto batch = [&](int64_t several) { return alone ? 1 : several; };
  for (auto [k, size] : llvm::enumerate(headSizes())) {
    headSize = size;
    if ((ok = runOnce(roles, {batch(2), 7, 1}, parts))) break;
    if (k == 0) firstWhy = why, firstAt = at, firstRemarks = remarks;
  }
  if (!ok) {
    why = firstWhy;
    at = firstAt;
    remarks = firstRemarks;
    return false;
  }
  // A step of one token may take a way of its own, and so may the first, behind an empty past.
  for (Sizes sizes : {Sizes{batch(3), 5, 11}, Sizes{1, 4, 9}, Sizes{1, 1, 13}, Sizes{batch(2), 6, 0}}) {
    Parts other;
    if (!runOnce(roles, sizes, other)) return false;
    if (!agree(parts, other)) return false;
  }
  if (!lookFurther(roles, parts)) return false;
  why.clear();
  return true;
}

bool Raiser::agree(Parts &parts, const Parts &other) {
  why = merge(parts, other);
  if (!why.empty()) where = differs;
  return why.empty();
}

/// One more run, which has to say what the others said.
bool Raiser::lookAt(const Roles &roles, Sizes sizes, Parts &parts) {
  Parts other;
  bool ok = runOnce(roles, sizes, other);
  if (ok) ok = agree(parts, other);
  if (!ok) why += ", in a run of " + std::to_string(sizes.step) + " tokens behind " + std::to_string(sizes.past);
  return ok;
}

/// Shorter sequences are looked at whatever numbers a graph has.
static constexpr int64_t first = 16;
/// Elements of masks that runs may make beside what they have to.
static constexpr int64_t budget = int64_t(1) << 20;

/// Looks around the lengths |places|.
bool Raiser::lookAround(const Roles &roles, std::set<int64_t> places, Parts &parts) {
  constexpr size_t most = 128;
  std::erase_if(places, [&](int64_t n) { return n < first || n >= reach; });
  if (places.size() > most) {
    why = "the graph has " + std::to_string(places.size()) + " numbers at which it may change what it does, expected at most " + std::to_string(most);
    return false;
  }
  // The length, which is one for all rows of a run.
  for (int64_t n : places)
    for (Sizes sizes : {Sizes{1, 5, n - 2}, Sizes{1, 1, n - 1}, Sizes{1, 1, n}})
      if (sizes.total() <= reach && !lookAt(roles, sizes, parts)) return false;
  // A first step may do what no later one does: with as many tokens as there is room for in one mask, if the numbers are not too many.
  int64_t prompts = 0;
  for (int64_t n : places)
    if ((prompts += (n + 1) * (n + 1)) <= budget && !lookAt(roles, {1, n + 1, 0}, parts)) return false;
  return true;
}

/// The runs saw some rows only of the tables that they looked into: those of cosines and sines have to be what the ropes of |config| say, and others
/// follow a rule; where that changes, the graph has to do what it did.
bool Raiser::lookIntoTables(const Roles &roles, Parts &parts, const ModelConfig &config) {
  for (size_t checked = 0; checked < tables.size();) { // more runs may look into others
    std::set<int64_t> places;
    for (; checked < tables.size(); ++checked) {
      const StoredTable &table = tables[checked];
      std::optional<std::string> reason = checkTable(config, *table.values, sixteenBits);
      if (!reason) reason = checkChoices(table, reach, places);
      if (!reason || reason->empty()) continue;
      why = *reason;
      where = table.at->getLoc();
      return false;
    }
    std::vector<std::string> said = remarks;
    if (!lookAround(roles, places, parts)) return false;
    remarks = std::move(said);
  }
  return true;
}

/// Windows, rotations and scales may change with the position, at numbers that a graph compares with and in tables. So the last positions are looked at,
/// lengths and positions around every number, all of a short sequence and some of a long one. Only a table that ends earlier makes the longest sequence shorter.
bool Raiser::lookFurther(const Roles &roles, Parts &parts) {
  constexpr int64_t chunk = 251, wide = int64_t(1) << 17, spread = int64_t(1) << 16, longest = 1024, prompt = 362, bucketed = 64;
  std::vector<int64_t> steps(thresholds.begin(), thresholds.end());
  int64_t positions = positionsOf(parts);
  reach = std::min(maxSeq ? maxSeq : positions ? positions : assumedPositions, furthest);
  if (parts.config.learnedPositions) reach = std::min(reach, parts.config.modelPositions);
  for (int tries = 0; reach > first && !lookAt(roles, {1, 2, reach - 2}, parts); ++tries) {
    if (!beyond || tries == 8) return false;
    reach -= std::min(beyond, reach - first);
  }
  auto all = [&](int64_t steps, int64_t pasts) {
    for (int64_t step = 1; step <= steps; ++step)
      for (int64_t past = 0; past <= std::min(pasts, reach - step); ++past)
        if (step + past > 1 && !lookAt(roles, {1, step, past}, parts)) return false; // one token alone has no axes to tell apart
    return true;
  };
  if (reach <= first) return all(reach, reach);
  if (!lookAround(roles, numbers, parts) || !lookAt(roles, {1, std::min(reach, prompt), 0}, parts)) return false;
  // Lengths that are divided and rounded change what they are at multiples of numbers.
  if (buckets && (!all(1, chunk) || !all(bucketed, 1))) return false;
  // Steps of as many tokens as a size is compared with, and for the smallest also such pasts and lengths. Longer steps are looked at while there is room for them.
  int64_t elements = 0;
  for (int64_t last = 0; int64_t n : steps) {
    for (int64_t near = std::max(last + 1, n - 1); near <= n + 1; ++near) {
      Sizes sizes{1, near, 1};
      if (near > reach) break;
      last = near;
      elements += sizes.step * sizes.total();
      if (elements > (budget << 2) && near > longest) break;
      if (elements > (budget << 3)) {
        why = "the graph compares with " + std::to_string(steps.size()) + " numbers, and steps of " + std::to_string(near) + " tokens, where it may change what it does, are not looked at: expected masks of at most " +
              std::to_string(budget << 3) + " elements for all of those of up to " + std::to_string(longest) + " tokens";
        return false;
      }
      if ((near > 1 && !lookAt(roles, {1, near, 0}, parts)) || (sizes.total() <= reach && !lookAt(roles, sizes, parts))) return false;
    }
    for (int64_t before = std::max<int64_t>(0, n - 3); n < first && before <= n + 1; ++before)
      if (!lookAt(roles, {1, 2, before}, parts)) return false;
  }
  int64_t past = 1;
  // A mask is step * total numbers, and may be one of every head.
  for (int64_t looked = 0; past + 2 < reach && looked < budget;) {
    int64_t step = std::min({chunk, reach - past, wide / (past + chunk)});
    if (!lookAt(roles, {1, step, past}, parts)) return false;
    past += step;
    looked += step * past;
  }
  for (int64_t n = reach / 2; n > past; n /= 2)
    if (!lookAt(roles, {1, std::clamp<int64_t>(spread / n, 2, 17), n | 1}, parts)) return false;
  return true;
}

} // namespace lathe::raise
