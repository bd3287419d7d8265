//===- DeviceMath.c - libm's functions for GPUs ---------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// General code calls libm on x86; PTX has no such functions. These are compiled to LLVM IR for NVPTX when Lathe is built (CMakeLists.txt) and linked
// to the kernels that use them. All are in double: a result that is rounded to float is the float nearest to the exact one, but for ties that double
// cannot tell apart. As double results they are within a few units in the last place (DeviceMathTest compares them with libm). Identities and
// Taylor series only: no table, no fitted polynomial, so that each line can be checked by hand. Speed is no aim.
//===----------------------------------------------------------------------===//

#define INF __builtin_inf()
#define NAN __builtin_nan("")
#define abs __builtin_fabs
#define fma __builtin_fma

static const double ln2High = 0x1.62e42fee00000p-1, ln2Low = 0x1.a39ef35793c76p-33; // the sum is ln 2; High ends in zeros
static const double pi = 0x1.921fb54442d18p+1;

typedef union {
  double value;
  long long bits;
} Word;

static double copySign(double x, double sign) { return __builtin_copysign(x, sign); }

/// x times 2^n, rounded once but for results below the normal numbers.
static double scale(double x, long long n) {
  Word half, rest;
  long long first = n / 2;
  half.bits = (1023 + first) << 52;
  rest.bits = (1023 + n - first) << 52;
  return x * half.value * rest.value;
}

/// exp(r) - 1 for |r| <= ln(2) / 2: Taylor's series to r^14 / 14!.
static double shortExpm1(double r) {
  double sum = 0;
  for (int n = 14; n >= 1; --n) sum = (1 + sum) * (r / n); // Horner's rule for r + r^2/2! + ...
  return sum;
}

double lathe_math_exp(double x) {
  if (x != x) return x;
  if (x > 710) return INF;
  if (x < -746) return 0;
  double n = __builtin_roundeven(x * 0x1.71547652b82fep+0);
  double r = fma(-n, ln2Low, fma(-n, ln2High, x));
  return scale(1 + shortExpm1(r), (long long)n);
}

static double expm1Of(double x) {
  if (abs(x) <= 0.34) return shortExpm1(x);
  return lathe_math_exp(x) - 1;
}

double lathe_math_log(double x) {
  if (x != x || x == INF) return x;
  if (x == 0) return -INF;
  if (x < 0) return NAN;
  Word w = {x};
  long long exponent = 0;
  if (w.bits < 0x10000000000000) { // below the normal numbers
    w.value *= 0x1p54;
    exponent = -54;
  }
  exponent += (w.bits >> 52) - 1023;
  w.bits = (w.bits & 0xfffffffffffff) | (1023LL << 52);
  if (w.value > 0x1.6a09e667f3bcdp+0) w.value *= 0.5, ++exponent;
  // log(m) = 2 atanh((m - 1) / (m + 1)), |s| <= 0.172; f is exact, and f - s (f - z) keeps it as the largest term.
  double f = w.value - 1, s = f / (2 + f), t = s * s, series = 0;
  for (int n = 25; n >= 3; n -= 2) series = (series + 2.0 / n) * t;
  double half = f * f * 0.5, n = (double)exponent;
  return n * ln2High - ((half - (s * (half + series) + n * ln2Low)) - f);
}

double lathe_math_log1p(double x) {
  double u = 1 + x;
  if (!(u > 0) || u == INF) return lathe_math_log(u);
  return u == 1 ? x : lathe_math_log(u) + (x - (u - 1)) / u;
}

double lathe_math_fmod(double x, double y) {
  double a = abs(x), b = abs(y);
  if (x != x || y != y || a == INF || b == 0) return NAN;
  if (b == INF) return x;
  // Takes away multiples of b 2^k with quotients of at most 2^51: every difference is exact.
  while (a >= b) {
    double t = b;
    while (a > t * 0x1p50) t *= 0x1p50;
    a = fma(-__builtin_trunc(a / t), t, a);
    if (a < 0) a += t; // the quotient was rounded up
  }
  return copySign(a, x);
}

double lathe_math_pow(double x, double y) {
  if (y == 0 || x == 1) return 1;
  if (x != x || y != y) return NAN;
  int whole = __builtin_trunc(y) == y || abs(y) == INF, odd = whole && abs(y) < 0x1p53 && lathe_math_fmod(y, 2) != 0;
  double a = abs(x), sign = x < 0 || (x == 0 && copySign(1, x) < 0) ? (odd ? -1 : 1) : 1;
  if (a == 0) return sign * (y < 0 ? INF : 0);
  if (a == INF) return sign * (y < 0 ? 0 : INF);
  if (abs(y) == INF) return a == 1 ? 1 : (a < 1) == (y < 0) ? INF : 0;
  if (x < 0 && !whole) return NAN;
  if (whole && abs(y) <= 64) { // products are closer than a logarithm
    double power = 1, square = a;
    for (int n = (int)abs(y); n; n >>= 1, square *= square)
      if (n & 1) power *= square;
    if (power != 0 && power != INF) return sign * (y < 0 ? 1 / power : power);
  }
  if (y == 0.5) return __builtin_sqrt(a);
  return sign * lathe_math_exp(y * lathe_math_log(a));
}

