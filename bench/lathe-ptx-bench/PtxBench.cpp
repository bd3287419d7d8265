//===- PtxBench.cpp - speed of the PTX emulator ----------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Million lane instructions and matrix instructions per second of CPU time, on the PTX of the tests.
//===----------------------------------------------------------------------===//
#include "runtime/device/emulator/Emulator.h"
#include <cstdio>
#include <ctime>
#include <fstream>
#include <functional>
#include <sstream>

using namespace lathe;
using namespace lathe::emulator;

namespace {

double cpuSeconds() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

struct Case {
  const char *file, *kernel;
  LaunchConfig config;
  std::function<void(Emulator &, Arguments &)> arguments;
};

uint64_t buffer(Emulator &emulator, uint64_t bytes, uint8_t value) {
  uint64_t address = *emulator.allocate(bytes);
  (void)emulator.fill(address, value, bytes);
  return address;
}

int run(const Case &benchmark, bool races) {
  std::ifstream file(std::string(LATHE_SOURCE_DIR) + "/test/unit/Emulator/" + benchmark.file);
  std::stringstream text;
  text << file.rdbuf();
  Options options;
  options.checkRaces = races;
  auto emulator = Emulator::create(options);
  if (!emulator.ok()) return std::fprintf(stderr, "%s\n", emulator.status().message().c_str()), 1;
  auto module = (*emulator)->load(text.str());
  if (!module.ok()) return std::fprintf(stderr, "%s: %s\n", benchmark.file, module.status().message().c_str()), 1;
  Arguments arguments;
  benchmark.arguments(**emulator, arguments);
  double begin = cpuSeconds();
  auto stats = (*emulator)->launch(*module, benchmark.kernel, benchmark.config, arguments);
  double seconds = cpuSeconds() - begin;
  if (!stats.ok()) return std::fprintf(stderr, "%s: %s\n", benchmark.file, stats.status().message().c_str()), 1;
  std::printf("%-14s %-6s %8.2f M warp instr. %8.2f s %8.0f M lane instr./s %8.3f M matrix instr./s\n", benchmark.kernel, races ? "races" : "", static_cast<double>(stats->warpInstructions) / 1e6, seconds,
              static_cast<double>(stats->laneInstructions) / seconds / 1e6, static_cast<double>(stats->matrixInstructions) / seconds / 1e6);
  return 0;
}

} // namespace

int main() {
  const Case cases[] = {
      {"cuda/pipeline_gemm.ptx", "pipeline_gemm", {.grid = {8, 8}, .block = {256}, .cluster = {}},
       [](Emulator &e, Arguments &a) { a.add(buffer(e, 1 << 18, 0)).add(buffer(e, 1 << 18, 0)).add(buffer(e, 1 << 18, 0)).add(256).add(256).add(256); }},
      {"cuda/softmax.ptx", "softmax", {.grid = {64}, .block = {256}, .cluster = {}},
       [](Emulator &e, Arguments &a) { a.add(buffer(e, 64 * 4096 * 4, 0)).add(buffer(e, 64 * 4096 * 4, 0)).add(buffer(e, 256, 0)).add(4096); }},
      {"cuda/bitonic.ptx", "bitonic", {.grid = {32}, .block = {256}, .cluster = {}},
       [](Emulator &e, Arguments &a) { a.add(buffer(e, 32 * 4096, 7)).add(buffer(e, 32 * 4096, 0)); }},
      {"kernels/gemv_w4.sm_80.ptx", "gemv_w4", {.grid = {64}, .block = {128}, .cluster = {}},
       [](Emulator &e, Arguments &a) { a.add(buffer(e, 512 * 4096 / 2, 0x35)).add(buffer(e, 512 * 128 * 2, 0)).add(buffer(e, 8192, 0)).add(buffer(e, 2048, 0)); }},
      {"kernels/gemv_mma.sm_80.ptx", "gemv_mma", {.grid = {64}, .block = {256}, .cluster = {}},
       [](Emulator &e, Arguments &a) { a.add(buffer(e, 1024 * 4096 / 2, 0x35)).add(buffer(e, 1024 * 128 * 2, 0)).add(buffer(e, 8 * 8192, 0)).add(buffer(e, 8 * 4096 * 4, 0)); }},
  };
  int result = 0;
  for (const Case &benchmark : cases)
    result |= run(benchmark, false);
  result |= run(cases[0], true);
  return result;
}
