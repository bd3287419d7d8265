//===- SpeculationTest.cpp - drafters against brute force -----------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/speculation/Drafter.h"
#include <algorithm>
#include <array>
#include <gtest/gtest.h>
#include <map>
#include <optional>
#include <random>
#include <set>

using namespace lathe;
using namespace lathe::runtime;

namespace {

using Tokens = std::vector<int32_t>;

Tokens randomTokens(std::mt19937 &rng, size_t count, uint32_t vocabulary) {
  Tokens out(count);
  for (int32_t &t : out)
    t = static_cast<int32_t>(rng() % vocabulary);
  return out;
}

/// Places in |texts| behind which |part| ends, as (text, end).
std::vector<std::pair<size_t, size_t>> places(const std::vector<Tokens> &texts, const Tokens &part) {
  std::vector<std::pair<size_t, size_t>> out;
  for (size_t t = 0; t < texts.size(); ++t)
    for (size_t end = part.size(); end <= texts[t].size(); ++end)
      if (std::equal(part.begin(), part.end(), texts[t].begin() + static_cast<long>(end - part.size())))
        out.push_back({t, end});
  return out;
}

Tokens tail(const Tokens &text, size_t length) { return Tokens(text.end() - static_cast<long>(length), text.end()); }

} // namespace

TEST(SuffixAutomaton, MatchesAndCountsAsBruteForce) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    std::mt19937 rng(seed);
    uint32_t vocabulary = 1 + rng() % 4;
    std::vector<Tokens> texts(1 + rng() % 4);
    SuffixAutomaton automaton(200);
    std::vector<SuffixAutomaton::State> last(texts.size(), SuffixAutomaton::root);
    Tokens other;
    SuffixAutomaton::Match match;
    for (int step = 0; step < 90; ++step) {
      // Texts grow in turns, and the reader between them.
      size_t t = rng() % texts.size();
      auto token = static_cast<int32_t>(rng() % vocabulary);
      texts[t].push_back(token);
      last[t] = automaton.append(last[t], token);
      auto read = static_cast<int32_t>(rng() % vocabulary);
      other.push_back(read);
      automaton.advance(match, read);
      size_t longest = match.length; // what it matched before is matched still, and may go on
      ASSERT_FALSE(longest && places(texts, tail(other, longest)).empty()) << seed << " " << step;
      // The longest that a fresh reader finds is the longest there is.
      SuffixAutomaton::Match fresh;
      for (int32_t x : other)
        automaton.advance(fresh, x);
      size_t expected = 0;
      while (expected < other.size() && !places(texts, tail(other, expected + 1)).empty())
        ++expected;
      ASSERT_EQ(fresh.length, expected) << seed << " " << step;
      if (expected)
        ASSERT_EQ(automaton.occurrences(fresh), std::min<size_t>(places(texts, tail(other, expected)).size(), 64))
            << seed << " " << step;
      // Of a text itself: its longest suffix that is somewhere else too.
      SuffixAutomaton::Match repeated = automaton.repeated(last[t]);
      size_t own = 0;
      while (own < texts[t].size() && places(texts, tail(texts[t], own + 1)).size() > 1)
        ++own;
      ASSERT_EQ(repeated.length, own) << seed << " " << step;
      // What mostly followed it.
      SuffixAutomaton::Match at = repeated;
      SuffixAutomaton::Next next = automaton.follow(at, 1);
      size_t length = own;
      std::map<int32_t, size_t> followers;
      for (; length && followers.empty(); --length)
        for (auto [where, end] : places(texts, tail(texts[t], length)))
          if (end < texts[where].size()) ++followers[texts[where][end]];
      if (followers.empty()) {
        ASSERT_EQ(next.token, -1) << seed << " " << step;
        continue;
      }
      size_t most = 0, all = 0;
      for (auto [x, n] : followers)
        most = std::max(most, n), all += n;
      if (all >= 60) continue; // counts end at 64
      ASSERT_EQ(followers[next.token], most) << seed << " " << step;
      ASSERT_FLOAT_EQ(next.share, static_cast<float>(most) / static_cast<float>(all)) << seed << " " << step;
      ASSERT_EQ(at.length, length + 2) << seed << " " << step;
    }
  }
}

TEST(SuffixAutomaton, IsFullAtItsCapacityAndEmptyAgainWhenCleared) {
  SuffixAutomaton automaton(500);
  std::mt19937 rng(1);
  for (int round = 0; round < 3; ++round) {
    auto state = SuffixAutomaton::root;
    uint32_t count = 0;
    for (; !automaton.full(); ++count)
      state = automaton.append(state, static_cast<int32_t>(round == 1 ? count : rng() % 3));
    EXPECT_EQ(count, 500u);
    automaton.clear();
    SuffixAutomaton::Match match;
    automaton.advance(match, 0);
    EXPECT_EQ(match.length, 0u);
  }
}

