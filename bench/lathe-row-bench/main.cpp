//===- main.cpp - row kernels and attention against the machine ----*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
//   lathe-row-bench [avx2|avx512vnni|avx512bf16|amx] [filter] [--asm=FILE]
//
// Every line compares a kernel with a read loop over the same bytes (decode attention, rows) or with the
// machine's fma rate (prompt attention), taken in turns in the same run: on a busy machine only the ratios mean
// something.
//===----------------------------------------------------------------------===//
#include "X86/Compile.h"
#include "lathe/artifact/Step.h"
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <dlfcn.h>
#include <immintrin.h>
#include <map>
#include <numeric>
#include <random>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

using namespace lathe;
using namespace lathe::codegen;

namespace {

/// Processor time of this thread: other load on the machine takes bandwidth and cache, but no time.
double now() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return double(t.tv_sec) + 1e-9 * double(t.tv_nsec);
}

/// Zeroed pages, huge where possible.
uint8_t *pages(size_t bytes) {
  void *p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) std::abort();
  madvise(p, bytes, MADV_HUGEPAGE);
  std::memset(p, 0x11, bytes);
  return static_cast<uint8_t *>(p);
}

__attribute__((target("avx2"))) int64_t readAll(const uint8_t *p, size_t bytes) {
  __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
  for (size_t i = 0; i + 128 <= bytes; i += 128) {
    a = _mm256_xor_si256(a, _mm256_load_si256(reinterpret_cast<const __m256i *>(p + i)));
    b = _mm256_xor_si256(b, _mm256_load_si256(reinterpret_cast<const __m256i *>(p + i + 32)));
    c = _mm256_xor_si256(c, _mm256_load_si256(reinterpret_cast<const __m256i *>(p + i + 64)));
    d = _mm256_xor_si256(d, _mm256_load_si256(reinterpret_cast<const __m256i *>(p + i + 96)));
  }
  return _mm256_extract_epi64(_mm256_xor_si256(_mm256_xor_si256(a, b), _mm256_xor_si256(c, d)), 0);
}
volatile int64_t sink;

/// Fused multiply-adds a second of one core, in float32 lanes.
__attribute__((target("avx512f"))) double fmaRate512() {
  __m512 a = _mm512_set1_ps(1.0f), b = a, c = a, d = a, e = a, f = a, g = a, h = a, y = a, z = _mm512_set1_ps(1e-9f);
  double t = now();
  asm volatile("" : "+x"(y)); // not before the clock
  for (int i = 0; i < 400000; ++i) {
    a = _mm512_fmadd_ps(a, y, z), b = _mm512_fmadd_ps(b, y, z), c = _mm512_fmadd_ps(c, y, z),
    d = _mm512_fmadd_ps(d, y, z);
    e = _mm512_fmadd_ps(e, y, z), f = _mm512_fmadd_ps(f, y, z), g = _mm512_fmadd_ps(g, y, z),
    h = _mm512_fmadd_ps(h, y, z);
  }
  asm volatile("" : : "x"(a), "x"(b), "x"(c), "x"(d), "x"(e), "x"(f), "x"(g), "x"(h));
  t = now() - t;
  sink = sink + int64_t(_mm512_reduce_add_ps(a + b + c + d + e + f + g + h));
  return 400000.0 * 8 * 16 / t;
}
__attribute__((target("avx2,fma"))) double fmaRate256() {
  __m256 a = _mm256_set1_ps(1.0f), b = a, c = a, d = a, e = a, f = a, g = a, h = a, y = a, z = _mm256_set1_ps(1e-9f);
  double t = now();
  asm volatile("" : "+x"(y)); // not before the clock
  for (int i = 0; i < 400000; ++i) {
    a = _mm256_fmadd_ps(a, y, z), b = _mm256_fmadd_ps(b, y, z), c = _mm256_fmadd_ps(c, y, z),
    d = _mm256_fmadd_ps(d, y, z);
    e = _mm256_fmadd_ps(e, y, z), f = _mm256_fmadd_ps(f, y, z), g = _mm256_fmadd_ps(g, y, z),
    h = _mm256_fmadd_ps(h, y, z);
  }
  asm volatile("" : : "x"(a), "x"(b), "x"(c), "x"(d), "x"(e), "x"(f), "x"(g), "x"(h));
  t = now() - t;
  sink = sink + int64_t(_mm256_cvtss_f32(a + b + c + d + e + f + g + h));
  return 400000.0 * 8 * 8 / t;
}

