//===- Emulator.cpp - modules, memory and launches -------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/device/emulator/Emulator.h"
#include "runtime/device/emulator/Decode.h"
#include "runtime/device/emulator/Launch.h"
#include "runtime/device/emulator/Memory.h"
#include "runtime/device/emulator/Overlap.h"
#include <algorithm>
#include <cinttypes>
#include <map>

namespace lathe::emulator {
namespace {
constexpr uint64_t kWorkspaceBytes = 256;
}

class LoadedModule {
public:
  std::string text;
  ParsedModule parsed;
  std::unordered_map<std::string_view, uint64_t> addresses;
  std::map<std::string, Program, std::less<>> programs;
};

struct Emulator::Impl {
  explicit Impl(const Options &options) : options(options), memory(options.memoryLimit) {}
  Options options;
  GlobalMemory memory;
  OverlapCheck overlap;
  std::vector<std::unique_ptr<LoadedModule>> modules;
};

Emulator::Emulator(const Options &options) : impl(std::make_unique<Impl>(options)) {}
Emulator::~Emulator() = default;

Result<std::unique_ptr<Emulator>> Emulator::create(const Options &options) {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("f16c"))
    return makeError(StatusCode::failedPrecondition, "the PTX emulator needs a CPU with AVX2, FMA and F16C");
#endif
  return std::unique_ptr<Emulator>(new Emulator(options));
}

const Options &Emulator::options() const { return impl->options; }
void Emulator::setOptions(const Options &options) {
  unsigned capability = impl->options.capability;
  char feature = impl->options.feature;
  impl->options = options;
  impl->options.capability = capability;
  impl->options.feature = feature;
}

Result<const LoadedModule *> Emulator::load(std::string_view text) {
  auto module = std::make_unique<LoadedModule>();
  module->text = std::string(text);
  LATHE_ASSIGN_OR_RETURN(module->parsed, parsePtx(module->text));
  GlobalMemory &memory = impl->memory;
  auto &addresses = module->addresses;
  Status status;
  auto undo = [&] {
    for (auto &[name, address] : addresses)
      (void)memory.release(address);
  };
  for (const Variable &variable : module->parsed.variables) {
    if (variable.space != Space::global && variable.space != Space::constant) continue;
    auto address = memory.allocate(std::max<uint64_t>(variable.bytes, 1), std::string(variable.name));
    if (!address.ok()) {
      undo();
      return std::move(address.status()).at("ptx line " + std::to_string(variable.line));
    }
    addresses[variable.name] = *address;
  }
  if (module->text.find("%envreg1") != module->text.npos) {
    auto workspace = memory.allocate(kWorkspaceBytes, "workspace of the grid's barrier");
    if (!workspace.ok()) {
      undo();
      return workspace.status();
    }
    addresses["%envreg"] = *workspace;
  }
  for (const Variable &variable : module->parsed.variables) {
    auto found = addresses.find(variable.name);
    if (found == addresses.end() || variable.space == Space::shared) continue;
    uint8_t *host = *memory.resolve(found->second, std::max<uint64_t>(variable.bytes, 1), true);
    std::memset(host, 0, variable.bytes);
    std::copy(variable.data.begin(), variable.data.end(), host);
    for (const Variable::Reference &reference : variable.references) {
      auto named = addresses.find(reference.name);
      if (named == addresses.end()) {
        undo();
        return makeError(StatusCode::invalidArgument, "ptx line %u: unknown variable '%.*s'", variable.line, static_cast<int>(reference.name.size()), reference.name.data());
      }
      uint64_t value = named->second + reference.addend;
      std::memcpy(host + reference.offset, &value, reference.bytes);
    }
    if (variable.space == Space::constant) memory.makeReadOnly(found->second);
  }
  DecodeOptions decode{impl->options.capability, impl->options.feature};
  auto addressOf = [&](std::string_view name) -> std::optional<uint64_t> {
    auto found = addresses.find(name);
    if (found == addresses.end()) return std::nullopt;
    return found->second;
  };
  for (const Function &function : module->parsed.functions) {
    if (!function.entry) continue;
    Decoder decoder(module->parsed, addressOf, decode);
    auto program = decoder.run(function);
    if (!program.ok()) {
      undo();
      return program.status();
    }
    module->programs.emplace(std::string(function.name), *std::move(program));
  }
  impl->modules.push_back(std::move(module));
  return impl->modules.back().get();
}

std::vector<KernelInfo> Emulator::kernels(const LoadedModule *module) const {
  std::vector<KernelInfo> list;
  for (const auto &[name, program] : module->programs) {
    KernelInfo info;
    info.name = name;
    for (const Parameter &parameter : program.parameters)
      info.parameterBytes.push_back(parameter.bytes);
    info.staticSharedBytes = program.staticShared;
    info.localBytes = program.localBytes;
    info.maxThreads = program.maxThreads;
    list.push_back(std::move(info));
  }
  return list;
}

Result<uint64_t> Emulator::addressOf(const LoadedModule *module, std::string_view variable) const {
  auto found = module->addresses.find(variable);
  if (found == module->addresses.end()) return makeError(StatusCode::notFound, "the module has no variable '%.*s'", static_cast<int>(variable.size()), variable.data());
  return found->second;
}

