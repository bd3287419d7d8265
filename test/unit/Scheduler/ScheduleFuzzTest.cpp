//===- ScheduleFuzzTest.cpp - random schedules against solo runs ---------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Arrivals, aborts, preemptions of both kinds, prefix hits, page pressure, chunk budgets, forks, failed pieces and
// device errors, on a device that checks every slot a row reads. LATHE_SCHEDULES sets how many (by default
// as many as make 10^6 steps; a tenth of them with sanitizers). LATHE_SCHEDULE_SEED runs one again, with LATHE_SCHEDULE_EVENTS only its first events.
//===----------------------------------------------------------------------===//
#include "FakeDevice.h"
#include "runtime/scheduler/Replay.h"
#include "runtime/simulator/Workload.h"
#include <cstdlib>
#include <memory>
#include <string>

using namespace lathe;
using namespace lathe::test;

namespace {

struct Trace : TraceSink {
  std::string text;
  void write(std::string_view lines) override { text += lines; }
};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || (defined(__has_feature) && (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer)))
constexpr bool sanitized = true;
#else
constexpr bool sanitized = false;
#endif

constexpr int32_t vocabulary = 5; // so few that prefixes meet by chance too

struct Sequence {
  std::vector<int32_t> tokens;
  std::vector<uint64_t> history; ///< [token] hash of it and all before, and the name space
  uint32_t sincePreemption = 0, preemptions = 0;
  bool ended = false, cancelled = false;
};

struct Live {
  ScheduledRequest spec;
  uint64_t space = 0;
  uint32_t stopAfter = 0; ///< tokens; the model's own end
  bool promptDone = false;
  std::vector<Sequence> choices;
};

class Schedule {
public:
  explicit Schedule(uint64_t seed) : random(seed), seed(seed) {}
  static constexpr int allEvents = 120;
  int done = 0; ///< events that were run

