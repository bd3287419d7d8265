//===- MegakernelMlp.h - an MLP as launches and as a megakernel -------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "KernelGrid.h"
#include "NVPTX/Megakernel.h"
#include "lathe/artifact/Megakernel.h"
#include "lathe/artifact/Step.h"
#include "runtime/device/Device.h"
#include "runtime/device/emulator/Emulator.h"
#include "runtime/device/gpu/Megakernels.h"
#include <cstring>
#include <gtest/gtest.h>
#include <random>

namespace lathe::codegen::nvptx::test {


/// Kernels of blocks of 128 and of 256 threads, with and without shared memory, one of them launched twice.
struct Mlp {
  static constexpr int64_t width = 256, hidden = 256;
  static constexpr uint32_t rows = 5;
  enum Buffer { x, a, y, b, c, z, best, w1, w2, w3, norm, buffers };
  std::vector<PtxJob> jobs;
  std::vector<LaunchShape> shapes;
  std::vector<uint64_t> bytes;
  std::vector<std::vector<uint64_t>> args; ///< of each launch, as buffers
  Program program;
  std::string ptx;
  MegakernelShape shape;

  explicit Mlp(const Chip &chip) {
    NormParams n;
    n.k = n.inStride = width, n.act = ActFormat::bf16;
    auto matmul = [](StorageType type, int64_t out, int64_t k, int64_t segments) {
      MmaParams p;
      p.type = type, p.n = out, p.k = k, p.act = ActFormat::bf16, p.outStride = out, p.kSegments = segments;
      return p;
    };
    MmaParams first = matmul(StorageType::q4_0, width, width, 2), gate = matmul(StorageType::bf16, 2 * hidden, width, 2), last = matmul(StorageType::q8_0, width, hidden, 8);
    first.residual = last.residual = true;
    gate.epilogue = MatmulParams::gateUp, gate.outAct = ActFormat::bf16;
    ArgmaxParams m;
    m.width = m.inStride = width;
    auto add = [&](const char *name, auto p, auto emit) {
      jobs.push_back(job(name, p, emit));
      shapes.push_back(launchShape(p));
      program.kernels.push_back(name);
      program.blocks.push_back({uint32_t(shapes.back().threads), 0});
    };
    add("norm", n, nvptx::emitNorm);
    add("first", first, nvptx::emitMatmul);
    add("gate", gate, nvptx::emitMatmul);
    add("last", last, nvptx::emitMatmul);
    add("largest", m, nvptx::emitArgmax);
    bytes.assign(buffers, rows * width * 4);
    for (Buffer i : {a, b, c}) bytes[i] = uint64_t(actBytes(rows, width, ActFormat::bf16, false));
    bytes[best] = rows * 64;
    bytes[norm] = width * 4;
    bytes[w1] = uint64_t(width / 16 * packedTileBytes(StorageType::q4_0, width)), bytes[w2] = uint64_t(hidden / 8 * packedTileBytes(StorageType::bf16, width));
    bytes[w3] = uint64_t(width / 16 * packedTileBytes(StorageType::q8_0, hidden));
    launch(0, {x, norm, a});
    launch(1, {a, w1, y, x});
    launch(0, {y, norm, b});
    launch(2, {b, w2, c});
    launch(3, {c, w3, z, y});
    launch(4, {z, best});
    program.entries.push_back({"step", {{8, 0, uint32_t(program.launches.size())}}});
    auto shared = std::make_shared<MegakernelShape>();
    std::vector<PtxJob> all = jobs;
    all.push_back(megakernelJob("mega", jobs, shared));
    auto built = buildPtx(all, chip, 2);
    EXPECT_TRUE(built.ok()) << built.status().message();
    if (built.ok()) ptx = *std::move(built);
    shape = *shared;
    program.megakernels.push_back({uint32_t(jobs.size()), 0, 0, uint32_t(shape.maxArgs), {0, 1, 2, 3, 4}});
    program.kernels.push_back("mega");
    program.blocks.push_back({uint32_t(shape.threads), uint32_t(shape.sharedBytes)});
  }
  void launch(uint32_t kernel, std::vector<uint64_t> which) {
    Launch l;
    l.kernel = kernel, l.firstArg = uint32_t(program.args.size()), l.argCount = uint32_t(which.size());
    l.itemKind = shapes[kernel].items, l.items = uint64_t(shapes[kernel].count), l.itemRows = uint32_t(shapes[kernel].itemRows);
    program.args.resize(program.args.size() + which.size());
    program.launches.push_back(l);
    args.push_back(std::move(which));
  }
};

/// What a run left in the buffers, or its error.
struct MlpOutcome {
  Status status;
  std::vector<std::vector<uint8_t>> memory;
  emulator::LaunchStats stats = {}; ///< of the last launch
};

/// An Mlp's kernels in an emulator, with buffers of random content.
class MlpMachine {
public:
  MlpMachine(const Mlp &mlp, const Chip &chip, const std::string &text) : mlp(mlp) {
    options.capability = unsigned(10 * chip.computeMajor + chip.computeMinor);
    options.checkRaces = true;
    machine = *emulator::Emulator::create(options);
    auto loaded = machine->load(text);
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    module = loaded.ok() ? *loaded : nullptr;
    std::mt19937 rng(3);
    for (int i = 0; i < Mlp::buffers; ++i) {
      at.push_back(*machine->allocate(mlp.bytes[size_t(i)], "buffer " + std::to_string(i)));
      std::vector<uint8_t> content(mlp.bytes[size_t(i)], 0xff);
      // Small positive numbers as f16 and as bf16; rows and the norm's weights are float32.
      if (i == Mlp::w1 || i == Mlp::w3 || i == Mlp::w2)
        for (size_t k = 0; k + 1 < content.size(); k += 2) content[k] = uint8_t(rng()), content[k + 1] = uint8_t((i == Mlp::w2 ? 0x3c : 0x20) | (rng() & 3));
      if (i == Mlp::x || i == Mlp::norm)
        for (size_t k = 0; k < content.size(); k += 4) {
          float v = std::normal_distribution<float>(0, 1)(rng);
          std::memcpy(&content[k], &v, 4);
        }
      fresh.push_back(std::move(content));
    }
    LatheStep s{};
    s.size = sizeof s, s.rows = Mlp::rows, s.outRows = 1;
    step = *machine->allocate(sizeof s, "step");
    (void)machine->write(step, &s, sizeof s);
    counter = *machine->allocate(8, "counter");
    (void)machine->fill(counter, 0, 8);
    std::vector<uint64_t> addresses;
    for (const auto &list : mlp.args)
      for (uint64_t i : list) addresses.push_back(at[i]);
    plan = runtime::planMegakernels(mlp.program, addresses, tables);
    table = *machine->allocate(tables.size(), "table");
  }
  emulator::Options options;
  std::vector<uint8_t> tables;
  std::vector<runtime::MegakernelBucket> plan;

