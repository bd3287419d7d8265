// RUN: lathe-opt %s -llm-fuse-residual -remarks-filter=".*" -remark-format=emitRemark 2>%t.remarks | FileCheck %s
// RUN: FileCheck %s --check-prefix=REMARK < %t.remarks
// RUN: lathe-interp %s --tokens 1,2,3 > %t.before
// RUN: lathe-opt %s -llm-fuse-residual | lathe-interp - --tokens 1,2,3 | diff %t.before -

llm.param @e : tensor<8x64xf32> = #llm.synthetic<1, f32, [8, 64]>
llm.param @n : tensor<64xf32> = #llm.synthetic<2, f32, [64]>
llm.param @w : tensor<64x64x!llm.q<q8_0>> = #llm.synthetic<3, q8_0, [64, 64]>
llm.param @v : tensor<64x64x!llm.q<q8_0>> = #llm.synthetic<4, q8_0, [64, 64]>

// CHECK-LABEL: func.func @step
func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x64xf32>, !llm.kv) {
  %e = llm.weight @e : tensor<8x64xf32>
  %n = llm.weight @n : tensor<64xf32>
  %w = llm.weight @w : tensor<64x64x!llm.q<q8_0>>
  %v = llm.weight @v : tensor<64x64x!llm.q<q8_0>>
  %x = llm.embed %b, %e {scale = 8.0 : f32} : tensor<8x64xf32> -> tensor<?x64xf32>

  %q = llm.quantize %x : tensor<?x64xf32> -> tensor<?x64x!llm.act<int8>>
  // CHECK: %[[S:.*]] = llm.fused "residual_linear"(%[[Q:.*]], %[[W:.*]], %[[X:.*]]) : (tensor<?x64x!llm.act<int8>>, tensor<64x64x!llm.q<q8_0>>, tensor<?x64xf32>) -> tensor<?x64xf32> {
  // CHECK:   %[[Y:.*]] = llm.linear %{{.*}}, %{{.*}} :
  // CHECK-NEXT: %[[Z:.*]] = llm.add %{{.*}}, %[[Y]]
  // CHECK-NEXT: llm.yield %[[Z]]
  %y = llm.linear %q, %w : (tensor<?x64x!llm.act<int8>>, tensor<64x64x!llm.q<q8_0>>) -> tensor<?x64xf32>
  %s = llm.add %x, %y : tensor<?x64xf32>
  // The linear's result is used twice: stays.
  // CHECK: %[[P:.*]] = llm.linear
  // CHECK-NEXT: llm.add %[[P]], %[[P]]
  %p = llm.linear %q, %v : (tensor<?x64x!llm.act<int8>>, tensor<64x64x!llm.q<q8_0>>) -> tensor<?x64xf32>
  %t = llm.add %p, %p : tensor<?x64xf32>
  %m0 = llm.linear %q, %v, %w : (tensor<?x64x!llm.act<int8>>, tensor<64x64x!llm.q<q8_0>>, tensor<64x64x!llm.q<q8_0>>) -> tensor<?x128xf32>
  %m1 = llm.scale %m0 by 2.0 : tensor<?x128xf32>
  // Several weights: stays.
  // REMARK: remark: {{.*}}llm.linear{{.*}}the linear has several weights
  // CHECK: llm.linear
  // CHECK-NEXT: llm.scale
  // CHECK-NEXT: llm.linear
  // CHECK-NEXT: llm.add
  %m = llm.linear %q, %w, %v : (tensor<?x64x!llm.act<int8>>, tensor<64x64x!llm.q<q8_0>>, tensor<64x64x!llm.q<q8_0>>) -> tensor<?x128xf32>
  %u = llm.add %m, %m1 : tensor<?x128xf32>
  %st = llm.mul %s, %t : tensor<?x64xf32>
  %c = llm.columns %u from 64 : tensor<?x128xf32> -> tensor<?x64xf32>
  %o = llm.mul %st, %c : tensor<?x64xf32>
  return %o, %kv : tensor<?x64xf32>, !llm.kv
}
