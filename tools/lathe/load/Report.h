//===- Report.h - what a load test found ---------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lathe::load {

enum class Outcome { complete, aborted, refused, failed };

/// One request as its client saw it; times in seconds from the start of the run.
struct Record {
  double due = 0;    ///< when it was to begin: latencies count from here, so that a client that waits hides nothing
  double sent = 0;   ///< when it began
  double first = 0;  ///< the first piece of text
  double last = 0;   ///< the last piece
  double end = 0;
  std::vector<double> gaps; ///< between two pieces
  uint32_t promptTokens = 0, newTokens = 0, cachedTokens = 0;
  Outcome outcome = Outcome::failed;
  int status = 0; ///< of HTTP; 0: no answer
  std::string error;
  bool slow = false; ///< reads slowly on purpose: not in the percentiles

  double ttft() const { return first - due; }
  double tpot() const { return newTokens > 1 ? (last - first) / (newTokens - 1) : 0; }
};

/// What a request must keep to count as good; 0: no bound.
struct Objectives {
  double ttft = 0, tpot = 0, total = 0; ///< seconds
  bool any() const { return ttft > 0 || tpot > 0 || total > 0; }
  bool met(const Record &record) const;
};

/// The value that |share| (0..1) of the sorted |values| do not exceed: the nearest rank. 0 for none.
double percentile(const std::vector<double> &sorted, double share);

/// Everything as JSON: counts, rates, mean, p50, p90, p95, p99 and max of ttft, tpot, itl and e2e, goodput.
/// |warmup|: so many of the first requests are left out.
nlohmann::ordered_json summarize(const std::vector<Record> &records, const Objectives &objectives, uint32_t warmup);

/// The summary for people.
std::string printed(const nlohmann::ordered_json &summary);

/// A plot (SVG): the distributions of ttft and itl, and ttft over the time of the run.
std::string plot(const std::vector<Record> &records, const nlohmann::ordered_json &summary, uint32_t warmup);

} // namespace lathe::load