/// x minus the nearest multiple of pi / 2, and that multiple modulo 4. Three parts of pi / 2 keep the result good to 2^-60 or so up to 2^30; larger
/// angles are first reduced by the double nearest to 2 pi.
static double quarters(double x, int *quadrant) {
  if (abs(x) > 0x1p30) x = lathe_math_fmod(x, 2 * pi);
  double n = __builtin_roundeven(x * 0x1.45f306dc9c883p-1);
  double r = fma(-n, 0x1.921fb54442d18p+0, x);
  r = fma(-n, 0x1.1a62633145c07p-54, r);
  r = fma(-n, -0x1.f1976b7ed8fbcp-110, r);
  *quadrant = (int)((long long)n & 3);
  return r;
}
static double shortSin(double r) {
  double t = -r * r, sum = 0;
  for (int n = 20; n >= 2; n -= 2) sum = (1 + sum) * (t / (n * (n + 1)));
  return r + r * sum;
}
static double shortCos(double r) {
  double t = -r * r, sum = 0;
  for (int n = 19; n >= 1; n -= 2) sum = (1 + sum) * (t / (n * (n + 1)));
  return 1 + sum;
}

double lathe_math_sin(double x) {
  if (x != x || abs(x) == INF) return NAN;
  if (x == 0) return x;
  int q;
  double r = quarters(x, &q), y = q & 1 ? shortCos(r) : shortSin(r);
  return q & 2 ? -y : y;
}
double lathe_math_cos(double x) {
  if (x != x || abs(x) == INF) return NAN;
  int q;
  double r = quarters(x, &q), y = q & 1 ? shortSin(r) : shortCos(r);
  return q == 1 || q == 2 ? -y : y;
}
double lathe_math_tan(double x) {
  if (x != x || abs(x) == INF) return NAN;
  if (x == 0) return x;
  int q;
  double r = quarters(x, &q), s = shortSin(r), c = shortCos(r);
  return q & 1 ? -c / s : s / c;
}

double lathe_math_atan(double x) {
  if (x != x || x == 0) return x;
  double a = abs(x), t = a > 1 ? 1 / a : a;
  // atan t = 2 atan(t / (1 + sqrt(1 + t^2))), twice: t <= tan(pi / 16)
  t = t / (1 + __builtin_sqrt(1 + t * t));
  t = t / (1 + __builtin_sqrt(1 + t * t));
  double square = -t * t, series = 0;
  for (int n = 25; n >= 3; n -= 2) series = (series + 1.0 / n) * square;
  double y = 4 * (t + t * series);
  return copySign(a > 1 ? pi / 2 - y : y, x);
}
double lathe_math_asin(double x) {
  if (!(abs(x) <= 1)) return NAN;
  return abs(x) == 1 ? copySign(pi / 2, x) : lathe_math_atan(x / __builtin_sqrt((1 - x) * (1 + x)));
}
double lathe_math_acos(double x) {
  if (!(abs(x) <= 1)) return NAN;
  return x == -1 ? pi : 2 * lathe_math_atan(__builtin_sqrt((1 - x) / (1 + x)));
}

/// exp(x) / 2, which is finite a little longer than exp(x).
static double halfExp(double x) {
  double root = lathe_math_exp(x * 0.5);
  return root * 0.5 * root;
}

double lathe_math_sinh(double x) {
  double a = abs(x), e;
  if (a > 40) return copySign(halfExp(a), x);
  e = expm1Of(a);
  return copySign((e + e / (e + 1)) * 0.5, x);
}
double lathe_math_cosh(double x) {
  double a = abs(x), e;
  if (a > 40) return halfExp(a);
  e = lathe_math_exp(a);
  return (e + 1 / e) * 0.5;
}
double lathe_math_tanh(double x) {
  double a = abs(x);
  if (x != x || x == 0) return x;
  if (a > 22) return copySign(1, x);
  double e = expm1Of(2 * a);
  return copySign(e / (e + 2), x);
}
double lathe_math_asinh(double x) {
  double a = abs(x);
  if (x == 0) return x;
  double y = a > 0x1p28 ? lathe_math_log(a) + 0x1.62e42fefa39efp-1 : lathe_math_log1p(a + a * a / (1 + __builtin_sqrt(1 + a * a)));
  return copySign(y, x);
}
double lathe_math_acosh(double x) {
  if (!(x >= 1)) return NAN;
  double t = x - 1;
  return x > 0x1p28 ? lathe_math_log(x) + 0x1.62e42fefa39efp-1 : lathe_math_log1p(t + __builtin_sqrt(t * (2 + t)));
}
double lathe_math_atanh(double x) {
  double a = abs(x);
  if (x == 0) return x;
  return copySign(0.5 * lathe_math_log1p(2 * a / (1 - a)), x);
}

double lathe_math_erf(double x) {
  double a = abs(x);
  if (x != x || x == 0) return x;
  if (a > 6) return copySign(1, x);
  const double twoOverRootPi = 0x1.20dd750429b6dp+0;
  if (a < 2.5) { // 2 / sqrt(pi) exp(-x^2) (x + 2 x^3 / 3 + 4 x^5 / 15 + ...): every term is positive
    double term = a, sum = a;
    for (int n = 1; term > sum * 0x1p-56; ++n) {
      term *= 2 * a * a / (2 * n + 1);
      sum += term;
    }
    return copySign(twoOverRootPi * lathe_math_exp(-a * a) * sum, x);
  }
  // erfc by its continued fraction, from the inside
  double f = 0;
  for (int n = 60; n >= 1; --n) f = 0.5 * n / (a + f);
  return copySign(1 - 0.5 * twoOverRootPi * lathe_math_exp(-a * a) / (a + f), x);
}
