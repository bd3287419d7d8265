// RUN: lathe-opt %s -llm-drop-unused | FileCheck %s
// RUN: lathe-interp %s --tokens 1,0 > %t.before
// RUN: lathe-opt %s -llm-drop-unused | lathe-interp - --tokens 1,0 | diff %t.before -

// CHECK-NOT: @unused
// CHECK: llm.kv_group @kv
// CHECK-NOT: @unused
// CHECK: llm.param @e
// CHECK-NOT: @unused
llm.kv_group @unused_kv layers [#llm.kv_layer<1, 2, 2>] key f32 value f32 window 0 page 0
llm.kv_group @kv layers [#llm.kv_layer<1, 2, 2>] key f32 value f32 window 0 page 0
llm.param @unused : tensor<2xf32> = dense<0.0> : tensor<2xf32>
llm.param @e : tensor<2x2xf32> = #llm.synthetic<1, f32, [2, 2]>
func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x2xf32>, !llm.kv) {
  %e = llm.weight @e : tensor<2x2xf32>
  %x = llm.embed %b, %e : tensor<2x2xf32> -> tensor<?x2xf32>
  %kv1 = llm.kv.append %kv, %x, %x, %b group @kv layer 0 : tensor<?x2xf32>, tensor<?x2xf32>
  return %x, %kv1 : tensor<?x2xf32>, !llm.kv
}
