//===- Device.h - what the engine asks of a device ----------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// The engine never dereferences device memory: it submits steps, waits for them, and reads results
// and KV blocks through this interface. Devices: runtime/device/cpu.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/artifact/Step.h"
#include "lathe/base/Status.h"
#include "runtime/artifact/Loader.h"
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lathe::runtime {

/// Entries of a program. |headChoices| stands for |head| where only the largest logit of each row counts. |draft| and |draftHead| are to a draft program what |step| and |head| are to the model (docs/speculation.md).
enum class EntryKind { step, head, embed, draft, draftHead, headChoices };
constexpr uint32_t entryKinds = 6;
/// The name in Program.entries.
const char *toString(EntryKind kind);
/// The kind of a name that validateProgram() has let pass.
EntryKind entryKind(std::string_view name);
/// Whether a run computes rows of the step (else output rows).
inline bool runsRows(EntryKind kind) { return kind == EntryKind::step || kind == EntryKind::draft; }

/// How a GPU starts the launches of a step of few rows: kept and started by one call (a CUDA graph), one by one as those of long steps (to measure what a
/// graph saves), or done by one kernel (docs/ptx.md, "Megakernel"), with the same bits.
enum class DevicePlan { graph, launches, megakernel };

/// Hears how many bytes of a program's weights are on the device, and of how many.
using UploadProgress = std::function<void(uint64_t done, uint64_t all)>;

struct ExecutableOptions {
  unsigned threads = 0; ///< CPU: threads that work on a step; 0: one per available core
  bool pin = false;     ///< CPU: bind each thread to a core
  std::vector<uint32_t> kvBlocks; ///< blocks to allocate, one number per KV group of the program
  DevicePlan plan = DevicePlan::graph; ///< GPU
  UploadProgress uploading = {};       ///< GPU, may be empty: told while the weights are copied to the device
};

/// Time of one launch over its calls (see Executable::setProfiling).
struct LaunchProfile {
  uint32_t launch = 0; ///< index into Program.launches
  uint64_t calls = 0;
  double seconds = 0; ///< sum over the calls, each from the end of the launch before it to its own
  double fastest = 0; ///< the shortest call
};

/// Identifies a submitted run; higher means later.
using Ticket = uint64_t;

/// A program made ready on a device: kernels, weights, arena, scratch and KV pools. All memory is
/// allocated at creation; no call below allocates. One thread at a time.
class Executable {
public:
  virtual ~Executable() = default;

  /// Starts an entry. |step| and all it points to (host memory, validated by the caller: rows, tokens, slots and
  /// tables in range) must stay until wait() returns. Runs are executed in order of submission.
  /// Errors: unsupported for an entry that the program lacks; those of checkStep().
  virtual Result<Ticket> submit(EntryKind entry, const LatheStep &step) = 0;
  /// Blocks until the run and all before it are complete.
  virtual Status wait(Ticket ticket) = 0;

  /// Row |row| of the last completed "head": Program.vocabulary floats in host memory, valid until the next submit.
  virtual const float *logits(uint32_t row) = 0;
  /// Row |row| of the last completed "head_choices", the same lifetime: two floats, the token with the largest logit (of equals the lowest; exact, for a
  /// vocabulary has at most 2^24) and that logit. NaN and +infinity count as the largest, the first of them.
  virtual const float *choice(uint32_t row) = 0;
  /// Row |row| of head |head| of the last completed "draft_head": Program.draftVocabulary() floats, the same of the draft program.
  virtual const float *draftLogits(uint32_t row, uint32_t head = 0) = 0;
  /// What row |row| of the next "draft" takes, of a program whose draft takes rows: Program.draftInputSize floats, copied. To be called between
  /// runs. Error: invalidArgument.
  virtual Status setDraftInput(uint32_t row, std::span<const float> values) = 0;
  /// Row |row| of the last completed "step": Program.hiddenSize floats, the same lifetime.
  virtual const float *hidden(uint32_t row) = 0;
  /// The same of the rows at Program.draftFeatures[index]; and of the last completed "draft", of the draft's own rows, for a draft that goes on from them.
  virtual const float *feature(uint32_t index, uint32_t row) = 0;
  virtual const float *draftOwn(uint32_t row) = 0;

  /// Row |row| of the last completed "embed": Program.hiddenSize floats, the same lifetime.
  virtual const float *embedding(uint32_t row) = 0;

  /// Copies one KV block (KVGroup.blockBytes) to host memory, and back.
  virtual Status saveBlock(uint32_t group, uint32_t block, std::span<uint8_t> out) = 0;
  virtual Status restoreBlock(uint32_t group, uint32_t block, std::span<const uint8_t> bytes) = 0;
  /// Copies block |from| of a group over block |to|, for a sequence that goes on from shared tokens. Ordered with the runs:
  /// after those submitted before, before those submitted later.
  virtual Status copyBlock(uint32_t group, uint32_t from, uint32_t to) = 0;
  /// Copies KV entry |fromToken| of block |from| over entry |toToken| of block |to|: the rows of a draft tree that were right
  /// move together. Ordered as copyBlock. Error: unsupported for a program that knows no trees (runtime/device/Trees.h).
  virtual Status copyEntry(uint32_t group, uint32_t from, uint32_t fromToken, uint32_t to, uint32_t toToken) = 0;
  /// Sets every byte of a KV block (tests fill free blocks with 0xff: NaN in every float format).
  virtual Status fillBlock(uint32_t group, uint32_t block, uint8_t value) = 0;

  /// Measures every launch from now on (a little slower: a barrier after each), or stops. Clears what was measured.
  virtual void setProfiling(bool on) = 0;
  virtual std::vector<LaunchProfile> profile() const = 0;

  virtual unsigned threads() const = 0;
  /// Bytes allocated for arena, scratch and KV pools.
  virtual uint64_t memoryBytes() const = 0;
};

/// Items of a launch in a step.
uint64_t launchItems(const Launch &launch, const LatheStep &step);

/// Where head |head| of a draft program leaves its logits, and where row |row| of its input is: bytes into the arena.
inline uint64_t draftLogitsAt(const Program &p, uint32_t head) { return head ? p.draftMoreLogits[head - 1] : p.draftLogitsOffset; }
inline uint64_t draftInputAt(const Program &p, uint32_t row) { return p.draftInputOffset + uint64_t(row) * p.draftInputStride * 4; }
/// Error: invalidArgument when the draft of |program| takes no such row.
Status checkDraftInput(const Program &program, uint32_t row, size_t floats);

/// A place where programs run.
class Device {
public:
  virtual ~Device() = default;
  virtual const char *name() const = 0;
  /// What LoadOptions::gpu of an artifact for this device is: empty for a CPU.
  virtual std::string gpuCode() const { return {}; }
  virtual Result<std::unique_ptr<Executable>> prepare(std::shared_ptr<LoadedArtifact> artifact,
                                                      const ExecutableOptions &options) = 0;
  /// Who hears of the weights' way to the device in later calls of prepare(): first 0 bytes, last all of them. A CPU reads them where they are and says nothing.
  virtual void onUpload(UploadProgress) {}
};

/// The CPU of this process. Executables share one thread team and take turns by run.
std::unique_ptr<Device> makeCpuDevice();
/// PTX in the emulator of runtime/device/emulator: one machine for each executable, of the artifact's chip. |plan| is ExecutableOptions::plan of all its executables.
std::unique_ptr<Device> makeEmulatorDevice(DevicePlan plan = DevicePlan::graph);
/// The first NVIDIA GPU, through the driver library of the system. Errors: failedPrecondition when there is no driver or no device.
Result<std::unique_ptr<Device>> makeCudaDevice(DevicePlan plan = DevicePlan::graph);

} // namespace lathe::runtime
