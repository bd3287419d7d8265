// Row softmax with expf and logf, and the row's log-sum-exp.
extern "C" __global__ void softmax(const float *x, float *y, float *lse, int columns) {
  __shared__ float shared[33];
  const float *row = x + blockIdx.x * columns;
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  auto reduce = [&](float value, bool maximum) {
    for (int by = 16; by; by /= 2) {
      float other = __shfl_xor_sync(0xffffffffu, value, by);
      value = maximum ? fmaxf(value, other) : value + other;
    }
    __syncthreads();
    if (lane == 0) shared[warp] = value;
    __syncthreads();
    float result = shared[0];
    for (int i = 1; i < warps; ++i)
      result = maximum ? fmaxf(result, shared[i]) : result + shared[i];
    return result;
  };
  float largest = -INFINITY;
  for (int i = threadIdx.x; i < columns; i += blockDim.x)
    largest = fmaxf(largest, row[i]);
  largest = reduce(largest, true);
  float sum = 0;
  for (int i = threadIdx.x; i < columns; i += blockDim.x)
    sum += expf(row[i] - largest);
  sum = reduce(sum, false);
  for (int i = threadIdx.x; i < columns; i += blockDim.x)
    y[blockIdx.x * columns + i] = __expf(row[i] - largest) / sum;
  if (threadIdx.x == 0) lse[blockIdx.x] = largest + logf(sum);
}
