// Inclusive scan of each block's 512 values with shuffles.
extern "C" __global__ void scan(const int *in, int *out, int n) {
  __shared__ int sums[16];
  int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int value = i < n ? in[i] : 0;
  for (int by = 1; by < 32; by *= 2) {
    int other = __shfl_up_sync(0xffffffffu, value, by);
    if (lane >= by) value += other;
  }
  if (lane == 31) sums[warp] = value;
  __syncthreads();
  if (warp == 0) {
    int sum = lane < 16 ? sums[lane] : 0;
    for (int by = 1; by < 16; by *= 2) {
      int other = __shfl_up_sync(0xffffffffu, sum, by);
      if (lane >= by) sum += other;
    }
    if (lane < 16) sums[lane] = sum;
  }
  __syncthreads();
  if (warp > 0) value += sums[warp - 1];
  if (i < n) out[i] = value;
}
