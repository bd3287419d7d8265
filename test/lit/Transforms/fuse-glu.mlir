// RUN: lathe-opt %s -llm-fuse-glu -remarks-filter=".*" -remark-format=emitRemark 2>%t.remarks | FileCheck %s
// RUN: FileCheck %s --check-prefix=REMARK < %t.remarks
// RUN: lathe-interp %s --tokens 1,2,3 > %t.before
// RUN: lathe-opt %s -llm-fuse-glu | lathe-interp - --tokens 1,2,3 | diff %t.before -

llm.param @e : tensor<8x64xf32> = #llm.synthetic<1, f32, [8, 64]>
llm.param @n : tensor<64xf32> = #llm.synthetic<2, f32, [64]>
llm.param @w : tensor<64x64x!llm.q<q8_0>> = #llm.synthetic<3, q8_0, [64, 64]>
llm.param @v : tensor<64x64x!llm.q<q8_0>> = #llm.synthetic<4, q8_0, [64, 64]>
llm.param @f : tensor<64x64xf32> = #llm.synthetic<5, f32, [64, 64]>

// CHECK-LABEL: func.func @step
func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x64xf32>, !llm.kv) {
  %e = llm.weight @e : tensor<8x64xf32>
  %n = llm.weight @n : tensor<64xf32>
  %w = llm.weight @w : tensor<64x64x!llm.q<q8_0>>
  %v = llm.weight @v : tensor<64x64x!llm.q<q8_0>>
  %x = llm.embed %b, %e {scale = 8.0 : f32} : tensor<8x64xf32> -> tensor<?x64xf32>
  %f = llm.weight @f : tensor<64x64xf32>
  %q = llm.quantize %x : tensor<?x64xf32> -> tensor<?x64x!llm.act<int8>>
  // CHECK: %[[F:.*]] = llm.fused "glu_linear"(%[[Q:.*]], %[[W:.*]], %[[V:.*]]) : (tensor<?x64x!llm.act<int8>>, tensor<64x64x!llm.q<q8_0>>, tensor<64x64x!llm.q<q8_0>>) -> tensor<?x64x!llm.act<int8>> {
  // CHECK-NEXT: ^bb0(%[[A0:.*]]: tensor<?x64x!llm.act<int8>>, %[[A1:.*]]: tensor<64x64x!llm.q<q8_0>>, %[[A2:.*]]: tensor<64x64x!llm.q<q8_0>>):
  // CHECK-NEXT:   %[[G:.*]] = llm.linear %[[A0]], %[[A1]]
  // CHECK-NEXT:   %[[U:.*]] = llm.linear %[[A0]], %[[A2]]
  // CHECK-NEXT:   %[[Y:.*]] = llm.glu silu %[[G]], %[[U]]
  // CHECK-NEXT:   %[[R:.*]] = llm.quantize %[[Y]]
  // CHECK-NEXT:   llm.yield %[[R]]
  %u = llm.linear %q, %v : (tensor<?x64x!llm.act<int8>>, tensor<64x64x!llm.q<q8_0>>) -> tensor<?x64xf32>
  %g = llm.linear %q, %w : (tensor<?x64x!llm.act<int8>>, tensor<64x64x!llm.q<q8_0>>) -> tensor<?x64xf32>
  %y = llm.glu silu %g, %u : tensor<?x64xf32>
  %yq = llm.quantize %y : tensor<?x64xf32> -> tensor<?x64x!llm.act<int8>>
  %z = llm.linear %yq, %w : (tensor<?x64x!llm.act<int8>>, tensor<64x64x!llm.q<q8_0>>) -> tensor<?x64xf32>
  // Weights of different storage: left to llm-fuse-activate.
  // REMARK: remark: {{.*}}the weights of gate and up differ in storage
  // CHECK: llm.glu silu
  // CHECK-NOT: llm.fused
  %g2 = llm.linear %q, %w : (tensor<?x64x!llm.act<int8>>, tensor<64x64x!llm.q<q8_0>>) -> tensor<?x64xf32>
  %u2 = llm.linear %q, %f : (tensor<?x64x!llm.act<int8>>, tensor<64x64xf32>) -> tensor<?x64xf32>
  %y2 = llm.glu silu %g2, %u2 : tensor<?x64xf32>
  %y2q = llm.quantize %y2 : tensor<?x64xf32> -> tensor<?x64x!llm.act<int8>>
  %z2 = llm.linear %y2q, %w : (tensor<?x64x!llm.act<int8>>, tensor<64x64x!llm.q<q8_0>>) -> tensor<?x64xf32>
  %o = llm.add %z, %z2 : tensor<?x64xf32>
  return %o, %kv : tensor<?x64xf32>, !llm.kv
}
