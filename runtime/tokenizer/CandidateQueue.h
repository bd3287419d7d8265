//===- CandidateQueue.h - pairs that may be merged, best first ----*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace lathe::tokenizer {

struct Candidate {
  uint32_t order; ///< lower is merged first, of equals the leftmost
  uint32_t left;  ///< symbol
  uint32_t bytes; ///< of both symbols (scored), to see whether they have grown
  uint32_t result;
};

/// A priority queue for the merges of one word. Words are short and a heap serves them well. A word of
/// a million equal letters has a million pairs of few kinds: there, each order gets a list of its own,
/// which mostly grows from left to right, and only the orders are kept in a heap.
class CandidateQueue {
public:
  /// Empties the queue. |orders|: one more than the largest order; |symbols| of the word.
  void start(size_t orders, size_t symbols) {
    heap.clear();
    useBuckets = symbols > 2000;
    if (!useBuckets) return;
    bucketOf.assign(orders, none);
    buckets.clear();
    waiting.clear();
  }

  void push(Candidate candidate) {
    if (!useBuckets) {
      heap.push_back(candidate);
      std::push_heap(heap.begin(), heap.end(), Later());
      return;
    }
    uint32_t &number = bucketOf[candidate.order];
    if (number == none) {
      number = static_cast<uint32_t>(buckets.size());
      buckets.emplace_back();
    }
    Bucket &bucket = buckets[number];
    if (bucket.next == bucket.inOrder.size()) {
      bucket.inOrder.clear();
      bucket.next = 0;
    }
    if (!bucket.inOrder.empty() && candidate.left < bucket.inOrder.back().left) {
      bucket.late.push_back(candidate);
      std::push_heap(bucket.late.begin(), bucket.late.end(), Later());
    } else {
      bucket.inOrder.push_back(candidate);
    }
    if (!bucket.waits) {
      bucket.waits = true;
      waiting.push_back(candidate.order);
      std::push_heap(waiting.begin(), waiting.end(), std::greater<uint32_t>());
    }
  }

  /// The best candidate in |out|; false when there is none.
  bool pop(Candidate &out) {
    if (!useBuckets) {
      if (heap.empty()) return false;
      std::pop_heap(heap.begin(), heap.end(), Later());
      out = heap.back();
      heap.pop_back();
      return true;
    }
    while (!waiting.empty()) {
      Bucket &bucket = buckets[bucketOf[waiting.front()]];
      bool more = bucket.next < bucket.inOrder.size();
      if (!bucket.late.empty() && (!more || bucket.late.front().left < bucket.inOrder[bucket.next].left)) {
        std::pop_heap(bucket.late.begin(), bucket.late.end(), Later());
        out = bucket.late.back();
        bucket.late.pop_back();
        return true;
      }
      if (more) {
        out = bucket.inOrder[bucket.next++];
        return true;
      }
      bucket.waits = false;
      std::pop_heap(waiting.begin(), waiting.end(), std::greater<uint32_t>());
      waiting.pop_back();
    }
    return false;
  }

private:
  struct Later {
    bool operator()(const Candidate &a, const Candidate &b) const {
      return a.order != b.order ? a.order > b.order : a.left > b.left;
    }
  };
  struct Bucket {
    std::vector<Candidate> inOrder; ///< from |next| on, by rising |left|
    std::vector<Candidate> late;    ///< heap of what came later with a smaller |left|
    size_t next = 0;
    bool waits = false; ///< its order is in |waiting|
  };
  static constexpr uint32_t none = 0xffffffffu;
  bool useBuckets = false;
  std::vector<Candidate> heap;
  std::vector<uint32_t> bucketOf; ///< by order
  std::vector<Bucket> buckets;
  std::vector<uint32_t> waiting; ///< heap of orders
};

} // namespace lathe::tokenizer