  MlpOutcome separate() {
    return run([&]() -> Status {
      for (size_t i = 0; i < mlp.args.size(); ++i) {
        const Launch &l = mlp.program.launches[i];
        emulator::Arguments values;
        for (uint64_t b : mlp.args[i]) values.add(at[b]);
        values.add(step);
        LatheStep counted{};
        counted.rows = Mlp::rows, counted.outRows = 1;
        emulator::LaunchConfig config;
        config.grid.x = uint32_t(runtime::launchItems(l, counted)), config.block.x = mlp.program.blocks[l.kernel].threads;
        LATHE_RETURN_IF_ERROR(machine->launch(module, mlp.program.kernels[l.kernel], config, values).status());
      }
      return Status();
    });
  }
  MlpOutcome together(uint32_t blocks, bool cooperative = true) {
    return run([&]() -> Status {
      LATHE_RETURN_IF_ERROR(machine->write(table, tables.data(), tables.size()));
      emulator::LaunchConfig config;
      config.grid.x = blocks, config.block.x = uint32_t(mlp.shape.threads), config.sharedBytes = uint32_t(mlp.shape.sharedBytes), config.cooperative = cooperative;
      auto launched = machine->launch(module, "mega", config, emulator::Arguments().add(table).add(counter).add(step));
      if (launched.ok()) last = *launched;
      return launched.status();
    });
  }
  void reset() { (void)machine->fill(counter, 0, 8); }
  uint64_t count() {
    uint64_t value = 0;
    (void)machine->read(&value, counter, 8);
    return value;
  }

private:
  MlpOutcome run(llvm::function_ref<Status()> work) {
    MlpOutcome out;
    if (!module) return {Status(StatusCode::internal, "no module"), {}};
    machine->setOptions(options);
    for (size_t i = 0; i < at.size(); ++i) (void)machine->write(at[i], fresh[i].data(), fresh[i].size());
    out.status = work();
    out.stats = last;
    for (size_t i = 0; i < at.size(); ++i) {
      out.memory.emplace_back(mlp.bytes[i]);
      (void)machine->read(out.memory.back().data(), at[i], mlp.bytes[i]);
    }
    return out;
  }

  const Mlp &mlp;
  std::unique_ptr<emulator::Emulator> machine;
  const emulator::LoadedModule *module = nullptr;
  std::vector<uint64_t> at;
  std::vector<std::vector<uint8_t>> fresh;
  uint64_t step = 0, counter = 0, table = 0;
  emulator::LaunchStats last;
};

} // namespace lathe::codegen::nvptx::test
