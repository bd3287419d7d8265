// C[M,N] = A[M,K] * B[K,N]: one warp per 16x16 tile through the wmma API.
#include <mma.h>
using namespace nvcuda;
extern "C" __global__ void wmma_gemm(const half *a, const half *b, float *c, int m, int n, int k) {
  int row = blockIdx.y * 16, column = (blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32) * 16;
  if (column >= n) return;
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> fb;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc;
  wmma::fill_fragment(acc, 0.0f);
  for (int at = 0; at < k; at += 16) {
    wmma::load_matrix_sync(fa, a + row * k + at, k);
    wmma::load_matrix_sync(fb, b + at * n + column, n);
    wmma::mma_sync(acc, fa, fb, acc);
  }
  for (int i = 0; i < acc.num_elements; ++i)
    acc.x[i] *= 0.5f;
  wmma::store_matrix_sync(c + row * n + column, acc, n, wmma::mem_row_major);
}
