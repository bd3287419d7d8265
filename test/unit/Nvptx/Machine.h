//===- Machine.h - kernels in the emulator ----------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "KernelGrid.h"
#include "RowTesting.h"
#include "runtime/device/emulator/Emulator.h"
#include "runtime/device/gpu/GpuExecutable.h"
#include <functional>

namespace lathe::codegen::nvptx::test {
using codegen::test::Buffer;
using codegen::test::StepData;

/// Chips to run kernels of: all with LATHE_FULL, else the oldest.
inline std::vector<const Chip *> emulatedChips() {
  std::vector<const Chip *> out;
  for (const Chip &c : chips())
    if (codegen::test::fullGrid() || out.empty()) out.push_back(&c);
  return out;
}

/// Chips to run kernels of 8-bit floats on: likewise, of those that have them.
inline std::vector<const Chip *> fp8Chips() {
  std::vector<const Chip *> out;
  for (const Chip &c : chips())
    if (c.has(Feature::fp8) && (codegen::test::fullGrid() || out.empty())) out.push_back(&c);
  return out;
}

/// Kernels of one chip, loaded into an emulator of that chip.
class Machine {
public:
  /// |mutate| changes the PTX before it is loaded.
  Machine(const std::vector<PtxJob> &jobs, const Chip &chip, const std::function<void(std::string &)> &mutate = {}) : made(chip) {
    emulator::Options o;
    o.capability = unsigned(chip.computeMajor * 10 + chip.computeMinor);
    o.checkRaces = true;
    auto made = emulator::Emulator::create(o);
    EXPECT_TRUE(made.ok()) << made.status().message();
    if (made.ok()) machine = *std::move(made);
    auto built = buildPtx(jobs, chip, 2);
    EXPECT_TRUE(built.ok()) << built.status().message();
    if (!built.ok() || !machine) return;
    ptx = *std::move(built);
    if (mutate) mutate(ptx);
    auto loaded = machine->load(ptx);
    EXPECT_TRUE(loaded.ok()) << loaded.status().message();
    if (loaded.ok()) module = *loaded;
  }
  explicit operator bool() const { return module; }
  emulator::Emulator &emulator() { return *machine; }
  const Chip &chip() const { return made; }

  /// Runs |symbol| over a step in both modes of asynchrony, with bounds of every buffer checked. |args|: host memory; the last one that
  /// differs between the modes fails the test. Returns the counters of the last run.
  emulator::LaunchStats run(const std::string &symbol, const LaunchShape &shape, const std::vector<const Buffer *> &args, StepData &data, bool head = false) {
    offsets.assign(args.size(), 0);
    return runAll(symbol, shape, args, data, head);
  }
  /// The first arguments are |columns| (byte offsets) of one buffer.
  emulator::LaunchStats runColumns(const std::string &symbol, const LaunchShape &shape, const Buffer &rows, const std::vector<int64_t> &columns,
                                   const std::vector<const Buffer *> &rest, StepData &data) {
    std::vector<const Buffer *> args(columns.size(), &rows);
    args.insert(args.end(), rest.begin(), rest.end());
    offsets = columns;
    offsets.resize(args.size());
    return runAll(symbol, shape, args, data, false);
  }

private:
  emulator::LaunchStats runAll(const std::string &symbol, const LaunchShape &shape, const std::vector<const Buffer *> &args, StepData &data, bool head) {
    std::vector<std::vector<uint8_t>> before, first;
    for (const Buffer *b : args) before.emplace_back(b->data(), b->data() + b->size());
    emulator::LaunchStats stats;
    for (auto mode : {emulator::AsyncMode::lazy, emulator::AsyncMode::eager}) {
      for (size_t i = 0; i < args.size(); ++i) std::memcpy(args[i]->data(), before[i].data(), before[i].size());
      emulator::Options o = machine->options();
      o.mode = mode;
      o.seed = mode == emulator::AsyncMode::lazy ? 0 : 7;
      machine->setOptions(o);
      auto result = once(symbol, shape, args, data, head);
      EXPECT_TRUE(result.ok()) << symbol << ": " << result.status().message();
      if (!result.ok()) return stats;
      stats = *std::move(result);
      for (size_t i = 0; i < args.size(); ++i) {
        EXPECT_TRUE(args[i]->intact());
        if (mode == emulator::AsyncMode::lazy)
          first.emplace_back(args[i]->data(), args[i]->data() + args[i]->size());
        else
          EXPECT_EQ(std::memcmp(first[i].data(), args[i]->data(), first[i].size()), 0) << symbol << ": argument " << i << " differs between the modes";
      }
    }
    return stats;
  }

