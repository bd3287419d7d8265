//===- Eval.cpp - lathe eval ----------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Session.h"
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <unistd.h>

namespace lathe::tool {
using namespace runtime;
using Json = nlohmann::ordered_json;

namespace {

constexpr size_t sliceBytes = 16 << 20;

/// log of the sum of exp of a row.
double logSum(std::span<const float> row, float &largest) {
  largest = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (float x : row)
    sum += std::exp(static_cast<double>(x - largest));
  return std::log(sum) + static_cast<double>(largest);
}

struct Score {
  size_t tokens = 0;
  double loss = 0;
  std::vector<double> divergences;
  size_t sameTop = 0;

  void addLoss(std::span<const float> row, int32_t next) {
    float largest;
    loss += logSum(row, largest) - static_cast<double>(row[static_cast<size_t>(next)]);
    ++tokens;
  }
  /// KL divergence of |row| from |reference|.
  void addDivergence(std::span<const float> row, std::span<const float> reference) {
    float topA, topB;
    double a = logSum(row, topA), b = logSum(reference, topB), sum = 0;
    for (size_t i = 0; i < row.size(); ++i) {
      double logP = static_cast<double>(reference[i]) - b;
      sum += std::exp(logP) * (logP - (static_cast<double>(row[i]) - a));
    }
    divergences.push_back(sum);
    auto top = [](std::span<const float> r) { return std::max_element(r.begin(), r.end()) - r.begin(); };
    sameTop += top(row) == top(reference);
  }
};

/// One window: the second half is scored. Rows go through in pieces whose logits take 16 MB at most, so that both
/// models' rows can be compared without keeping more.
Status scoreWindow(Engine &engine, SequenceId s, Engine *reference, SequenceId rs, std::span<const int32_t> window,
                   Score &score) {
  size_t vocabulary = engine.program().vocabulary, first = window.size() / 2, last = window.size() - 1;
  engine.truncate(s, 0);
  Work head{s, window.first(first), OutputRows::none};
  LATHE_RETURN_IF_ERROR(engine.forward({&head, 1}, nullptr));
  if (reference) {
    reference->truncate(rs, 0);
    head.sequence = rs;
    LATHE_RETURN_IF_ERROR(reference->forward({&head, 1}, nullptr));
  }
  size_t piece = std::max<size_t>(1, sliceBytes / (vocabulary * 4));
  std::vector<float> rows;
  for (size_t at = first; at < last; at += piece) {
    size_t n = std::min(piece, last - at);
    if (reference) {
      rows.resize(n * vocabulary);
      Work part{rs, window.subspan(at, n), OutputRows::all};
      LATHE_RETURN_IF_ERROR(reference->forward({&part, 1}, [&](size_t, size_t token, std::span<const float> row) {
        std::copy(row.begin(), row.end(), rows.begin() + static_cast<long>(token * vocabulary));
        return Status();
      }));
    }
    Work part{s, window.subspan(at, n), OutputRows::all};
    LATHE_RETURN_IF_ERROR(engine.forward({&part, 1}, [&](size_t, size_t token, std::span<const float> row) {
      score.addLoss(row, window[at + token + 1]);
      if (reference) score.addDivergence(row, std::span(rows).subspan(token * vocabulary, vocabulary));
      return Status();
    }));
  }
  return Status();
}

} // namespace

Result<int> evalCommand(const Args &args) {
  EngineFlags flags;
  std::string textFile, against;
  uint64_t window = 512, most = 0, skip = 0;
  bool json = false;
  Options o(
      "lathe eval FILE.lathe --text FILE [options]",
      "Perplexity of a text: it is cut into windows of --ctx tokens, and the second half of each is scored. With\n"
      "--against also the distance of the next-token distributions from those of a reference artifact.");
  o.text("--text", "FILE", "the text (UTF-8)", textFile);
  o.text("--against", "FILE2", "the reference artifact, with the same vocabulary", against);
  o.number("--windows", "N", "score the first N windows only", most, 1, UINT32_MAX);
  o.number("--skip-bytes", "N", "leave out the first N bytes of the text", skip, 0, uint64_t(1) << 40);
  o.flag("--json", "one line of JSON: tokens, perplexity, mean_kld, kld_p99, top1_agreement", json);
  flags.declare(o, "tokens of a window, of which the second half is scored (default 512)");
  Args positional;
  LATHE_ASSIGN_OR_RETURN(bool go, parseOptions(o, args, positional));
  if (!go) return 0;
  LATHE_ASSIGN_OR_RETURN(std::string path, onePositional(positional, "an artifact"));
  if (textFile.empty()) return makeError(StatusCode::invalidArgument, "expected '--text FILE'; see '--help'");
  if (flags.context) window = flags.context;
  flags.context = window;
  if (window < 4)
    return makeError(StatusCode::invalidArgument, "option '--ctx': expected at least 4, found %zu", size_t(window));

  LATHE_ASSIGN_OR_RETURN(Session session, Session::open(path, flags));
  LATHE_ASSIGN_OR_RETURN(const TextModel *text, session.needText());
  std::optional<Session> reference;
  if (!against.empty()) {
    LATHE_ASSIGN_OR_RETURN(reference, Session::open(against, flags));
    uint32_t a = session.engine->program().vocabulary, b = reference->engine->program().vocabulary;
    if (a != b)
      return makeError(StatusCode::invalidArgument, "'%s' has a vocabulary of %u tokens, '%s' one of %u", path.c_str(),
                       a, against.c_str(), b);
  }
  LATHE_ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(textFile));
  std::string_view content(reinterpret_cast<const char *>(file.bytes().data()), file.fileSize());
  std::vector<int32_t> tokens = text->encode(content.substr(std::min<size_t>(skip, content.size())));
  size_t windows = tokens.size() / window;
  if (!windows)
    return makeError(StatusCode::invalidArgument, "'%s' has %zu tokens, expected at least %zu", textFile.c_str(),
                     tokens.size(), size_t(window));
  if (most) windows = std::min<size_t>(windows, most);

