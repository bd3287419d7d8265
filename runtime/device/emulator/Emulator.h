//===- Emulator.h - runs PTX on the host -------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// A functional emulator of the PTX virtual machine (PTX ISA 8.x) for tests without a GPU: results,
// errors and counters, no timing. docs/ptx-emulator.md says what is modelled and how to read a report.
//
//   auto emulator = Emulator::create({});
//   auto module = (*emulator)->load(text);
//   auto x = (*emulator)->allocate(bytes, "x");
//   (*emulator)->write(*x, host, bytes);
//   auto stats = (*emulator)->launch(*module, "kernel", {.grid = {8}, .block = {128}}, Arguments().add(*x).add(n));
//
// An Emulator and its modules are used by one thread at a time.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/base/Status.h"
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lathe::emulator {

/// When an asynchronous copy or matrix product takes effect. A correct kernel gives the same bits in both.
enum class AsyncMode {
  lazy,  ///< as late as the program allows: at the wait that orders it
  eager, ///< when it is issued
};

struct Options {
  AsyncMode mode = AsyncMode::lazy;
  bool checkRaces = false;     ///< happens-before check over shared and global memory; several times slower
  bool checkOverlap = false;   ///< accesses of launches that may run at the same time (LaunchConfig::programmatic) must be ordered
  bool checkRegisters = true;  ///< reading a register before its first write is an error
  bool checkShared = true;     ///< reading shared memory before its first write is an error
  uint64_t seed = 0;           ///< 0: warps take turns in order; other: order and length of turns are random
  unsigned capability = 90;    ///< compute capability of the device, 10 * major + minor
  char feature = 'a';          ///< 'a': the device also runs targets such as sm_90a of its own capability
  unsigned residentBlocks = 0; ///< blocks of a cooperative launch that the device keeps at a time; 0: any number
  unsigned hostThreads = 1;    ///< blocks that nothing orders run in parallel, with the same results
  uint64_t memoryLimit = 16ull << 30; ///< bytes of device memory
  uint64_t instructionLimit = 0;      ///< warp instructions of one launch; 0: none
  uint64_t spinLimit = 50'000'000;    ///< warp instructions of a block without any effect that count as a deadlock
};

struct Dim3 {
  uint32_t x = 1, y = 1, z = 1;
  uint64_t count() const { return uint64_t(x) * y * z; }
};

struct LaunchConfig {
  Dim3 grid, block;
  Dim3 cluster;             ///< blocks of a cluster run together
  uint32_t sharedBytes = 0; ///< dynamic shared memory
  bool cooperative = false; ///< all blocks are resident: they may wait for each other
  bool programmatic = false; ///< may start before the launch before it has ended: programmatic dependent launch, from capability 90
};

/// The values of a kernel's parameters, in order.
class Arguments {
public:
  template <typename T> Arguments &add(const T &value) {
    static_assert(std::is_trivially_copyable_v<T>);
    return addBytes(&value, sizeof(value));
  }
  Arguments &addBytes(const void *bytes, size_t count) {
    const auto *first = static_cast<const uint8_t *>(bytes);
    values.emplace_back(first, first + count);
    return *this;
  }
  std::vector<std::vector<uint8_t>> values;
};

struct OpCount {
  std::string name; ///< opcode with its modifiers, or class
  uint64_t warpInstructions = 0, laneInstructions = 0;
};

/// Counters of one launch. They do not depend on the host, on |hostThreads| or on time.
struct LaunchStats {
  uint64_t warpInstructions = 0, laneInstructions = 0;
  std::vector<OpCount> classes;      ///< by class: integer, float, load, matrix, ...
  std::vector<OpCount> opcodes;      ///< by opcode, most frequent first
  uint64_t globalAccesses = 0;       ///< warp-wide accesses to global memory
  uint64_t globalSectors = 0;        ///< 32-byte sectors they touch
  uint64_t globalIdealSectors = 0;   ///< sectors if their distinct bytes were packed
  uint64_t globalBytesRead = 0, globalBytesWritten = 0; ///< as the lanes asked for
  uint64_t sharedAccesses = 0;
  uint64_t sharedCycles = 0;         ///< of 32 banks of 4 bytes
  uint64_t sharedIdealCycles = 0;    ///< without bank conflicts
  uint64_t matrixInstructions = 0;   ///< mma, wmma and wgmma
};

/// Element types of a tensor map (CUtensorMapDataType): size only matters, but for the fill.
enum class TensorSwizzle : uint32_t { none = 0, bytes32 = 1, bytes64 = 2, bytes128 = 3 };
struct TensorMapDescription {
  uint32_t rank = 2;                   ///< 1..5, innermost dimension first
  uint32_t elementBytes = 2;
  uint64_t address = 0;                ///< device address, aligned to 16
  std::array<uint64_t, 5> size{};      ///< elements
  std::array<uint64_t, 5> stride{};    ///< bytes; [0] is not used, others are multiples of 16
  std::array<uint32_t, 5> box{};       ///< elements, 1..256
  std::array<uint32_t, 5> elementStride{1, 1, 1, 1, 1};
  TensorSwizzle swizzle = TensorSwizzle::none;
  bool fillNaN = false;                ///< outside the tensor: NaN instead of zero (float types)
};
using TensorMapBytes = std::array<uint8_t, 128>;
/// The emulator's own encoding, checked like cuTensorMapEncodeTiled. Put it into device memory or a parameter.
Result<TensorMapBytes> encodeTensorMap(const TensorMapDescription &description);

class LoadedModule;

struct KernelInfo {
  std::string name;
  std::vector<uint32_t> parameterBytes; ///< size of each parameter
  uint32_t staticSharedBytes = 0;
  uint32_t localBytes = 0;
  std::array<uint32_t, 3> maxThreads{0, 0, 0}; ///< .maxntid; 0: not given
};

class Emulator {
public:
  static Result<std::unique_ptr<Emulator>> create(const Options &options);
  ~Emulator();

  /// Parses and decodes PTX text and places its global variables. Errors name the line: "ptx line 12: ...".
  /// The module lives as long as the emulator.
  Result<const LoadedModule *> load(std::string_view text);
  std::vector<KernelInfo> kernels(const LoadedModule *module) const;
  /// Device address of a .global or .const variable.
  Result<uint64_t> addressOf(const LoadedModule *module, std::string_view variable) const;

  /// New memory: every byte is 0xff. |name| is for messages.
  Result<uint64_t> allocate(uint64_t bytes, std::string name = {});
  /// Host memory of the caller as device memory; it must stay until release() or the emulator's end.
  Result<uint64_t> adopt(void *host, uint64_t bytes, bool readOnly, std::string name = {});
  Status release(uint64_t address);
  Status write(uint64_t address, const void *host, uint64_t bytes);
  Status read(void *host, uint64_t address, uint64_t bytes) const;
  Status fill(uint64_t address, uint8_t value, uint64_t bytes);

  /// Runs a kernel to its end. After an error the memory holds what the kernel had written.
  Result<LaunchStats> launch(const LoadedModule *module, std::string_view kernel, const LaunchConfig &config,
                             const Arguments &arguments);

  const Options &options() const;
  /// Changes what may differ from launch to launch: mode, checks, seed, threads, limits.
  void setOptions(const Options &options);

private:
  explicit Emulator(const Options &options);
  struct Impl;
  std::unique_ptr<Impl> impl;
};

} // namespace lathe::emulator