/// Seconds of |f|(thread) on |threads| threads that start together.
template <typename F> double parallel(int threads, F f) {
  if (threads == 1) {
    double t = now();
    f(0);
    return now() - t;
  }
  std::atomic<int> ready{0};
  std::vector<std::thread> team;
  std::vector<double> start(threads), end(threads);
  for (int i = 0; i < threads; ++i)
    team.emplace_back([&, i] {
      ++ready;
      while (ready < threads) {
      }
      start[i] = now();
      f(i);
      end[i] = now();
    });
  for (auto &t : team)
    t.join();
  double most = 0;
  for (int i = 0; i < threads; ++i)
    most = std::max(most, end[i] - start[i]);
  return most;
}

struct Bench {
  X86Target target;
  std::string filter, assembly;
  int64_t pad = 0; ///< bytes added to the block stride

  bool wants(const std::string &name) const { return name.find(filter) != std::string::npos; }

  std::map<std::string, LatheKernelFn> build(const std::vector<KernelJob> &jobs) {
    if (!assembly.empty()) {
      FILE *f = std::fopen(assembly.c_str(), "w");
      for (const KernelJob &j : jobs) {
        mlir::MLIRContext context;
        mlir::OwningOpRef<mlir::ModuleOp> m = mlir::ModuleOp::create(mlir::UnknownLoc::get(&context));
        std::string text;
        if (succeeded(j.emit(*m, j.symbol, target)) && compileObject(*m, target, &text).ok() && f)
          std::fputs(text.c_str(), f);
      }
      if (f) std::fclose(f);
    }
    Result<std::string> code = buildCode(jobs, target, 2);
    if (!code.ok()) {
      std::fprintf(stderr, "%s\n", code.status().message().c_str());
      std::exit(1);
    }
    int fd = memfd_create("bench", 0);
    if (write(fd, code->data(), code->size()) != ssize_t(code->size())) std::abort();
    void *handle = dlopen(("/proc/self/fd/" + std::to_string(fd)).c_str(), RTLD_NOW | RTLD_LOCAL);
    std::map<std::string, LatheKernelFn> out;
    for (const KernelJob &j : jobs)
      out[j.symbol] = reinterpret_cast<LatheKernelFn>(dlsym(handle, j.symbol.c_str()));
    return out;
  }

