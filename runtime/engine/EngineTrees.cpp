//===- EngineTrees.cpp - draft trees of a draft program -------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// A tree grows by a layer a run, or by a layer for each head of one run (docs/speculation.md, "Trees"). A place's first choice is what the sampler chooses, with the noise of the model's own
// choice there; others are the likeliest tokens besides, by the same noise.
//===----------------------------------------------------------------------===//
#include "runtime/device/Trees.h"
#include "runtime/engine/EngineCore.h"
#include <algorithm>
#include <cmath>

namespace lathe::runtime {

// Tokens that the others of a place are chosen from.
static constexpr int32_t likeliest = 2 * DraftTree::width;

/// Whether drafts of the program for |a| are trees, and what sampling for them needs.
void EngineCore::planTrees(Active &a, Speculation asked) {
  const Program &p = artifact->program();
  bool heads = p.draftMethod == DraftMethod::medusa, usual = heads || p.draftMethod == DraftMethod::eagle2 || p.draftMethod == DraftMethod::eagle3;
  bool byName = asked == Speculation::medusa || asked == Speculation::eagle2 || asked == Speculation::eagle3, open = asked == Speculation::draft || asked == Speculation::automatic;
  // Rejection sampling asks for drafts drawn one by one, and a program that does not say where its KV entries lie can verify chains only.
  a.draftTrees = (heads || goesOnFromItself(p.draftMethod)) && (byName || (open && usual)) && knowsTrees(p) && a.request.acceptance != Acceptance::rejection;
  if (a.draftTrees) a.draftSampling.logprobs = likeliest;
}

/// What follows each row that the last run computed for the first time, or of heads what |head| says behind each place of its layer. May run on any thread.
void EngineCore::growTree(Candidate &c, uint32_t head, unsigned thread) {
  Active &a = *c.request;
  Choice &choice = a.choices[c.choice];
  const Drafter &drafter = *choice.drafter;
  const SamplingParams &p = a.draftSampling;
  auto vocabulary = artifact->program().vocabulary;
  struct Other {
    int32_t token;
    float share;
    double score;
  };
  std::array<Other, likeliest> others;
  std::array<TreeCandidate, DraftTree::width> followers;
  DraftTree::Path path;
  const bool heads = !drafts->overFeatures();
  uint32_t count = 0;
  for (uint32_t r = 0; r < c.grown->freshRows(); ++r) {
    // A head knows nothing of the tokens between: unless they are counted it says the same behind all of them.
    if (r && heads && !a.keepsHistory) {
      c.grown->expand(r, {}, std::span(followers).first(count));
      continue;
    }
    uint32_t depth = c.grown->path(r, path), position = c.known + depth, rest = 0;
    count = 0;
    for (uint32_t i = 0; a.keepsHistory && i < depth; ++i) choice.history.addOutput(path[i]);
    const float *logits = spreadLogits(drafts->logits(heads ? c.result : c.result + r, head).data(), thread);
    Status status = samplers[thread]->sample({logits, vocabulary}, p, choice.history, position, {}, c.choice, c.sample);
    for (uint32_t i = depth; a.keepsHistory && i-- > 0;) choice.history.removeOutput(path[i]);
    // Nothing follows an end, and the model finds it itself.
    auto ends = [&](int32_t token) { return std::binary_search(p.stopTokenIds.begin(), p.stopTokenIds.end(), token); };
    if (status.ok()) {
      float share = std::exp(c.sample.logprob);
      DraftKind kind = Drafter::programKind(draftAlways ? 1.0f : share, depth, false);
      float first = drafter.programRate(kind, draftAlways), left = 1 - first;
      if (!ends(c.sample.token)) followers[count++] = {c.sample.token, first, kind};
      for (const TokenLogprob &t : c.sample.top) {
        if (rest == others.size() || t.token == c.sample.token || ends(t.token)) continue;
        double score = static_cast<double>(t.logprob);
        if (p.temperature > 0)
          score = score / static_cast<double>(p.temperature) + gumbelNoise(p.seed, c.choice, position, static_cast<uint32_t>(t.token), DrawPurpose::token);
        others[rest++] = {t.token, std::exp(t.logprob), score};
      }
      std::sort(others.begin(), others.begin() + rest, [](const Other &x, const Other &y) { return x.score != y.score ? x.score > y.score : x.token < y.token; });
      // What the first choice leaves is shared out as the program would have it.
      for (uint32_t i = 0; i < rest && count < followers.size(); ++i) {
        DraftKind other = Drafter::programKind(others[i].share, depth, true);
        float part = left * std::min(1.0f, others[i].share / std::max(1 - share, 1e-6f));
        followers[count++] = {others[i].token, std::min(drafter.programRate(other, draftAlways), part), other};
      }
    }
    c.grown->expand(r, heads ? std::span<const float>() : drafts->own(c.result + r), std::span(followers).first(count));
  }
}

/// Of the tree's draft the nodes that would pay, with |decoding| rows beside them: how many, and how many are expected to be right.
std::pair<uint32_t, double> EngineCore::payingNodes(const Draft &draft, uint32_t decoding) const {
  std::pair<uint32_t, double> best{0, 0};
  double sum = 0, rate = decoding / stepSeconds(decoding);
  for (uint32_t k = 1; k <= draft.count; ++k) {
    sum += static_cast<double>(draft.chance[k - 1]);
    double with = (decoding + sum) / stepSeconds(decoding + k);
    if (with > rate) rate = with, best = {k, sum};
  }
  return best;
}

} // namespace lathe::runtime