  bool run(int events) {
    setUp();
    for (; done < events && !failed(); ++done) {
      double now = clock += random.exponential(0.01);
      uint64_t kind = random.below(100);
      if (kind < 30)
        add(now);
      else if (kind < 36 && !live.empty())
        cancel(now);
      else if (kind < 37)
        scheduler->clearPrefixCache(now);
      else
        step(now);
      check();
    }
    for (int n = 0; !scheduler->idle() && !failed(); ++n) {
      if (n > 20000) {
        ADD_FAILURE() << "it does not end, seed " << seed;
        break;
      }
      step(clock += 0.01);
      check();
    }
    if (failed()) return false;
    step(clock); // lists the ends of the last cancellations
    EXPECT_TRUE(live.empty()) << seed;
    EXPECT_EQ(scheduler->stats().kvBlocksUsed, 0u) << seed;
    EXPECT_EQ(scheduler->stats().savedBytes, 0u) << seed;
    scheduler.reset();
    if (seed % 4 == 0 && !shuffled) { // a replay has its free blocks in order
      auto again = replayTrace(trace.text);
      EXPECT_TRUE(again.ok() && again->same) << seed << " " << (again.ok() ? again->found : again.status().message());
    }
    return !failed();
  }
  SchedulerStats totals;
  uint64_t drafted = 0, accepted = 0;

private:
  bool failed() { return ::testing::Test::HasFailure(); }
  void check() {
    Status status = scheduler->checkInvariants();
    EXPECT_TRUE(status.ok()) << status.message() << ", seed " << seed << ", the trace ends with\n"
                             << trace.text.substr(trace.text.size() - std::min<size_t>(trace.text.size(), 3000));
  }
  void setUp() {
    const uint32_t pages[] = {1, 2, 4, 8};
    uint32_t page = pages[random.below(4)], layout = static_cast<uint32_t>(random.below(5));
    windows = layout >= 2;
    if (layout < 4) program.kvGroups.push_back({0, 0, page, 1, 8});
    if (layout >= 2)
      program.kvGroups.push_back({1, 1 + static_cast<uint32_t>(random.below(20)), pages[random.below(4)], 1, 8});
    if (layout == 3) program.kvGroups.push_back({1, 3, page, 1, 24});
    largestPage = 1;
    for (const KVGroup &g : program.kvGroups)
      largestPage = std::max(largestPage, g.pageTokens);
    SchedulerOptions o;
    o.maxSequences = 1 + static_cast<uint32_t>(random.below(8));
    o.contextTokens = 16 + static_cast<uint32_t>(random.below(60));
    o.stepTokens = 1 + static_cast<uint32_t>(random.below(20));
    o.maxResults = random.below(2) ? 1 + static_cast<uint32_t>(random.below(6)) : 0;
    o.policy = static_cast<SchedulingPolicy>(random.below(4));
    o.preemption = static_cast<PreemptionMode>(random.below(3));
    o.prefixCache = random.below(4) != 0;
    o.savedKvBytes = random.below(2) ? random.below(400) : 0;
    o.saveBytesPerSecond = random.below(2) ? 1e9 : 1e3;
    o.agingSeconds = 0.5;
    o.freeDrafts = random.below(4) == 0;
    KVShape shape{o.maxSequences, o.contextTokens, 0, o.stepTokens};
    shape.kvTokens = o.contextTokens + random.below(uint64_t(o.contextTokens) * 3);
    blocks = kvBlocksFor(program, shape);
    shape.maxSequences = 1;
    shape.kvTokens = 0;
    auto least = kvBlocksFor(program, shape);
    for (size_t g = 0; g < blocks.size(); ++g)
      blocks[g] = std::max(blocks[g], least[g]);
    drafts = random.below(2);
    options = o;
    auto made = Scheduler::create(program, blocks, o, &trace);
    ASSERT_TRUE(made.ok()) << made.status().message();
    scheduler = std::move(*made);
    scheduler->kv().recordReleases(true);
    if (random.below(2))
      for (uint32_t g = 0; g < blocks.size(); ++g)
        scheduler->kv().pool(g).shuffle(seed + g), shuffled = true;
    device = std::make_unique<FakeDevice>(program, blocks);
  }
  uint64_t hash(const Live &l, const std::vector<uint64_t> &before, int32_t token) {
    return mix(before.empty() ? l.space : before.back(), static_cast<uint64_t>(token) + 1);
  }
  void add(double now) {
    auto l = std::make_unique<Live>();
    l->spec.id = ++ids;
    uint32_t length = 1 + static_cast<uint32_t>(random.below(options.contextTokens));
    if (random.below(2) && !live.empty()) { // shares a prefix with another
      auto other = live.begin();
      std::advance(other, random.below(live.size()));
      l->spec.prompt = other->second->spec.prompt;
      l->spec.prompt.resize(1 + random.below(l->spec.prompt.size()));
    }
    while (l->spec.prompt.size() < length)
      l->spec.prompt.push_back(static_cast<int32_t>(random.below(vocabulary)));
    l->spec.choices = random.below(4) ? 1 : 1 + static_cast<uint32_t>(random.below(options.maxSequences));
    l->spec.maxTokens = random.below(3) ? 1 + static_cast<uint32_t>(random.below(40)) : UINT32_MAX;
    if (l->spec.choices == 1 && random.below(8) == 0) l->spec.maxTokens = 0;
    l->spec.promptRows = static_cast<ScheduledRequest::PromptRows>(random.below(6) ? 0 : random.below(3));
    l->spec.tenant = std::string(1, static_cast<char>('a' + random.below(3)));
    l->spec.cacheSalt = random.below(3) ? "" : "s";
    l->spec.priority = static_cast<int32_t>(random.below(4));
    if (random.below(6) == 0) l->spec.deadline = 0.01 + random.uniform();
    if (random.below(3) == 0) l->spec.ttftTarget = 0.01 + random.uniform();
    if (random.below(3) == 0) l->spec.tpotTarget = 0.01 + 0.05 * random.uniform();
    l->space = mix(static_cast<uint64_t>(l->spec.tenant[0]), l->spec.cacheSalt.size());
    l->stopAfter = 1 + static_cast<uint32_t>(random.below(50));
    Sequence prompt;
    for (int32_t token : l->spec.prompt) {
      prompt.history.push_back(hash(*l, prompt.history, token));
      prompt.tokens.push_back(token);
    }
    l->choices.assign(l->spec.choices, prompt);
    rowsSeen[l->spec.id].resize(l->spec.prompt.size());
    if (scheduler->add(now, l->spec).ok()) live[l->spec.id] = std::move(l);
  }
  void cancel(double now) {
    auto found = live.begin();
    std::advance(found, random.below(live.size()));
    Live &l = *found->second;
    if (l.spec.choices > 1 && random.below(2)) {
      auto choice = static_cast<uint32_t>(random.below(l.spec.choices));
      bool done = scheduler->cancelChoice(now, l.spec.id, choice, EndReason::cancelled);
      EXPECT_EQ(done, l.promptDone && !l.choices[choice].ended && !l.choices[choice].cancelled) << seed;
      if (done) l.choices[choice].cancelled = true;
    } else {
      bool open = false; // the ends of cancellations are listed by the next plan
      for (const Sequence &s : l.choices)
        open |= !s.ended && !s.cancelled;
      EXPECT_EQ(scheduler->cancel(now, l.spec.id), open) << seed;
      for (Sequence &s : l.choices)
        s.cancelled = true;
    }
  }
  void noteEnds(std::span<const PlannedEnd> ends) {
    for (const PlannedEnd &e : ends) {
      auto found = live.find(e.request);
      ASSERT_NE(found, live.end()) << seed;
      Live &l = *found->second;
      ASSERT_FALSE(l.choices[e.choice].ended) << seed;
      l.choices[e.choice].ended = true;
      bool all = true;
      for (const Sequence &s : l.choices)
        all &= s.ended;
      ASSERT_EQ(all, e.last) << seed;
      if (e.end == EndReason::length && l.spec.maxTokens && l.choices[e.choice].tokens.size() <= options.contextTokens)
        EXPECT_EQ(l.choices[e.choice].tokens.size(), l.spec.prompt.size() + l.spec.maxTokens) << seed;
      if (all && e.end != EndReason::cancelled && e.end != EndReason::failed && e.end != EndReason::timeout &&
          e.end != EndReason::rejected && l.spec.promptRows == ScheduledRequest::PromptRows::all)
        for (bool seen : rowsSeen[e.request])
          EXPECT_TRUE(seen) << seed;
      if (all) rowsSeen.erase(e.request), live.erase(found);
    }
  }
  /// What choice |c| says next after |history|.
  static int32_t nextToken(const std::vector<uint64_t> &history, uint32_t c) {
    return static_cast<int32_t>(mix(history.back(), c) % vocabulary);
  }
  /// Drafts for some of the choices that decode: right ones, and from some place on wrong ones.
  void propose() {
    for (auto &[id, l] : live)
      for (uint32_t c = 0; c < l->choices.size(); ++c) {
        uint32_t room = scheduler->draftRoom(id, c);
        Sequence own = l->choices[c];
        if (room) EXPECT_TRUE(l->promptDone && !own.ended && !own.cancelled) << seed;
        if (!room || random.below(2)) continue;
        std::vector<int32_t> tokens;
        std::vector<float> chances;
        auto wrongAt = static_cast<uint32_t>(random.below(8)), count = 1 + static_cast<uint32_t>(random.below(20));
        for (uint32_t i = 0; i < count; ++i) {
          int32_t token = nextToken(own.history, c);
          if (i == wrongAt) token = (token + 1) % vocabulary;
          tokens.push_back(token);
          chances.push_back(random.below(2) ? 1.0f : 0.6f);
          own.history.push_back(hash(*l, own.history, token));
        }
        scheduler->propose(id, c, tokens, chances);
      }
  }
  void step(double now) {
    if (drafts) propose();
    const StepPlan &plan = scheduler->plan(now);
    check();
    noteEnds(plan.ended);
    for (const PlannedPreemption &p : plan.preempted) {
      Sequence &s = live.at(p.request)->choices[p.choice];
      ++s.preemptions;
      if (!windows) {
        EXPECT_LE(s.preemptions, 3u) << seed;
        if (s.preemptions > 1) EXPECT_GE(s.sincePreemption, largestPage) << seed;
      }
      s.sincePreemption = 0;
    }
    bool rollback = plan.rows && random.below(25) == 0;
    if (rollback && random.below(2)) {
      (void)scheduler->kv().takeReleased();
      for (const StepPiece &p : plan.pieces)
        device->scribble(p, scheduler->kv(), random.next());
    } else {
      device->transfers(plan, scheduler->kv());
    }
    if (!plan.rows) {
      EXPECT_TRUE(scheduler->idle()) << "no progress, seed " << seed << ", the trace ends with\n"
                                     << trace.text.substr(trace.text.size() -
                                                          std::min<size_t>(trace.text.size(), 1500));
      return;
    }
    uint32_t rows = 0;
    std::vector<ChoiceResult> choices;
    std::vector<PieceResult> results;
    choices.reserve(64 * plan.pieces.size());
    for (const StepPiece &p : plan.pieces) {
      rows += p.tokens;
      ASSERT_GT(p.tokens, 0u);
      Live &l = *live.at(p.request);
      Sequence &s = l.choices[p.choice];
      ASSERT_FALSE(s.ended);
      ASSERT_LE(p.first + p.tokens, s.tokens.size() + p.drafts);
      ASSERT_LE(p.first + p.tokens, options.contextTokens);
      std::vector<uint64_t> history = s.history;
      for (uint32_t i = p.tokens - p.drafts; i < p.tokens; ++i)
        history.push_back(hash(l, history, p.ids[i]));
      for (uint32_t i = 0; i < p.tokens; ++i) {
        if (i < p.tokens - p.drafts) ASSERT_EQ(p.ids[i], s.tokens[p.first + i]) << seed;
        if (!rollback && !device->row(p, p.first + i, history, scheduler->kv())) {
          ADD_FAILURE() << "seed " << seed;
          return;
        }
      }
      if (rollback) continue;
      if (l.spec.promptRows == ScheduledRequest::PromptRows::all && !l.promptDone)
        for (uint32_t i = p.resultFrom; i < p.tokens; ++i) {
          ASSERT_FALSE(rowsSeen[p.request][p.first + i]) << "a prompt row twice, seed " << seed;
          rowsSeen[p.request][p.first + i] = true;
        }
      if (p.promptDone) l.promptDone = true;
      size_t first = choices.size();
      bool fail = random.below(200) == 0;
      if (p.drafts) { // each row's token is taken as long as the next row's draft is it
        ASSERT_EQ(p.samples, 1u);
        ASSERT_EQ(p.resultFrom, 0u);
        ASSERT_EQ(p.tokens, p.drafts + 1);
        drafted += p.drafts;
        for (uint32_t i = 0; i < p.tokens; ++i) {
          int32_t token = nextToken(s.history, p.choice);
          s.history.push_back(hash(l, s.history, token));
          s.tokens.push_back(token);
          ++s.sincePreemption;
          bool end = s.tokens.size() - l.spec.prompt.size() >= l.stopAfter;
          choices.push_back({token, end, EndReason::stop});
          if (end || i == p.drafts || p.ids[i + 1] != token) break;
          ++accepted;
        }
        results.push_back({{choices.data() + first, choices.size() - first}, fail});
        continue;
      }
      for (uint32_t c = 0; c < p.samples; ++c) {
        uint32_t choice = p.samples > 1 ? c : p.choice;
        Sequence &own = l.choices[choice];
        ASSERT_EQ(p.first + p.tokens, own.tokens.size()) << seed;
        int32_t token = nextToken(own.history, choice);
        own.history.push_back(hash(l, own.history, token));
        own.tokens.push_back(token);
        ++own.sincePreemption;
        choices.push_back({token, own.tokens.size() - l.spec.prompt.size() >= l.stopAfter, EndReason::stop});
      }
      results.push_back({{choices.data() + first, choices.size() - first}, fail});
    }
    ASSERT_EQ(rows, plan.rows);
    ASSERT_LE(rows, options.stepTokens);
    if (rollback) {
      std::vector<RequestId> inside;
      for (const StepPiece &p : plan.pieces)
        inside.push_back(p.request);
      scheduler->rollback(now);
      check();
      if (random.below(2))
        for (RequestId id : inside) {
          scheduler->cancel(now, id, EndReason::failed);
          for (Sequence &s : live.at(id)->choices)
            s.cancelled = true;
        }
      return;
    }
    noteEnds(scheduler->commit(now + 0.001, 0.001 * rows, results));
    totals = scheduler->stats();
  }