  void decode(const char *name, int64_t kvHeads, int64_t group, int64_t dim, KVFormat f, int64_t page, int64_t layers,
              int64_t depth, int64_t rows = 1) {
    if (!wants(std::string("decode ") + name)) return;
    AttentionParams p;
    p.qHeads = kvHeads * group, p.kvHeads = kvHeads, p.headDim = p.valueDim = dim, p.k = p.v = f, p.page = page;
    int64_t e = f == KVFormat::f32 ? 4 : f == KVFormat::int8 ? 1 : 2;
    p.headStride = 2 * page * (dim * e + (f == KVFormat::int8 ? 4 : 0));
    p.blockStride = p.headStride * kvHeads * layers + pad;
    p.scale = 0.125f, p.qStride = p.outStride = p.qHeads * dim, p.maxChunks = depth / p.chunk + 1;
    auto form = [&](const char *n, AttentionParams::Form x) {
      AttentionParams q = p;
      q.form = x;
      return KernelJob{n, [q](mlir::ModuleOp m, llvm::StringRef s, X86Target t) { return emitAttention(m, s, q, t); }};
    };
    auto k = build({form("whole", AttentionParams::whole), form("split", AttentionParams::split),
                    form("combine", AttentionParams::combine)});
    int64_t blocks = (depth + page - 1) / page;
    size_t bytes = size_t(blocks * p.blockStride);
    uint8_t *pool = pages(bytes);
    std::vector<int32_t> table(blocks);
    std::iota(table.begin(), table.end(), 0);
    std::shuffle(table.begin(), table.end(), std::mt19937(1));
    const int32_t *tables[1] = {table.data()};
    uint32_t stride = uint32_t(blocks);
    std::vector<int32_t> slot(rows), zero(rows);
    std::iota(slot.begin(), slot.end(), int32_t(depth - rows));
    LatheStep step{};
    step.rows = uint32_t(rows), step.sequences = 1;
    step.slot = slot.data(), step.sequence = zero.data(), step.position = slot.data();
    step.blockTable = tables, step.tableStride = &stride;
    uint8_t *q = pages(1 << 20), *out = pages(1 << 20), *partials = pages(partialsBytes(p, rows));
    std::vector<uint8_t *> scratch{pages(scratchBytes(p)), pages(scratchBytes(p))};
    int64_t items = 0, block = attentionRowBlock(p), wholeItems = (rows + block - 1) / block * kvHeads;
    for (int32_t x : slot)
      items += (x / p.chunk + 1) * kvHeads;
    double best[2][4];
    for (auto &b : best)
      std::fill(b, b + 4, 1e9);
    for (int round = 0; round < 12; ++round)
      for (int threads : {1, 2}) {
        auto &b = best[threads - 1];
        b[0] = std::min(b[0], parallel(threads, [&](int t) {
                          sink = sink + readAll(pool + bytes / threads * t, bytes / threads);
                        }));
        b[1] = std::min(b[1], parallel(threads, [&](int t) { // the blocks of the table, layer by layer
                          int64_t layerBytes = p.headStride * kvHeads;
                          for (int64_t l = 0; l < layers; ++l)
                            for (int64_t i = t; i < blocks; i += threads)
                              sink = sink + readAll(pool + table[i] * p.blockStride + l * layerBytes, layerBytes);
                        }));
        b[2] = std::min(b[2], parallel(threads, [&](int t) {
                          for (int64_t l = 0; l < layers; ++l) {
                            uint8_t *args[3] = {q, pool + l * p.headStride * kvHeads, partials};
                            k["split"](args, &step, t, items, threads, scratch[t]);
                            uint8_t *last[2] = {partials, out};
                            if (t == 0) k["combine"](last, &step, 0, rows, 1, scratch[t]);
                          }
                        }));
        b[3] = std::min(b[3], parallel(threads, [&](int t) {
                          for (int64_t l = 0; l < layers; ++l) {
                            uint8_t *args[3] = {q, pool + l * p.headStride * kvHeads, out};
                            k["whole"](args, &step, t, wholeItems, threads, scratch[t]);
                          }
                        }));
      }
    double combine = 1e9;
    for (int round = 0; round < 20; ++round) {
      uint8_t *last[2] = {partials, out};
      double t = now();
      for (int i = 0; i < 32; ++i)
        k["combine"](last, &step, 0, rows, 1, scratch[0]);
      combine = std::min(combine, (now() - t) / 32 * 1e6);
    }
    std::printf("decode %-22s combine %.2f us\n", name, combine);
    for (int threads : {1, 2}) {
      auto &b = best[threads - 1];
      std::printf("decode %-22s %d thr: read %5.1f GB/s, by table %5.1f; split %7.1f us a layer %5.1f GB/s (%.2f of "
                  "read, %.2f of table); whole %.2f of table\n",
                  name, threads, bytes / b[0] * 1e-9, bytes / b[1] * 1e-9, b[2] / layers * 1e6, bytes / b[2] * 1e-9,
                  b[0] / b[2], b[1] / b[2], b[1] / b[3]);
    }
    munmap(pool, bytes);
  }

  void prompt(const char *name, int64_t kvHeads, int64_t group, int64_t dim, KVFormat f, int64_t page, int64_t rows,
              int64_t before) {
    if (!wants(std::string("prompt ") + name)) return;
    AttentionParams p;
    p.qHeads = kvHeads * group, p.kvHeads = kvHeads, p.headDim = p.valueDim = dim, p.k = p.v = f, p.page = page;
    int64_t e = f == KVFormat::f32 ? 4 : f == KVFormat::int8 ? 1 : 2;
    p.headStride = 2 * page * (dim * e + (f == KVFormat::int8 ? 4 : 0));
    p.blockStride = p.headStride * kvHeads + pad;
    p.scale = 0.125f, p.qStride = p.outStride = p.qHeads * dim;
    auto k =
        build({{"whole", [p](mlir::ModuleOp m, llvm::StringRef s, X86Target t) { return emitAttention(m, s, p, t); }}});
    int64_t blocks = (rows + before + page - 1) / page;
    uint8_t *pool = pages(size_t(blocks * p.blockStride)), *q = pages(size_t(rows * p.qStride * 4)),
            *out = pages(size_t(rows * p.qStride * 4)), *scratch = pages(scratchBytes(p));
    std::vector<int32_t> table(blocks), slot(rows), sequence(rows);
    std::iota(table.begin(), table.end(), 0);
    std::iota(slot.begin(), slot.end(), int32_t(before));
    const int32_t *tables[1] = {table.data()};
    uint32_t stride = uint32_t(blocks);
    LatheStep step{};
    step.rows = uint32_t(rows), step.sequences = 1;
    step.slot = slot.data(), step.sequence = sequence.data();
    step.blockTable = tables, step.tableStride = &stride;
    int64_t block = attentionRowBlock(p), items = (rows + block - 1) / block * kvHeads;
    double fmas = 0, best = 1e9, rate = 0;
    for (int64_t r = 0; r < rows; ++r)
      fmas += double(before + r + 1) * p.qHeads * dim * 2;
    for (int round = 0; round < 15; ++round) {
      rate = std::max(rate, target.has512() ? fmaRate512() : fmaRate256());
      double t = now();
      uint8_t *args[3] = {q, pool, out};
      k["whole"](args, &step, 0, items, 1, scratch);
      best = std::min(best, now() - t);
    }
    std::printf("prompt %-22s: %8.1f us, %.1f Gfma/s of %.1f (%.2f)\n", name, best * 1e6, fmas / best * 1e-9,
                rate * 1e-9, fmas / best / rate);
  }

