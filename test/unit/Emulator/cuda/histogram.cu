// 256 bins: shared counters of a block, then global ones.
extern "C" __global__ void histogram(const unsigned char *data, unsigned *bins, unsigned long long *total, int n) {
  __shared__ unsigned local[256];
  for (int i = threadIdx.x; i < 256; i += blockDim.x)
    local[i] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    atomicAdd(&local[data[i]], 1u);
  __syncthreads();
  for (int i = threadIdx.x; i < 256; i += blockDim.x)
    if (local[i]) {
      atomicAdd(&bins[i], local[i]);
      atomicAdd(total, (unsigned long long)local[i]);
    }
}
