//===- Bench.cpp - lathe-kernel-bench: matmul kernels against the machine's limits ===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Every round times the kernel, a read loop over the same weight bytes and the integer peak one after the other, on the
// same threads, in short slices; the 15 % quantiles of the times are compared, so that other load matters little.
//
//   lathe-kernel-bench --type q4_0 --shape 8192x2048 --rows 1,16,512 [--act int8] [--target avx512vnni] [--cache]
//   [--threads N]
//===----------------------------------------------------------------------===//
#include "Limits.h"
#include "X86/Compile.h"
#include "lathe/artifact/Step.h"
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

using namespace lathe;
using namespace lathe::codegen;

namespace {

const char *const typeNames[] = {"f32",  "f16",      "bf16",     "q4_0",      "q4_1",      "q5_0",      "q5_1",
                                 "q8_0", "q2_k",     "q3_k",     "q4_k",      "q5_k",      "q6_k",      "iq4_nl",
                                 "int8", "int4_g32", "int4_g64", "int4_g128", "int4z_g32", "int4z_g64", "int4z_g128", "e4m3"};
const char *const actNames[] = {"f32", "bf16", "int8", "int8z", "e4m3"};

struct Options {
  std::vector<std::string> types{"q4_0"}, shapes{"2048x2048"}, acts{"int8"};
  std::vector<int64_t> rows{1};
  std::string target, assembly;
  bool cache = false, gateUp = false;
  unsigned threads = 1;
  double seconds = 1.0;
};

std::vector<std::string> split(const std::string &s) {
  std::vector<std::string> out;
  for (size_t at = 0; at <= s.size();) {
    size_t comma = std::min(s.find(',', at), s.size());
    out.push_back(s.substr(at, comma - at));
    at = comma + 1;
  }
  return out;
}

int find(const char *const *names, size_t count, const std::string &name) {
  for (size_t i = 0; i < count; ++i)
    if (name == names[i]) return int(i);
  fprintf(stderr, "lathe-kernel-bench: unknown name '%s'\n", name.c_str());
  exit(2);
}

/// Runs |body|(thread) on |threads| threads and returns the seconds from the common start to the last end.
double timed(unsigned threads, const std::function<void(unsigned)> &body) {
  auto now = [] { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); };
  if (threads == 1) {
    double t = now();
    body(0);
    return now() - t;
  }
  std::atomic<unsigned> ready{0};
  std::atomic<bool> go{false};
  std::vector<double> ends(threads);
  std::vector<std::thread> team;
  for (unsigned t = 0; t < threads; ++t)
    team.emplace_back([&, t] {
      ready++;
      while (!go.load(std::memory_order_acquire)) {
      }
      body(t);
      ends[t] = now();
    });
  while (ready.load() < threads) {
  }
  double start = now();
  go.store(true, std::memory_order_release);
  for (std::thread &t : team)
    t.join();
  return *std::max_element(ends.begin(), ends.end()) - start;
}

uint8_t *allocate(size_t bytes) {
  bytes = (bytes + (2u << 20) - 1) / (2u << 20) * (2u << 20);
  void *p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) {
    fprintf(stderr, "lathe-kernel-bench: cannot map %zu bytes\n", bytes);
    exit(1);
  }
  madvise(p, bytes, MADV_HUGEPAGE);
  memset(p, 0x2d, bytes); // every float16 and float32 in it is an ordinary number
  return static_cast<uint8_t *>(p);
}