  void norm(int64_t kDim, ActFormat act, const char *actName, int64_t rows) {
    if (!wants("norm")) return;
    NormParams p;
    p.k = kDim, p.inStride = kDim, p.act = act;
    QuantizeParams z;
    z.k = kDim, z.inStride = kDim, z.act = act;
    ActivationParams a;
    a.k = kDim, a.inStride = kDim, a.act = act;
    auto k =
        build({{"norm", [p](mlir::ModuleOp m, llvm::StringRef s, X86Target t) { return emitNorm(m, s, p, t); }},
               {"quantize", [z](mlir::ModuleOp m, llvm::StringRef s, X86Target t) { return emitQuantize(m, s, z, t); }},
               {"silu", [a](mlir::ModuleOp m, llvm::StringRef s, X86Target t) { return emitActivation(m, s, a, t); }}});

    uint8_t *x = pages(size_t(rows * kDim * 4)), *up = pages(size_t(rows * kDim * 4)), *w = pages(size_t(kDim * 4)),
            *out = pages(size_t(activationBytes(rows, kDim, act, false)));
    std::mt19937 r(1);
    for (int64_t i = 0; i < rows * kDim; ++i)
      reinterpret_cast<float *>(x)[i] = reinterpret_cast<float *>(up)[i] = std::normal_distribution<float>()(r);
    LatheStep step{};
    step.rows = uint32_t(rows);
    double best[4] = {1e9, 1e9, 1e9, 1e9};
    const int times = rows == 1 ? 64 : 1;
    for (int round = 0; round < 200; ++round) {
      uint8_t *args[3] = {x, w, out}, *quantArgs[2] = {x, out}, *siluArgs[3] = {x, up, out};
      auto time = [&](double &keep, auto f) {
        double t = now();
        for (int i = 0; i < times; ++i)
          f();
        keep = std::min(keep, (now() - t) / double(rows * times) * 1e6);
      };
      time(best[0], [&] { sink = sink + readAll(x, size_t(rows * kDim * 4)); });
      time(best[1], [&] { k["norm"](args, &step, 0, rows, 1, nullptr); });
      time(best[2], [&] { k["quantize"](quantArgs, &step, 0, rows, 1, nullptr); });
      time(best[3], [&] { k["silu"](siluArgs, &step, 0, rows, 1, nullptr); });
    }
    std::printf("norm %5ld %-5s %2ld rows: read %.3f us a row, norm %.3f, quantize %.3f, silu*up %.3f\n", long(kDim),
                actName, long(rows), best[0], best[1], best[2], best[3]);
  }

