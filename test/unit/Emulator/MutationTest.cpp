//===- MutationTest.cpp - broken kernels must be caught --------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Each class of mutation breaks good PTX at one place, in every place it applies to (up to a few, spread over
// the text). A mutant is caught when it gives an error or a wrong result, lazily, eagerly or under the race
// check. The table in docs/ptx-emulator.md is this test's output: LATHE_UPDATE_DOCS=1 rewrites it.
//===----------------------------------------------------------------------===//
#include "KernelCases.h"
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <optional>
#include <regex>

namespace lathe::emulator {
namespace {

// --- small kernels of cuda/*.cu as cases ---
Outcome compare(Harness &h, uint64_t address, const std::vector<float> &expected, Outcome outcome) {
  auto found = h.get<float>(address, expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    double error = std::fabs(double(found[i]) - expected[i]);
    outcome.error = std::max(outcome.error, error == error ? error : INFINITY);
  }
  return outcome;
}
Outcome pipeline(const std::string &text, const Options &options) {
  constexpr int M = 32, N = 64, K = 96;
  Harness h(options);
  Outcome outcome;
  Random random{5};
  std::vector<float> a(M * K), b(K * N), c(M * N);
  for (auto *matrix : {&a, &b})
    for (float &value : *matrix)
      value = random.uniform(-1, 1);
  for (int i = 0; i < M * N; ++i)
    for (int k = 0; k < K; ++k)
      c[i] = std::fma(a[i / N * K + k], b[k * N + i % N], c[i]);
  uint64_t out = h.space<float>(M * N);
  if (!h.load(text) || !h.run("pipeline_gemm", {.grid = {N / 32, M / 32}, .block = {256}, .cluster = {}}, Arguments().add(h.put(a)).add(h.put(b)).add(out).add(M).add(N).add(K))) outcome.status = h.status;
  return outcome.status.ok() ? compare(h, out, c, outcome) : outcome;
}
Outcome bulk(const std::string &text, const Options &options) {
  constexpr int tiles = 5;
  Harness h(options);
  Outcome outcome;
  Random random{6};
  std::vector<float> in(tiles * 256), expected;
  for (float &value : in) {
    value = random.uniform(-1, 1);
    expected.push_back(std::fma(value, value, 1.0f));
  }
  uint64_t out = h.space<float>(in.size());
  if (!h.load(text) || !h.run("bulk_barrier", {.grid = {2}, .block = {64}, .cluster = {}}, Arguments().add(h.put(in)).add(out).add(tiles))) outcome.status = h.status;
  return outcome.status.ok() ? compare(h, out, expected, outcome) : outcome;
}
Outcome gridSync(const std::string &text, const Options &options) {
  constexpr int n = 400, steps = 4;
  Harness h(options);
  Outcome outcome;
  outcome.tolerance = 1e-6;
  Random random{7};
  std::vector<float> a(n), b(n);
  for (float &value : a)
    value = random.uniform(-1, 1);
  uint64_t da = h.put(a), db = h.put(b);
  LaunchConfig config{.grid = {3}, .block = {64}, .cluster = {}, .cooperative = true};
  if (!h.load(text) || !h.run("grid_sync", config, Arguments().add(da).add(db).add(n).add(steps))) outcome.status = h.status;
  for (int step = 0; step < steps; ++step) {
    for (int i = 0; i < n; ++i)
      b[i] = 0.25f * a[(i + n - 1) % n] + 0.5f * a[i] + 0.25f * a[(i + 1) % n];
    std::swap(a, b);
  }
  return outcome.status.ok() ? compare(h, da, a, outcome) : outcome;
}
Outcome scan(const std::string &text, const Options &options) {
  constexpr int n = 512;
  Harness h(options);
  Outcome outcome;
  Random random{8};
  std::vector<int> in(n), expected(n);
  for (int i = 0; i < n; ++i)
    expected[i] = (in[i] = int(random.next() % 1000)) + (i ? expected[i - 1] : 0);
  uint64_t out = h.space<int>(n);
  if (!h.load(text) || !h.run("scan", {.grid = {1}, .block = {512}, .cluster = {}}, Arguments().add(h.put(in)).add(out).add(n))) outcome.status = h.status;
  else if (h.get<int>(out, n) != expected) outcome.error = INFINITY;
  return outcome;
}
Outcome bitonic(const std::string &text, const Options &options) {
  Harness h(options);
  Outcome outcome;
  Random random{9};
  std::vector<unsigned> keys(1024);
  for (unsigned &key : keys)
    key = unsigned(random.next());
  uint64_t address = h.put(keys), positions = h.space<unsigned>(1024);
  if (!h.load(text) || !h.run("bitonic", {.grid = {1}, .block = {128}, .cluster = {}}, Arguments().add(address).add(positions))) outcome.status = h.status;
  std::vector<unsigned> sorted = keys;
  std::sort(sorted.begin(), sorted.end());
  if (!outcome.status.ok()) return outcome;
  if (h.get<unsigned>(address, 1024) != sorted) outcome.error = INFINITY;
  auto from = h.get<unsigned>(positions, 1024);
  for (size_t i = 0; i < 1024; ++i)
    if (from[i] >= 1024 || keys[from[i]] != sorted[i]) outcome.error = INFINITY;
  return outcome;
}

std::vector<KernelCase> cases() {
  std::vector<KernelCase> list;
  for (const KernelCase &kernel : kernelCases())
    if (kernel.small && std::string(kernel.name) != "paged_decode_f16") list.push_back(kernel);
  list.push_back({"pipeline_gemm", "cuda/pipeline_gemm.ptx", pipeline, true});
  list.push_back({"bulk_barrier", "cuda/bulk_barrier.ptx", bulk, true});
  list.push_back({"grid_sync", "cuda/grid_sync.ptx", gridSync, true});
  list.push_back({"scan", "cuda/scan.ptx", scan, true});
  list.push_back({"bitonic", "cuda/bitonic.ptx", bitonic, true});
  return list;
}

// --- mutations ---
using Change = std::function<std::optional<std::string>(const std::string &)>;
Change replace(const char *pattern, const char *with) {
  return [expression = std::regex(pattern), with](const std::string &line) -> std::optional<std::string> {
    std::string changed = std::regex_replace(line, expression, with, std::regex_constants::format_first_only);
    if (changed == line) return std::nullopt;
    return changed;
  };
}
/// Adds |by| to the displacement of a memory access that |pattern| matches.
Change displace(const char *pattern, int by) {
  return [expression = std::regex(pattern), by](const std::string &line) -> std::optional<std::string> {
    if (!std::regex_search(line, expression)) return std::nullopt;
    size_t open = line.rfind('['), close = line.find(']', open);
    if (open == line.npos || close == line.npos) return std::nullopt;
    std::string inside = line.substr(open + 1, close - open - 1);
    size_t plus = inside.find('+');
    long offset = plus == inside.npos ? 0 : std::strtol(inside.c_str() + plus + 1, nullptr, 10);
    return line.substr(0, open + 1) + inside.substr(0, plus) + "+" + std::to_string(offset + by) + line.substr(close);
  };
}
/// Exchanges the first two registers of the first braces.
std::optional<std::string> swapRegisters(const std::string &line) {
  static const std::regex expression("(ldmatrix[^{]*\\{|mma\\.sync[^}]*\\}[^{]*\\{)\\s*(%\\w+),\\s*(%\\w+)");
  std::string changed = std::regex_replace(line, expression, "$1$3, $2", std::regex_constants::format_first_only);
  if (changed == line) return std::nullopt;
  return changed;
}

struct Mutation {
  const char *name;
  Change change;
  unsigned limit = 3; ///< places in one kernel
};
const std::vector<Mutation> &mutations() {
  static const std::vector<Mutation> list = {
      {"missing barrier", replace("^(\\s*)(bar\\.sync|barrier\\.sync)[^;]*;", "$1"), 6},
      {"divergent barrier", replace("^(\\s*)bar\\.sync\\s+0;", "{ .reg .pred mutp; .reg .b32 mutr; mov.u32 mutr, %laneid; setp.lt.u32 mutp, mutr, 16; @mutp bar.sync 0; }"), 2},
      {"late wait_group", [](const std::string &line) -> std::optional<std::string> {
         static const std::regex expression("cp\\.async\\.wait_group\\s+(\\d+)");
         std::smatch match;
         if (!std::regex_search(line, match, expression)) return std::nullopt;
         return "cp.async.wait_group " + std::to_string(std::stoi(match[1]) + 1) + ";";
       }},
      {"missing wait_group", replace("cp\\.async\\.wait_(group\\s+\\d+|all);", "")},
      {"missing commit_group", replace("cp\\.async\\.commit_group;", ""), 5},
      {"late wgmma wait", replace("wgmma\\.wait_group\\.sync\\.aligned\\s+(0|1);", "wgmma.wait_group.sync.aligned 3;")},
      {"missing wgmma fence", replace("wgmma\\.fence\\.sync\\.aligned;", ""), 1},
      {"missing proxy fence", replace("fence\\.proxy\\.async\\.shared::cta; //", "//")},
      {"missing bulk wait", replace("cp\\.async\\.bulk\\.wait_group\\.read\\s+0;", "")},
      {"missing release", replace("\\.release\\.(gpu|sys)", ".relaxed.$1")},
      {"missing acquire", replace("ld\\.acquire\\.gpu", "ld.relaxed.gpu")},
      {"missing mbarrier wait", replace("bra\\.uni\\s+LAB_WAIT;", "")},
      {"missing mbarrier arrive", replace("^(\\s*)(@!?%p\\d+\\s+)?mbarrier\\.arrive\\.(shared|release)[^;]*;", "$1")},
      {"wrong expect_tx", replace("(\\.expect_tx[^;]*\\],\\s*)%\\w+;", "$1 16;")},
      {"wrong swizzle", replace("(and\\.b64\\s+[^;]*), 112;", "$1, 96;"), 2},
      {"access past the end", displace("ld\\.global|st\\.global", 1 << 20), 4},
      {"off by one element", displace("st\\.shared\\.(b32|u32|f32)|ld\\.shared\\.(b32|u32|f32)", 4), 4},
      {"misaligned vector", displace("\\.v4\\.", 4), 4},
      {"misaligned copy", displace("^\\s*cp\\.async\\.c[ag]", 8), 2},
      {"swapped fragments", swapRegisters, 4},
      {"missing shared store", replace("^(\\s*)(@!?%p\\d+\\s+)?st\\.shared[^;]*;", "$1"), 4},
      {"wrong shuffle distance", replace("(shfl\\.sync\\.(bfly|up)\\.b32[^,]*,\\s*[^,]*,\\s*)4,", "$1 8,"), 3},
  };
  return list;
}

std::vector<std::string> lines(const std::string &text) {
  std::vector<std::string> list;
  std::stringstream stream(text);
  for (std::string line; std::getline(stream, line);)
    list.push_back(line);
  return list;
}
std::vector<std::string> mutants(const std::string &text, const Mutation &mutation) {
  std::vector<std::string> source = lines(text);
  std::vector<std::pair<size_t, std::string>> sites;
  for (size_t index = 0; index < source.size(); ++index)
    if (auto changed = mutation.change(source[index])) sites.push_back({index, *changed});
  std::vector<std::string> list;
  size_t count = std::min<size_t>(sites.size(), mutation.limit);
  for (size_t which = 0; which < count; ++which) {
    const auto &[at, changed] = sites[count == 1 ? 0 : which * (sites.size() - 1) / (count - 1)];
    std::string mutant;
    for (size_t index = 0; index < source.size(); ++index)
      mutant += (index == at ? changed : source[index]) + "\n";
    list.push_back(std::move(mutant));
  }
  return list;
}

/// Mutants that are still right. The last barrier of bulk_barrier orders nothing that its mbarrier does not: no thread
/// touches the tile again before thread 0 has arrived, which it does after its bulk store has read the tile.
bool equivalent(const std::string &mutation, const std::string &kernel, unsigned place) { return mutation == "missing barrier" && kernel == "bulk_barrier" && place == 3; }

enum Caught { error = 1, result = 2, race = 4 };

TEST(Mutation, EveryClassIsCaught) {
  const std::vector<KernelCase> kernels = cases();
  std::string table = "| mutation |";
  for (const KernelCase &kernel : kernels)
    table += std::string(" ") + kernel.name + " |";
  table += "\n|---|" ;
  for (size_t index = 0; index < kernels.size(); ++index)
    table += "---|";
  table += "\n";
  for (const Mutation &mutation : mutations()) {
    table += std::string("| ") + mutation.name + " |";
    unsigned tried = 0;
    for (const KernelCase &kernel : kernels) {
      std::string text = readText(kernel.file);
      unsigned caught = 0, how = 0, all = 0;
      unsigned place = 0;
      for (const std::string &mutant : mutants(text, mutation)) {
        if (equivalent(mutation.name, kernel.name, ++place)) continue;
        ++all;
        ++tried;
        unsigned found = 0;
        std::string message;
        for (int attempt = 0; attempt < 3 && !found; ++attempt) {
          Options options;
          options.mode = attempt == 1 ? AsyncMode::eager : AsyncMode::lazy;
          options.checkRaces = attempt == 2;
          options.spinLimit = 3'000'000;
          Outcome outcome = kernel.run(mutant, options);
          if (!outcome.status.ok()) {
            found = outcome.status.message().find(": race on") != std::string::npos ? race : error;
            message = outcome.status.message();
          } else if (!outcome.good()) {
            found = result;
          }
        }
        caught += found != 0;
        how |= found;
        if (std::getenv("LATHE_VERBOSE")) std::printf("%s / %s #%u: %s %s\n", mutation.name, kernel.name, all, found == error ? "error" : found == race ? "race" : found == result ? "result" : "MISSED", message.substr(0, 220).c_str());
      }
      if (!all) {
        table += " |";
        continue;
      }
      EXPECT_EQ(caught, all) << mutation.name << " in " << kernel.name;
      std::string cell;
      for (auto [bit, name] : {std::pair{error, "error"}, {result, "result"}, {race, "race"}})
        if (how & bit) cell += (cell.empty() ? "" : ", ") + std::string(name);
      table += " " + std::to_string(caught) + "/" + std::to_string(all) + " " + cell + " |";
    }
    table += "\n";
    EXPECT_GT(tried, 0u) << mutation.name << " applies to no kernel";
  }
  // The documentation holds exactly this table.
  const std::string path = std::string(LATHE_SOURCE_DIR) + "/docs/ptx-emulator.md", begin = "<!-- mutations: begin -->\n", end = "<!-- mutations: end -->";
  std::ifstream file(path);
  std::stringstream stream;
  stream << file.rdbuf();
  std::string docs = stream.str();
  size_t first = docs.find(begin), last = docs.find(end);
  ASSERT_NE(first, docs.npos);
  ASSERT_NE(last, docs.npos);
  first += begin.size();
  if (std::getenv("LATHE_UPDATE_DOCS")) std::ofstream(path) << docs.substr(0, first) + table + docs.substr(last);
  else EXPECT_EQ(docs.substr(first, last - first), table);
}

} // namespace
} // namespace lathe::emulator
