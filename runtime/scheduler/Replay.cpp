//===- Replay.cpp ---------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/scheduler/Replay.h"
#include "runtime/scheduler/Scheduler.h"
#include "runtime/speculation/Types.h"
#include <algorithm>
#include <array>
#include <bit>
#include <charconv>

namespace lathe::runtime {
namespace {

struct StringSink : TraceSink {
  std::string text;
  void write(std::string_view lines) override { text += lines; }
};

/// The fields of one line. After an error every read gives 0.
class Fields {
public:
  explicit Fields(std::string_view line) : rest(line) {}
  template <typename T> T number(int base = 10) {
    std::string_view text = word();
    T value{};
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
    if (error != std::errc() || end != text.data() + text.size()) bad = true;
    return value;
  }
  uint32_t u32() { return number<uint32_t>(); }
  uint64_t u64() { return number<uint64_t>(); }
  double real() { return std::bit_cast<double>(number<uint64_t>(16)); }
  /// A number below |end|.
  uint64_t below(uint64_t end) {
    uint64_t value = u64();
    if (value >= end) bad = true;
    return value < end ? value : 0;
  }
  std::string bytes() {
    std::string_view text = word();
    std::string value;
    if (text.empty() || text[0] != '.' || text.size() % 2 == 0) {
      bad = true;
      return value;
    }
    for (size_t i = 1; i < text.size(); i += 2) {
      unsigned byte = 0;
      auto [end, error] = std::from_chars(text.data() + i, text.data() + i + 2, byte, 16);
      if (error != std::errc() || end != text.data() + i + 2) bad = true;
      value += static_cast<char>(byte);
    }
    return value;
  }
  bool ok() const { return !bad && rest.empty(); }
  size_t left() const { return rest.size(); }

private:
  std::string_view word() {
    if (rest.empty() || rest[0] != ' ') {
      bad = true;
      return {};
    }
    rest.remove_prefix(1);
    size_t end = std::min(rest.find(' '), rest.size());
    std::string_view text = rest.substr(0, end);
    rest.remove_prefix(end);
    return text;
  }
  std::string_view rest;
  bool bad = false;
};

class Replayer {
public:
  explicit Replayer(std::string_view trace) : text(trace) {}

