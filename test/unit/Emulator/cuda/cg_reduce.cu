// Sum, maximum and a segmented sum with cooperative groups.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
extern "C" __global__ void cg_reduce(const float *x, float *sums, int *maxima, float *segments, int n) {
  cg::thread_block block = cg::this_thread_block();
  cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
  cg::thread_block_tile<8> eight = cg::tiled_partition<8>(block);
  __shared__ float partial[32];
  float value = 0;
  int largest = -2147483647;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    value += x[i];
    largest = max(largest, __float_as_int(fabsf(x[i])));
  }
  float segment = cg::reduce(eight, value, cg::plus<float>());
  if (eight.thread_rank() == 0) segments[blockIdx.x * (blockDim.x / 8) + block.thread_rank() / 8] = segment;
  value = cg::reduce(warp, value, cg::plus<float>());
  largest = cg::reduce(warp, largest, cg::greater<int>());
  if (warp.thread_rank() == 0) partial[warp.meta_group_rank()] = value;
  if (warp.thread_rank() == 0) atomicMax(maxima, largest);
  block.sync();
  if (warp.meta_group_rank() == 0) {
    value = warp.thread_rank() < warp.meta_group_size() ? partial[warp.thread_rank()] : 0.0f;
    value = cg::reduce(warp, value, cg::plus<float>());
    if (warp.thread_rank() == 0) sums[blockIdx.x] = value;
  }
}
