//===- GpuDriver.h - what a GPU program asks of a driver ------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// The few calls that running a launch plan takes. Implemented by the emulator (runtime/device/emulator) and by the CUDA
// driver (runtime/device/cuda); GpuExecutable.cpp is the same for both. Addresses are device addresses. Calls are
// ordered: one stream. One thread at a time.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/artifact/Format.h"
#include "lathe/base/Status.h"
#include "runtime/device/Device.h"
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lathe::runtime {

class GpuDriver {
public:
  virtual ~GpuDriver() = default;
  virtual const char *name() const = 0;
  /// Whether the device runs code for |variant|.
  virtual bool runs(artifact::Variant variant) const = 0;

  /// Device memory with undefined content; |what| is for messages. Errors: resourceExhausted.
  virtual Result<uint64_t> allocate(uint64_t bytes, const char *what) = 0;
  virtual void release(uint64_t address) = 0;
  /// Host memory that kernels only read, as device memory: a copy, or the memory itself where the device can. It must stay while the
  /// driver lives. |told|, if there is one, hears how far it is: first 0, last all bytes.
  virtual Result<uint64_t> share(std::span<const uint8_t> bytes, const char *what, const UploadProgress &told) = 0;
  virtual Status upload(uint64_t to, std::span<const uint8_t> bytes) = 0;
  virtual Status download(std::span<uint8_t> to, uint64_t from) = 0;
  virtual Status copy(uint64_t to, uint64_t from, uint64_t bytes) = 0;
  virtual Status fill(uint64_t to, uint8_t value, uint64_t bytes) = 0;

  /// Loads code: |cubin| if it is not empty and the driver takes it, else |ptx|. |kernels| are found by name and then known by
  /// their index. |sharedBytes|: the dynamic shared memory of each. Errors: dataLoss.
  virtual Status load(std::string_view ptx, std::span<const uint8_t> cubin, const std::vector<std::string> &kernels, const std::vector<uint32_t> &sharedBytes) = 0;
  /// Starts |blocks| blocks of |threads| threads with pointers as arguments. |overlaps|: the launch before need not have ended, since the kernel waits for
  /// it itself (griddepcontrol.wait).
  virtual Status launch(uint32_t kernel, uint32_t blocks, uint32_t threads, uint32_t sharedBytes, std::span<const uint64_t> args, bool overlaps) = 0;
  /// How many blocks of a kernel the device keeps at a time, and a launch of blocks that wait for each other: of as many at most, and it ends before the next
  /// begins. Errors: unsupported where there are no such launches.
  virtual Result<uint32_t> residentBlocks(uint32_t kernel, uint32_t threads, uint32_t sharedBytes) {
    return makeError(StatusCode::unsupported, "device '%s' has no launches of blocks that wait for each other, which megakernels need", name());
  }
  virtual Status launchTogether(uint32_t kernel, uint32_t blocks, uint32_t threads, uint32_t sharedBytes, std::span<const uint64_t> args) {
    return residentBlocks(kernel, threads, sharedBytes).status();
  }
  /// Waits for everything.
  virtual Status synchronize() = 0;

  /// Launches that are started together again and again, with the same arguments and blocks, can be kept (a CUDA graph). replay() starts those
  /// kept under |key|; false: there are none. record() opens a sequence, which the launches that follow belong to, and keep() ends it, runs it and
  /// keeps it; on an error, before keep(), the caller calls forget() instead, and nothing of the sequence has run or will. A driver without graphs runs launches as they come and keeps nothing.
  virtual Result<bool> replay(uint64_t key) { return false; }
  virtual Status record() { return Status(); }
  virtual Status keep(uint64_t key) { return Status(); }
  virtual void forget() {}
};

/// The driver behind makeCudaDevice(), for measurements of the device itself. Errors: those of makeCudaDevice().
/// |library|: the driver's, for tests.
Result<std::unique_ptr<GpuDriver>> makeCudaDriver(const char *library = "libcuda.so.1");
/// The emulator as a GPU that runs |variant|.
Result<std::unique_ptr<GpuDriver>> makeEmulatorDriver(artifact::Variant variant);

} // namespace lathe::runtime
