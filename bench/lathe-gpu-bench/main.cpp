//===- main.cpp - what compiled models reach of a GPU's limits ------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
//   lathe-gpu-bench [--device cuda|emulator] [--seconds S] ARTIFACT...
//
// First the limits: bandwidth of a copy in device memory, and multiply-adds of mma.sync in registers and of wgmma in shared memory, in bf16 and e4m3. Then, of each
// artifact: how long its code takes to load, as PTX and as cubin; steps of 1 to 64 rows and prompts of 256 to 8192 (in steps of as many rows as the program
// takes): time, bytes of weights a second and multiply-adds a second, with their share of the limits, and of 1, 8 and the most rows the kernels that take longest (measured one by one);
// decoding at some depths and batches: bytes of K and V a second; a step of few rows by a graph, by launches one by one, and by megakernels where the
// file has them. The emulator's times are those of the host: with it the program shows only that everything runs.
//===----------------------------------------------------------------------===//
#include "runtime/device/gpu/GpuDriver.h"
#include "runtime/engine/Engine.h"
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>

using namespace lathe;
using namespace lathe::runtime;

namespace {

using Clock = std::chrono::steady_clock;
double secondsSince(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

struct Limits {
  double copyBytes = 0; ///< bytes read and written a second
  double macs = 0;      ///< of mma.sync in bf16
  double floats8 = 0, wgmma = 0, wgmmaFloats8 = 0; ///< the same of others; 0: the device has none
  double most() const { return std::max(macs, wgmma); }
};

/// A kernel that multiplies ones in a loop: its text, multiply-adds of a block in a round, and what an accumulator grows by.
struct Peak {
  std::string text;
  uint32_t threads;
  double macs, grows;
};
std::string repeated(int n, const char *name, int first = 0) {
  std::string s = "{";
  for (int i = 0; i < n; ++i) s += (i ? ", " : "") + std::string(name) + std::to_string(first + i);
  return s + "}";
}
std::string opening(const char *version, const char *target, uint32_t threads, int floats) {
  std::string s = std::string(".version ") + version + "\n.target " + target + "\n.address_size 64\n.visible .entry peak(.param .u64 out, .param .u64 rounds)\n.reqntid " + std::to_string(threads) +
                  "\n{\n\t.reg .pred %p, %q;\n\t.reg .b64 %d<8>;\n\t.reg .b32 %t<8>, %a<4>, %b<2>;\n\t.reg .f32 %c<" + std::to_string(floats) +
                  ">;\n\tld.param.u64 %d0, [out];\n\tld.param.u64 %d1, [rounds];\n\tmov.u32 %t0, %tid.x;\n\tmov.b64 %d2, 0;\n";
  for (int i = 0; i < floats; ++i) s += "\tmov.f32 %c" + std::to_string(i) + ", 0f00000000;\n";
  return s;
}
std::string ending(int floats) { // all blocks write the same
  std::string s = "\tadd.s64 %d2, %d2, 1;\n\tsetp.lt.u64 %p, %d2, %d1;\n\t@%p bra $again;\n";
  for (int i = 1; i < floats; ++i) s += "\tadd.f32 %c0, %c0, %c" + std::to_string(i) + ";\n";
  return s + "\tmul.wide.u32 %d3, %t0, 4;\n\tadd.s64 %d4, %d0, %d3;\n\tst.global.f32 [%d4], %c0;\n\tret;\n}\n";
}
/// Eight independent chains of mma.sync a warp.
Peak mmaLoop(bool floats8) {
  const std::string ones = floats8 ? "0x38383838" : "0x3f803f80";
  std::string s = opening(floats8 ? "8.4" : "8.0", floats8 ? "sm_89" : "sm_80", 256, 32);
  for (int i = 0; i < 4; ++i) s += "\tmov.b32 %a" + std::to_string(i) + ", " + ones + ";\n";
  for (int i = 0; i < 2; ++i) s += "\tmov.b32 %b" + std::to_string(i) + ", " + ones + ";\n";
  s += "$again:\n";
  for (int i = 0; i < 8; ++i) {
    std::string c = repeated(4, "%c", 4 * i);
    s += std::string("\tmma.sync.aligned.") + (floats8 ? "m16n8k32.row.col.f32.e4m3.e4m3.f32 " : "m16n8k16.row.col.f32.bf16.bf16.f32 ") + c + ", {%a0, %a1, %a2, %a3}, {%b0, %b1}, " + c + ";\n";
  }
  const double k = floats8 ? 32 : 16;
  return {s + ending(32), 256, 8 * 8 * 16 * 8 * k, k};
}
/// Four wgmma of 64 x 256 in flight; both operands in shared memory, without a swizzle: core matrices of 8 rows of 16 bytes.
Peak wgmmaLoop(bool floats8) {
  std::string s = opening("8.0", "sm_90a", 128, 128);
  s += "\t.shared .align 1024 .b8 tile[10240];\n\tmov.u32 %t1, tile;\n\tshl.b32 %t2, %t0, 2;\n\tadd.u32 %t3, %t1, %t2;\n";
  s += std::string("\tmov.b32 %t4, ") + (floats8 ? "0x38383838" : "0x3f803f80") + ";\n";
  for (int i = 0; i < 20; ++i) s += "\tst.shared.b32 [%t3+" + std::to_string(512 * i) + "], %t4;\n";
  s += "\tfence.proxy.async;\n\tbar.sync 0;\n\tand.b32 %t5, %t1, 0x3ffff;\n\tshr.u32 %t5, %t5, 4;\n\tcvt.u64.u32 %d5, %t5;\n\tor.b64 %d5, %d5, " +
       std::to_string(uint64_t(256 / 16) << 32 | uint64_t(128 / 16) << 16) + ";\n\tadd.s64 %d6, %d5, 128;\n\tsetp.eq.u64 %q, %d2, 0;\n$again:\n\twgmma.fence.sync.aligned;\n";
  for (int i = 0; i < 4; ++i)
    s += std::string("\twgmma.mma_async.sync.aligned.m64n256") + (floats8 ? "k32.f32.e4m3.e4m3 " : "k16.f32.bf16.bf16 ") + repeated(128, "%c") + ", %d5, %d6, %q, 1, 1" + (floats8 ? ";\n" : ", 0, 0;\n");
  s += "\twgmma.commit_group.sync.aligned;\n\twgmma.wait_group.sync.aligned 0;\n";
  const double k = floats8 ? 32 : 16;
  return {s + ending(128), 128, 4 * 64 * 256 * k, 4 * k};
}

using MakeDriver = std::function<Result<std::unique_ptr<GpuDriver>>(artifact::Variant)>;

/// Multiply-adds a second; 0 where the device does not run |variant|.
Result<double> measurePeak(const MakeDriver &make, artifact::Variant variant, const Peak &peak, bool emulated, double seconds) {
  LATHE_ASSIGN_OR_RETURN(auto driver, make(variant));
  if (!driver->runs(variant)) return 0.0;
  LATHE_RETURN_IF_ERROR(driver->load(peak.text, {}, {"peak"}, {0}));
  LATHE_ASSIGN_OR_RETURN(uint64_t to, driver->allocate(4096, "a sum"));
  const uint32_t blocks = emulated ? 1 : 8 * 132;
  const uint64_t rounds = emulated ? 2 : 2048;
  double best = 0;
  auto begin = Clock::now();
  for (int round = 0; round < 3 || (secondsSince(begin) < seconds && !emulated); ++round) {
    auto start = Clock::now();
    uint64_t args[] = {to, rounds};
    LATHE_RETURN_IF_ERROR(driver->launch(0, blocks, peak.threads, 0, args, false));
    LATHE_RETURN_IF_ERROR(driver->synchronize());
    best = std::max(best, double(blocks) * double(rounds) * peak.macs / secondsSince(start));
  }
  float sum = 0;
  LATHE_RETURN_IF_ERROR(driver->download({reinterpret_cast<uint8_t *>(&sum), 4}, to));
  const double want = double(rounds) * peak.grows * (peak.threads == 128 ? 128 : 32);
  if (std::fabs(sum - want) > 1e-2 * want) return makeError(StatusCode::internal, "the test of matrix products: expected %g, found %g", want, double(sum));
  driver->release(to);
  return best;
}

Result<Limits> measureLimits(const MakeDriver &make, bool emulated, double seconds) {
  using artifact::Variant;
  Limits limits;
  LATHE_ASSIGN_OR_RETURN(auto driver, make(Variant::sm_80));
  const uint64_t bytes = emulated ? 1 << 20 : 1 << 30;
  LATHE_ASSIGN_OR_RETURN(uint64_t from, driver->allocate(bytes, "copy test"));
  LATHE_ASSIGN_OR_RETURN(uint64_t to, driver->allocate(bytes, "copy test"));
  LATHE_RETURN_IF_ERROR(driver->fill(from, 1, bytes));
  LATHE_RETURN_IF_ERROR(driver->synchronize());
  auto begin = Clock::now();
  for (int round = 0; round < 3 || (secondsSince(begin) < seconds && !emulated); ++round) {
    auto start = Clock::now();
    for (int i = 0; i < 4; ++i) LATHE_RETURN_IF_ERROR(driver->copy(to, from, bytes));
    LATHE_RETURN_IF_ERROR(driver->synchronize());
    limits.copyBytes = std::max(limits.copyBytes, 8.0 * double(bytes) / secondsSince(start));
  }
  driver->release(from);
  driver->release(to);
  LATHE_ASSIGN_OR_RETURN(limits.macs, measurePeak(make, Variant::sm_80, mmaLoop(false), emulated, seconds));
  LATHE_ASSIGN_OR_RETURN(limits.floats8, measurePeak(make, Variant::sm_89, mmaLoop(true), emulated, seconds));
  LATHE_ASSIGN_OR_RETURN(limits.wgmma, measurePeak(make, Variant::sm_90a, wgmmaLoop(false), emulated, seconds));
  LATHE_ASSIGN_OR_RETURN(limits.wgmmaFloats8, measurePeak(make, Variant::sm_90a, wgmmaLoop(true), emulated, seconds));
  return limits;
}

struct Work1 {
  double weightBytes = 0, macs = 0;
};

/// Weights and multiply-adds of a step of |rows| rows with the logits of one.
Work1 workOf(const Program &p, uint32_t rows, bool head = true) {
  Work1 w;
  for (const Entry &e : p.entries) {
    if (e.name != "step" && (e.name != "head" || !head)) continue;
    uint32_t n = e.name == "head" ? 1 : rows;
    for (const Bucket &b : e.buckets) {
      if (b.maxRows < n) continue;
      for (uint32_t i = 0; i < b.launchCount; ++i) {
        const Launch &l = p.launches[b.firstLaunch + i];
        w.weightBytes += double(l.weightBytes);
        w.macs += double(l.macsPerRow) * n;
      }
      break;
    }
  }
  return w;
}

/// Steps of |tokens|, of a sequence that begins again when it is full. Ends with the shortest time of |seconds| or of two steps, at least.
Result<double> bestStep(Engine &engine, SequenceId id, const std::vector<int32_t> &tokens, double seconds) {
  double best = 1e30;
  auto begin = Clock::now();
  for (int i = 0; i < 3 || secondsSince(begin) < seconds; ++i) {
    if (engine.length(id) + tokens.size() > engine.contextTokens()) engine.truncate(id, 0);
    Work work{id, tokens, OutputRows::last};
    auto start = Clock::now();
    LATHE_RETURN_IF_ERROR(engine.forward({&work, 1}, [](size_t, size_t, std::span<const float>) { return Status(); }));
    if (i) best = std::min(best, secondsSince(start)); // the first one makes its graph
  }
  return best;
}
std::vector<int32_t> someTokens(uint32_t rows, uint32_t vocabulary) {
  std::vector<int32_t> tokens(rows);
  for (uint32_t r = 0; r < rows; ++r) tokens[r] = int32_t(r * 7919u % vocabulary);
  return tokens;
}

/// How long the artifact's code takes to load.
Status measureLoad(const LoadedArtifact &artifact, const MakeDriver &make) {
  const artifact::Variant variant = artifact.variant();
  auto ptx = artifact.view().find(artifact::SectionKind::ptx, variant), cubin = artifact.view().find(artifact::SectionKind::cubin, variant);
  if (!ptx) return makeError(StatusCode::dataLoss, "section 'ptx' for %s is missing", artifact::toString(variant));
  std::vector<uint32_t> shared;
  for (const BlockShape &b : artifact.program().blocks) shared.push_back(b.sharedBytes);
  for (bool compiled : {false, true}) {
    if (compiled && !cubin) continue;
    LATHE_ASSIGN_OR_RETURN(auto driver, make(variant));
    auto start = Clock::now();
    LATHE_RETURN_IF_ERROR(driver->load({reinterpret_cast<const char *>(ptx->data()), ptx->size()}, compiled ? *cubin : std::span<const uint8_t>(), artifact.program().kernels, shared));
    std::printf("%s %s in %.1f ms", compiled ? "; cubin of" : "load: PTX of", (std::to_string((compiled ? cubin->size() : ptx->size()) >> 10) + " KB").c_str(), secondsSince(start) * 1e3);
  }
  std::printf("\n");
  return Status();
}

/// Steps of one row for each of some sequences that are as long as each other: they read K and V of all.
Status measureDepths(const std::shared_ptr<LoadedArtifact> &artifact, Device &device, const Limits &limits, bool emulated, double seconds) {
  const Program &p = artifact->program();
  double bytesOfToken = 0;
  for (const KVGroup &g : p.kvGroups) bytesOfToken += double(g.blockBytes) / g.pageTokens;
  EngineOptions options;
  options.maxSequences = emulated ? 3 : 32;
  LATHE_ASSIGN_OR_RETURN(auto engine, Engine::create(artifact, options, &device));
  std::vector<SequenceId> all(options.maxSequences);
  for (SequenceId &id : all) {
    LATHE_ASSIGN_OR_RETURN(id, engine->open());
  }
  std::printf("depth batch   step us   K and V GB/s  of copy\n");
  for (uint32_t depth : emulated ? std::vector<uint32_t>{16, 48} : std::vector<uint32_t>{1024, 8000}) {
    if (depth + 64 > engine->contextTokens() && !emulated) continue;
    const std::vector<int32_t> tokens = someTokens(depth, p.vocabulary);
    for (SequenceId id : all) {
      engine->truncate(id, 0);
      Work work{id, tokens, OutputRows::none};
      LATHE_RETURN_IF_ERROR(engine->forward({&work, 1}, RowSink()));
    }
    for (uint32_t batch : emulated ? std::vector<uint32_t>{1, 3} : std::vector<uint32_t>{1, 8, 32}) {
      double best = 1e30;
      auto begin = Clock::now();
      for (int i = 0; i < 3 || secondsSince(begin) < seconds; ++i) {
        std::vector<Work> work;
        for (uint32_t k = 0; k < batch; ++k) work.push_back({all[k], {tokens.data(), 1}, OutputRows::last});
        auto start = Clock::now();
        LATHE_RETURN_IF_ERROR(engine->forward(work, [](size_t, size_t, std::span<const float>) { return Status(); }));
        if (i) best = std::min(best, secondsSince(start));
        for (uint32_t k = 0; k < batch; ++k) engine->truncate(all[k], depth);
      }
      const double bytes = bytesOfToken * depth * batch;
      std::printf("%5u %5u %9.1f %14.1f %8.3f\n", depth, batch, best * 1e6, bytes / best / 1e9, bytes / best / limits.copyBytes);
    }
  }
  return Status();
}
struct Devices {
  std::unique_ptr<Device> graph, launches, together; ///< how steps of few rows are started is a device's
};

Status measure(const std::string &path, const Devices &devices, const MakeDriver &make, const Limits &limits, bool emulated, double seconds) {
  Device &device = *devices.graph;
  LoadOptions load;
  load.gpu = device.gpuCode();
  LATHE_ASSIGN_OR_RETURN(auto artifact, LoadedArtifact::load(path, load));
  const Program &p = artifact->program();
  EngineOptions options;
  LATHE_ASSIGN_OR_RETURN(auto engine, Engine::create(artifact, options, &device));
  std::printf("\n%s (%s)\n", path.c_str(), artifact::toString(artifact->variant()));
  LATHE_RETURN_IF_ERROR(measureLoad(*artifact, make));
  std::printf("rows   step us   weights GB/s  of copy   bf16 TFLOP/s  of peak\n");
  std::vector<uint32_t> counts{1, 2, 4, 8, 16, 32, 64};
  for (uint32_t rows = 256; rows <= 8192; rows *= 2) counts.push_back(rows);
  std::erase_if(counts, [&](uint32_t rows) { return rows > engine->contextTokens() || (emulated && rows > p.maxRows); });
  if (std::find(counts.begin(), counts.end(), p.maxRows) == counts.end()) counts.push_back(p.maxRows);
  for (uint32_t rows : counts) {
    const bool detailed = rows == 1 || rows == 8 || rows == p.maxRows;
    const std::vector<int32_t> tokens = someTokens(rows, p.vocabulary);
    LATHE_ASSIGN_OR_RETURN(SequenceId id, engine->open());
    LATHE_ASSIGN_OR_RETURN(double best, bestStep(*engine, id, tokens, detailed ? seconds : seconds / 4));
    Work1 w;
    for (uint32_t left = rows; left;) { // the steps that so many rows are cut into
      const uint32_t now = std::min(left, p.maxRows);
      const Work1 one = workOf(p, now, left == now);
      w.weightBytes += one.weightBytes, w.macs += one.macs;
      left -= now;
    }
    std::printf("%4u %9.1f %14.1f %8.3f %14.2f %7.3f\n", rows, best * 1e6, w.weightBytes / best / 1e9, w.weightBytes / best / limits.copyBytes,
                2 * w.macs / best / 1e12, w.macs / best / limits.most());
    if (!detailed) {
      engine->close(id);
      continue;
    }
    engine->executable().setProfiling(true);
    LATHE_RETURN_IF_ERROR(bestStep(*engine, id, tokens, seconds / 2).status());
    struct Kernel {
      double seconds = 0, bytes = 0, macs = 0;
      std::string name;
      int launches = 0;
    };
    std::map<uint32_t, Kernel> kernels;
    for (const LaunchProfile &l : engine->executable().profile()) {
      const Launch &launch = p.launches[l.launch];
      Kernel &k = kernels[launch.kernel];
      k.seconds += l.fastest, k.bytes += double(launch.weightBytes), k.macs += double(launch.macsPerRow) * rows, ++k.launches;
      if (k.name.empty()) k.name = p.names[launch.name];
    }
    engine->executable().setProfiling(false);
    std::vector<Kernel> order;
    for (auto &[index, k] : kernels) order.push_back(k);
    std::sort(order.begin(), order.end(), [](const Kernel &a, const Kernel &b) { return a.seconds > b.seconds; });
    for (size_t i = 0; i < order.size() && i < 6; ++i)
      std::printf("     %9.1f %14.1f %8.3f %14.2f %7.3f  %d x %s\n", order[i].seconds * 1e6, order[i].bytes / order[i].seconds / 1e9,
                  order[i].bytes / order[i].seconds / limits.copyBytes, 2 * order[i].macs / order[i].seconds / 1e12, order[i].macs / order[i].seconds / limits.most(),
                  order[i].launches, order[i].name.c_str());
    engine->close(id);
  }
  engine.reset(); // two do not fit beside each other
  if (p.megakernels.empty()) LATHE_RETURN_IF_ERROR(measureDepths(artifact, device, limits, emulated, seconds / 4));
  for (auto [name, other] : {std::pair("launches one by one", devices.launches.get()), std::pair("by megakernels", devices.together.get())}) {
    if (other == devices.together.get() && p.megakernels.empty()) continue;
    LATHE_ASSIGN_OR_RETURN(engine, Engine::create(artifact, options, other));
    std::printf("%s\n", name);
    for (uint32_t rows : {1u, 8u}) {
      if (rows > p.maxRows) continue;
      LATHE_ASSIGN_OR_RETURN(SequenceId id, engine->open());
      LATHE_ASSIGN_OR_RETURN(double best, bestStep(*engine, id, someTokens(rows, p.vocabulary), seconds));
      Work1 w = workOf(p, rows);
      std::printf("%4u %9.1f %14.1f %8.3f\n", rows, best * 1e6, w.weightBytes / best / 1e9, w.weightBytes / best / limits.copyBytes);
      engine->close(id);
    }
    engine.reset();
  }
  return Status();
}

Status run(int argc, char **argv) {
  std::string name = "cuda";
  double seconds = 1;
  int at = 1;
  for (; at + 1 < argc && std::strncmp(argv[at], "--", 2) == 0; at += 2) {
    if (!std::strcmp(argv[at], "--device"))
      name = argv[at + 1];
    else if (!std::strcmp(argv[at], "--seconds"))
      seconds = std::atof(argv[at + 1]);
    else
      return makeError(StatusCode::invalidArgument, "unknown option '%s', expected --device or --seconds", argv[at]);
  }
  if (at >= argc) return makeError(StatusCode::invalidArgument, "expected at least one artifact");
  const bool emulated = name == "emulator";
  Devices devices;
  for (auto [to, plan] : {std::pair(&devices.graph, DevicePlan::graph), std::pair(&devices.launches, DevicePlan::launches), std::pair(&devices.together, DevicePlan::megakernel)}) {
    if (emulated) {
      *to = makeEmulatorDevice(plan);
    } else {
      LATHE_ASSIGN_OR_RETURN(*to, makeCudaDevice(plan));
    }
  }
  const MakeDriver make = [&](artifact::Variant variant) { return emulated ? makeEmulatorDriver(variant) : makeCudaDriver(); };
  LATHE_ASSIGN_OR_RETURN(Limits limits, measureLimits(make, emulated, seconds));
  std::printf("%s: a copy moves %.1f GB/s (read and written), mma.sync does %.1f TFLOP/s in bf16", name.c_str(), limits.copyBytes / 1e9, 2 * limits.macs / 1e12);
  for (auto [what, macs] : {std::pair("mma.sync in e4m3", limits.floats8), std::pair("wgmma in bf16", limits.wgmma), std::pair("wgmma in e4m3", limits.wgmmaFloats8)})
    if (macs > 0) std::printf(", %s %.1f", what, 2 * macs / 1e12);
  std::printf("; the peak below is the larger of those in bf16\n");
  for (; at < argc; ++at) LATHE_RETURN_IF_ERROR(measure(argv[at], devices, make, limits, emulated, seconds));
  return Status();
}

} // namespace

int main(int argc, char **argv) {
  Status s = run(argc, argv);
  if (!s.ok()) std::fprintf(stderr, "error: %s\n", s.message().c_str());
  return s.ok() ? 0 : 1;
}