TEST(SuffixAutomaton, LooksAtABoundedNumberOfFollowers) {
  // Behind token 1 came 2 three times, and before and after that others once each.
  for (uint32_t others : {SuffixAutomaton::mostFollowers - 1, 16000u}) {
    SuffixAutomaton automaton(1 << 15);
    auto last = SuffixAutomaton::root;
    auto say = [&](int32_t token) { last = automaton.append(last, token); };
    for (int i = 0; i < 3; ++i)
      say(1), say(2);
    for (uint32_t i = 0; i < others; ++i)
      say(1), say(1000 + static_cast<int32_t>(i));
    SuffixAutomaton::Match match;
    automaton.advance(match, 1);
    ASSERT_EQ(match.length, 1u);
    SuffixAutomaton::Match moved = match;
    std::array<SuffixAutomaton::Next, 3> next;
    std::array<SuffixAutomaton::Match, 3> behind;
    SuffixAutomaton::Next first = automaton.follow(moved, 1);
    ASSERT_EQ(automaton.followers(match, 1, next, behind), 3u);
    EXPECT_EQ(next[0].token, first.token);
    EXPECT_EQ(next[0].share, first.share);
    EXPECT_EQ(behind[0].state, moved.state);
    auto all = static_cast<float>(others + 3);
    if (others < SuffixAutomaton::mostFollowers) { // all of them are looked at
      EXPECT_EQ(first.token, 2);
      EXPECT_FLOAT_EQ(first.share, 3 / all);
      continue;
    }
    // Those that came last are; what is said of one of them is true.
    EXPECT_EQ(first.token, 1000 + static_cast<int32_t>(others - SuffixAutomaton::mostFollowers));
    EXPECT_FLOAT_EQ(first.share, 1 / all);
  }
}

TEST(NgramIndex, FindsTheLastOccurrenceOfTheLongestGram) {
  for (uint32_t seed = 0; seed < 40; ++seed) {
    std::mt19937 rng(seed);
    NgramIndex index(4096); // large enough that no entry is overwritten often
    Tokens text;
    int missed = 0, found = 0;
    for (int i = 0; i < 300; ++i) {
      text.push_back(static_cast<int32_t>(rng() % 6));
      index.append(text, static_cast<uint32_t>(text.size()));
      NgramIndex::Match match = index.match(text);
      size_t expected = 0, n = std::min<size_t>(5, text.size());
      for (; n >= 2 && !expected; --n)
        for (size_t end = text.size() - 1; end >= n && !expected; --end)
          if (std::equal(text.end() - static_cast<long>(n), text.end(), text.begin() + static_cast<long>(end - n)))
            expected = end;
      if (match.length) { // never mistaken
        ASSERT_GE(match.length, 2u);
        ASSERT_LT(match.position, text.size());
        ASSERT_TRUE(std::equal(text.end() - match.length, text.end(), text.begin() + match.position - match.length));
      }
      if (expected && match.position != expected) ++missed; // its entry was overwritten
      found += match.position == expected && expected;
    }
    EXPECT_GT(found, 150) << seed;
    EXPECT_LT(missed, 15) << seed;
  }
}

TEST(AcceptanceModel, LearnsAndForgets) {
  AcceptanceModel engine, request(&engine);
  DraftKind kind = draftKind(DraftSource::ngram, 5, 1, 0);
  EXPECT_FLOAT_EQ(request.rate(kind), AcceptanceModel::assumed(kind));
  for (int i = 0; i < 200; ++i)
    request.observe(kind, false);
  EXPECT_LT(request.rate(kind), 0.15f);
  EXPECT_FLOAT_EQ(engine.rate(kind), AcceptanceModel::assumed(kind));
  for (int i = 0; i < 100; ++i)
    request.observe(kind, true);
  EXPECT_GT(request.rate(kind), 0.8f);
  std::set<DraftKind> kinds;
  for (uint32_t s = 0; s < draftSources; ++s)
    for (uint32_t length : {2, 4, 8, 16})
      for (float share : {0.1f, 0.6f, 1.0f})
        for (uint32_t at : {0, 1, 3})
          for (bool other : {false, true})
            kinds.insert(draftKind(static_cast<DraftSource>(s), length, share, placeClass(at), other));
  EXPECT_EQ(kinds.size(), draftKinds);
  EXPECT_LT(*kinds.rbegin(), draftKinds);
}

