//===- FaultyDevice.h - a device that fails when told to ----------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "ForwardingExecutable.h"
#include "ToyArtifact.h"
#include <condition_variable>
#include <limits>
#include <map>
#include <mutex>
#include <thread>

namespace lathe::test {

class FaultyDevice : public runtime::Device {
public:
  explicit FaultyDevice(runtime::Device &real) : real(real) {}
  const char *name() const override { return "faulty"; }
  Result<std::unique_ptr<runtime::Executable>> prepare(std::shared_ptr<runtime::LoadedArtifact> artifact,
                                                       const runtime::ExecutableOptions &options) override {
    LATHE_ASSIGN_OR_RETURN(auto inner, real.prepare(std::move(artifact), options));
    return std::unique_ptr<runtime::Executable>(std::make_unique<Faulty>(*this, std::move(inner)));
  }
  bool failing = false; ///< steps fail when they are waited for
  bool failingSaves = false;
  double saveSeconds = 0; ///< that a copy of a block to the host takes
  double behindSeconds = 0; ///< that a step takes whose rows stand behind history
  int behind = 0;           ///< such steps
  bool failingDrafts = false;  ///< runs of the draft program are refused
  bool poisonedDrafts = false; ///< logits of the draft program are NaN
  std::map<std::pair<uint32_t, uint32_t>, int> filled; ///< by group and block, how often
  int poisonedRow = -1; ///< logits, or embeddings, of this row are NaN

  /// Steps that are submitted from now on last until release(). Thread-safe.
  void hold() {
    std::lock_guard lock(mutex);
    holding = true;
  }
  void release() {
    std::lock_guard lock(mutex);
    holding = false;
    changed.notify_all();
  }
  /// Returns when a step is being held.
  void waitHeld() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return held; });
  }

private:
  void pass() {
    std::unique_lock lock(mutex);
    held = holding;
    changed.notify_all();
    changed.wait(lock, [&] { return !holding; });
    held = false;
  }
  class Faulty : public ForwardingExecutable {
  public:
    Faulty(FaultyDevice &device, std::unique_ptr<runtime::Executable> inner)
        : ForwardingExecutable(std::move(inner)), device(device) {}
    Result<runtime::Ticket> submit(runtime::EntryKind entry, const LatheStep &step) override {
      device.pass();
      if (entry == runtime::EntryKind::step && step.rows && step.position[0] > 0) {
        ++device.behind;
        if (device.behindSeconds > 0) std::this_thread::sleep_for(std::chrono::duration<double>(device.behindSeconds));
      }
      if (device.failingDrafts && entry == runtime::EntryKind::draft) return Status(StatusCode::internal, "no draft today");
      return inner->submit(entry, step);
    }
    Status wait(runtime::Ticket ticket) override {
      if (device.failing) return Status(StatusCode::internal, "the device is on fire");
      return inner->wait(ticket);
    }
    const float *logits(uint32_t row) override {
      return static_cast<int>(row) == device.poisonedRow ? nans.data() : inner->logits(row);
    }
    const float *choice(uint32_t row) override {
      return static_cast<int>(row) == device.poisonedRow ? damaged : inner->choice(row);
    }
    const float *draftLogits(uint32_t row, uint32_t head) override {
      return device.poisonedDrafts ? nans.data() : inner->draftLogits(row, head);
    }
    const float *embedding(uint32_t row) override {
      return static_cast<int>(row) == device.poisonedRow ? nans.data() : inner->embedding(row);
    }
    Status saveBlock(uint32_t g, uint32_t block, std::span<uint8_t> out) override {
      if (device.failingSaves) return Status(StatusCode::internal, "the device cannot read");
      if (device.saveSeconds > 0) std::this_thread::sleep_for(std::chrono::duration<double>(device.saveSeconds));
      return inner->saveBlock(g, block, out);
    }
    Status fillBlock(uint32_t g, uint32_t block, uint8_t value) override {
      ++device.filled[{g, block}];
      return inner->fillBlock(g, block, value);
    }

  private:
    FaultyDevice &device;
    const float damaged[2] = {0, std::numeric_limits<float>::quiet_NaN()};
    std::vector<float> nans = std::vector<float>(toyVocabulary, std::numeric_limits<float>::quiet_NaN());
  };
  runtime::Device &real;
  std::mutex mutex;
  std::condition_variable changed;
  bool holding = false, held = false;
};

} // namespace lathe::test
