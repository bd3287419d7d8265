// Calls, a switch, local arrays, doubles and 64-bit division.
struct Pair { double a; long long b; };
__device__ __noinline__ Pair combine(Pair x, Pair y) { return {x.a * y.a + 1.0, x.b / (y.b | 1) + x.b % (y.b | 1)}; }
__device__ __noinline__ int choose(int which, int value) {
  switch (which) {
  case 0: return value + 1;
  case 1: return value * 3;
  case 2: return value ^ 0x55;
  case 3: return -value;
  case 4: return value >> 2;
  case 5: return __brev(value);
  case 6: return __clz(value);
  case 7: return __popc(value);
  default: return 0;
  }
}
extern "C" __global__ void calls(const double *x, const long long *y, double *a, long long *b, int *c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  Pair pair = combine({x[i], y[i]}, {x[(i + 1) % n], y[(i + 1) % n]});
  a[i] = sqrt(pair.a * pair.a) / 3.0;
  b[i] = pair.b;
  int history[16];
  int value = (int)y[i];
  for (int step = 0; step < 16; ++step) {
    value = choose((value ^ step) & 7, value);
    history[(step * 5 + i) & 15] = value;
  }
  int sum = 0;
  for (int step = 0; step < 16; ++step)
    sum = sum * 31 + history[(i + step) & 15];
  c[i] = sum;
}
