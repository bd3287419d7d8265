//===- KernelGrid.h - a kernel of every family and variety ----------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "NVPTX/Kernels.h"
#include "NVPTX/Lower.h"
#include <string>
#include <vector>

namespace lathe::codegen::nvptx::test {

inline constexpr StorageType allTypes[] = {
    StorageType::f32,  StorageType::f16,  StorageType::bf16, StorageType::q4_0, StorageType::q4_1,     StorageType::q5_0,     StorageType::q5_1,
    StorageType::q8_0, StorageType::q2_k, StorageType::q3_k, StorageType::q4_k, StorageType::q5_k,     StorageType::q6_k,     StorageType::iq4_nl,
    StorageType::int8, StorageType::int4_g32, StorageType::int4_g64, StorageType::int4_g128, StorageType::int4z_g32, StorageType::int4z_g64, StorageType::int4z_g128, StorageType::e4m3};
inline constexpr ActFormat allActs[] = {ActFormat::f32, ActFormat::bf16, ActFormat::int8, ActFormat::int8z, ActFormat::e4m3};

template <typename P, typename Emit> PtxJob job(std::string symbol, P p, Emit emit) {
  return {std::move(symbol), [p, emit](mlir::ModuleOp m, llvm::StringRef s, const Chip &c) { return emit(m, s, p, c); }};
}

/// Shapes of a model of 7 billion weights: what registers and shared memory are checked on. Every family, weight type and activation
/// format is among them; |everything|: with each other. |fp8|: also kernels for chips with 8-bit floats.
inline std::vector<PtxJob> realisticKernels(bool everything, bool fp8 = false) {
  std::vector<PtxJob> jobs;
  auto add = [&](const std::string &name, auto p, auto emit) { jobs.push_back(job(name + "_" + std::to_string(jobs.size()), p, emit)); };
  for (StorageType type : allTypes)
    for (ActFormat act : allActs) {
      PackedLayout w = packedLayout(type);
      if ((w.isFloat() && isInt8(act)) || (act == ActFormat::e4m3 && !w.e4m3)) continue;
      for (int64_t tile : {8, 32}) {
        bool usual = (act == ActFormat::bf16 && tile == 8) || act == ActFormat::e4m3; // what auto means on a GPU, and decode
        // With 32 rows and segments of K a gated block has 512 threads, of 128 registers each: types whose weights take the most of them are here.
        const bool tight = act == ActFormat::bf16 && tile == 32 && (type == StorageType::f32 || type == StorageType::q3_k || type == StorageType::int4z_g128);
        if (!everything && !usual && !tight && (int(type) + int(act) + (tile == 32)) % 5) continue;
        MmaParams p;
        p.type = type, p.n = 4096, p.k = 4096, p.act = act, p.halves = w.subK == 16, p.outStride = 4096, p.rowTile = tile;
        p.bias = int(type) % 2, p.residual = int(type) % 3 == 0;
        p.kSegments = segmentsOfK(p);
        add("matmul", p, emitMatmul);
        if (everything || int(type) % 6 == 3 || act == ActFormat::e4m3 || tight) {
          p.n = 8192, p.epilogue = MatmulParams::gateUp, p.bias = p.residual = false, p.outAct = act, p.outHalves = p.halves;
          p.kSegments = segmentsOfK(p);
          add("gated", p, emitMatmul);
        }
      }
    }
  for (ActFormat act : allActs) {
    NormParams n;
    n.k = 4096, n.inStride = 4096, n.act = act, n.halves = act == ActFormat::int8z;
    add("norm", n, emitNorm);
    QuantizeParams z;
    z.k = 11008, z.inStride = 11008, z.act = act;
    add("quantize", z, emitQuantize);
    for (Activation a : {Activation::silu, Activation::geluTanh, Activation::geluErf, Activation::relu}) {
      if (!everything && int(a) != int(act)) continue;
      ActivationParams p;
      p.k = 11008, p.inStride = 22016, p.act = act, p.activation = a, p.up = a != Activation::relu;
      add("activation", p, emitActivation);
    }
  }
  NormParams n;
  n.k = 16384, n.inStride = n.outStride = 16384, n.layerNorm = n.bias = n.postScaleResidual = true, n.out = NormParams::Out::rows;
  add("norm", n, emitNorm);
  for (StorageType type : allTypes) {
    if (!everything && int(type) % 3) continue;
    GatherParams g;
    g.type = type, g.n = 32000, g.k = 4096, g.outStride = 4096, g.addPositions = int(type) % 2;
    add("gather", g, emitGather);
  }
  AnglesParams a;
  a.half = 64, a.attentionFactor = 1.2f;
  add("angles", a, emitAngles);
  SoftcapParams s;
  s.n = s.stride = 32000, s.cap = 30;
  add("softcap", s, emitSoftcap);
  ArgmaxParams x;
  x.width = x.inStride = 128256, x.outRows = true;
  add("argmax", x, emitArgmax);
  LoopsParams l;
  l.width = 4096, l.stride0 = l.outStride = 4096, l.select = l.outRows = true;
  jobs.push_back({"select", [l](mlir::ModuleOp m, llvm::StringRef symbol, const Chip &c) { return emitLoops(m, symbol, l, nullptr, c); }});
  for (KVFormat f : {KVFormat::f32, KVFormat::f16, KVFormat::bf16, KVFormat::int8, KVFormat::e4m3}) {
    if (f == KVFormat::e4m3 && !fp8) continue;
    RopeAppendParams r;
    r.qHeads = 32, r.kvHeads = 8, r.headDim = r.valueDim = r.rotaryDim = 128, r.qkvStride = 6144, r.k = r.v = f, r.page = 32;
    r.headStride = 2 * 32 * 128 * 4 + 1024, r.blockStride = 8 * r.headStride;
    r.qNorm = r.kNorm = f == KVFormat::bf16, r.interleaved = f == KVFormat::int8;
    add("rope", r, emitRopeAppend);
    // Heads of 64 and 128 are those of most models. Whole attention holds the most in registers: of 64 with three tiles of queries, of others with two.
    for (int64_t head : {64, 80, 96, 128, 256})
      for (auto form : {AttentionParams::whole, AttentionParams::split, AttentionParams::combine}) {
        const bool usual = head == 64 || head == 128, whole = form == AttentionParams::whole;
        AttentionParams p;
        p.qHeads = 32, p.kvHeads = 8, p.headDim = p.valueDim = head, p.scale = 0.088f, p.k = p.v = f, p.page = 32;
        p.headStride = 2 * 32 * head * 4 + 1024, p.blockStride = 8 * p.headStride, p.qStride = 48 * head, p.outStride = 32 * head;
        p.form = form, p.maxChunks = 32, p.window = f == KVFormat::bf16 ? 1024 : 0, p.softcap = f == KVFormat::f32 ? 50.0f : 0.0f;
        p.quantize = f != KVFormat::f32 && head % 32 == 0, p.act = isByte(f) ? ActFormat::int8 : ActFormat::bf16;
        const std::string name = "attention_" + std::to_string(head);
        if ((everything || head == 128) && (form == AttentionParams::combine || f == KVFormat::f32 || isByte(f))) add(name, p, emitAttention);
        if (form == AttentionParams::combine || f == KVFormat::f32) continue;
        for (int64_t group : {1, 4, 8}) {
          if (!everything && group != 4 && (f != KVFormat::bf16 || head != 128)) continue;
          if (!everything && !usual && !(whole && (f == KVFormat::bf16 || (f == KVFormat::e4m3 && head == 256)))) continue;
          MmaAttentionParams m{p};
          m.qHeads = group * m.kvHeads, m.act = ActFormat::bf16, m.qStride = (group + 2) * 8 * head, m.outStride = m.qHeads * head;
          add("mma_" + name, m, emitMmaAttention);
        }
      }
  }
  return jobs;
}

/// The same of wgmma: every weight type, tile and way of dealing K to blocks; |everything|: with each other.
inline std::vector<PtxJob> wgmmaKernels(bool everything) {
  std::vector<PtxJob> jobs;
  auto add = [&](StorageType type, ActFormat act, int64_t rows, bool large, bool gated) { // one segment; clusters, or segments in turn
    MmaParams p;
    p.type = type, p.n = large ? 32768 : 4096, p.k = 4096, p.act = act, p.halves = packedLayout(type).subK == 16, p.outStride = p.n;
    p.bias = int(type) % 2, p.residual = int(type) % 3 == 0;
    if (gated) p.epilogue = MatmulParams::gateUp, p.bias = p.residual = false, p.outAct = act, p.outHalves = p.halves;
    p = onChip(p, *findChip("sm_90a"), rows);
    jobs.push_back(job("wgmma_" + std::to_string(jobs.size()) + "_type" + std::to_string(int(type)) + (act == ActFormat::e4m3 ? "_e4m3" : "") + "_rows" + std::to_string(rows), p, emitMatmul));
  };
  for (StorageType type : allTypes)
    for (int64_t rows : {8, 16, 32, 64, 128})
      for (bool large : {false, true}) {
        int64_t which = int64_t(type) + rows / 8 + large;
        if (!everything && (rows == 8 || rows == 128 ? which % 4 : which % 16)) continue;
        add(type, ActFormat::bf16, rows, large, which % 3 == 0);
      }
  for (int64_t rows : {8, 16, 32, 64, 128})
    for (bool large : {false, true}) add(StorageType::e4m3, ActFormat::e4m3, rows, large, (rows / 8 + large) % 3 == 0);
  return jobs;
}

} // namespace lathe::codegen::nvptx::test