LatheKernelFn load(const MatmulParams &p, X86Target target, const std::string &assembly) {
  std::vector<KernelJob> jobs{
      {"kernel", [p](mlir::ModuleOp m, llvm::StringRef s, X86Target t) { return emitMatmul(m, s, p, t); }}};
  if (!assembly.empty()) {
    mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
    mlir::OwningOpRef<mlir::ModuleOp> module = mlir::ModuleOp::create(mlir::UnknownLoc::get(&context));
    std::string text;
    if (mlir::succeeded(emitMatmul(*module, "kernel", p, target))) (void)compileObject(*module, target, &text);
    if (FILE *f = fopen(assembly.c_str(), "w")) {
      fputs(text.c_str(), f);
      fclose(f);
    }
  }
  Result<std::string> code = buildCode(jobs, target, 1);
  if (!code.ok()) {
    fprintf(stderr, "lathe-kernel-bench: %s\n", code.status().message().c_str());
    exit(1);
  }
  int fd = memfd_create("lathe-kernel", 0);
  if (fd < 0 || write(fd, code->data(), code->size()) != ssize_t(code->size())) exit(1);
  void *h = dlopen(("/proc/self/fd/" + std::to_string(fd)).c_str(), RTLD_NOW);
  if (!h) {
    fprintf(stderr, "lathe-kernel-bench: %s\n", dlerror());
    exit(1);
  }
  return reinterpret_cast<LatheKernelFn>(dlsym(h, "kernel"));
}

void measure(const Options &o, const std::string &type, const std::string &act, const std::string &shape,
             X86Target target) {
  MatmulParams p;
  p.type = StorageType(find(typeNames, std::size(typeNames), type));
  p.act = ActFormat(find(actNames, std::size(actNames), act));
  if (sscanf(shape.c_str(), "%ldx%ld", &p.n, &p.k) != 2) exit(2);
  p.halves = packedLayout(p.type).subK == 16 && isInt8(p.act);
  p.outStride = rowStride(p.n);
  if (o.gateUp) p.epilogue = MatmulParams::gateUp;
  auto before = std::chrono::steady_clock::now();
  LatheKernelFn kernel = load(p, target, o.assembly);
  double compileMs = std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count() * 1e3;

  size_t bytes = size_t(packedBytes(p.type, p.n, p.k)), copyBytes = (bytes + 4095) / 4096 * 4096;
  size_t copies = o.cache ? 1 : std::max<size_t>(1, (size_t(400) << 20) / copyBytes);
  uint8_t *weights = allocate(copies * copyBytes + 4096);
  int64_t maxRows = *std::max_element(o.rows.begin(), o.rows.end());
  uint8_t *activations = allocate(size_t(activationBytes(maxRows, p.k, p.act, p.halves)));
  uint8_t *out = allocate(std::max(size_t(activationBytes(maxRows, p.n, ActFormat::f32, true)),
                                   size_t((maxRows + 15) / 16 * 16 * p.outStride * 4)));
  uint8_t *scratch = allocate((scratchBytes(p) + 4096) * o.threads);
  int64_t units = matmulUnits(p);
  printf("%-6s %-5s %-10s %-5s %s (compiled in %.0f ms)\n", type.c_str(), act.c_str(), shape.c_str(),
         o.cache ? "cache" : "DRAM", variantName(target.variant), compileMs);
  for (int64_t rows : o.rows) {
    LatheStep step{};
    step.size = sizeof step;
    step.rows = uint32_t(rows);
    // Rounds of about half a millisecond on a share of the units, so that most rounds are not interrupted.
    double unitBytes = double(bytes) / double(units),
           unitMacs = double(p.n) * double(p.k) * double(rows) / double(units);
    int64_t share = std::clamp<int64_t>(int64_t(500e-6 * o.threads / (unitBytes / 30e9 + unitMacs / 250e9)),
                                        int64_t(o.threads), units);
    int64_t at = 0;
    size_t copy = 0;
    std::vector<double> times, reads, peaks; // seconds a unit; bytes and multiply-adds a second
    auto advance = [&] {
      at += share;
      if (at + share > units) {
        at = 0;
        copy = (copy + 1) % copies;
      }
    };
    for (double spent = 0; spent < o.seconds || times.size() < 5;) {
      uint8_t *base = weights + copy * copyBytes;
      double t = timed(o.threads, [&](unsigned thread) {
        uint8_t *args[] = {activations, base, out};
        kernel(args, &step, at + share * thread / o.threads, at + share * (thread + 1) / o.threads, 1,
               scratch + thread * (scratchBytes(p) + 4096) / 64 * 64);
      });
      advance();
      size_t readBytes = size_t(unitBytes * double(share)) / 512 * 512;
      const uint8_t *from = weights + copy * copyBytes + size_t(unitBytes * double(at));
      double r = timed(o.threads, [&](unsigned thread) {
        size_t a = readBytes / 512 * thread / o.threads * 512, b = readBytes / 512 * (thread + 1) / o.threads * 512;
        bench::readAll(from + a, b - a);
      });
      advance();
      uint64_t done = 0;
      double k = timed(o.threads, [&](unsigned thread) {
        uint64_t d = target.has512() ? bench::dotPeak(100000) : bench::dotPeakAvx2(100000);
        if (thread == 0) done = d * o.threads;
      });
      times.push_back(t / double(share));
      reads.push_back(double(readBytes) / r);
      peaks.push_back(double(done) / k);
      spent += t + r + k;
    }
    // The good quarter of each: what the machine does while nobody else interrupts.
    auto rank = [](std::vector<double> v, double q) {
      std::sort(v.begin(), v.end());
      return v[size_t(q * double(v.size() - 1))];
    };
    double t = rank(times, 0.15), read = rank(reads, 0.85), peak = rank(peaks, 0.85);
    printf(
        "  rows %4ld: %9.1f us  %6.1f GB/s = %5.1f %% of read (%5.1f GB/s)   %6.1f GMAC/s = %5.1f %% of peak (%6.1f)\n",
        rows, t * double(units) * 1e6, unitBytes / t * 1e-9, unitBytes / t / read * 100, read * 1e-9,
        unitMacs / t * 1e-9, unitMacs / t / peak * 100, peak * 1e-9);
    fflush(stdout);
  }
}

} // namespace

