// Sorts 1024 keys with their positions in shared memory.
extern "C" __global__ void bitonic(unsigned *keys, unsigned *positions) {
  __shared__ unsigned key[1024], position[1024];
  unsigned base = blockIdx.x * 1024;
  for (unsigned i = threadIdx.x; i < 1024; i += blockDim.x) {
    key[i] = keys[base + i];
    position[i] = i;
  }
  for (unsigned size = 2; size <= 1024; size *= 2)
    for (unsigned stride = size / 2; stride > 0; stride /= 2) {
      __syncthreads();
      for (unsigned t = threadIdx.x; t < 512; t += blockDim.x) {
        unsigned i = 2 * t - (t & (stride - 1)), j = i + stride;
        bool up = (i & size) == 0;
        if ((key[i] > key[j]) == up) {
          unsigned swap = key[i];
          key[i] = key[j];
          key[j] = swap;
          swap = position[i];
          position[i] = position[j];
          position[j] = swap;
        }
      }
    }
  __syncthreads();
  for (unsigned i = threadIdx.x; i < 1024; i += blockDim.x) {
    keys[base + i] = key[i];
    positions[base + i] = position[i];
  }
}
