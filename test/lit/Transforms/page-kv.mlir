// RUN: lathe-opt %s -pass-pipeline='builtin.module(llm-page-kv{page=16})' | FileCheck %s
// RUN: lathe-opt %s -llm-page-kv | FileCheck %s --check-prefix=DEFAULT
// RUN: not lathe-opt %s -pass-pipeline='builtin.module(llm-page-kv{page=24})' 2>&1 | FileCheck %s --check-prefix=ERROR
// Real block tables, and pages left of the window are given back and poisoned: the same bits.
// RUN: lathe-interp %s --tokens 1,2,3,4,5,6,7,0,1,2,3,4,5,6,7,0,1,2,3,4,5,6,7,0,7,6,5,4,3,2,1,0,7,6,5,4,3,2,1,0 --tokens 7,7,3 > %t.before
// RUN: lathe-opt %s -pass-pipeline='builtin.module(llm-page-kv{page=16})' | lathe-interp - --chunk 5 --tokens 1,2,3,4,5,6,7,0,1,2,3,4,5,6,7,0,1,2,3,4,5,6,7,0,7,6,5,4,3,2,1,0,7,6,5,4,3,2,1,0 --tokens 7,7,3 | diff %t.before -

// CHECK: llm.kv_group @kv layers {{.*}} key f32 value f32 window 8 page 16
// DEFAULT: page 32
// ERROR: error: llm-page-kv: expected page 0 or a multiple of 16 tokens, found 24
llm.kv_group @kv layers [#llm.kv_layer<1, 32, 32>] key f32 value f32 window 8 page 0
llm.param @e : tensor<8x32xf32> = #llm.synthetic<1, f32, [8, 32]>
func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x32xf32>, !llm.kv) {
  %e = llm.weight @e : tensor<8x32xf32>
  %x = llm.embed %b, %e {scale = 8.0 : f32} : tensor<8x32xf32> -> tensor<?x32xf32>
  %kv1 = llm.kv.append %kv, %x, %x, %b group @kv layer 0 : tensor<?x32xf32>, tensor<?x32xf32>
  %y = llm.attention %x, %kv1, %b group @kv layer 0 heads 1 scale 0.25 : tensor<?x32xf32> -> tensor<?x32xf32>
  return %y, %kv1 : tensor<?x32xf32>, !llm.kv
}
