//===- lathe-ptx-emu.cpp - runs a PTX kernel without a GPU -----------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Buffers.h"
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

using namespace lathe;
using namespace lathe::emulator;
using namespace lathe::tools;

namespace {

constexpr const char *kHelp = R"(usage: lathe-ptx-emu FILE.ptx [--kernel NAME] [options]

Runs a kernel on the PTX emulator: no GPU, no CUDA. Errors name the PTX line; docs/ptx-emulator.md says how to read them.
Without --kernel it lists the kernels of the file and their parameters.

launch
  --grid X[,Y[,Z]]      blocks (default 1)
  --block X[,Y[,Z]]     threads of a block (default 32)
  --cluster X[,Y[,Z]]   blocks of a cluster (default 1)
  --shared N            bytes of dynamic shared memory
  --cooperative         all blocks are resident and may wait for each other
  --arg ARG             a kernel argument; once for each, in order:
                          buf:TYPE:COUNT[:HOW]  a buffer; HOW is zero (default), seed=N, fill=V, iota, uninit, file=PATH
                          TYPE:VALUE            a scalar
                        types: f64 f32 f16 bf16 e4m3 e5m2 i8..i64 u8..u64

results (I counts the arguments from 0)
  --print I[:N]         print the first N (default 8) elements of buffer I
  --save I=PATH         write buffer I to a file
  --compare I=PATH[:T]  compare buffer I with a file: exit 1 if any element differs by more than T times the largest (default 0)

emulation
  --mode lazy|eager     asynchronous copies and products land as late as allowed (default), or at once
  --race                check that conflicting accesses are ordered
  --seed N              interleave warps at random
  --sm NN[a]            the emulated device (default 90a)
  --threads N           host threads (default 1)
  --limit N             stop after N warp instructions
  --no-register-check   allow registers to be read before they are written
  --stats               print counters
  --json                counters and times as JSON
)";

int complain(const std::string &message) {
  std::fprintf(stderr, "lathe-ptx-emu: error: %s\n", message.c_str());
  return 1;
}

bool parseDim(const char *text, Dim3 &out) {
  uint32_t values[3] = {1, 1, 1};
  for (unsigned index = 0; index < 3; ++index) {
    char *end = nullptr;
    unsigned long value = std::strtoul(text, &end, 10);
    if (end == text || value == 0 || value > UINT32_MAX) return false;
    values[index] = static_cast<uint32_t>(value);
    text = end;
    if (*text == 0) break;
    if (*text++ != ',') return false;
  }
  if (*text) return false;
  out = {values[0], values[1], values[2]};
  return true;
}

struct Request {
  std::string file, kernel;
  LaunchConfig config{.grid = {}, .block = {32, 1, 1}, .cluster = {}};
  Options options;
  std::vector<KernelArgument> arguments;
  std::vector<std::string> print, save, compare;
  bool stats = false, json = false;
};

void printStats(const LaunchStats &stats, double seconds) {
  auto ratio = [](uint64_t a, uint64_t b) { return b ? static_cast<double>(a) / static_cast<double>(b) : 0.0; };
  std::printf("%llu warp instructions, %llu lane instructions, %.3f s, %.0f M lane instructions/s\n", static_cast<unsigned long long>(stats.warpInstructions),
              static_cast<unsigned long long>(stats.laneInstructions), seconds, static_cast<double>(stats.laneInstructions) / seconds / 1e6);
  std::printf("global: %llu accesses, %llu sectors, %.2f of ideal; %llu bytes read, %llu written\n", static_cast<unsigned long long>(stats.globalAccesses),
              static_cast<unsigned long long>(stats.globalSectors), ratio(stats.globalSectors, stats.globalIdealSectors), static_cast<unsigned long long>(stats.globalBytesRead),
              static_cast<unsigned long long>(stats.globalBytesWritten));
  std::printf("shared: %llu accesses, %llu cycles, %.2f of ideal\n", static_cast<unsigned long long>(stats.sharedAccesses), static_cast<unsigned long long>(stats.sharedCycles),
              ratio(stats.sharedCycles, stats.sharedIdealCycles));
  std::printf("matrix instructions: %llu\n", static_cast<unsigned long long>(stats.matrixInstructions));
  for (const OpCount &count : stats.classes)
    std::printf("  %-14s %12llu warps %14llu lanes\n", count.name.c_str(), static_cast<unsigned long long>(count.warpInstructions), static_cast<unsigned long long>(count.laneInstructions));
}
nlohmann::json statsJson(const LaunchStats &stats, double seconds) {
  nlohmann::json classes = nlohmann::json::object(), opcodes = nlohmann::json::object();
  for (const OpCount &count : stats.classes)
    classes[count.name] = {{"warps", count.warpInstructions}, {"lanes", count.laneInstructions}};
  for (const OpCount &count : stats.opcodes)
    opcodes[count.name] = count.warpInstructions;
  return {{"warp_instructions", stats.warpInstructions}, {"lane_instructions", stats.laneInstructions}, {"seconds", seconds}, {"global_accesses", stats.globalAccesses},
          {"global_sectors", stats.globalSectors}, {"global_ideal_sectors", stats.globalIdealSectors}, {"global_bytes_read", stats.globalBytesRead},
          {"global_bytes_written", stats.globalBytesWritten}, {"shared_accesses", stats.sharedAccesses}, {"shared_cycles", stats.sharedCycles},
          {"shared_ideal_cycles", stats.sharedIdealCycles}, {"matrix_instructions", stats.matrixInstructions}, {"classes", classes}, {"opcodes", opcodes}};
}

