//===- Report.cpp ---------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Report.h"
#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <functional>

namespace lathe::load {
using Json = nlohmann::ordered_json;

namespace {

[[gnu::format(printf, 1, 2)]] std::string format(const char *text, ...) {
  char buffer[400];
  va_list args;
  va_start(args, text);
  std::vsnprintf(buffer, sizeof buffer, text, args);
  va_end(args);
  return buffer;
}

Json distribution(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  double sum = 0;
  for (double v : values)
    sum += v;
  return {{"count", values.size()},
          {"mean", values.empty() ? 0 : sum / static_cast<double>(values.size())},
          {"p50", percentile(values, .5)},
          {"p90", percentile(values, .9)},
          {"p95", percentile(values, .95)},
          {"p99", percentile(values, .99)},
          {"max", values.empty() ? 0 : values.back()}};
}

} // namespace

bool Objectives::met(const Record &r) const {
  return r.outcome == Outcome::complete && (ttft <= 0 || r.ttft() <= ttft) && (tpot <= 0 || r.tpot() <= tpot) &&
         (total <= 0 || r.end - r.due <= total);
}

double percentile(const std::vector<double> &sorted, double share) {
  if (sorted.empty()) return 0;
  double rank = std::ceil(share * static_cast<double>(sorted.size()));
  return sorted[static_cast<size_t>(std::clamp(rank, 1.0, static_cast<double>(sorted.size()))) - 1];
}

Json summarize(const std::vector<Record> &records, const Objectives &objectives, uint32_t warmup) {
  uint64_t counts[4] = {}, good = 0, in = 0, out = 0, cached = 0;
  std::vector<double> ttft, tpot, itl, total;
  double begin = 1e300, end = 0, lag = 0;
  Json statuses = Json::object();
  for (size_t i = std::min<size_t>(warmup, records.size()); i < records.size(); ++i) {
    const Record &r = records[i];
    ++counts[static_cast<int>(r.outcome)];
    begin = std::min(begin, r.due);
    end = std::max(end, r.end);
    lag = std::max(lag, r.sent - r.due);
    good += objectives.met(r);
    in += r.promptTokens;
    out += r.newTokens;
    cached += r.cachedTokens;
    if (r.outcome == Outcome::refused || r.outcome == Outcome::failed) {
      std::string name = r.status ? std::to_string(r.status) : "connection";
      statuses[name] = statuses.value(name, 0) + 1;
    }
    if (r.slow) continue;
    if (r.first > 0) ttft.push_back(r.ttft());
    itl.insert(itl.end(), r.gaps.begin(), r.gaps.end());
    if (r.outcome != Outcome::complete) continue;
    total.push_back(r.end - r.due);
    if (r.newTokens > 1) tpot.push_back(r.tpot());
  }
  double seconds = std::max(end - begin, 1e-9);
  uint64_t all = counts[0] + counts[1] + counts[2] + counts[3];
  Json s = {{"requests", all},
            {"complete", counts[0]},
            {"aborted", counts[1]},
            {"refused", counts[2]},
            {"failed", counts[3]},
            {"errors", statuses},
            {"seconds", all ? seconds : 0},
            {"requests_per_second", static_cast<double>(counts[0]) / seconds},
            {"prompt_tokens", in},
            {"cached_tokens", cached},
            {"new_tokens", out},
            {"new_tokens_per_second", static_cast<double>(out) / seconds},
            {"largest_client_lag_seconds", lag},
            {"ttft", distribution(ttft)},
            {"tpot", distribution(tpot)},
            {"itl", distribution(itl)},
            {"e2e", distribution(total)}};
  if (objectives.any())
    s["goodput"] = {{"ttft", objectives.ttft}, {"tpot", objectives.tpot}, {"e2e", objectives.total}, {"good", good},
                    {"share", all ? static_cast<double>(good) / static_cast<double>(all) : 0},
                    {"requests_per_second", static_cast<double>(good) / seconds}};
  return s;
}

std::string printed(const Json &s) {
  auto number = [&](const char *name) { return s.at(name).get<double>(); };
  std::string out = format("requests %.0f: %.0f complete, %.0f aborted, %.0f refused, %.0f failed in %.2f s\n", number("requests"),
                           number("complete"), number("aborted"), number("refused"), number("failed"), number("seconds"));
  if (!s["errors"].empty()) out += "errors: " + s["errors"].dump() + "\n";
  out += format("%.2f requests/s, %.1f new tokens/s, %.0f prompt tokens (%.0f cached), %.0f new tokens\n",
                number("requests_per_second"), number("new_tokens_per_second"), number("prompt_tokens"),
                number("cached_tokens"), number("new_tokens"));
  out += format("%-26s %9s %9s %9s %9s %9s %9s\n", "milliseconds", "mean", "p50", "p90", "p95", "p99", "max");
  for (auto [name, label] : {std::pair{"ttft", "time to first token"}, {"tpot", "time per output token"},
                             {"itl", "between tokens"}, {"e2e", "whole request"}}) {
    const Json &d = s[name];
    auto ms = [&](const char *field) { return d[field].get<double>() * 1e3; };
    out += format("%-26s %9.2f %9.2f %9.2f %9.2f %9.2f %9.2f\n", label, ms("mean"), ms("p50"), ms("p90"), ms("p95"),
                  ms("p99"), ms("max"));
  }
  if (s.contains("goodput"))
    out += format("goodput: %.1f %% of requests meet the objectives, %.2f requests/s\n",
                  s["goodput"]["share"].get<double>() * 100, s["goodput"]["requests_per_second"].get<double>());
  return out;
}

namespace {

constexpr double plotWidth = 380, plotHeight = 220;

/// One diagram with axes; |points| in its own units.
std::string panel(double x, const std::string &title, const std::string &xName, const std::string &yName, double xMax,
                  double yMax, const std::function<std::string(double, double)> &draw) {
  std::string out = format("<g transform='translate(%.0f,40)'>", x) +
                    format("<text x='0' y='-14' font-weight='bold'>%s</text>", title.c_str()) +
                    format("<path d='M0 0V%.0fH%.0f' fill='none' stroke='#888'/>", plotHeight, plotWidth);
  for (int i = 0; i <= 4; ++i) {
    double fx = plotWidth * i / 4, fy = plotHeight - plotHeight * i / 4;
    out += format("<text x='%.1f' y='%.0f' text-anchor='middle'>%.3g</text>", fx, plotHeight + 16, xMax * i / 4);
    out += format("<text x='-6' y='%.1f' text-anchor='end'>%.3g</text>", fy + 4, yMax * i / 4);
    out += format("<path d='M0 %.1fH%.0f' stroke='#8883'/>", fy, plotWidth);
  }
  out += format("<text x='%.0f' y='%.0f' text-anchor='middle'>%s</text>", plotWidth / 2, plotHeight + 34, xName.c_str());
  out += format("<text transform='translate(-44,%.0f) rotate(-90)' text-anchor='middle'>%s</text>", plotHeight / 2, yName.c_str());
  return out + draw(plotWidth / xMax, plotHeight / yMax) + "</g>";
}

std::string distributionPanel(double x, const std::string &title, std::vector<double> values) {
  std::sort(values.begin(), values.end());
  double most = values.empty() ? 1 : std::max(percentile(values, .995) * 1e3, 1e-3);
  return panel(x, title, "ms", "% of requests", most, 100, [&](double sx, double sy) {
    std::string path;
    size_t step = std::max<size_t>(1, values.size() / 400);
    for (size_t i = 0; i < values.size(); i += step) {
      double px = std::min(values[i] * 1e3 * sx, plotWidth);
      double py = plotHeight - 100.0 * static_cast<double>(i + 1) / static_cast<double>(values.size()) * sy;
      path += format("%c%.1f %.1f", path.empty() ? 'M' : 'L', px, py);
    }
    return "<path d='" + path + "' fill='none' stroke='#2b6cb0' stroke-width='2'/>";
  });
}

} // namespace

std::string plot(const std::vector<Record> &records, const Json &summary, uint32_t warmup) {
  std::vector<double> ttft, itl;
  double end = 1e-9, most = 1e-6;
  for (size_t i = std::min<size_t>(warmup, records.size()); i < records.size(); ++i) {
    const Record &r = records[i];
    if (r.slow || r.first <= 0) continue;
    ttft.push_back(r.ttft());
    itl.insert(itl.end(), r.gaps.begin(), r.gaps.end());
    end = std::max(end, r.due);
    most = std::max(most, r.ttft() * 1e3);
  }
  std::string out = "<svg xmlns='http://www.w3.org/2000/svg' width='1440' height='330' font-family='sans-serif' font-size='11'>"
                    "<rect width='100%' height='100%' fill='white'/>";
  out += distributionPanel(70, "time to first token", ttft);
  out += distributionPanel(540, "time between tokens", itl);
  out += panel(1010, "time to first token over the run", "s since the start", "ms", end, most, [&](double sx, double sy) {
    std::string dots;
    for (size_t i = std::min<size_t>(warmup, records.size()); i < records.size(); ++i)
      if (const Record &r = records[i]; !r.slow && r.first > 0)
        dots += format("<circle cx='%.1f' cy='%.1f' r='2' fill='#2b6cb099'/>", r.due * sx, plotHeight - r.ttft() * 1e3 * sy);
    return dots;
  });
  out += format("<text x='70' y='322'>%.0f requests, %.1f new tokens/s</text></svg>\n", summary["requests"].get<double>(),
                summary["new_tokens_per_second"].get<double>());
  return out;
}

} // namespace lathe::load
