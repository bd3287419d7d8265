//===- MatmulProblem.h - a matmul with random weights and inputs -----*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "Machine.h"
#include "RandomWeight.h"

namespace lathe::codegen::nvptx::test {
using codegen::test::randomInputs;
using codegen::test::randomWeight;

inline MmaParams shape(StorageType type, ActFormat act, int64_t n, int64_t k) {
  MmaParams p;
  p.type = type, p.act = act, p.n = n, p.k = k, p.outStride = rowStride(n), p.halves = packedLayout(type).subK == 16;
  return p;
}

/// The exact weights of types whose dequantization rounds: what bf16 activations are multiplied with.
inline double exactWeight(const model::Weight &w, int64_t row, int64_t i) {
  PackedLayout l = packedLayout(w.type);
  if (l.floatBytes) return w.value(row, i);
  double v = double(w.scale(row, i)) * w.number(row, i);
  return l.min ? v + double(w.min(row, i)) : v;
}

/// One matmul, with the same weights and inputs for every number of rows.
struct Problem {
  MmaParams p;
  model::Weight w;
  std::vector<float> x, bias, residual;
  model::Activations act;
  Problem(const MmaParams &p, int64_t rows, uint32_t seed) : p(p) {
    std::mt19937 rng(seed);
    w = randomWeight(p.type, p.n, p.k, rng);
    x = randomInputs(rows, p.k, rng);
    act = model::quantize(x, rows, p.k, p.act);
    std::normal_distribution<float> normal(0, 1);
    bias.resize(size_t(rowStride(p.n)));
    residual.resize(size_t(rows * p.outStride));
    for (int64_t i = 0; i < p.n; ++i) bias[size_t(i)] = normal(rng);
    for (float &v : residual) v = normal(rng);
  }

  /// Output bytes for the first |rows| rows.
  Buffer run(Machine &machine, const std::string &name, const MmaParams &q, int64_t rows) {
    std::vector<uint8_t> packed = model::pack(w);
    Buffer weights(packed.size()), activations(size_t(actBytes(rows, p.k, p.act, p.halves)), 0xff); // rows beyond the last are NaN
    std::memcpy(weights.data(), packed.data(), packed.size());
    packActivations(model::Activations(act.begin(), act.begin() + rows), p.k, p.act, p.halves, activations.data(), machine.chip().has(Feature::wgmma));
    bool gated = q.epilogue == MatmulParams::gateUp;
    Buffer out(gated ? size_t(actBytes(rows, p.n / 2, p.outAct, p.outHalves)) : size_t(rows * p.outStride * 4), 0xcd);
    Buffer biases(bias.size() * 4);
    std::memcpy(biases.data(), bias.data(), biases.size());
    if (p.residual) std::memcpy(out.data(), residual.data(), out.size());
    StepData step(rows);
    for (int64_t r = 0; p.outRows && r < rows; ++r) step.outRow.push_back(0);
    std::vector<const Buffer *> args{&activations, &weights, &out};
    if (p.bias) args.push_back(&biases);
    if (p.residual) args.push_back(&out); // in place
    machine.run(name, launchShape(q), args, step, p.outRows);
    return out;
  }

  float exact(int64_t row, int64_t n) const {
    float v = model::dot(w, n, act[size_t(row)], p.act);
    if (p.bias) v = v + bias[size_t(n)];
    if (p.residual) v = residual[size_t(row * p.outStride + n)] + v;
    return v;
  }
  /// Value in float64 and the sum of magnitudes that error bounds refer to.
  std::pair<double, double> real(int64_t row, int64_t n) const {
    double sum = 0, size = 0;
    for (int64_t i = 0; i < p.k; ++i) {
      double t = exactWeight(w, n, i) * act[size_t(row)][size_t(i / 32)].x[i % 32];
      sum += t, size += std::fabs(t);
      if (!packedLayout(p.type).floatBytes) size += std::fabs(double(w.scale(n, i)) * w.number(n, i) * act[size_t(row)][size_t(i / 32)].x[i % 32]);
    }
    if (p.bias) sum += bias[size_t(n)];
    if (p.residual) sum += residual[size_t(row * p.outStride + n)];
    return {sum, size};
  }
  /// What adders of 8-bit floats may leave out: of each of a group's products and of what they are added to, all below 2^-13 of the largest.
  double lostBy14Bits(int64_t row, int64_t n) const {
    double lost = 0;
    for (int64_t begin = 0; begin < p.k; begin += 32) {
      double largest = 0;
      for (int64_t i = begin; i < std::min(p.k, begin + 32); ++i)
        largest = std::max(largest, std::fabs(exactWeight(w, n, i) * act[size_t(row)][size_t(i / 32)].x[i % 32]));
      lost += 34 * std::ldexp(largest, -13);
    }
    return lost;
  }
};

} // namespace lathe::codegen::nvptx::test
