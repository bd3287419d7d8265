//===- EmulatorDevice.cpp - the PTX emulator as a device ----------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/device/Device.h"
#include "runtime/device/emulator/Emulator.h"
#include "runtime/device/gpu/GpuExecutable.h"
#include <cstdlib>

namespace lathe::runtime {
namespace {

class EmulatorDriver : public GpuDriver {
public:
  explicit EmulatorDriver(std::unique_ptr<emulator::Emulator> e) : machine(std::move(e)) {}
  const char *name() const override { return "emulator"; }
  bool runs(artifact::Variant variant) const override { return static_cast<unsigned>(variant) == machine->options().capability; }

  Result<uint64_t> allocate(uint64_t bytes, const char *what) override { return machine->allocate(bytes, what); }
  void release(uint64_t address) override { (void)machine->release(address); }
  Result<uint64_t> share(std::span<const uint8_t> bytes, const char *what, const UploadProgress &told) override {
    if (told) told(0, bytes.size()), told(bytes.size(), bytes.size());
    // Read only: the emulator reports a kernel that writes to it.
    return machine->adopt(const_cast<uint8_t *>(bytes.data()), bytes.size(), true, what);
  }
  Status upload(uint64_t to, std::span<const uint8_t> bytes) override { return machine->write(to, bytes.data(), bytes.size()); }
  Status download(std::span<uint8_t> to, uint64_t from) override { return machine->read(to.data(), from, to.size()); }
  Status copy(uint64_t to, uint64_t from, uint64_t bytes) override {
    std::vector<uint8_t> host(bytes);
    LATHE_RETURN_IF_ERROR(machine->read(host.data(), from, bytes));
    return machine->write(to, host.data(), bytes);
  }
  Status fill(uint64_t to, uint8_t value, uint64_t bytes) override { return machine->fill(to, value, bytes); }

  Status load(std::string_view ptx, std::span<const uint8_t>, const std::vector<std::string> &kernels, const std::vector<uint32_t> &) override {
    LATHE_ASSIGN_OR_RETURN(module, machine->load(ptx));
    emulator::Options o = machine->options();
    o.checkOverlap = ptx.find("griddepcontrol") != ptx.npos;
    machine->setOptions(o);
    names = kernels;
    return Status();
  }
  Status launch(uint32_t kernel, uint32_t blocks, uint32_t threads, uint32_t sharedBytes, std::span<const uint64_t> args, bool overlaps) override {
    emulator::LaunchConfig config;
    config.programmatic = overlaps;
    return run(kernel, blocks, threads, sharedBytes, args, config);
  }
  /// As many as a machine is told to keep; else a few, so that each does several blocks of a launch.
  Result<uint32_t> residentBlocks(uint32_t, uint32_t, uint32_t) override { return machine->options().residentBlocks ? machine->options().residentBlocks : 3; }
  Status launchTogether(uint32_t kernel, uint32_t blocks, uint32_t threads, uint32_t sharedBytes, std::span<const uint64_t> args) override {
    emulator::LaunchConfig config;
    config.cooperative = true;
    return run(kernel, blocks, threads, sharedBytes, args, config);
  }
  Status synchronize() override { return Status(); }

private:
  Status run(uint32_t kernel, uint32_t blocks, uint32_t threads, uint32_t sharedBytes, std::span<const uint64_t> args, emulator::LaunchConfig &config) {
    config.grid.x = blocks;
    config.block.x = threads;
    config.sharedBytes = sharedBytes;
    emulator::Arguments values;
    for (uint64_t a : args) values.add(a);
    return machine->launch(module, names[kernel], config, values).status();
  }

  std::unique_ptr<emulator::Emulator> machine;
  const emulator::LoadedModule *module = nullptr;
  std::vector<std::string> names;
};

class EmulatorDevice : public Device {
public:
  explicit EmulatorDevice(DevicePlan plan) : plan(plan) {}
  const char *name() const override { return "emulator"; }
  std::string gpuCode() const override { return "any"; }
  Result<std::unique_ptr<Executable>> prepare(std::shared_ptr<LoadedArtifact> artifact, const ExecutableOptions &options) override {
    emulator::Options o;
    o.capability = artifact::isGpu(artifact->variant()) ? static_cast<unsigned>(artifact->variant()) : 80;
    o.hostThreads = options.threads ? options.threads : 1;
    // Tests run a model in both modes; a correct kernel gives the same bits in both.
    if (const char *mode = std::getenv("LATHE_EMULATOR_MODE"); mode && std::string_view(mode) == "eager") o.mode = emulator::AsyncMode::eager;
    o.checkRaces = std::getenv("LATHE_EMULATOR_RACES") != nullptr;
    LATHE_ASSIGN_OR_RETURN(auto machine, emulator::Emulator::create(o));
    ExecutableOptions mine = options;
    mine.plan = plan, mine.uploading = uploading;
    return prepareOnGpu(std::make_unique<EmulatorDriver>(std::move(machine)), std::move(artifact), mine);
  }

  void onUpload(UploadProgress told) override { uploading = std::move(told); }

private:
  DevicePlan plan;
  UploadProgress uploading;
};

} // namespace

Result<std::unique_ptr<GpuDriver>> makeEmulatorDriver(artifact::Variant variant) {
  emulator::Options o;
  o.capability = static_cast<unsigned>(variant);
  LATHE_ASSIGN_OR_RETURN(auto machine, emulator::Emulator::create(o));
  return std::unique_ptr<GpuDriver>(std::make_unique<EmulatorDriver>(std::move(machine)));
}

std::unique_ptr<Device> makeEmulatorDevice(DevicePlan plan) { return std::make_unique<EmulatorDevice>(plan); }

} // namespace lathe::runtime