TEST(AcceptanceModel, OfChainsItMattersWhatOthersSay) {
  EXPECT_EQ(supportClass(0, 0), 1u);
  EXPECT_EQ(supportClass(0, 1), 0u);
  EXPECT_EQ(supportClass(1, 1), 1u);
  EXPECT_EQ(supportClass(2, 2), 2u);
  for (uint32_t third : {0u, 1u, 2u})
    EXPECT_EQ(withThird(draftKind(DraftSource::shared, 9, 0.6f, 1), third), draftKind(DraftSource::shared, 9, 0.6f, third));
}

TEST(PairRates, CorrectsByWhatBecameOfAPair) {
  PairRates pairs;
  EXPECT_FLOAT_EQ(pairs.corrected(0.8f, 3, 4), 0.8f);
  for (int i = 0; i < 100; ++i)
    pairs.observe(3, 4, false), pairs.observe(3, 5, true);
  EXPECT_LT(pairs.corrected(0.8f, 3, 4), 0.35f);
  EXPECT_GT(pairs.corrected(0.2f, 3, 5), 0.65f);
  EXPECT_FLOAT_EQ(pairs.corrected(0.8f, 4, 4), 0.8f);
  // Of a token that was never drafted there it counts what became of others.
  for (int32_t token = 100; token < 160; ++token)
    pairs.observe(8, token, false);
  EXPECT_LT(pairs.corrected(0.8f, 8, 1), 0.5f);
  for (int i = 0; i < 20; ++i)
    pairs.observe(3, 4, true); // evidence fades
  EXPECT_GT(pairs.corrected(0.8f, 3, 4), 0.7f);
}

namespace {

/// A source of tokens that differ, and a copy of its first |copied| tokens behind it, as the cursor reads them.
struct Copying {
  explicit Copying(size_t copied) : index(4096) {
    for (int32_t i = 0; i < 60; ++i)
      text.push_back(100 + i);
    for (uint32_t end = 1; end <= text.size(); ++end)
      index.append(text, end);
    for (size_t i = 0; i < copied; ++i)
      say(text[i]);
  }
  void say(int32_t token) {
    text.push_back(token);
    index.append(text, static_cast<uint32_t>(text.size()));
    match = index.match(text);
    cursor.push(text, match.position, match.length);
  }
  int32_t next() const { return cursor.active() ? text[cursor.position()] : -1; }
  Tokens text;
  NgramIndex index;
  NgramIndex::Match match;
  CopyCursor cursor;
};

} // namespace

TEST(CopyCursor, GoesOnBehindAChange) {
  // What the copy says instead of the source's tokens from 120 on, and how many of its tokens are said before the place is known.
  struct Case {
    const char *name;
    Tokens said;
    int32_t expected;
  } cases[] = {{"a word for a word", {7}, 121}, {"two for two", {7, 8}, 122}, {"one left out", {121}, 122}, {"three left out", {123}, 124}, {"one put in", {7, 120}, 121},
               {"three put in", {7, 8, 9, 120}, 121}, {"one for three", {7, 123}, 124}, {"three for one", {7, 8, 9, 121}, 122}};
  for (const Case &c : cases) {
    Copying copy(20);
    EXPECT_EQ(copy.next(), 120) << c.name;
    EXPECT_EQ(copy.cursor.run(), 20u) << c.name;
    for (int32_t token : c.said)
      copy.say(token);
    EXPECT_EQ(copy.next(), c.expected) << c.name;
    EXPECT_LE(copy.cursor.run(), 1u) << c.name;
    EXPECT_EQ(copy.match.length, 0u) << c.name << ": tokens that agree are enough without it";
    copy.say(c.expected); // and goes on
    EXPECT_EQ(copy.next(), c.expected + 1) << c.name;
  }
}

TEST(CopyCursor, EndsWhereNothingIsCopiedAndBeginsElsewhere) {
  Copying copy(3);
  EXPECT_FALSE(copy.cursor.active()); // three tokens are no copy
  copy.say(103);
  EXPECT_TRUE(copy.cursor.active());
  for (uint32_t i = 0; i <= CopyCursor::patience; ++i) {
    EXPECT_TRUE(copy.cursor.active()) << i;
    EXPECT_LT(copy.cursor.position(), copy.text.size());
    copy.say(7 + static_cast<int32_t>(i));
  }
  EXPECT_FALSE(copy.cursor.active());
  for (int32_t t = 130; t < 134; ++t)
    copy.say(t);
  EXPECT_EQ(copy.next(), 134);
  // A long match elsewhere ends a copy that has just begun to differ; a short one does not.
  copy.say(8);
  for (int32_t t = 150; t < 157; ++t)
    copy.say(t);
  EXPECT_EQ(copy.match.length, 7u);
  EXPECT_EQ(copy.cursor.run(), 0u);
  copy.say(157);
  EXPECT_EQ(copy.next(), 158);
}

