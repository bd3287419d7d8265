// sm_90: a bulk copy into shared memory completes a cuda::barrier; the result goes back with a bulk store.
#include <cuda/barrier>
#include <cuda/ptx>
#include <utility>
using barrier = cuda::barrier<cuda::thread_scope_block>;
extern "C" __global__ void bulk_barrier(const float *in, float *out, int tiles) {
  __shared__ alignas(128) float tile[256];
#pragma nv_diag_suppress static_var_with_dynamic_init
  __shared__ barrier ready;
  if (threadIdx.x == 0) init(&ready, blockDim.x);
  __syncthreads();
  for (int t = blockIdx.x; t < tiles; t += gridDim.x) {
    barrier::arrival_token token;
    if (threadIdx.x == 0) {
      cuda::device::memcpy_async_tx(tile, in + t * 256, cuda::aligned_size_t<16>(sizeof(tile)), ready);
      token = cuda::device::barrier_arrive_tx(ready, 1, sizeof(tile));
    } else {
      token = ready.arrive();
    }
    ready.wait(std::move(token));
    for (int i = threadIdx.x; i < 256; i += blockDim.x)
      tile[i] = tile[i] * tile[i] + 1.0f;
    cuda::ptx::fence_proxy_async(cuda::ptx::space_shared);
    __syncthreads();
    if (threadIdx.x == 0) {
      cuda::ptx::cp_async_bulk(cuda::ptx::space_global, cuda::ptx::space_shared, out + t * 256, tile, sizeof(tile));
      cuda::ptx::cp_async_bulk_commit_group();
      cuda::ptx::cp_async_bulk_wait_group_read(cuda::ptx::n32_t<0>());
    }
    __syncthreads();
  }
}
