// Keeps the positive values (in order within a warp), counts equal keys with match_any, divergent loops.
extern "C" __global__ void compact(const int *in, int *out, int *count, int *equal, int *steps, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  bool keep = i < n && in[i] > 0;
  unsigned mask = __ballot_sync(0xffffffffu, keep);
  int lane = threadIdx.x % 32, base = 0;
  if (lane == 0 && mask) base = atomicAdd(count, __popc(mask));
  base = __shfl_sync(0xffffffffu, base, 0);
  if (keep) out[base + __popc(mask & ((1u << lane) - 1))] = in[i];
  if (i < n) {
    unsigned peers = __match_any_sync(__activemask(), in[i] % 7);
    equal[i] = __popc(peers);
    int value = in[i] < 0 ? -in[i] : in[i], taken = 0;
    value = value % 1000 + 1;
    while (value != 1 && taken < 200) {
      value = value & 1 ? 3 * value + 1 : value / 2;
      ++taken;
    }
    steps[i] = taken;
  }
}