TEST(CopyCursor, StaysWithinTheText) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 rng(seed);
    NgramIndex index(4096);
    CopyCursor cursor;
    Tokens text;
    for (int i = 0; i < 400; ++i) {
      bool copies = text.size() > 8 && rng() % 8 && cursor.active();
      text.push_back(copies ? text[cursor.position()] : static_cast<int32_t>(rng() % (2 + seed % 9)));
      index.append(text, static_cast<uint32_t>(text.size()));
      NgramIndex::Match match = index.match(text);
      cursor.push(text, match.position, match.length);
      if (cursor.active()) ASSERT_LT(cursor.position(), text.size()) << seed << " " << i;
    }
  }
}

TEST(Drafter, GoesOnCopyingBehindAChangedWord) {
  Tokens source(40);
  for (int32_t i = 0; i < 40; ++i)
    source[static_cast<size_t>(i)] = 100 + i;
  for (Speculation method : {Speculation::ngram, Speculation::automatic, Speculation::suffix}) {
    SharedDrafts shared;
    Drafter drafter(method, source, 40, shared, shared.suffixesOf("", ""));
    for (int32_t token = 100; token < 112; ++token)
      drafter.push(token), drafter.propose(4);
    drafter.push(7); // not 112
    const Draft &draft = drafter.propose(4);
    if (method == Speculation::suffix) { // who looks tokens up finds none
      EXPECT_EQ(draft.count, 0u);
      continue;
    }
    ASSERT_GE(draft.count, 1u) << toString(method);
    EXPECT_EQ(drafter.source(), DraftSource::copy);
    EXPECT_EQ(draft.tokens[0], 113);
  }
}

TEST(Drafter, LearnsWhichPlacesAreNeverCopied) {
  // Rows of seven words that are always the same and a number that is another in each: the lookup proposes the last one's, and its share and
  // the tokens that agree are those of the words.
  Tokens prompt;
  int32_t number = 1000;
  auto row = [&] { return Tokens{1, 2, 3, 4, 5, 6, 7, number++}; };
  for (int i = 0; i < 4; ++i)
    for (int32_t t : row())
      prompt.push_back(t);
  SharedDrafts shared;
  Drafter drafter(Speculation::ngram, prompt, 400, shared, nullptr);
  for (int i = 0; i < 20; ++i) // nothing is verified
    for (int32_t t : row())
      drafter.propose(16), drafter.push(t);
  for (int32_t t : {1, 2, 3})
    drafter.push(t);
  const Draft &draft = drafter.propose(16);
  ASSERT_GE(draft.count, 5u);
  EXPECT_EQ(Tokens(draft.tokens.begin(), draft.tokens.begin() + 5), (Tokens{4, 5, 6, 7, number - 1}));
  EXPECT_GT(draft.chance[3], 0.7f);
  EXPECT_LT(draft.chance[4], 0.7f * draft.chance[3]);
}

TEST(Drafter, RepeatsWhatWasSaid) {
  Tokens prompt = {9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 30, 1, 2, 3};
  for (Speculation method : {Speculation::ngram, Speculation::suffix, Speculation::automatic}) {
    SharedDrafts shared;
    Drafter drafter(method, prompt, 20, shared, shared.suffixesOf("", ""));
    Draft draft = drafter.propose(4);
    ASSERT_EQ(draft.count, 4u) << toString(method);
    EXPECT_EQ(Tokens(draft.tokens.begin(), draft.tokens.begin() + 4), (Tokens{4, 5, 6, 7}));
    for (uint32_t i = 1; i < 4; ++i)
      EXPECT_LE(draft.chance[i], draft.chance[i - 1]);
    drafter.verified(4, 0xf);
    for (int32_t t : {4, 5, 6, 7})
      drafter.push(t);
    EXPECT_EQ(drafter.propose(1).tokens[0], 8);
    EXPECT_EQ(drafter.propose(0).count, 0u);
    drafter.push(31);
    drafter.push(32);
    const Draft &behind = drafter.propose(4);
    if (method == Speculation::suffix)
      EXPECT_EQ(behind.count, 0u);
    else // two words for two
      EXPECT_EQ(behind.tokens[0], 30);
  }
}

TEST(Drafter, LooksUpASingleToken) {
  Tokens prompt = {1, 2, 3, 9, 2, 4, 8, 2, 4, 7, 5, 2}; // behind 2 alone: 3 once, 4 twice
  for (Speculation method : {Speculation::ngram, Speculation::suffix, Speculation::automatic}) {
    SharedDrafts shared;
    Drafter drafter(method, prompt, 20, shared, nullptr);
    const Draft &draft = drafter.propose(4);
    if (method == Speculation::ngram) {
      EXPECT_EQ(draft.count, 0u); // two tokens are the fewest there
      continue;
    }
    ASSERT_GE(draft.count, 1u);
    EXPECT_EQ(draft.tokens[0], 4);
    EXPECT_EQ(drafter.source(), DraftSource::suffix);
  }
}

