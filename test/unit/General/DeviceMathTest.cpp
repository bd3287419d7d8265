//===- DeviceMathTest.cpp - libm's functions for GPUs against libm ------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// lib/Codegen/General/DeviceMath.c, compiled for the host. Distances are in units in the last place of libm's result.
//===----------------------------------------------------------------------===//
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <iterator>
#include <limits>
#include <random>

#define FUNCTIONS(X)                                                                                                   \
  X(exp) X(log) X(log1p) X(sin) X(cos) X(tan) X(asin) X(acos) X(atan) X(sinh) X(cosh) X(tanh) X(asinh) X(acosh) X(atanh) X(erf)
extern "C" {
#define DECLARE(name) double lathe_math_##name(double);
FUNCTIONS(DECLARE)
double lathe_math_pow(double, double);
double lathe_math_fmod(double, double);
}

namespace {

const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
const double special[] = {0.0, -0.0, 1, -1, 0.5, -0.5, 2, 3, -2, -3, 2.5, inf, -inf, nan, 1e-310, -1e-310, 1e300, 710.0, -746.0};

double distance(double got, double want) {
  if (got == want || (std::isnan(got) && std::isnan(want))) return got == 0 && std::signbit(got) != std::signbit(want) ? inf : 0;
  if (!std::isfinite(got) || !std::isfinite(want)) return inf;
  int exponent;
  std::frexp(want, &exponent);
  return std::abs(got - want) / std::ldexp(1, std::max(exponent - 53, -1074));
}

struct Function {
  const char *name;
  double (*ours)(double), (*libm)(double);
  double low, high, bound;
};
#define F(name, low, high, bound) {#name, lathe_math_##name, std::name, low, high, bound}
const Function functions[] = {
    F(exp, -745, 709.7, 1), F(log, 0, 1e300, 1),   F(log1p, -1, 10, 2),  F(sin, -1e8, 1e8, 1),    F(cos, -1e8, 1e8, 1),   F(tan, -100, 100, 3),
    F(asin, -1, 1, 6),      F(acos, -1, 1, 6),     F(atan, -100, 100, 5), F(sinh, -709, 709, 6),   F(cosh, -709, 709, 3),  F(tanh, -22, 22, 5),
    F(asinh, -1e10, 1e10, 2), F(acosh, 1, 100, 3), F(atanh, -1, 1, 4),   F(erf, -6, 6, 16)};

} // namespace

TEST(DeviceMath, IsLibmWithinAFewUnits) {
  std::mt19937_64 random(5);
  for (const Function &f : functions) {
    std::uniform_real_distribution<double> values(f.low, f.high), shift(-60, 0);
    double worst = 0, at = 0;
    int floats = 0;
    for (int i = 0; i < 50000; ++i) {
      double x = values(random);
      if (i % 2 && f.low < 1) x = std::max(f.low, x * std::exp2(shift(random))); // near 0, where relative errors show
      if (double d = distance(f.ours(x), f.libm(x)); d > worst) worst = d, at = x;
      auto narrow = static_cast<float>(x);
      floats += static_cast<float>(f.ours(narrow)) != static_cast<float>(f.libm(narrow));
    }
    EXPECT_LE(worst, f.bound) << f.name << " at " << at;
    EXPECT_LT(floats, 5) << f.name << ": results that differ once they are float";
  }
}

TEST(DeviceMath, SpecialValuesAreLibms) {
  for (const Function &f : functions)
    for (double x : special) {
      if (std::abs(x) == 1e300 && (f.libm == static_cast<double (*)(double)>(std::sin) || f.libm == static_cast<double (*)(double)>(std::cos) || f.libm == static_cast<double (*)(double)>(std::tan)))
        continue; // angles beyond 2^30 are reduced by the double nearest to 2 pi
      EXPECT_LE(distance(f.ours(x), f.libm(x)), f.bound) << f.name << " of " << x;
    }
}

TEST(DeviceMath, PowersAndRemainders) {
  for (double x : special)
    for (double y : special) {
      EXPECT_LE(distance(lathe_math_pow(x, y), std::pow(x, y)), 300) << x << " to the power of " << y;
      EXPECT_EQ(distance(lathe_math_fmod(x, y), std::fmod(x, y)), 0) << x << " mod " << y;
    }
  std::mt19937_64 random(6);
  std::uniform_real_distribution<double> base(0, 100), exponent(-20, 20), sign(-0.5, 0.5), size(-300, 300);
  for (int i = 0; i < 50000; ++i) {
    double x = base(random), y = exponent(random);
    if (i % 2) y = std::rint(y);
    EXPECT_LE(distance(lathe_math_pow(x, y), std::pow(x, y)), 200) << x << " to the power of " << y;
    double a = sign(random) * std::exp2(size(random)), b = sign(random) * std::exp2(size(random));
    double got = lathe_math_fmod(a, b), want = std::fmod(a, b);
    EXPECT_EQ(std::memcmp(&got, &want, sizeof got), 0) << a << " mod " << b;
  }
}