/// Index and the rest after |separator| of "I", "I:N" or "I=PATH".
bool bufferIndex(const Request &request, const std::string &text, char separator, size_t &index, std::string &rest) {
  char *end = nullptr;
  index = std::strtoul(text.c_str(), &end, 10);
  if (end == text.c_str() || index >= request.arguments.size() || !request.arguments[index].isBuffer) return false;
  if (*end && *end != separator) return false;
  rest = *end ? end + 1 : "";
  return true;
}

int compareBuffer(const KernelArgument &buffer, size_t index, std::string path) {
  double tolerance = 0;
  if (size_t colon = path.rfind(':'); colon != path.npos) {
    tolerance = std::strtod(path.c_str() + colon + 1, nullptr);
    path.resize(colon);
  }
  auto bytes = readFile(path);
  if (!bytes.ok()) return complain(bytes.status().message());
  if (bytes->size() != buffer.bytes.size()) return complain("'" + path + "': expected " + std::to_string(buffer.bytes.size()) + " bytes, found " + std::to_string(bytes->size()));
  KernelArgument reference = buffer;
  reference.bytes = *bytes;
  double worst = 0, scale = 0;
  uint64_t at = 0;
  for (uint64_t element = 0; element < buffer.count; ++element) {
    double value = elementValue(buffer, element), expected = elementValue(reference, element);
    double error = value == expected || (value != value && expected != expected) ? 0 : std::fabs(value - expected);
    if (!(error <= worst)) worst = error == error ? error : INFINITY, at = element;
    if (std::isfinite(expected)) scale = std::max(scale, std::fabs(expected));
  }
  bool good = worst <= tolerance * scale;
  std::printf("buffer %zu: largest difference %g at element %llu, largest value %g: %s\n", index, worst, static_cast<unsigned long long>(at), scale, good ? "equal" : "different");
  return good ? 0 : 1;
}

int run(Request &request) {
  auto text = readFile(request.file);
  if (!text.ok()) return complain(text.status().message());
  auto created = Emulator::create(request.options);
  if (!created.ok()) return complain(created.status().message());
  Emulator &emulator = **created;
  auto module = emulator.load(std::string_view(reinterpret_cast<const char *>(text->data()), text->size()));
  if (!module.ok()) return complain(request.file + ": " + module.status().message());
  if (request.kernel.empty()) {
    for (const KernelInfo &info : emulator.kernels(*module)) {
      std::printf("%s(", info.name.c_str());
      for (size_t index = 0; index < info.parameterBytes.size(); ++index)
        std::printf("%s%u bytes", index ? ", " : "", info.parameterBytes[index]);
      std::printf("); %u bytes of shared memory, %u bytes of local memory\n", info.staticSharedBytes, info.localBytes);
    }
    return 0;
  }
  Arguments arguments;
  for (size_t index = 0; index < request.arguments.size(); ++index) {
    KernelArgument &argument = request.arguments[index];
    if (!argument.isBuffer) {
      arguments.addBytes(argument.bytes.data(), argument.bytes.size());
      continue;
    }
    auto address = emulator.allocate(argument.bytes.size(), "argument " + std::to_string(index));
    if (!address.ok()) return complain(address.status().message());
    argument.address = *address;
    if (Status status = emulator.write(argument.address, argument.bytes.data(), argument.bytes.size()); !status.ok()) return complain(status.message());
    arguments.add(argument.address);
  }
  auto begin = std::chrono::steady_clock::now();
  auto stats = emulator.launch(*module, request.kernel, request.config, arguments);
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (!stats.ok()) return complain(request.file + ": " + stats.status().message());
  for (KernelArgument &argument : request.arguments)
    if (argument.isBuffer)
      if (Status status = emulator.read(argument.bytes.data(), argument.address, argument.bytes.size()); !status.ok()) return complain(status.message());
  int result = 0;
  size_t index = 0;
  std::string rest;
  for (const std::string &what : request.print) {
    if (!bufferIndex(request, what, ':', index, rest)) return complain("--print " + what + ": expected the number of a buffer");
    const KernelArgument &buffer = request.arguments[index];
    uint64_t count = std::min<uint64_t>(buffer.count, rest.empty() ? 8 : std::strtoull(rest.c_str(), nullptr, 10));
    std::printf("buffer %zu:", index);
    for (uint64_t element = 0; element < count; ++element)
      std::printf(" %s", elementText(buffer, element).c_str());
    std::printf("%s\n", count < buffer.count ? " ..." : "");
  }
  for (const std::string &what : request.save) {
    if (!bufferIndex(request, what, '=', index, rest) || rest.empty()) return complain("--save " + what + ": expected BUFFER=PATH");
    if (Status status = writeFile(rest, request.arguments[index].bytes); !status.ok()) return complain(status.message());
  }
  for (const std::string &what : request.compare) {
    if (!bufferIndex(request, what, '=', index, rest) || rest.empty()) return complain("--compare " + what + ": expected BUFFER=PATH");
    result |= compareBuffer(request.arguments[index], index, rest);
  }
  if (request.json) std::printf("%s\n", statsJson(*stats, seconds).dump(2).c_str());
  else if (request.stats) printStats(*stats, seconds);
  return result;
}

} // namespace