  Result<ReplayResult> run() {
    std::string_view line;
    if (!next(line) || line != "lathe-trace 5")
      return makeError(StatusCode::dataLoss, "expected a trace that begins with 'lathe-trace 5', found '%s'",
                       std::string(line.substr(0, 40)).c_str());
    while (next(line)) {
      if (line.empty() || line[0] < 'A' || line[0] > 'Z') {
        ++result.decisions;
        continue;
      }
      LATHE_RETURN_IF_ERROR(event(line));
    }
    LATHE_RETURN_IF_ERROR(start());
    scheduler.reset(); // nothing is buffered past an event, but the order of destruction should not matter
    compare();
    return result;
  }

private:
  bool next(std::string_view &line) {
    if (at >= text.size()) return false;
    size_t end = std::min(text.find('\n', at), text.size());
    line = text.substr(at, end - at);
    at = end + 1;
    ++number;
    return true;
  }
  Status malformed(std::string_view line) const {
    return makeError(StatusCode::dataLoss, "line %llu of the trace cannot be read: '%s'",
                     static_cast<unsigned long long>(number), std::string(line.substr(0, 60)).c_str());
  }
  Status start() {
    if (scheduler) return Status();
    // A trace is a file: what it asks for is bounded before anything is allocated.
    uint64_t total = 0, slots = 0;
    for (size_t g = 0; g < blocks.size(); ++g) {
      total += blocks[g];
      slots += uint64_t(blocks[g]) * program.kvGroups[g].pageTokens;
    }
    if (slots > 1u << 28 || total > 1u << 24 || uint64_t(options.maxSequences) * options.contextTokens > 1u << 28)
      return makeError(StatusCode::dataLoss, "the trace asks for %llu KV blocks and %u sequences of %u tokens",
                       static_cast<unsigned long long>(total), options.maxSequences, options.contextTokens);
    LATHE_ASSIGN_OR_RETURN(scheduler, Scheduler::create(program, blocks, options, &sink));
    return Status();
  }
  Status event(std::string_view line) {
    Fields f(line.substr(1));
    char kind = line[0];
    if (kind == 'O' && !scheduler) {
      SchedulerOptions &o = options;
      o.maxSequences = f.u32(), o.contextTokens = f.u32(), o.stepTokens = f.u32(), o.maxResults = f.u32();
      o.maxQueued = f.u32(), o.maxQueuedTokens = f.u64();
      o.policy = static_cast<SchedulingPolicy>(f.below(4));
      o.preemption = static_cast<PreemptionMode>(f.below(3));
      o.prefixCache = f.below(2);
      o.savedKvBytes = f.u64(), o.saveBytesPerSecond = f.real(), o.itlTarget = f.real(), o.agingSeconds = f.real();
      o.maxPassedOver = f.u32(), o.defaultTtft = f.real(), o.learnCost = f.below(2), o.freeDrafts = f.below(2), o.model = f.bytes();
      return f.ok() ? Status() : malformed(line);
    }
    if (kind == 'M' && !scheduler) {
      std::array<uint64_t, StepCostModel::stateSize> state{};
      for (uint64_t &value : state)
        value = f.u64();
      options.cost.setState(state);
      return f.ok() ? Status() : malformed(line);
    }
    if (kind == 'G' && !scheduler) {
      KVGroup group;
      group.kind = static_cast<uint32_t>(f.below(2)), group.window = f.u32(), group.pageTokens = f.u32();
      group.blockBytes = f.u64();
      program.kvGroups.push_back(group);
      blocks.push_back(f.u32());
      return f.ok() && blocks.size() <= 64 ? Status() : malformed(line);
    }
    ++result.events;
    LATHE_RETURN_IF_ERROR(start());
    if (kind == 'A') {
      ScheduledRequest r;
      double now = f.real();
      r.id = f.u64(), r.choices = f.u32(), r.maxTokens = f.u32();
      r.promptRows = static_cast<ScheduledRequest::PromptRows>(f.below(3));
      r.priority = f.number<int32_t>();
      r.deadline = f.real(), r.ttftTarget = f.real(), r.tpotTarget = f.real();
      r.tenant = f.bytes(), r.cacheSalt = f.bytes(), r.adapter = f.bytes();
      uint64_t count = f.u64();
      if (count > f.left() / 2) return malformed(line);
      r.prompt.resize(count);
      for (int32_t &token : r.prompt)
        token = f.number<int32_t>();
      if (!f.ok()) return malformed(line);
      (void)scheduler->add(now, std::move(r)).ok(); // the trace says whether it was taken
      return Status();
    }
    if (kind == 'C') {
      double now = f.real();
      RequestId id = f.u64();
      auto choice = f.number<int64_t>();
      auto reason = static_cast<EndReason>(f.below(6));
      if (!f.ok() || choice < -1 || choice > UINT32_MAX) return malformed(line);
      if (choice < 0)
        scheduler->cancel(now, id, reason);
      else
        scheduler->cancelChoice(now, id, static_cast<uint32_t>(choice), reason);
      return Status();
    }
    if (kind == 'D') {
      RequestId id = f.u64();
      auto choice = f.number<uint32_t>();
      uint64_t count = f.below(maxDraftTokens + 1);
      std::array<int32_t, maxDraftTokens> tokens{};
      std::array<float, maxDraftTokens> chances{};
      for (uint64_t i = 0; i < count; ++i) {
        tokens[i] = f.number<int32_t>();
        chances[i] = std::bit_cast<float>(f.number<uint32_t>());
      }
      std::array<int8_t, maxDraftTokens> parents{};
      bool tree = f.left() > 0;
      for (uint64_t i = 0; tree && i < count; ++i)
        parents[i] = f.number<int8_t>();
      if (!f.ok()) return malformed(line);
      scheduler->propose(id, choice, std::span(tokens).first(count), std::span(chances).first(count),
                         std::span(parents).first(tree ? count : 0));
      return Status();
    }
    if (kind == 'P' || kind == 'R' || kind == 'X') {
      double now = f.real();
      if (!f.ok()) return malformed(line);
      if (kind == 'P') result.steps += scheduler->plan(now).rows > 0;
      if (kind == 'R') scheduler->rollback(now);
      if (kind == 'X') scheduler->clearPrefixCache(now);
      return Status();
    }
    if (kind != 'K') return malformed(line);
    double now = f.real(), seconds = f.real();
    uint64_t count = f.u64();
    if (count > f.left()) return malformed(line);
    struct Entry {
      bool failed;
      size_t first, count;
    };
    std::vector<Entry> entries;
    std::vector<ChoiceResult> choices;
    for (uint64_t i = 0; i < count; ++i) {
      bool failed = f.below(2);
      uint64_t n = f.u64();
      if (n > f.left()) return malformed(line);
      entries.push_back({failed, choices.size(), n});
      for (uint64_t c = 0; c < n; ++c) {
        ChoiceResult choice;
        choice.token = f.number<int32_t>();
        uint64_t end = f.below(7);
        choice.ended = end > 0;
        if (end) choice.reason = static_cast<EndReason>(end - 1);
        choices.push_back(choice);
      }
    }
    if (!f.ok()) return malformed(line);
    std::vector<PieceResult> results;
    for (const Entry &e : entries)
      results.push_back({{choices.data() + e.first, e.count}, e.failed});
    scheduler->commit(now, seconds, results);
    return Status();
  }
  void compare() {
    std::string_view found = sink.text;
    size_t a = 0, b = 0;
    for (uint64_t line = 1;; ++line) {
      if (a >= text.size() && b >= found.size()) break;
      size_t aEnd = std::min(text.find('\n', a), text.size()), bEnd = std::min(found.find('\n', b), found.size());
      std::string_view x = a < text.size() ? text.substr(a, aEnd - a) : "",
                       y = b < found.size() ? found.substr(b, bEnd - b) : "";
      if (x != y) {
        result.line = line;
        result.expected = x;
        result.found = y;
        return;
      }
      a = aEnd + 1;
      b = bEnd + 1;
    }
    result.same = true;
  }

  std::string_view text;
  size_t at = 0;
  uint64_t number = 0;
  Program program;
  std::vector<uint32_t> blocks;
  SchedulerOptions options;
  StringSink sink;
  std::unique_ptr<Scheduler> scheduler;
  ReplayResult result;
};

} // namespace

Result<ReplayResult> replayTrace(std::string_view trace) { return Replayer(trace).run(); }

} // namespace lathe::runtime