TEST(Drafter, BranchesWhereTheTextDid) {
  // Behind 1 2: 3 5 twice, 4 6 twice.
  Tokens prompt = {1, 2, 3, 5, 90, 1, 2, 4, 6, 91, 1, 2, 3, 5, 92, 1, 2, 4, 6, 93, 1, 2};
  SharedDrafts shared;
  Drafter drafter(Speculation::suffixTree, prompt, 20, shared, shared.suffixesOf("", ""));
  auto check = [](const Draft &draft) {
    EXPECT_TRUE(draft.tree);
    std::set<Tokens> paths;
    for (uint32_t i = 0; i < draft.count; ++i) {
      EXPECT_LT(draft.parent[i], static_cast<int32_t>(i));
      if (i) EXPECT_LE(draft.chance[i], draft.chance[i - 1]);
      Tokens path;
      for (int32_t at = static_cast<int32_t>(i); at >= 0; at = draft.parent[static_cast<size_t>(at)])
        path.insert(path.begin(), draft.tokens[static_cast<size_t>(at)]);
      paths.insert(path);
    }
    EXPECT_EQ(paths.size(), draft.count) << "a path twice";
    return paths;
  };
  auto first = check(drafter.propose(8));
  EXPECT_TRUE(first.count({3}) && first.count({4}));
  // The second choice is right all the time: its estimate grows, and the tree goes on behind it.
  for (int i = 0; i < 40; ++i) {
    const Draft &draft = drafter.propose(8);
    uint32_t right = 0;
    for (uint32_t n = 0; n < draft.count; ++n)
      if (draft.parent[n] < 0 ? draft.tokens[n] == 4 : right >> draft.parent[n] & 1) right |= 1u << n;
    drafter.verified(draft.count, right);
  }
  const Draft &draft = drafter.propose(4);
  check(draft);
  ASSERT_GE(draft.count, 2u);
  EXPECT_EQ(draft.tokens[0], 4);
  EXPECT_EQ(draft.tokens[1], 6);
}

TEST(Drafter, SaysHowMuchMemoryItTakes) {
  EXPECT_EQ(draftingBytes(Speculation::off, 100, 4096), 0u);
  // Tables of 4 n-gram lengths, 4 bytes an entry; the text; what is known of pairs and chains.
  EXPECT_EQ(draftingBytes(Speculation::ngram, 3, 4096), 3u * (4096 * 16 + 4096 * 4 + sizeof(Drafter)));
  EXPECT_LT(sizeof(Drafter), 24u << 10);
  uint64_t suffix = draftingBytes(Speculation::suffix, 1, 4096) - draftingBytes(Speculation::suffix, 0, 4096);
  EXPECT_GT(suffix, 4096u * 96);
  EXPECT_LT(suffix, 4096u * 200);
  EXPECT_EQ(draftingBytes(Speculation::automatic, 1, 4096) - draftingBytes(Speculation::suffix, 1, 4096), 4096u * 16);
  // A long context is looked up in its last 32 Ki tokens.
  EXPECT_LT(draftingBytes(Speculation::suffix, 1, 1 << 20), draftingBytes(Speculation::suffix, 1, 1 << 15) + (4 << 20));
}

TEST(Drafter, GoesRoundInAPeriod) {
  for (Speculation method : {Speculation::ngram, Speculation::suffix}) {
    SharedDrafts shared;
    Drafter drafter(method, Tokens{1, 2, 3, 1, 2, 3, 1, 2}, 60, shared, nullptr);
    for (int i = 0; i < 3; ++i) { // a period that goes on is believed in more and more
      drafter.propose(16);
      for (int t = 0; t < 18; ++t)
        drafter.push((t + 2) % 3 + 1);
    }
    const Draft &draft = drafter.propose(8);
    ASSERT_GE(draft.count, 6u) << toString(method);
    for (uint32_t i = 0; i < draft.count; ++i)
      EXPECT_EQ(draft.tokens[i], static_cast<int32_t>((i + 2) % 3 + 1)) << toString(method) << " " << i;
  }
}