int main(int argc, char **argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    std::string a = argv[i];
    auto next = [&]() -> std::string {
      if (i + 1 >= argc) {
        fprintf(stderr, "lathe-kernel-bench: expected a value after '%s'\n", a.c_str());
        exit(2);
      }
      return argv[++i];
    };
    if (a == "--type")
      o.types = split(next());
    else if (a == "--act")
      o.acts = split(next());
    else if (a == "--shape")
      o.shapes = split(next());
    else if (a == "--rows") {
      o.rows.clear();
      for (const std::string &r : split(next()))
        o.rows.push_back(std::max(1L, atol(r.c_str())));
    } else if (a == "--target")
      o.target = next();
    else if (a == "--asm")
      o.assembly = next();
    else if (a == "--threads")
      o.threads = unsigned(std::max(1, atoi(next().c_str())));
    else if (a == "--seconds")
      o.seconds = atof(next().c_str());
    else if (a == "--cache")
      o.cache = true;
    else if (a == "--gate-up")
      o.gateUp = true;
    else {
      fprintf(stderr, "usage: lathe-kernel-bench [--type T,..] [--shape NxK,..] [--rows R,..] [--act A,..] [--target "
                      "V] [--cache] [--gate-up] [--threads N] [--seconds S] [--asm FILE]\n");
      return 2;
    }
  }
  X86Target target{hostVariant()};
  for (auto v : {artifact::Variant::avx2, artifact::Variant::avx512vnni, artifact::Variant::avx512bf16, artifact::Variant::amx})
    if (o.target == variantName(v)) target.variant = v;
  if (!hostSupports(target)) {
    fprintf(stderr, "lathe-kernel-bench: this machine does not run '%s'\n", variantName(target.variant));
    return 1;
  }
  for (const std::string &t : o.types)
    for (const std::string &a : o.acts)
      for (const std::string &s : o.shapes)
        measure(o, t, a, s, target);
  return 0;
}