  Score score;
  const auto &prefix = text->tokenizer().spec().prefix;
  bool terminal = isatty(2);
  for (size_t w = 0; w < windows; ++w) {
    std::span<int32_t> part = std::span(tokens).subspan(w * window, window);
    if (!prefix.empty()) part[0] = static_cast<int32_t>(prefix[0]); // each window begins like a text
    LATHE_RETURN_IF_ERROR(scoreWindow(*session.engine, session.sequence, reference ? reference->engine.get() : nullptr,
                                      reference ? reference->sequence : 0, part, score));
    if (terminal)
      std::fprintf(stderr, "\rwindow %zu of %zu, perplexity %.4f ", w + 1, windows,
                   std::exp(score.loss / static_cast<double>(score.tokens)));
  }
  if (terminal) std::fprintf(stderr, "\n");
  double perplexity = std::exp(score.loss / static_cast<double>(score.tokens));
  Json line = {{"tokens", score.tokens}, {"perplexity", perplexity}};
  if (reference) {
    double sum = 0;
    for (double d : score.divergences)
      sum += d;
    std::sort(score.divergences.begin(), score.divergences.end());
    size_t n = score.divergences.size();
    line["mean_kld"] = sum / static_cast<double>(n);
    line["kld_p99"] = score.divergences[std::min(n - 1, static_cast<size_t>(0.99 * static_cast<double>(n)))];
    line["kld_max"] = score.divergences.back();
    line["top1_agreement"] = static_cast<double>(score.sameTop) / static_cast<double>(n);
  }
  if (json) {
    std::printf("%s\n", dumpLine(line).c_str());
  } else {
    std::printf("%zu tokens scored, perplexity %.4f\n", score.tokens, perplexity);
    if (reference)
      std::printf("against '%s': KL divergence %.6f on average, %.6f at 99 %%; same likeliest token %.2f %%\n",
                  against.c_str(), line["mean_kld"].get<double>(), line["kld_p99"].get<double>(),
                  line["top1_agreement"].get<double>() * 100);
  }
  return 0;
}

} // namespace lathe::tool
