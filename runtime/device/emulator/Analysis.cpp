//===- Analysis.cpp - where lanes meet, which registers need a check -------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/device/emulator/Decode.h"
#include <algorithm>

namespace lathe::emulator {
namespace {

struct Graph {
  std::vector<uint32_t> first;                 ///< first instruction of each block
  std::vector<uint32_t> blockOf;               ///< of each instruction, and of the end
  std::vector<std::vector<uint32_t>> successors, predecessors; ///< block |count| is the exit
  uint32_t count = 0;

  explicit Graph(const Program &program) {
    const auto &code = program.code;
    std::vector<bool> leader(code.size() + 1, false);
    leader[0] = true;
    for (size_t index = 0; index < code.size(); ++index) {
      const Inst &inst = code[index];
      if (inst.flow == Flow::branch) leader[inst.target] = leader[index + 1] = true;
      if (inst.flow == Flow::exit) leader[index + 1] = true;
      if (inst.flow == Flow::indexed) {
        leader[index + 1] = true;
        for (uint32_t target = 0; target < inst.extraCount; ++target)
          leader[program.operands[inst.extra + target]] = true;
      }
    }
    blockOf.resize(code.size() + 1);
    for (size_t index = 0; index < code.size(); ++index) {
      if (leader[index]) first.push_back(static_cast<uint32_t>(index));
      blockOf[index] = static_cast<uint32_t>(first.size() - 1);
    }
    count = static_cast<uint32_t>(first.size());
    blockOf[code.size()] = count;
    successors.resize(count + 1);
    predecessors.resize(count + 1);
    for (uint32_t block = 0; block < count; ++block) {
      uint32_t last = (block + 1 < count ? first[block + 1] : static_cast<uint32_t>(code.size())) - 1;
      const Inst &inst = code[last];
      auto edge = [&](uint32_t to) {
        if (std::find(successors[block].begin(), successors[block].end(), to) != successors[block].end()) return;
        successors[block].push_back(to);
        predecessors[to].push_back(block);
      };
      bool guarded = inst.guard != 0;
      if (inst.flow == Flow::branch) edge(blockOf[inst.target]);
      if (inst.flow == Flow::exit) edge(count);
      if (inst.flow == Flow::indexed)
        for (uint32_t target = 0; target < inst.extraCount; ++target)
          edge(blockOf[program.operands[inst.extra + target]]);
      bool falls = guarded || (inst.flow != Flow::branch && inst.flow != Flow::exit && inst.flow != Flow::indexed);
      if (falls) edge(blockOf[last + 1]);
    }
  }

  /// Blocks in post-order of a walk from |root| along |edges|.
  static std::vector<uint32_t> postOrder(uint32_t root, const std::vector<std::vector<uint32_t>> &edges) {
    std::vector<uint32_t> order;
    std::vector<uint8_t> seen(edges.size(), 0);
    std::vector<std::pair<uint32_t, size_t>> stack{{root, 0}};
    seen[root] = 1;
    while (!stack.empty()) {
      auto &[block, next] = stack.back();
      if (next < edges[block].size()) {
        uint32_t to = edges[block][next++];
        if (!seen[to]) {
          seen[to] = 1;
          stack.push_back({to, 0});
        }
      } else {
        order.push_back(block);
        stack.pop_back();
      }
    }
    return order;
  }
};

} // namespace

// Immediate post-dominators by Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm", on the reversed
// graph. A block from which no path leads to the exit has the exit as its post-dominator.
void findJoins(Program &program) {
  Graph graph(program);
  const uint32_t exit = graph.count;
  std::vector<uint32_t> order = Graph::postOrder(exit, graph.predecessors);
  constexpr uint32_t kNone = UINT32_MAX;
  std::vector<uint32_t> number(graph.count + 1, kNone), parent(graph.count + 1, kNone);
  for (uint32_t index = 0; index < order.size(); ++index)
    number[order[index]] = index;
  parent[exit] = exit;
  auto meet = [&](uint32_t a, uint32_t b) {
    while (a != b) {
      while (number[a] < number[b])
        a = parent[a];
      while (number[b] < number[a])
        b = parent[b];
    }
    return a;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t index = order.size(); index-- > 0;) {
      uint32_t block = order[index];
      if (block == exit) continue;
      uint32_t common = kNone;
      for (uint32_t next : graph.successors[block])
        if (number[next] != kNone && parent[next] != kNone) common = common == kNone ? next : meet(common, next);
      if (common != kNone && parent[block] != common) {
        parent[block] = common;
        changed = true;
      }
    }
  }
  const uint32_t end = static_cast<uint32_t>(program.code.size());
  for (uint32_t index = 0; index < end; ++index) {
    Inst &inst = program.code[index];
    if (inst.flow != Flow::indexed && !(inst.flow == Flow::branch && inst.guard != 0)) continue;
    uint32_t block = parent[graph.blockOf[index]];
    inst.join = block == kNone || block == exit ? end : graph.first[block];
    if (inst.join != end) program.code[inst.join].isJoin = true;
  }
}

