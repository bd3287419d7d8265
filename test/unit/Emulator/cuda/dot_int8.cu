// y[row] = sum of a[row][k] * x[k], int8 through dp4a, with a float scale per row.
extern "C" __global__ void dot_int8(const int *a, const int *x, const float *scale, float *y, int words) {
  int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
  int sum = 0;
  for (int k = lane; k < words; k += 32)
    sum = __dp4a(a[row * words + k], x[k], sum);
  sum = __reduce_add_sync(0xffffffffu, sum);
  if (lane == 0) y[row] = (float)sum * scale[row];
}
