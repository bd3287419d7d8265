// C[M,N] = A[M,K] * B[K,N] in float, 32x32 tiles, double-buffered with cp.async.
#include <cuda_pipeline.h>
constexpr int T = 32;
extern "C" __global__ void pipeline_gemm(const float *a, const float *b, float *c, int m, int n, int k) {
  __shared__ __align__(16) float sa[2][T][T], sb[2][T][T];
  int tx = threadIdx.x, row = blockIdx.y * T, column = blockIdx.x * T;
  auto fetch = [&](int stage, int at) {
    int r = tx / 8, q = tx % 8 * 4;
    __pipeline_memcpy_async(&sa[stage][r][q], &a[(row + r) * k + at + q], 16);
    __pipeline_memcpy_async(&sb[stage][r][q], &b[(at + r) * n + column + q], 16);
    __pipeline_commit();
  };
  float sum[4] = {0, 0, 0, 0};
  int r = tx / 8, q = tx % 8 * 4;
  fetch(0, 0);
  for (int at = 0, stage = 0; at < k; at += T, stage ^= 1) {
    if (at + T < k) {
      fetch(stage ^ 1, at + T);
      __pipeline_wait_prior(1);
    } else {
      __pipeline_wait_prior(0);
    }
    __syncthreads();
    for (int i = 0; i < T; ++i)
      for (int j = 0; j < 4; ++j)
        sum[j] = fmaf(sa[stage][r][i], sb[stage][i][q + j], sum[j]);
    __syncthreads();
  }
  for (int j = 0; j < 4; ++j)
    c[(row + r) * n + column + q + j] = sum[j];
}