// Forward analysis of "surely written before". Only registers that some block reads before it writes them take part.
void findUnassigned(Program &program, const std::vector<Program::UseRange> &ranges, const std::vector<SlotUse> &uses,
                    const std::vector<uint32_t> &alwaysWatched, const std::function<std::string(uint32_t, bool)> &nameOf) {
  Graph graph(program);
  auto key = [](const SlotUse &use) { return uint64_t(use.slot) << 1 | use.predicate; };
  const uint32_t end = static_cast<uint32_t>(program.code.size());
  std::unordered_map<uint64_t, uint32_t> candidates; // key -> bit
  auto walk = [&](uint32_t block, auto &&body) {
    uint32_t stop = block + 1 < graph.count ? graph.first[block + 1] : end;
    for (uint32_t index = graph.first[block]; index < stop; ++index)
      body(index);
  };
  std::unordered_map<uint64_t, uint32_t> writtenIn; // key -> block + 1
  for (uint32_t block = 0; block < graph.count; ++block)
    walk(block, [&](uint32_t index) {
      bool sure = program.code[index].guard == 0;
      for (uint32_t at = ranges[index].first; at < ranges[index].first + ranges[index].count; ++at)
        if (!uses[at].write && writtenIn[key(uses[at])] != block + 1) candidates.emplace(key(uses[at]), static_cast<uint32_t>(candidates.size()));
      for (uint32_t at = ranges[index].first; at < ranges[index].first + ranges[index].count; ++at)
        if (uses[at].write && sure) writtenIn[key(uses[at])] = block + 1;
    });

  const size_t words = (candidates.size() + 63) / 64;
  std::vector<uint64_t> in((graph.count + 1) * words, ~0ull), made(graph.count * words, 0), state(words);
  for (uint32_t block = 0; block < graph.count; ++block)
    walk(block, [&](uint32_t index) {
      if (program.code[index].guard != 0) return;
      for (uint32_t at = ranges[index].first; at < ranges[index].first + ranges[index].count; ++at)
        if (uses[at].write)
          if (auto found = candidates.find(key(uses[at])); found != candidates.end()) made[block * words + found->second / 64] |= 1ull << found->second % 64;
    });
  std::vector<uint32_t> order = Graph::postOrder(0, graph.successors);
  std::fill(in.begin(), in.begin() + static_cast<ptrdiff_t>(words), 0);
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t at = order.size(); at-- > 0;) {
      uint32_t block = order[at];
      if (block == graph.count) continue;
      for (uint32_t next : graph.successors[block])
        for (size_t word = 0; word < words; ++word) {
          uint64_t out = in[block * words + word] | made[block * words + word];
          uint64_t &target = in[next * words + word];
          if ((target & out) != target) {
            target &= out;
            changed = true;
          }
        }
    }
  }

  std::unordered_map<uint64_t, uint32_t> watched;
  auto watch = [&](uint64_t which) {
    auto [entry, inserted] = watched.emplace(which, static_cast<uint32_t>(program.watchedSlots.size()));
    if (inserted) {
      program.watchedSlots.push_back(which & 1 ? kNoSlot : static_cast<uint32_t>(which >> 1));
      program.watchedNames.push_back(nameOf(static_cast<uint32_t>(which >> 1), which & 1));
    }
    return entry->second;
  };
  for (uint32_t slot : alwaysWatched)
    watch(uint64_t(slot) << 1);
  program.asyncWatched = static_cast<uint32_t>(program.watchedSlots.size());
  for (uint32_t block = 0; block < graph.count; ++block) {
    state.assign(in.begin() + static_cast<ptrdiff_t>(block * words), in.begin() + static_cast<ptrdiff_t>((block + 1) * words));
    walk(block, [&](uint32_t index) {
      for (uint32_t at = ranges[index].first; at < ranges[index].first + ranges[index].count; ++at)
        if (!uses[at].write)
          if (auto found = candidates.find(key(uses[at])); found != candidates.end() && !(state[found->second / 64] >> found->second % 64 & 1)) watch(key(uses[at]));
      if (program.code[index].guard != 0) return;
      for (uint32_t at = ranges[index].first; at < ranges[index].first + ranges[index].count; ++at)
        if (uses[at].write)
          if (auto found = candidates.find(key(uses[at])); found != candidates.end()) state[found->second / 64] |= 1ull << found->second % 64;
    });
  }

  program.uses.resize(end);
  for (uint32_t index = 0; index < end; ++index) {
    Program::UseRange &range = program.uses[index];
    range.first = static_cast<uint32_t>(program.useList.size());
    for (uint32_t at = ranges[index].first; at < ranges[index].first + ranges[index].count; ++at)
      if (auto found = watched.find(key(uses[at])); found != watched.end()) program.useList.push_back({found->second, uses[at].write});
    range.count = static_cast<uint32_t>(program.useList.size()) - range.first;
    program.code[index].checked = range.count != 0;
  }
}

} // namespace lathe::emulator