  SimRandom random;
  uint64_t seed;
  double clock = 0;
  RequestId ids = 0;
  bool windows = false, shuffled = false, drafts = false;
  uint32_t largestPage = 1;
  Program program;
  std::vector<uint32_t> blocks;
  SchedulerOptions options;
  Trace trace;
  std::unique_ptr<Scheduler> scheduler;
  std::unique_ptr<FakeDevice> device;
  std::map<RequestId, std::unique_ptr<Live>> live;
  std::map<RequestId, std::vector<bool>> rowsSeen;
};

} // namespace

TEST(ScheduleFuzz, EveryRowSeesItsOwnHistory) {
  const char *text = std::getenv("LATHE_SCHEDULES");
  uint64_t count = text ? std::strtoull(text, nullptr, 10) : sanitized ? 460 : 4600, first = 1;
  if (const char *only = std::getenv("LATHE_SCHEDULE_SEED")) first = std::strtoull(only, nullptr, 10), count = 1;
  const char *few = std::getenv("LATHE_SCHEDULE_EVENTS");
  const int events = few ? std::atoi(few) : Schedule::allEvents;
  uint64_t recomputed = 0, saved = 0, hits = 0, steps = 0, restored = 0, guarded = 0, drafted = 0, accepted = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    Schedule schedule(seed);
    if (!schedule.run(events)) {
      FAIL() << "LATHE_SCHEDULE_SEED=" << seed << " LATHE_SCHEDULE_EVENTS=" << schedule.done << " shows it again";
    }
    const SchedulerStats &s = schedule.totals;
    recomputed += s.preemptedRecompute, saved += s.preemptedSave, hits += s.prefixHit, steps += s.steps;
    drafted += schedule.drafted, accepted += schedule.accepted;
    restored += s.reasons[static_cast<size_t>(Reason::admitRestored)];
    guarded += s.reasons[static_cast<size_t>(Reason::admitGuarded)];
  }
  std::printf(
      "%llu steps, %llu preempted by recompute, %llu saved, %llu restored, %llu guarded, %llu prefix tokens hit, "
      "%llu drafts, %llu accepted\n",
      (unsigned long long)steps, (unsigned long long)recomputed, (unsigned long long)saved,
      (unsigned long long)restored, (unsigned long long)guarded, (unsigned long long)hits, (unsigned long long)drafted,
      (unsigned long long)accepted);
  if (count >= 400) EXPECT_TRUE(recomputed && saved && restored && hits && accepted && drafted > accepted);
}