TEST(Drafter, AnswersAreSharedWithinATenantOnly) {
  SharedDrafts shared;
  Tokens answer = {40, 41, 42, 43, 44, 45};
  Drafter first(Speculation::suffix, Tokens{1, 2, 3}, 20, shared, shared.suffixesOf("a", "s"));
  for (int32_t t : answer)
    first.push(t);
  first.finish();
  auto drafts = [&](const char *tenant, const char *salt, Speculation method) {
    Drafter next(method, Tokens{7, 40, 41}, 20, shared, shared.suffixesOf(tenant, salt));
    return next.propose(2).count;
  };
  EXPECT_EQ(drafts("a", "s", Speculation::suffix), 2u);
  EXPECT_EQ(drafts("a", "s", Speculation::automatic), 2u);
  EXPECT_EQ(drafts("a", "s", Speculation::ngram), 0u);
  EXPECT_EQ(drafts("a", "", Speculation::suffix), 0u);
  EXPECT_EQ(drafts("as", "", Speculation::suffix), 0u);
  EXPECT_EQ(drafts("b", "s", Speculation::suffix), 0u);
  for (uint32_t t = 0; t < SharedDrafts::maxTenants; ++t)
    shared.suffixesOf("other" + std::to_string(t), "");
  EXPECT_EQ(drafts("a", "s", Speculation::suffix), 0u); // forgotten: others were used later
}

TEST(Drafter, SharedSuffixesForgetTheOlderHalf) {
  SharedSuffixes shared(100);
  std::mt19937 rng(3);
  Tokens old = randomTokens(rng, 60, 1000), newer = randomTokens(rng, 130, 1000), newest = randomTokens(rng, 100, 1000);
  auto knows = [&](const Tokens &text) {
    uint32_t best = 0;
    for (uint32_t g = 0; g < 2; ++g) {
      SuffixAutomaton::Match match;
      for (size_t i = 0; shared.generation(g) && i < 10; ++i)
        shared.generation(g)->advance(match, text[i]);
      best = std::max(best, match.length);
    }
    return best;
  };
  shared.add(old);
  EXPECT_EQ(knows(old), 10u);
  shared.add(newer);
  EXPECT_EQ(knows(old), 10u);
  shared.add(newest);
  EXPECT_LT(knows(old), 4u);
  EXPECT_EQ(knows(newest), 10u);
}

TEST(Drafter, AsksTextThatCannotBeGuessedLessAndLess) {
  // Every draft is wrong. The rule of cost is played by: only an expectation above one half is worth it.
  for (Speculation method : {Speculation::automatic, Speculation::suffixTree}) {
    std::mt19937 rng(5);
    SharedDrafts shared;
    Drafter drafter(method, randomTokens(rng, 200, 12), 6100, shared, nullptr);
    int early = 0, late = 0;
    for (int i = 0; i < 6000; ++i) {
      const Draft &draft = drafter.propose(4);
      bool worth = draft.count && draft.chance[0] > 0.5f;
      if (worth) drafter.verified(1, 0), ++(i < 1000 ? early : late);
      drafter.push(static_cast<int32_t>(rng() % 12));
    }
    EXPECT_LT(early, 100) << toString(method);
    EXPECT_LT(late, 50) << toString(method);
    if (method == Speculation::suffixTree) {
      EXPECT_GT(late, 0); // but it is asked again
      continue;
    }
    // Of chains it is seen when they begin to be right, though none was verified.
    int repeated = 0;
    for (int i = 0; i < 100; ++i) {
      const Draft &draft = drafter.propose(4);
      repeated += draft.count && draft.chance[0] > 0.5f;
      drafter.push(20 + i % 10);
    }
    EXPECT_GT(repeated, 70);
  }
}

TEST(Drafter, ACopyThatWasWrongIsProposedAgainWhenItIsRight) {
  Tokens source(400);
  PairRates right; // where the drafters count what they copy rightly
  for (int32_t i = 0; i < 400; ++i) {
    source[static_cast<size_t>(i)] = 1000 + i;
    right.observe(999 + i, 1000 + i, true);
  }
  int32_t word = 5000;
  // A word that stands nowhere else, and shares no count in front of |behind| with a word of the source: the kind's estimate alone says what that is worth.
  auto other = [&](int32_t behind) {
    while (right.corrected(0, ++word, behind) > 0)
      ;
    return word;
  };
  for (bool later : {false, true}) { // on the same request, and on the server's next one
    SharedDrafts shared;
    std::optional<Drafter> drafter;
    for (int request = 0; request < 16; ++request) {
      drafter.emplace(Speculation::ngram, source, 400, shared, nullptr);
      // Parts of the source that end where nothing is copied any more: a dozen guesses behind a change are wrong.
      for (size_t part = 0; part < 3; ++part) {
        for (size_t i = 0; i < 36; ++i)
          drafter->propose(4), drafter->push(source[part * 60 + i]);
        for (uint32_t i = 0; i <= CopyCursor::patience; ++i)
          drafter->propose(4), drafter->push(other(0));
      }
    }
    if (later) drafter.emplace(Speculation::ngram, source, 400, shared, nullptr);
    // Then a word is changed now and then, and what stands behind it is copied.
    size_t at = 200;
    for (int i = 0; i < 36; ++i)
      drafter->propose(4), drafter->push(source[at++]);
    int proposed = 0;
    for (int change = 0; change < 20; ++change) {
      drafter->propose(4);
      drafter->push(other(source[++at]));
      const Draft &draft = drafter->propose(4);
      if (change == 0) EXPECT_EQ(draft.count, 0u) << "nothing to come back from";
      if (draft.count) EXPECT_EQ(draft.tokens[0], source[at]);
      proposed += draft.count > 0;
      for (int i = 0; i < 4; ++i)
        drafter->propose(4), drafter->push(source[at++]);
    }
    EXPECT_GT(proposed, 12) << later;
  }
}