  void rope(int64_t qHeads, int64_t kvHeads, int64_t dim, KVFormat f, const char *name) {
    if (!wants("rope")) return;
    RopeAppendParams p;
    p.qHeads = qHeads, p.kvHeads = kvHeads, p.headDim = p.valueDim = p.rotaryDim = dim, p.k = p.v = f;
    p.qkvStride = (qHeads + 2 * kvHeads) * dim;
    p.headStride = 2 * 16 * (dim * 4 + 4), p.blockStride = p.headStride * kvHeads;
    auto k =
        build({{"rope", [p](mlir::ModuleOp m, llvm::StringRef s, X86Target t) { return emitRopeAppend(m, s, p, t); }}});
    const int64_t rows = 256;
    uint8_t *x = pages(size_t(rows * p.qkvStride * 4)), *angles = pages(size_t(rows * dim * 4)),
            *pool = pages(size_t(rows / 16 * p.blockStride));
    std::vector<int32_t> table(rows / 16), slot(rows), sequence(rows);
    std::iota(table.begin(), table.end(), 0);
    std::iota(slot.begin(), slot.end(), 0);
    const int32_t *tables[1] = {table.data()};
    uint32_t stride = uint32_t(table.size());
    LatheStep step{};
    step.rows = rows, step.slot = slot.data(), step.sequence = sequence.data(), step.blockTable = tables,
    step.tableStride = &stride;
    double best = 1e9, read = 1e9;
    for (int round = 0; round < 100; ++round) {
      double t0 = now();
      sink = sink + readAll(x, size_t(rows * p.qkvStride * 4));
      double t1 = now();
      uint8_t *args[5] = {x, x + qHeads * dim * 4, x + (qHeads + kvHeads) * dim * 4, angles, pool};
      k["rope"](args, &step, 0, rows, 1, nullptr);
      read = std::min(read, (t1 - t0) / rows), best = std::min(best, (now() - t1) / rows);
    }
    std::printf("rope %-12s: read %.3f us a row, rope+append %.3f\n", name, read * 1e6, best * 1e6);
  }
};

} // namespace

int main(int argc, char **argv) {
  Bench b{{hostVariant()}, "", ""};
  if (const char *pad = std::getenv("PAD")) b.pad = std::atoll(pad);
  for (int i = 1; i < argc; ++i) {
    std::string a = argv[i];
    bool variant = false;
    for (auto v : {artifact::Variant::avx2, artifact::Variant::avx512vnni, artifact::Variant::avx512bf16, artifact::Variant::amx})
      if (a == variantName(v)) {
        b.target.variant = v;
        variant = true;
      }
    if (a.starts_with("--asm="))
      b.assembly = a.substr(6);
    else if (!variant)
      b.filter = a;
  }
  std::printf("variant %s\n", variantName(b.target.variant));
  using F = KVFormat;
  b.decode("3x3x64 f16 p16", 3, 3, 64, F::f16, 16, 30, 2048);
  b.decode("8x4x64 f16 p16", 8, 4, 64, F::f16, 16, 16, 2048);
  b.decode("8x4x64 f16 p16 L3", 8, 4, 64, F::f16, 16, 1, 2048);
  b.decode("8x4x64 f16 p64 L3", 8, 4, 64, F::f16, 64, 1, 2048);
  b.decode("8x4x64 f16 p16 L2", 8, 4, 64, F::f16, 16, 1, 256);
  b.decode("8x4x64 f16 p64 L2", 8, 4, 64, F::f16, 64, 1, 256);
  b.decode("8x4x64 f16 p64", 8, 4, 64, F::f16, 64, 16, 2048);
  b.decode("8x4x64 bf16 p16", 8, 4, 64, F::bf16, 16, 16, 2048);
  b.decode("8x4x64 int8 p16", 8, 4, 64, F::int8, 16, 16, 2048);
  b.decode("8x4x128 f16 p16", 8, 4, 128, F::f16, 16, 12, 2048);
  b.decode("8x1x64 f16 p16", 8, 1, 64, F::f16, 16, 16, 2048);
  b.decode("3x3x64 f16 p16 4 rows", 3, 3, 64, F::f16, 16, 30, 2048, 4);
  b.decode("8x4x64 f16 p16 8 rows", 8, 4, 64, F::f16, 16, 16, 2048, 8);
  b.prompt("3x3x64 f16 512", 3, 3, 64, F::f16, 16, 512, 0);
  b.prompt("8x4x64 f16 512", 8, 4, 64, F::f16, 16, 512, 0);
  b.prompt("8x4x64 f16 512@2048", 8, 4, 64, F::f16, 16, 512, 2048);
  b.prompt("8x4x128 bf16 512", 8, 4, 128, F::bf16, 16, 512, 0);
  b.prompt("8x4x64 int8 512", 8, 4, 64, F::int8, 16, 512, 0);
  b.prompt("8x1x80 f32 512", 8, 1, 80, F::f32, 16, 512, 0);
  for (int64_t k : {576, 2048, 8192}) {
    b.norm(k, ActFormat::int8, "int8", 1);
    b.norm(k, ActFormat::int8, "int8", 64);
  };
  b.norm(2048, ActFormat::int8z, "int8z", 64);
  b.norm(2048, ActFormat::f32, "f32", 64);
  b.rope(9, 3, 64, F::f16, "9/3x64 f16");
  b.rope(32, 8, 64, F::f16, "32/8x64 f16");
  b.rope(32, 8, 128, F::bf16, "32/8x128 bf16");
}