int main(int count, char **values) {
  Request request;
  for (int index = 1; index < count; ++index) {
    std::string option = values[index];
    auto isFlag = [&](const char *name) { return option == name; };
    if (isFlag("--help") || isFlag("-h")) return std::fputs(kHelp, stdout), 0;
    if (isFlag("--cooperative")) { request.config.cooperative = true; continue; }
    if (isFlag("--race")) { request.options.checkRaces = true; continue; }
    if (isFlag("--stats")) { request.stats = true; continue; }
    if (isFlag("--json")) { request.json = true; continue; }
    if (isFlag("--no-register-check")) { request.options.checkRegisters = false; continue; }
    if (option.rfind("--", 0) != 0) {
      if (!request.file.empty()) return complain("two files: '" + request.file + "' and '" + option + "'");
      request.file = option;
      continue;
    }
    if (index + 1 >= count) return complain("option '" + option + "' needs a value, or is unknown; see --help");
    std::string value = values[++index];
    bool good = true;
    auto number = [&](uint64_t most) -> uint64_t {
      char *end = nullptr;
      uint64_t parsed = std::strtoull(value.c_str(), &end, 0);
      good = !value.empty() && *end == 0 && parsed <= most;
      return parsed;
    };
    if (option == "--kernel") request.kernel = value;
    else if (option == "--grid") good = parseDim(value.c_str(), request.config.grid);
    else if (option == "--block") good = parseDim(value.c_str(), request.config.block);
    else if (option == "--cluster") good = parseDim(value.c_str(), request.config.cluster);
    else if (option == "--shared") request.config.sharedBytes = static_cast<uint32_t>(number(1 << 20));
    else if (option == "--seed") request.options.seed = number(UINT64_MAX);
    else if (option == "--threads") request.options.hostThreads = static_cast<unsigned>(number(1024));
    else if (option == "--limit") request.options.instructionLimit = number(UINT64_MAX);
    else if (option == "--print") request.print.push_back(value);
    else if (option == "--save") request.save.push_back(value);
    else if (option == "--compare") request.compare.push_back(value);
    else if (option == "--mode") {
      good = value == "lazy" || value == "eager";
      request.options.mode = value == "eager" ? AsyncMode::eager : AsyncMode::lazy;
    } else if (option == "--sm") {
      request.options.feature = !value.empty() && value.back() == 'a' ? 'a' : 0;
      if (request.options.feature) value.pop_back();
      request.options.capability = static_cast<unsigned>(number(999));
    } else if (option == "--arg") {
      auto argument = parseArgument(value);
      if (!argument.ok()) return complain(argument.status().message());
      request.arguments.push_back(*std::move(argument));
    } else {
      return complain("unknown option '" + option + "'; see --help");
    }
    if (!good) return complain("option '" + option + "': '" + value + "' is no valid value; see --help");
  }
  if (request.file.empty()) return std::fputs(kHelp, stderr), 1;
  return run(request);
}