  Result<emulator::LaunchStats> once(const std::string &symbol, const LaunchShape &shape, const std::vector<const Buffer *> &args, StepData &data, bool head) {
    std::vector<uint64_t> held;
    struct Release {
      emulator::Emulator &m;
      std::vector<uint64_t> &held;
      ~Release() {
        for (uint64_t a : held) (void)m.release(a);
      }
    } release{*machine, held};
    auto give = [&](const void *host, uint64_t bytes, const char *name, bool readOnly) -> Result<uint64_t> {
      LATHE_ASSIGN_OR_RETURN(uint64_t a, machine->adopt(const_cast<void *>(host), std::max<uint64_t>(bytes, 1), readOnly, name));
      held.push_back(a);
      return a;
    };
    LatheStep step = *data.get();
    auto array = [&](const int32_t *&p, size_t n, const char *name) -> Status {
      if (!n) return Status();
      LATHE_ASSIGN_OR_RETURN(uint64_t a, give(p, 4 * n, name, true));
      p = reinterpret_cast<const int32_t *>(a);
      return Status();
    };
    LATHE_RETURN_IF_ERROR(array(step.token, data.token.size(), "token"));
    LATHE_RETURN_IF_ERROR(array(step.position, data.position.size(), "position"));
    LATHE_RETURN_IF_ERROR(array(step.slot, data.slot.size(), "slot"));
    LATHE_RETURN_IF_ERROR(array(step.sequence, data.sequence.size(), "sequence"));
    LATHE_RETURN_IF_ERROR(array(step.outRow, data.outRow.size(), "outRow"));
    LATHE_RETURN_IF_ERROR(array(step.parent, data.parent.size(), "parent"));
    std::vector<uint64_t> rows, tables(1);
    if (step.embedding) {
      for (const float *row : data.embedding) {
        uint64_t a = 0;
        if (row) {
          LATHE_ASSIGN_OR_RETURN(a, give(row, embeddingBytes, "embedding row", true));
        }
        rows.push_back(a);
      }
      LATHE_ASSIGN_OR_RETURN(uint64_t a, give(rows.data(), 8 * rows.size(), "embedding", true));
      step.embedding = reinterpret_cast<const float *const *>(a);
    }
    if (!data.table.empty()) {
      LATHE_ASSIGN_OR_RETURN(tables[0], give(data.table.data(), 4 * data.table.size(), "block table", true));
    }
    LATHE_ASSIGN_OR_RETURN(uint64_t table, give(tables.data(), 8, "block tables", true));
    LATHE_ASSIGN_OR_RETURN(uint64_t stride, give(&data.tableStride, 4, "table strides", true));
    step.blockTable = reinterpret_cast<const int32_t *const *>(table);
    step.tableStride = reinterpret_cast<const uint32_t *>(stride);
    LATHE_ASSIGN_OR_RETURN(uint64_t stepAt, give(&step, sizeof step, "step", true));
    emulator::Arguments values;
    std::vector<std::pair<const Buffer *, uint64_t>> known; // one buffer may be two arguments
    for (size_t i = 0; i < args.size(); ++i) {
      const Buffer *b = args[i];
      auto seen = std::find_if(known.begin(), known.end(), [&](auto &k) { return k.first == b; });
      if (seen == known.end()) {
        LATHE_ASSIGN_OR_RETURN(uint64_t a, give(b->data(), b->size(), "argument", false));
        known.push_back({b, a});
        seen = known.end() - 1;
      }
      values.add(seen->second + uint64_t(offsets[i]));
    }
    values.add(stepAt);
    LatheStep counted = *data.get();
    if (head) counted.rows = counted.outRows;
    Launch l;
    l.items = uint64_t(shape.count), l.itemKind = shape.items, l.itemRows = uint32_t(shape.itemRows);
    emulator::LaunchConfig config;
    config.grid.x = uint32_t(runtime::launchItems(l, counted));
    config.block.x = uint32_t(shape.threads);
    config.sharedBytes = uint32_t(shape.sharedBytes);
    return machine->launch(module, symbol, config, values);
  }

public:
  uint64_t embeddingBytes = 0; ///< of a row in StepData::embedding

private:
  const Chip &made;
  std::vector<int64_t> offsets; ///< of the arguments in their buffers
  std::unique_ptr<emulator::Emulator> machine;
  std::string ptx;
  const emulator::LoadedModule *module = nullptr;
};

/// Activations as nvptx/Layout.h has them; written from its text. |wgmma|: of a chip that has it.
inline void packActivations(const model::Activations &a, int64_t k, ActFormat format, bool halves, uint8_t *out, bool wgmma = false) {
  ActLayout l = actLayout(k, format, halves);
  for (size_t r = 0; r < a.size(); ++r) {
    uint8_t *b = out + r / 8 * l.blockBytes;
    for (int64_t g = 0; g < l.groups; ++g) {
      const model::Group &v = a[r][size_t(g)];
      int64_t at = g * 8 + int64_t(r % 8);
      auto put = [&](int64_t offset, auto x) { std::memcpy(b + offset, &x, sizeof x); };
      float sums[3];
      for (int h = 0; h < 2; ++h) {
        std::vector<float> part;
        for (int j = 0; j < 16; ++j) part.push_back(v.x[16 * h + j]);
        sums[1 + h] = model::tree(part);
      }
      sums[0] = sums[1] + sums[2];
      for (int j = 0; j < 32; ++j) {
        if (format == ActFormat::f32) put((at * 32 + j) * 4, v.x[j]);
        int64_t place = j;
        if (wgmma)
          for (int64_t step = 0, t = 0, i = 0; i < 32; ++i) { // what is element i of t in step
            step = i / 16, t = i / 4 % 4;
            if (16 * step + 4 * t + (i % 4 ^ t) != j) continue;
            int64_t piece = 2 * step + i % 4 / 2;
            place = (piece ^ int64_t(r % 8 / 2)) * 8 + 2 * t + i % 2;
          }
        if (format == ActFormat::bf16) put((at * 32 + place) * 2, uint16_t(model::toBits(v.x[j]) >> 16));
        if (l.elementBytes == 1) { // of the two pieces of e4m3 in rows 4 .. 7 the second is first
          bool exchanged = wgmma && format == ActFormat::e4m3 && r % 8 >= 4;
          put(at * 32 + (exchanged ? (j + 16) % 32 : j), uint8_t(v.q[j]));
        }
      }
      if (l.elementBytes == 1) put(l.scale + at * 4, v.scale);
      if (format == ActFormat::int8z) put(l.offset + at * 4, v.offset + 0.0f);
      for (int64_t h = 0; h < l.sums && format != ActFormat::f32 && format != ActFormat::e4m3; ++h) {
        int64_t place = ((g * l.sums + h) * 8 + int64_t(r % 8)) * 4;
        if (isInt8(format)) put(l.isum + place, -v.sum[h]);
        put(l.fsum + place, isInt8(format) ? v.fsum[h] : sums[h]);
      }
    }
  }
}
inline void packRow(uint8_t *buffer, int64_t k, ActFormat f, bool halves, int64_t row, const float *x, bool wgmma = false) {
  // A row of a buffer of its own, then its bytes: every plane has the row's place.
  model::Activations all(size_t(row % 8 + 1));
  model::Activations one = model::quantize(std::vector<float>(x, x + k), 1, k, f);
  ActLayout l = actLayout(k, f, halves);
  std::vector<uint8_t> block(size_t(l.blockBytes)), mask(size_t(l.blockBytes));
  for (auto &r : all) r = one[0];
  packActivations(all, k, f, halves, block.data(), wgmma);
  // Which bytes belong to the row: pack a different value and compare would miss equal bytes, so mark them by the layout.
  auto mark = [&](int64_t at, int64_t n) { std::fill_n(mask.begin() + at, n, 1); };
  for (int64_t g = 0; g < l.groups; ++g) {
    int64_t at = g * 8 + row % 8;
    mark(at * 32 * l.elementBytes, 32 * l.elementBytes);
    if (l.elementBytes == 1) mark(l.scale + at * 4, 4);
    if (f == ActFormat::int8z) mark(l.offset + at * 4, 4);
    for (int64_t h = 0; h < l.sums && f != ActFormat::f32 && f != ActFormat::e4m3; ++h) {
      int64_t place = ((g * l.sums + h) * 8 + row % 8) * 4;
      if (isInt8(f)) mark(l.isum + place, 4);
      mark(l.fsum + place, 4);
    }
  }
  uint8_t *to = buffer + row / 8 * l.blockBytes;
  for (int64_t i = 0; i < l.blockBytes; ++i)
    if (mask[size_t(i)]) to[i] = block[size_t(i)];
}

} // namespace lathe::codegen::nvptx::test
