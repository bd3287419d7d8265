//===- main.cpp - what compiled models reach of a GPU's limits ------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
//   lathe-gpu-bench [--device cuda|emulator] [--seconds S] ARTIFACT...
//
// First the limits: bandwidth of a copy in device memory, and bf16 multiply-adds of mma.sync in registers. Then steps of 1, 8 and
// as many rows as the program takes: time of a step, bytes of weights a second and multiply-adds a second, with their
// share of the limits, and the kernels that take longest (measured one by one); of a file with megakernels the same steps by them, too. The emulator's times are those of the host: with it
// the program shows only that everything runs.
//===----------------------------------------------------------------------===//
#include "runtime/device/gpu/GpuDriver.h"
#include "runtime/engine/Engine.h"
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

using namespace lathe;
using namespace lathe::runtime;

namespace {

using Clock = std::chrono::steady_clock;
double secondsSince(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

struct Limits {
  double copyBytes = 0; ///< bytes read and written a second
  double macs = 0;
};

/// Eight independent chains of mma.sync a warp; the second argument is the number of rounds.
std::string mmaLoop() {
  std::string s = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry mma_loop(.param .u64 out, .param .u64 rounds)\n.reqntid 256\n{\n"
                  "\t.reg .pred %p;\n\t.reg .b64 %d<6>;\n\t.reg .b32 %t<4>, %a<4>, %b<2>;\n\t.reg .f32 %c<32>;\n"
                  "\tld.param.u64 %d0, [out];\n\tld.param.u64 %d1, [rounds];\n\tmov.u32 %t0, %tid.x;\n\tmov.b64 %d2, 0;\n";
  for (int i = 0; i < 4; ++i) s += "\tmov.b32 %a" + std::to_string(i) + ", 0x3f803f80;\n";
  for (int i = 0; i < 2; ++i) s += "\tmov.b32 %b" + std::to_string(i) + ", 0x3f803f80;\n";
  for (int i = 0; i < 32; ++i) s += "\tmov.f32 %c" + std::to_string(i) + ", 0f00000000;\n";
  s += "$again:\n";
  for (int i = 0; i < 8; ++i) {
    std::string c = "{";
    for (int j = 0; j < 4; ++j) c += (j ? ", %c" : "%c") + std::to_string(4 * i + j);
    c += "}";
    s += "\tmma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 " + c + ", {%a0, %a1, %a2, %a3}, {%b0, %b1}, " + c + ";\n";
  }
  s += "\tadd.s64 %d2, %d2, 1;\n\tsetp.lt.u64 %p, %d2, %d1;\n\t@%p bra $again;\n";
  for (int i = 1; i < 32; ++i) s += "\tadd.f32 %c0, %c0, %c" + std::to_string(i) + ";\n";
  s += "\tmul.wide.u32 %d3, %t0, 4;\n\tadd.s64 %d4, %d0, %d3;\n\tst.global.f32 [%d4], %c0;\n\tret;\n}\n"; // all blocks write the same
  return s;
}

Result<Limits> measureLimits(GpuDriver &driver, bool emulated, double seconds) {
  Limits limits;
  const uint64_t bytes = emulated ? 1 << 20 : 1 << 30;
  LATHE_ASSIGN_OR_RETURN(uint64_t from, driver.allocate(bytes, "copy test"));
  LATHE_ASSIGN_OR_RETURN(uint64_t to, driver.allocate(bytes, "copy test"));
  LATHE_RETURN_IF_ERROR(driver.fill(from, 1, bytes));
  LATHE_RETURN_IF_ERROR(driver.synchronize());
  auto begin = Clock::now();
  for (int round = 0; round < 3 || (secondsSince(begin) < seconds && !emulated); ++round) {
    auto start = Clock::now();
    for (int i = 0; i < 4; ++i) LATHE_RETURN_IF_ERROR(driver.copy(to, from, bytes));
    LATHE_RETURN_IF_ERROR(driver.synchronize());
    limits.copyBytes = std::max(limits.copyBytes, 8.0 * double(bytes) / secondsSince(start));
  }
  LATHE_RETURN_IF_ERROR(driver.load(mmaLoop(), {}, {"mma_loop"}, {0}));
  const uint32_t blocks = emulated ? 1 : 8 * 132;
  const uint64_t rounds = emulated ? 2 : 4096;
  begin = Clock::now();
  for (int round = 0; round < 3 || (secondsSince(begin) < seconds && !emulated); ++round) {
    auto start = Clock::now();
    uint64_t args[] = {to, rounds};
    LATHE_RETURN_IF_ERROR(driver.launch(0, blocks, 256, 0, args, false));
    LATHE_RETURN_IF_ERROR(driver.synchronize());
    limits.macs = std::max(limits.macs, double(blocks) * 8 * double(rounds) * 8 * 16 * 8 * 16 / secondsSince(start));
  }
  float sum = 0;
  LATHE_RETURN_IF_ERROR(driver.download({reinterpret_cast<uint8_t *>(&sum), 4}, to));
  if (sum != float(rounds * 16 * 32)) return makeError(StatusCode::internal, "the mma test: expected %g, found %g", double(rounds * 16 * 32), double(sum));
  driver.release(from);
  driver.release(to);
  return limits;
}

struct Work1 {
  double weightBytes = 0, macs = 0;
};

/// Weights and multiply-adds of a step of |rows| rows with the logits of one.
Work1 workOf(const Program &p, uint32_t rows) {
  Work1 w;
  for (const Entry &e : p.entries) {
    if (e.name == "embed") continue;
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

Status measure(const std::string &path, Device &device, Device &together, const Limits &limits, double seconds) {
  LoadOptions load;
  load.gpu = device.gpuCode();
  LATHE_ASSIGN_OR_RETURN(auto artifact, LoadedArtifact::load(path, load));
  const Program &p = artifact->program();
  EngineOptions options;
  LATHE_ASSIGN_OR_RETURN(auto engine, Engine::create(artifact, options, &device));
  std::printf("\n%s (%s)\nrows   step us   weights GB/s  of copy   bf16 TFLOP/s  of mma.sync\n", path.c_str(), artifact::toString(artifact->variant()));
  for (uint32_t rows : {1u, 8u, p.maxRows}) {
    if (rows > p.maxRows) continue;
    const std::vector<int32_t> tokens = someTokens(rows, p.vocabulary);
    LATHE_ASSIGN_OR_RETURN(SequenceId id, engine->open());
    LATHE_ASSIGN_OR_RETURN(double best, bestStep(*engine, id, tokens, seconds));
    Work1 w = workOf(p, rows);
    std::printf("%4u %9.1f %14.1f %8.3f %14.2f %7.3f\n", rows, best * 1e6, w.weightBytes / best / 1e9, w.weightBytes / best / limits.copyBytes,
                2 * w.macs / best / 1e12, w.macs / best / limits.macs);
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
                  order[i].bytes / order[i].seconds / limits.copyBytes, 2 * order[i].macs / order[i].seconds / 1e12, order[i].macs / order[i].seconds / limits.macs,
                  order[i].launches, order[i].name.c_str());
    engine->close(id);
  }
  if (p.megakernels.empty()) return Status();
  engine.reset(); // two do not fit beside each other
  LATHE_ASSIGN_OR_RETURN(engine, Engine::create(artifact, options, &together));
  std::printf("by megakernels\n");
  for (uint32_t rows : {1u, 8u}) {
    if (rows > p.maxRows) continue;
    LATHE_ASSIGN_OR_RETURN(SequenceId id, engine->open());
    LATHE_ASSIGN_OR_RETURN(double best, bestStep(*engine, id, someTokens(rows, p.vocabulary), seconds));
    Work1 w = workOf(p, rows);
    std::printf("%4u %9.1f %14.1f %8.3f\n", rows, best * 1e6, w.weightBytes / best / 1e9, w.weightBytes / best / limits.copyBytes);
    engine->close(id);
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
  std::unique_ptr<Device> device, together; // how steps of few rows are started is a device's
  Limits limits;
  if (emulated) {
    device = makeEmulatorDevice();
    together = makeEmulatorDevice(DevicePlan::megakernel);
  } else {
    LATHE_ASSIGN_OR_RETURN(device, makeCudaDevice());
    LATHE_ASSIGN_OR_RETURN(together, makeCudaDevice(DevicePlan::megakernel));
  }
  {
    std::unique_ptr<GpuDriver> driver;
    if (emulated) {
      LATHE_ASSIGN_OR_RETURN(driver, makeEmulatorDriver(artifact::Variant::sm_80));
    } else {
      LATHE_ASSIGN_OR_RETURN(driver, makeCudaDriver());
    }
    LATHE_ASSIGN_OR_RETURN(limits, measureLimits(*driver, emulated, seconds));
  }
  std::printf("%s: a copy moves %.1f GB/s (read and written), mma.sync does %.1f TFLOP/s in bf16\n", name.c_str(), limits.copyBytes / 1e9, 2 * limits.macs / 1e12);
  for (; at < argc; ++at) LATHE_RETURN_IF_ERROR(measure(argv[at], *device, *together, limits, seconds));
  return Status();
}

} // namespace

int main(int argc, char **argv) {
  Status s = run(argc, argv);
  if (!s.ok()) std::fprintf(stderr, "error: %s\n", s.message().c_str());
  return s.ok() ? 0 : 1;
}
