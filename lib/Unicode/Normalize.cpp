//===- Normalize.cpp - the four normalization forms -----------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Unicode Standard Annex 15: decompose, order marks by combining class, compose.
//===----------------------------------------------------------------------===//
#include "Tables.h"
#include "lathe/base/Unicode.h"
#include <algorithm>
#include <unordered_map>

namespace lathe::unicode {
namespace {
constexpr uint32_t hangulBase = 0xac00, hangulCount = 11172, leadBase = 0x1100, vowelBase = 0x1161, tailBase = 0x11a7,
                   leadCount = 19, vowelCount = 21, tailCount = 28;

/// One-step decompositions by code point, and compositions by pair.
struct Maps {
  struct Entry {
    uint32_t at;
    bool compatibility;
  };
  std::unordered_map<uint32_t, Entry> decomposition;
  std::unordered_map<uint64_t, uint32_t> composition;
  Maps() {
    std::span<const uint32_t> data = tables::decomposed;
    for (uint32_t i = 0; i < data.size(); i += 2 + data[i + 1])
      decomposition.emplace(data[i] >> 1, Entry{i + 1, (data[i] & 1) != 0});
    for (const tables::Composition &entry : tables::composed)
      composition.emplace(static_cast<uint64_t>(entry.first) << 32 | entry.second, entry.composed);
  }
};
const Maps &maps() {
  static const Maps instance;
  return instance;
}

struct Mark {
  uint32_t cp;
  uint8_t combining;
};

/// Sorts by combining class and keeps the order of equals.
void sortMarks(std::vector<Mark> &run, size_t first) {
  auto lower = [](const Mark &a, const Mark &b) { return a.combining < b.combining; };
  if (std::is_sorted(run.begin() + static_cast<ptrdiff_t>(first), run.end(), lower)) return;
  // By counting: a text may be one run of a million marks.
  size_t starts[257] = {};
  for (size_t i = first; i < run.size(); ++i)
    ++starts[run[i].combining + 1];
  for (size_t c = 1; c < 257; ++c)
    starts[c] += starts[c - 1];
  std::vector<Mark> sorted(run.size() - first);
  for (size_t i = first; i < run.size(); ++i)
    sorted[starts[run[i].combining]++] = run[i];
  std::copy(sorted.begin(), sorted.end(), run.begin() + static_cast<ptrdiff_t>(first));
}

/// Works on one run between bytes that are not UTF-8.
class Normalizer {
public:
  Normalizer(Form form, std::string &out)
      : compatibility(form == Form::nfkd || form == Form::nfkc), compose(form == Form::nfc || form == Form::nfkc),
        out(out) {}

  void push(uint32_t cp) {
    if (cp < 0x80) { // ASCII starts a new run and never changes
      put({cp, 0});
      return;
    }
    if (cp >= hangulBase && cp < hangulBase + hangulCount) {
      uint32_t index = cp - hangulBase;
      put({leadBase + index / (vowelCount * tailCount), 0});
      put({vowelBase + index % (vowelCount * tailCount) / tailCount, 0});
      if (index % tailCount) put({tailBase + index % tailCount, 0});
      return;
    }
    auto it = maps().decomposition.find(cp);
    if (it == maps().decomposition.end() || (it->second.compatibility && !compatibility)) {
      put({cp, combiningClass(cp)});
      return;
    }
    std::span<const uint32_t> data = tables::decomposed;
    for (uint32_t i = 0; i < data[it->second.at]; ++i)
      push(data[it->second.at + 1 + i]); // the tables nest a few levels, never in a circle
  }

  void flush() {
    if (run.empty()) return;
    sortMarks(run, run[0].combining == 0 ? 1 : 0);
    if (compose) composeRun();
    for (const Mark &mark : run)
      append(mark.cp, out);
    run.clear();
  }

private:
  void put(Mark mark) {
    if (mark.combining != 0 || run.empty()) {
      run.push_back(mark);
      return;
    }
    // A starter: it may compose with the starter before it when no mark lies between.
    if (compose && run.size() == 1 && run[0].combining == 0) {
      uint32_t joined = composePair(run[0].cp, mark.cp);
      if (joined) {
        run[0].cp = joined;
        return;
      }
    } else if (compose && run[0].combining == 0) {
      // Marks between may all be absorbed by the starter; compose first, then try again.
      sortAndCompose();
      if (run.size() == 1) {
        uint32_t joined = composePair(run[0].cp, mark.cp);
        if (joined) {
          run[0].cp = joined;
          return;
        }
      }
    }
    flush();
    run.push_back(mark);
  }

  void sortAndCompose() {
    sortMarks(run, 1);
    composeRun();
  }

  void composeRun() {
    if (run.size() < 2 || run[0].combining != 0) return;
    size_t kept = 1;
    uint8_t last = 0; // class of the mark kept last
    for (size_t i = 1; i < run.size(); ++i) {
      // blocked when a kept mark has a class that is not lower
      bool blocked = kept > 1 && last >= run[i].combining;
      uint32_t joined = blocked ? 0 : composePair(run[0].cp, run[i].cp);
      if (joined) {
        run[0].cp = joined;
      } else {
        last = run[i].combining;
        run[kept++] = run[i];
      }
    }
    run.resize(kept);
  }

  static uint32_t composePair(uint32_t a, uint32_t b) {
    if (a >= leadBase && a < leadBase + leadCount && b >= vowelBase && b < vowelBase + vowelCount)
      return hangulBase + ((a - leadBase) * vowelCount + (b - vowelBase)) * tailCount;
    if (a >= hangulBase && a < hangulBase + hangulCount && (a - hangulBase) % tailCount == 0 && b > tailBase &&
        b < tailBase + tailCount)
      return a + (b - tailBase);
    auto it = maps().composition.find(static_cast<uint64_t>(a) << 32 | b);
    return it == maps().composition.end() ? 0 : it->second;
  }

  bool compatibility, compose;
  std::string &out;
  std::vector<Mark> run; ///< a starter (or nothing) and the marks after it
};
} // namespace

std::string normalize(std::string_view text, Form form) {
  std::string out;
  out.reserve(text.size() + text.size() / 8);
  Normalizer normalizer(form, out);
  for (size_t i = 0; i < text.size();) {
    unsigned length;
    uint32_t cp = decode(text, i, length);
    if (cp == invalid) {
      normalizer.flush();
      out += text[i];
    } else {
      normalizer.push(cp);
    }
    i += length;
  }
  normalizer.flush();
  return out;
}

} // namespace lathe::unicode
