// RUN: lathe-opt %s -pass-pipeline='builtin.module(llm-set-kv{key=bf16 value=int8})' | FileCheck %s
// RUN: lathe-opt %s -llm-set-kv | FileCheck %s --check-prefix=DEFAULT
// RUN: not lathe-opt %s -pass-pipeline='builtin.module(llm-set-kv{value=int3})' 2>&1 | FileCheck %s --check-prefix=ERROR
// The interpreter rounds entries: bf16 keys change the scores, equal formats change nothing.
// RUN: lathe-interp %s --tokens 1,2,3 > %t.before
// RUN: lathe-opt %s -pass-pipeline='builtin.module(llm-set-kv{key=f32 value=f32})' | lathe-interp - --tokens 1,2,3 | diff %t.before -
// RUN: lathe-opt %s -pass-pipeline='builtin.module(llm-set-kv{key=bf16 value=f32})' | lathe-interp - --tokens 1,2,3 | not diff -q %t.before -
// RUN: lathe-opt %s -pass-pipeline='builtin.module(llm-set-kv{key=int8 value=int8})' | lathe-interp - --tokens 1,2,3 > %t.int8
// RUN: lathe-opt %s -pass-pipeline='builtin.module(llm-set-kv{key=e4m3 value=e4m3})' | lathe-interp - --tokens 1,2,3 | not diff -q %t.int8 -

// CHECK: llm.kv_group @full layers {{.*}} key bf16 value int8 window 0 page 0
// CHECK: llm.kv_group @window layers {{.*}} key bf16 value int8 window 8 page 0
// DEFAULT: llm.kv_group @full layers {{.*}} key f16 value f16
// ERROR: error: llm-set-kv: expected value f32, f16, bf16, int8 or e4m3, found 'int3'
llm.kv_group @full layers [#llm.kv_layer<1, 32, 32>] key f32 value f32 window 0 page 0
llm.kv_group @window layers [#llm.kv_layer<1, 32, 32>] key f32 value f32 window 8 page 0
llm.param @e : tensor<8x32xf32> = #llm.synthetic<1, f32, [8, 32]>
func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x32xf32>, !llm.kv) {
  %e = llm.weight @e : tensor<8x32xf32>
  %x = llm.embed %b, %e {scale = 8.0 : f32} : tensor<8x32xf32> -> tensor<?x32xf32>
  %kv1 = llm.kv.append %kv, %x, %x, %b group @full layer 0 : tensor<?x32xf32>, tensor<?x32xf32>
  %y = llm.attention %x, %kv1, %b group @full layer 0 heads 1 scale 0.25 : tensor<?x32xf32> -> tensor<?x32xf32>
  return %y, %kv1 : tensor<?x32xf32>, !llm.kv
}
