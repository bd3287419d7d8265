//===- Drafter.cpp --------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/speculation/Drafter.h"
#include <algorithm>
#include <utility>

namespace lathe::runtime {

// Tokens of one sequence that are looked up; what its tenant gets of a prompt and of an answer.
static constexpr uint32_t lookedUp = 1 << 15, sharedPrompt = 512, sharedAnswer = 4096;
// Tokens put into the indexes in one step: a fraction of a millisecond.
static constexpr uint32_t indexedAtOnce = 2048;
// A draft ends where it is hardly ever reached.
static constexpr float leastChance = 0.05f;
// Tokens that must agree: what mostly followed a single one is right often enough where a row costs next to nothing.
static constexpr uint32_t shortestMatch = 1;
// Followers of a place that a tree looks at.
static constexpr uint32_t branches = 3;
// Drafts not worth their cost until one is tried all the same, and at most.
static constexpr uint32_t firstProbe = 32, lastProbe = 1024;
// A program's token counts as one that followed a match of so many tokens.
static constexpr uint32_t programMatched = 8;
/// Before the program has run the probability of its token is not known: of the tokens at |place|, whatever it was.
static DraftKind anyOfProgram(uint32_t place) { return draftKind(DraftSource::program, 2 * programMatched, 0.7f, placeClass(place)); }
// Drafts of a program of which nothing was verified until it rests, and for how many steps: at first, and at most, as nothing is learned of them.
static constexpr uint32_t mostIgnored = 4, firstRest = 16, lastRest = 256;

void SharedSuffixes::add(std::span<const int32_t> text) {
  auto state = SuffixAutomaton::root;
  for (int32_t token : text) {
    auto *now = generations[newer].get();
    if (!now || now->full()) {
      if (now) newer ^= 1;
      if (generations[newer])
        generations[newer]->clear();
      else
        generations[newer] = std::make_unique<SuffixAutomaton>(tokens);
      ++numbers[newer];
      state = SuffixAutomaton::root;
      now = generations[newer].get();
      if (now->full()) return; // no memory
    }
    state = now->append(state, token);
  }
}

std::shared_ptr<SharedSuffixes> SharedDrafts::suffixesOf(const std::string &tenant, const std::string &salt) {
  std::string key = std::to_string(tenant.size()) + ":" + tenant + salt;
  ++uses;
  for (Entry &e : entries)
    if (e.key == key) return e.used = uses, e.suffixes;
  Entry made{std::move(key), std::make_shared<SharedSuffixes>(tokensPerGeneration), uses};
  if (entries.size() < maxTenants) return entries.emplace_back(std::move(made)).suffixes;
  auto oldest = std::min_element(entries.begin(), entries.end(), [](auto &a, auto &b) { return a.used < b.used; });
  *oldest = std::move(made);
  return oldest->suffixes;
}

uint64_t draftingBytes(Speculation method, uint32_t drafters, uint32_t contextTokens) {
  if (method == Speculation::off) return 0;
  uint32_t room = std::min(lookedUp, contextTokens);
  uint64_t each = uint64_t(contextTokens) * sizeof(int32_t) + sizeof(Drafter), together = 0;
  if (method == Speculation::ngram || method == Speculation::automatic) each += NgramIndex::bytesFor(room);
  if (method != Speculation::ngram && method != Speculation::draft) {
    each += SuffixAutomaton::bytesFor(room);
    together = 2 * SharedDrafts::maxTenants * SuffixAutomaton::bytesFor(SharedDrafts::tokensPerGeneration);
  }
  return drafters * each + together;
}

Drafter::Drafter(Speculation method, std::span<const int32_t> prompt, uint32_t fresh, SharedDrafts &shared,
                 std::shared_ptr<SharedSuffixes> tenant)
    : shared(shared), suffixes(std::move(tenant)), promptTokens(static_cast<uint32_t>(prompt.size())),
      acceptance(&shared.acceptance), probeAfter(firstProbe), trees(method == Speculation::suffixTree) {
  program.probeAfter = firstProbe;
  program.rest = firstRest;
  text.reserve(prompt.size() + fresh);
  text.assign(prompt.begin(), prompt.end());
  uint32_t room = std::min(lookedUp, promptTokens + std::min(fresh, lookedUp));
  indexed = promptTokens > room / 2 && promptTokens + fresh > lookedUp ? promptTokens - room / 2 : 0;
  if (method == Speculation::draft) {
    suffixes = nullptr;
    return;
  }
  if (method == Speculation::ngram || method == Speculation::automatic) ngrams.emplace(room);
  if (method != Speculation::ngram)
    local.emplace(room);
  else
    suffixes = nullptr;
}

void Drafter::push(int32_t token) {
  if (text.size() >= text.capacity()) return;
  for (uint32_t slot = 0; slot < slots; ++slot) {
    Draft &chain = found[slot];
    uint32_t at = agreed[slot]++;
    if (at >= chain.count) continue;
    bool right = chain.tokens[at] == token;
    acceptance.observe(chain.kind[at], right);
    shared.acceptance.observe(chain.kind[at], right);
    pairs.observe(text.back(), chain.tokens[at], right);
    if (!right) chain.count = 0; // nobody knows of the tokens behind
  }
  text.push_back(token);
}

void Drafter::index(uint32_t most) {
  for (; most && indexed < text.size(); --most) {
    int32_t token = text[indexed++];
    if (ngrams) {
      ngrams->append(text, indexed);
      NgramIndex::Match earlier = indexed > promptTokens ? ngrams->match(text) : NgramIndex::Match();
      if (indexed > promptTokens) cursor.push(std::span(text).first(indexed), earlier.position, earlier.length);
    }
    if (local && !local->full()) last = local->append(last, token);
    for (uint32_t g = 0; suffixes && g < 2; ++g) {
      const SuffixAutomaton *automaton = suffixes->generation(g);
      if (!automaton) continue;
      if (number[g] == suffixes->number(g)) {
        automaton->advance(match[g], token);
        continue;
      }
      number[g] = suffixes->number(g);
      match[g] = {};
      for (uint32_t i = indexed > 32 ? indexed - 32 : 0; i < indexed; ++i)
        automaton->advance(match[g], text[i]);
    }
  }
}

float Drafter::rateOf(DraftKind kind, bool assumed) const {
  return std::min(assumed ? AcceptanceModel::assumed(kind) : acceptance.rate(kind), 1.0f);
}

/// Adds a token of |kind| with |rate|. False: it is hardly ever reached.
static bool append(Draft &to, DraftSource source, int32_t token, DraftKind kind, float rate) {
  uint32_t at = to.count;
  to.source = source;
  to.kind[at] = kind;
  to.chance[at] = (at ? to.chance[at - 1] : 1.0f) * rate;
  if (to.chance[at] < leastChance) return false;
  to.tokens[at] = token;
  ++to.count;
  return true;
}

/// A token of a chain that is looked up. False: the chain is full.
bool Drafter::put(DraftSource source, int32_t token, uint32_t matched, float share) {
  uint32_t at = draft.count++;
  draft.source = source;
  draft.tokens[at] = token;
  draft.kind[at] = draftKind(source, matched, share, 0);
  return draft.count < maxDraftTokens;
}

/// Says how likely the tokens of the chains are, when all are there, and keeps the one that is worth the most.
void Drafter::weigh() {
  std::array<uint32_t, slots> length{};
  for (uint32_t slot = 0; slot < slots; ++slot)
    length[slot] = fresh >> slot & 1 ? found[slot].count : 0;
  for (uint32_t slot = 0; slot < slots; ++slot) {
    Draft &chain = found[slot];
    uint32_t alike = fresh & ~(1u << slot); // chains whose tokens are the same so far
    for (uint32_t i = 0; i < length[slot]; ++i) {
      uint32_t same = 0, otherwise = 0;
      for (uint32_t other = 0; other < slots; ++other) {
        if (!(alike >> other & 1)) continue;
        bool says = i < length[other], agrees = says && found[other].tokens[i] == chain.tokens[i];
        same += agrees, otherwise += says && !agrees;
        if (!agrees) alike &= ~(1u << other);
      }
      int32_t before = i ? chain.tokens[i - 1] : text.back();
      chain.kind[i] = withThird(chain.kind[i], supportClass(same, otherwise));
      chain.chance[i] = (i ? chain.chance[i - 1] : 1.0f) * pairs.corrected(rateOf(chain.kind[i], false), before, chain.tokens[i]);
    }
    // Only what is proposed ends where it is hardly ever reached: push() compares the rest as well, else nobody learned that it begins to be right.
    uint32_t kept = 0;
    float expected = 0;
    for (; kept < length[slot] && chain.chance[kept] >= leastChance; ++kept)
      expected += chain.chance[kept];
    if (expected <= best.expected()) continue;
    best = chain;
    best.count = kept;
  }
}

float Drafter::programChance(uint32_t place) const {
  return acceptance.rate(anyOfProgram(place));
}

bool Drafter::programReady() {
  // The program had nothing to say, or the plan other uses for the rows: so it will be for some time.
  if (std::exchange(program.open, false)) {
    if (std::exchange(program.probing, false)) program.probeAfter = std::min(2 * program.probeAfter, lastProbe);
    if (++program.ignored >= mostIgnored) {
      program.ignored = 0;
      program.pause = program.rest;
      program.rest = std::min(2 * program.rest, lastRest);
    }
  }
  if (!program.pause) return true;
  --program.pause;
  return false;
}

bool Drafter::programDeclined(double steps) {
  if (++program.declined < program.probeAfter || program.declined < steps) return false;
  program.declined = 0;
  return program.probing = true;
}

void Drafter::beginProgram() {
  lookedUpOpen = std::exchange(open, false);
  aside = best;
  best.count = 0;
  best.tree = false;
  program.open = true;
}

bool Drafter::putProgram(int32_t token, float share, bool assume) {
  if (best.count >= (program.probing ? 2 : maxDraftTokens)) return false;
  DraftKind kind = draftKind(DraftSource::program, programMatched, share, placeClass(best.count));
  if (!append(best, DraftSource::program, token, kind, programRate(kind, assume))) return false;
  // A try is worth nothing if the plan does not take it.
  if (program.probing) best.chance[best.count - 1] = 1;
  return true;
}

const Draft &Drafter::endProgram() {
  if (best.count) return best;
  best = aside;
  open = lookedUpOpen;
  return best;
}

DraftKind Drafter::programKind(float share, uint32_t depth, bool other) { return draftKind(DraftSource::program, programMatched, share, placeClass(depth), other); }

uint32_t Drafter::putProgramTree(std::span<const TreeNode> nodes, bool all) {
  best.count = 0;
  best.tree = true;
  best.source = DraftSource::program;
  uint32_t most = program.probing ? 2 : maxDraftTokens;
  for (const TreeNode &n : nodes) {
    if (best.count == most || (!all && !program.probing && n.chance < leastChance)) break;
    uint32_t at = best.count++;
    best.tokens[at] = n.token;
    best.parent[at] = static_cast<int8_t>(n.parent);
    best.kind[at] = n.tag;
    best.chance[at] = program.probing ? 1 : n.chance;
  }
  return best.count;
}

void Drafter::keep(Slot slot) {
  found[slot] = draft;
  agreed[slot] = 0;
  if (draft.count) fresh |= 1u << slot;
  draft.count = 0;
}

void Drafter::repeatNgram(uint32_t most) {
  NgramIndex::Match found = ngrams->match(text);
  if (!found.length) return;
  auto size = static_cast<uint32_t>(text.size());
  for (uint32_t i = 0; i < most; ++i) {
    uint32_t from = found.position + i;
    // What it repeats may run into the draft itself: then it is a period.
    int32_t token = from < size ? text[from] : draft.tokens[from - size];
    if (!put(DraftSource::ngram, token, found.length + i, 1)) break;
  }
  keep(atNgram);
}

void Drafter::goOnCopying(uint32_t most) {
  if (!cursor.active()) return;
  auto size = static_cast<uint32_t>(text.size());
  // How sure a copy is: by its length, and for the first tokens behind a change by their number.
  float share = cursor.length() < 8 ? 0.4f : cursor.length() < 32 ? 0.7f : 1.0f;
  for (uint32_t i = 0; i < most; ++i) {
    uint32_t from = cursor.position() + i, run = cursor.run() + i;
    int32_t token = from < size ? text[from] : draft.tokens[from - size];
    if (!put(DraftSource::copy, token, run == 0 ? 2 : run < 3 ? 4 : run < 12 ? 8 : 16, share)) break;
  }
  keep(atCopy);
}

void Drafter::follow(Slot slot, const SuffixAutomaton &automaton, SuffixAutomaton::Match at, uint32_t most) {
  DraftSource source = slot < atShared ? DraftSource::suffix : DraftSource::shared;
  for (uint32_t i = 0; i < most; ++i) {
    uint32_t before = at.length;
    SuffixAutomaton::Next next = automaton.follow(at, shortestMatch);
    if (next.token < 0 || !put(source, next.token, std::min(before, at.length - 1), next.share)) break;
  }
  keep(slot);
}

/// The tree of the places that are most probably reached: the likeliest of what may come next, again and again.
void Drafter::branch(Slot slot, const SuffixAutomaton &automaton, SuffixAutomaton::Match start, uint32_t most) {
  DraftSource source = slot < atShared ? DraftSource::suffix : DraftSource::shared;
  struct Candidate {
    int32_t token;
    int8_t parent;
    DraftKind kind;
    float chance;
    uint32_t depth;
    SuffixAutomaton::Match at;
  };
  std::array<Candidate, branches *(maxDraftTokens + 1)> candidates;
  uint32_t count = 0;
  auto expand = [&](SuffixAutomaton::Match at, int8_t parent, float chance, uint32_t depth) {
    std::array<SuffixAutomaton::Next, branches> next;
    std::array<SuffixAutomaton::Match, branches> behind;
    uint32_t found = automaton.followers(at, shortestMatch, next, behind);
    open |= found > 0;
    for (uint32_t i = 0; i < found; ++i) {
      DraftKind kind = draftKind(source, behind[i].length - 1, next[i].share, placeClass(depth), i > 0);
      float reached = chance * rateOf(kind, probing);
      if (reached >= leastChance) candidates[count++] = {next[i].token, parent, kind, reached, depth, behind[i]};
    }
  };
  expand(start, -1, 1, 0);
  draft.source = source;
  draft.tree = true;
  while (count && draft.count < most) {
    auto best = std::max_element(candidates.begin(), candidates.begin() + count, [](auto &a, auto &b) { return a.chance < b.chance; });
    Candidate node = *best;
    *best = candidates[--count];
    uint32_t at = draft.count++;
    draft.tokens[at] = node.token;
    draft.parent[at] = node.parent;
    draft.kind[at] = node.kind;
    draft.chance[at] = node.chance;
    expand(node.at, static_cast<int8_t>(at), node.chance, node.depth + 1);
  }
  if (draft.expected() > best.expected()) best = draft;
  draft.count = 0;
}

const Draft &Drafter::propose(uint32_t most) {
  // A tree could have begun at the last place, however unlikely, and was not verified. Of chains it is known whether they would have been right.
  if (open && ++unused >= probeAfter) probing = true;
  open = false;
  best.count = draft.count = fresh = 0;
  best.tree = draft.tree = false;
  index(indexedAtOnce);
  most = std::min(most, probing ? 2 : maxDraftTokens);
  if (indexed < text.size() || !most || (!ngrams && !local)) return best;
  if (ngrams) repeatNgram(most), goOnCopying(most);
  auto look = trees ? &Drafter::branch : &Drafter::follow;
  if (local && !local->full()) (this->*look)(atSuffix, *local, local->repeated(last), most);
  for (uint32_t g = 0; suffixes && g < 2; ++g)
    if (suffixes->generation(g) && number[g] == suffixes->number(g))
      (this->*look)(static_cast<Slot>(atShared + g), *suffixes->generation(g), match[g], most);
  if (!trees) weigh();
  return best;
}

void Drafter::verified(uint32_t drafted, uint32_t right) {
  open = false;
  unused = 0;
  if (best.source == DraftSource::program && drafted) { // what was looked up says nothing of a program
    program.open = false;
    program.ignored = 0;
    program.rest = firstRest;
  }
  bool learns = best.tree || best.source == DraftSource::program; // chains that were looked up have learned from the tokens that came
  drafted = learns ? std::min(drafted, best.count) : 0;
  for (uint32_t i = 0; i < drafted; ++i) {
    int32_t parent = best.tree ? best.parent[i] : static_cast<int32_t>(i) - 1;
    if (parent >= 0 && !(right >> parent & 1)) continue; // nobody knows
    uint32_t depth = best.tree ? 0 : i;
    for (int32_t p = parent; best.tree && p >= 0; p = best.parent[static_cast<size_t>(p)])
      ++depth;
    for (AcceptanceModel *model : {&acceptance, &shared.acceptance}) {
      model->observe(best.kind[i], right >> i & 1);
      if (best.source == DraftSource::program && !isOtherChoice(best.kind[i])) model->observe(anyOfProgram(depth), right >> i & 1);
    }
  }
  // Text that cannot be guessed is asked less and less often.
  if (std::exchange(program.probing, false))
    program.probeAfter = right ? firstProbe : std::min(2 * program.probeAfter, lastProbe);
  if (probing) probeAfter = right ? firstProbe : std::min(2 * probeAfter, lastProbe);
  probing = false;
}

void Drafter::finish() {
  if (!suffixes || text.size() <= promptTokens) return;
  size_t first = promptTokens - std::min(promptTokens, sharedPrompt);
  if (text.size() - first > sharedAnswer) first = text.size() - sharedAnswer;
  suffixes->add(std::span(text).subspan(first));
}

} // namespace lathe::runtime
