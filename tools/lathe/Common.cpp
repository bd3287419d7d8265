//===- Common.cpp - what the commands share -----------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Commands.h"
#include <chrono>
#include <csignal>
#include <cstdio>
#include <sys/resource.h>
#include <unistd.h>

namespace lathe::tool {

void EngineFlags::declare(Options &options, const char *contextHelp) {
  options.number("--threads", "N", "threads to work with (default: one per core)", threads, 1, 256);
  options.number("--ctx", "N", contextHelp, context, 1, 1u << 26);
  options.text("--device", "D", "where to run: cpu (default), cuda (an NVIDIA GPU), emulator (GPU code without a GPU, slowly)", device);
  options.text("--device-plan", "P", "how a GPU does a step of few rows: graph (default), or megakernel, of a file compiled with --megakernel", plan);
  options.text("--variant", "V", "code variant: avx2, avx512 (the best of those), avx512vnni, avx512bf16, amx; with the emulator a GPU's", variant);
  options.flag("--pin", "bind each thread to a core", pin);
  options.number("--memory", "MB", "most memory for KV cache and work space", memory, 1, uint64_t(1) << 32);
}

runtime::EngineOptions EngineFlags::engineOptions() const {
  runtime::EngineOptions o;
  o.threads = static_cast<unsigned>(threads);
  o.pin = pin;
  o.contextTokens = static_cast<uint32_t>(context);
  o.memoryBudget = memory.value_or(0) << 20;
  return o;
}

static Result<std::unique_ptr<runtime::Device>> makeDevice(const EngineFlags &flags) {
  const bool cpu = flags.device.empty() || flags.device == "cpu";
  if (!flags.plan.empty() && (cpu || (flags.plan != "graph" && flags.plan != "megakernel")))
    return makeError(StatusCode::invalidArgument, "option '--device-plan': expected %s, found '%s'", cpu ? "none with '--device cpu'" : "graph or megakernel", flags.plan.c_str());
  const runtime::DevicePlan plan = flags.plan == "megakernel" ? runtime::DevicePlan::megakernel : runtime::DevicePlan::graph;
  if (cpu) return runtime::makeCpuDevice();
  if (flags.device == "emulator") return runtime::makeEmulatorDevice(plan);
  if (flags.device == "cuda") {
    if (!flags.variant.empty())
      return makeError(StatusCode::invalidArgument, "option '--variant': expected none with '--device cuda', which takes the best code its GPU runs, found '%s'",
                       flags.variant.c_str());
    return runtime::makeCudaDevice(plan);
  }
  return makeError(StatusCode::invalidArgument, "option '--device': expected cpu, cuda or emulator, found '%s'", flags.device.c_str());
}

Result<std::unique_ptr<runtime::Device>> openDevice(const EngineFlags &flags) {
  LATHE_ASSIGN_OR_RETURN(auto device, makeDevice(flags));
  // On a terminal as it goes on; where messages are kept, one line of a copy that took its time.
  using Clock = std::chrono::steady_clock;
  device->onUpload([progress = std::make_shared<Progress>(), begin = Clock::now()](uint64_t done, uint64_t all) mutable {
    if (!done) begin = Clock::now();
    progress->show("weights to the device: MB", done / 1000000, all / 1000000);
    if (done < all) return;
    progress->clear();
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    if (seconds > 2) std::fprintf(stderr, "weights: %.1f MB to the device in %.1f s\n", double(all) / 1e6, seconds);
  });
  return device;
}

Result<std::shared_ptr<runtime::LoadedArtifact>> openModel(const std::string &path, const EngineFlags &flags, const runtime::Device &device) {
  std::string file = path;
  if (isModelSource(path)) {
    LATHE_ASSIGN_OR_RETURN(file, cachedArtifact(path));
  }
  runtime::LoadOptions options{flags.variant};
  options.gpu = device.gpuCode();
  if (options.gpu == "any" && !flags.variant.empty()) options.gpu = flags.variant;
  auto artifact = runtime::LoadedArtifact::load(file, options);
  if (!artifact.ok()) return withCompileHint(artifact.status(), path);
  return artifact;
}

uint64_t peakMemory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

Result<bool> parseOptions(Options &options, const Args &args, Args &positional) {
  LATHE_RETURN_IF_ERROR(options.parse(args, positional));
  if (!options.helpAsked()) return true;
  std::fputs(options.helpText().c_str(), stdout);
  return false;
}

Result<std::string> onePositional(const Args &positional, const char *what) {
  if (positional.size() == 1) return positional[0];
  if (positional.empty()) return makeError(StatusCode::invalidArgument, "expected %s; see '--help'", what);
  return makeError(StatusCode::invalidArgument, "expected only %s, found also '%s'", what, positional[1].c_str());
}

void Progress::show(const char *what, uint64_t done, uint64_t all) {
  if (!isatty(2)) return;
  std::fprintf(stderr, "\r\033[K%s %llu of %llu ", what, static_cast<unsigned long long>(done), static_cast<unsigned long long>(all));
  shown = true;
}

void Progress::clear() {
  if (shown) std::fputs("\r\033[K", stderr);
  shown = false;
}

std::atomic<bool> interrupted{false};

static struct sigaction previous;

InterruptGuard::InterruptGuard() {
  interrupted = false;
  struct sigaction action{};
  action.sa_handler = [](int) { interrupted = true; };
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &previous); // no SA_RESTART: a blocked read returns
}

InterruptGuard::~InterruptGuard() { sigaction(SIGINT, &previous, nullptr); }

} // namespace lathe::tool