TEST(Drafter, ATreeThatWasWrongIsTriedAgain) {
  // Words that each stand once in the prompt with two behind them, and in the answer first with others, then with the same.
  Tokens prompt;
  for (int32_t i = 0; i < 1200; ++i)
    for (int32_t t : {1000 + i, 3000 + i, 5000 + i, 7000 + i})
      prompt.push_back(t);
  SharedDrafts shared;
  Drafter drafter(Speculation::suffixTree, prompt, 6000, shared, nullptr);
  uint32_t proposed = 0;
  // All that is proposed is verified: |next| comes first, then |behind|.
  auto say = [&](int32_t next, int32_t behind) {
    const Draft &draft = drafter.propose(4);
    proposed += draft.count > 0;
    uint32_t right = 0;
    for (uint32_t n = 0; n < draft.count; ++n)
      if (draft.parent[n] < 0 ? draft.tokens[n] == next : draft.parent[n] == 0 && right & 1 && draft.tokens[n] == behind) right |= 1u << n;
    if (draft.count) drafter.verified(draft.count, right);
    drafter.push(next);
  };
  for (int32_t i = 0; i < 400; ++i)
    say(1000 + i, 10000 + i), say(10000 + i, 1001 + i);
  EXPECT_LT(proposed, 100u);
  proposed = 0;
  for (int32_t i = 400; i < 1200; ++i) {
    if (i == 1100) proposed = 0;
    say(1000 + i, 3000 + i), say(3000 + i, 5000 + i), say(5000 + i, 20000 + i), say(20000 + i, 1001 + i);
  }
  EXPECT_GT(proposed, 90u);
}

TEST(Drafter, AProgramThatDoesNotPayIsTriedLessAndLess) {
  SharedDrafts shared;
  Drafter drafter(Speculation::draft, Tokens{1, 2, 3}, 100, shared, nullptr);
  EXPECT_EQ(drafter.propose(16).count, 0u); // it looks nothing up
  auto declinesUntilTried = [&](double steps) {
    int declined = 1;
    for (; drafter.programReady() && !drafter.programDeclined(steps); ++declined)
      ;
    drafter.beginProgram();
    return declined;
  };
  EXPECT_EQ(declinesUntilTried(0), 32);
  EXPECT_TRUE(drafter.putProgram(7, 0.9f) && drafter.putProgram(8, 0.9f));
  EXPECT_FALSE(drafter.putProgram(9, 0.9f)); // a try has two
  EXPECT_EQ(drafter.programDraft().chance[1], 1.0f); // which a plan is to take
  EXPECT_EQ(drafter.source(), DraftSource::program);
  // No plan took it.
  EXPECT_EQ(declinesUntilTried(0), 64);
  EXPECT_TRUE(drafter.putProgram(7, 0.9f));
  drafter.verified(1, 0); // wrong
  EXPECT_EQ(declinesUntilTried(0), 128);
  EXPECT_TRUE(drafter.putProgram(7, 0.9f));
  drafter.verified(1, 1); // right
  EXPECT_EQ(declinesUntilTried(0), 32);
  EXPECT_TRUE(drafter.putProgram(7, 0.9f));
  drafter.verified(1, 1);
  EXPECT_EQ(declinesUntilTried(50), 50); // a try is dear
  // What became of drafts is known of the next before its probability is.
  float before = drafter.programChance(0);
  EXPECT_TRUE(drafter.putProgram(7, 0.1f));
  drafter.verified(1, 1);
  EXPECT_GT(drafter.programChance(0), before);
  EXPECT_EQ(drafter.programChance(15), AcceptanceModel::assumed(draftKind(DraftSource::program, 16, 0.7f, placeClass(15))));
}

