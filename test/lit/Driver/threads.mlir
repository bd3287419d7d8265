// The compiler works with as many threads as the process may run at once, not as many as the machine has.
// RUN: %python -c "import os, sys; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); os.execvp(sys.argv[1], sys.argv[1:])" lathe-compiler compile %s -o %t.lathe --target avx2 --quiet 2>&1 | FileCheck %s
// RUN: lathe-compiler compile %s -o %t.lathe --target avx2 --quiet --threads 3 2>&1 | FileCheck %s --check-prefix=GIVEN
// CHECK: packing {{.*}} s, 1 threads)
// GIVEN: packing {{.*}} s, 3 threads)

module attributes {llm.model = {max_sequence = 64 : i64}} {
  llm.param @w : tensor<16x16xf32> = #llm.synthetic<1, f32, [16, 16]>
  func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x16xf32>, !llm.kv) {
    %w = llm.weight @w : tensor<16x16xf32>
    %x = llm.embed %b, %w : tensor<16x16xf32> -> tensor<?x16xf32>
    %s = llm.select_rows %x, %b : tensor<?x16xf32>
    %y = llm.linear %s, %w : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
    return %y, %kv : tensor<?x16xf32>, !llm.kv
  }
}