Result<uint64_t> Emulator::allocate(uint64_t bytes, std::string name) { return impl->memory.allocate(bytes, std::move(name)); }
Result<uint64_t> Emulator::adopt(void *host, uint64_t bytes, bool readOnly, std::string name) { return impl->memory.adopt(host, bytes, readOnly, std::move(name)); }
Status Emulator::release(uint64_t address) { return impl->memory.release(address); }
Status Emulator::write(uint64_t address, const void *host, uint64_t bytes) {
  impl->overlap.reset(); // calls are ordered, so all launches have ended
  LATHE_ASSIGN_OR_RETURN(uint8_t *target, impl->memory.resolve(address, bytes, false));
  std::memcpy(target, host, bytes);
  return {};
}
Status Emulator::read(void *host, uint64_t address, uint64_t bytes) const {
  impl->overlap.reset();
  LATHE_ASSIGN_OR_RETURN(uint8_t *source, impl->memory.resolve(address, bytes, false));
  std::memcpy(host, source, bytes);
  return {};
}
Status Emulator::fill(uint64_t address, uint8_t value, uint64_t bytes) {
  impl->overlap.reset();
  LATHE_ASSIGN_OR_RETURN(uint8_t *target, impl->memory.resolve(address, bytes, true));
  std::memset(target, value, bytes);
  return {};
}

Result<LaunchStats> Emulator::launch(const LoadedModule *module, std::string_view kernel, const LaunchConfig &config, const Arguments &arguments) {
  auto found = module->programs.find(kernel);
  if (found == module->programs.end()) {
    std::string known;
    for (const auto &[name, program] : module->programs)
      known += (known.empty() ? "" : ", ") + name;
    return makeError(StatusCode::notFound, "no kernel '%.*s'; the module has: %s", static_cast<int>(kernel.size()), kernel.data(), known.c_str());
  }
  const Program &program = found->second;
  Launch launch;
  launch.program = &program;
  launch.options = &impl->options;
  launch.memory = &impl->memory;
  launch.config = config;
  LATHE_RETURN_IF_ERROR(checkLaunch(program, launch.config));
  if (config.programmatic && impl->options.capability < 90)
    return makeError(StatusCode::invalidArgument, "kernel '%s': programmatic dependent launch needs a device of capability 90, found %u", program.name.c_str(), impl->options.capability);
  if (arguments.values.size() != program.parameters.size())
    return makeError(StatusCode::invalidArgument, "kernel '%s': expected %zu arguments, found %zu", program.name.c_str(), program.parameters.size(), arguments.values.size());
  launch.parameters.assign(program.parameterBytes + 64, 0);
  for (size_t index = 0; index < arguments.values.size(); ++index) {
    const Parameter &parameter = program.parameters[index];
    if (arguments.values[index].size() != parameter.bytes)
      return makeError(StatusCode::invalidArgument, "kernel '%s': expected %u bytes as argument %zu, found %zu", program.name.c_str(), parameter.bytes, index, arguments.values[index].size());
    std::copy(arguments.values[index].begin(), arguments.values[index].end(), launch.parameters.begin() + parameter.offset);
  }
  if (auto workspace = module->addresses.find("%envreg"); workspace != module->addresses.end()) LATHE_RETURN_IF_ERROR(fill(workspace->second, 0, kWorkspaceBytes));
  if (impl->options.checkOverlap) {
    impl->overlap.begin(program.name, config.programmatic);
    launch.overlap = &impl->overlap;
  }
  LATHE_ASSIGN_OR_RETURN(Counts counts, runLaunch(launch));

  LaunchStats stats;
  std::array<OpCount, kOpClasses> classes;
  std::map<std::string_view, OpCount> opcodes;
  for (size_t index = 0; index < program.code.size(); ++index) {
    if (!program.code[index].counted || !counts.warps[index]) continue;
    const InstInfo &info = program.infos[program.code[index].info];
    stats.warpInstructions += counts.warps[index];
    stats.laneInstructions += counts.lanes[index];
    OpCount &group = classes[static_cast<unsigned>(info.opClass)], &opcode = opcodes[info.opcode];
    group.warpInstructions += counts.warps[index];
    group.laneInstructions += counts.lanes[index];
    opcode.warpInstructions += counts.warps[index];
    opcode.laneInstructions += counts.lanes[index];
    std::string_view mnemonic = info.opcode.substr(0, info.opcode.find('.'));
    bool product = mnemonic == "mma" || info.opcode.find("mma_async") != info.opcode.npos || info.opcode.find("wmma.mma") != info.opcode.npos;
    if (product) stats.matrixInstructions += counts.warps[index];
  }
  for (unsigned index = 0; index < kOpClasses; ++index)
    if (classes[index].warpInstructions) {
      classes[index].name = opClassName(static_cast<OpClass>(index));
      stats.classes.push_back(classes[index]);
    }
  for (auto &[name, count] : opcodes) {
    count.name = std::string(name);
    stats.opcodes.push_back(count);
  }
  std::sort(stats.opcodes.begin(), stats.opcodes.end(), [](const OpCount &a, const OpCount &b) {
    return a.warpInstructions != b.warpInstructions ? a.warpInstructions > b.warpInstructions : a.name < b.name;
  });
  stats.globalAccesses = counts.globalAccesses;
  stats.globalSectors = counts.globalSectors;
  stats.globalIdealSectors = counts.globalIdeal;
  stats.globalBytesRead = counts.globalBytesRead;
  stats.globalBytesWritten = counts.globalBytesWritten;
  stats.sharedAccesses = counts.sharedAccesses;
  stats.sharedCycles = counts.sharedCycles;
  stats.sharedIdealCycles = counts.sharedIdeal;
  return stats;
}

} // namespace lathe::emulator