// A program that has nothing to say, or whose drafts no plan takes, rests longer and longer.
TEST(Drafter, AProgramOfWhichNothingIsVerifiedRests) {
  SharedDrafts shared;
  Drafter drafter(Speculation::draft, Tokens{1, 2, 3}, 100, shared, nullptr);
  auto asked = [&](int steps) {
    int runs = 0;
    for (int i = 0; i < steps; ++i)
      if (drafter.programReady()) ++runs, drafter.beginProgram();
    return runs;
  };
  EXPECT_EQ(asked(20), 4);
  EXPECT_EQ(asked(4 + 32), 4);
  EXPECT_EQ(asked(4 + 64), 4);
  EXPECT_LE(asked(2600), 44); // 4 of 260 at last
  for (int i = 0; i < 300 && !drafter.programReady(); ++i)
    ;
  drafter.beginProgram();
  EXPECT_TRUE(drafter.putProgram(7, 0.9f));
  drafter.verified(1, 1);
  EXPECT_GE(asked(20), 4); // and as at first again
}

// A program without a word leaves what was looked up for the same place; with one, that is gone.
TEST(Drafter, WhereAProgramSaysNothingTheLookupStays) {
  SharedDrafts shared;
  Drafter drafter(Speculation::automatic, Tokens{1, 2, 3, 4, 5, 1, 2, 3}, 100, shared, nullptr);
  const Draft looked = drafter.propose(2);
  ASSERT_EQ(looked.count, 2u);
  ASSERT_TRUE(drafter.programReady());
  drafter.beginProgram();
  EXPECT_EQ(drafter.programDraft().count, 0u);
  const Draft &left = drafter.endProgram();
  ASSERT_EQ(left.count, 2u);
  EXPECT_EQ(left.tokens[0], 4);
  EXPECT_EQ(left.tokens[1], 5);
  EXPECT_EQ(left.chance[1], looked.chance[1]);
  EXPECT_EQ(drafter.source(), looked.source);
  drafter.beginProgram();
  ASSERT_TRUE(drafter.putProgram(9, 0.9f));
  EXPECT_EQ(drafter.endProgram().tokens[0], 9);
  EXPECT_EQ(drafter.source(), DraftSource::program);
  // And a lookup that is verified does not hide that the program is silent: it rests after four rounds.
  int asked = 0;
  for (int i = 0; i < 20; ++i) {
    if (drafter.propose(2).count && drafter.programReady()) {
      ++asked;
      drafter.beginProgram();
    }
    ASSERT_EQ(drafter.endProgram().count, 2u);
    drafter.verified(2, 0);
  }
  EXPECT_LE(asked, 4);
}

// Lookups that are right say nothing of a program.
TEST(Drafter, LookupsDoNotWakeAProgram) {
  SharedDrafts shared;
  Drafter drafter(Speculation::automatic, Tokens{1, 2, 3, 4, 5, 1, 2, 3}, 100, shared, nullptr);
  int runs = 0, lookups = 0;
  for (int i = 0; i < 300; ++i) {
    if (drafter.programReady()) {
      ++runs;
      drafter.beginProgram();
    } else if (drafter.propose(2).count) {
      ++lookups;
      drafter.verified(1, 1);
    }
  }
  EXPECT_GT(lookups, 200);
  EXPECT_LE(runs, 20); // 4 of 20, 36, 68, 132 and so on
}

TEST(Drafter, ALongPromptIsIndexedByAndByAndALongerTextInItsTail) {
  Tokens prompt(12000);
  for (size_t i = 0; i < prompt.size(); ++i)
    prompt[i] = static_cast<int32_t>(i % 700);
  SharedDrafts shared;
  Drafter drafter(Speculation::suffix, prompt, 100, shared, nullptr);
  int steps = 0;
  while (!drafter.propose(4).count && steps < 20)
    ++steps;
  EXPECT_EQ(steps, 5); // 2,048 tokens a step
  Tokens longer(40000);
  for (size_t i = 0; i < longer.size(); ++i)
    longer[i] = static_cast<int32_t>(i % 10000);
  Drafter tailOnly(Speculation::automatic, longer, 5000, shared, nullptr);
  for (steps = 0; !tailOnly.propose(4).count && steps < 100; ++steps)
    ;
  EXPECT_LT(steps, 40);
}

TEST(Speculation, NamesAndErrors) {
  for (const char *name : {"off", "auto", "draft", "ngram", "suffix"}) {
    auto method = parseSpeculation(name);
    ASSERT_TRUE(method.ok());
    EXPECT_STREQ(toString(*method), name);
  }
  EXPECT_EQ(*parseSpeculation("layerskip"), Speculation::draft);
  EXPECT_EQ(parseSpeculation("medium").status().message(), "expected off, auto, draft, layerskip, ngram, suffix, suffix-tree, medusa, eagle, eagle2 or eagle3, found 'medium'");
  EXPECT_STREQ(toString(DraftSource::shared), "shared");
}
