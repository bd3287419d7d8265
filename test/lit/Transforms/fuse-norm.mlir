// RUN: lathe-opt %s -llm-fuse-norm -remarks-filter=".*" -remark-format=emitRemark 2>%t.remarks | FileCheck %s
// RUN: FileCheck %s --check-prefix=REMARK < %t.remarks
// RUN: lathe-interp %s --tokens 1,2,3 > %t.before
// RUN: lathe-opt %s -llm-fuse-norm | lathe-interp - --tokens 1,2,3 | diff %t.before -

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

  // CHECK: %[[Q:.*]] = llm.fused "norm"(%[[X:.*]], %[[N:.*]]) : (tensor<?x64xf32>, tensor<64xf32>) -> tensor<?x64x!llm.act<int8>> {
  // CHECK-NEXT: ^bb0(%[[A0:.*]]: tensor<?x64xf32>, %[[A1:.*]]: tensor<64xf32>):
  // CHECK-NEXT:   %[[Y:.*]] = llm.rms_norm %[[A0]], %[[A1]]
  // CHECK-NEXT:   %[[R:.*]] = llm.quantize %[[Y]]
  // CHECK-NEXT:   llm.yield %[[R]]
  // CHECK: llm.linear %[[Q]]
  %h = llm.rms_norm %x, %n eps 1.0e-5 : tensor<?x64xf32>, tensor<64xf32>
  %q = llm.quantize %h : tensor<?x64xf32> -> tensor<?x64x!llm.act<int8>>
  %y = llm.linear %q, %w : (tensor<?x64x!llm.act<int8>>, tensor<64x64x!llm.q<q8_0>>) -> tensor<?x64xf32>
  // A norm behind a sublayer takes the addition along.
  // CHECK: %[[S:.*]] = llm.fused "norm"(%{{.*}}, %[[N]], %[[X]])
  // CHECK:   llm.rms_norm
  // CHECK-NEXT: llm.add
  // CHECK-NEXT: llm.yield
  %p = llm.rms_norm %y, %n eps 1.0e-5 : tensor<?x64xf32>, tensor<64xf32>
  %s = llm.add %x, %p : tensor<?x64xf32>
  // CHECK: %[[L:.*]] = llm.fused "norm"(%[[S]], %[[N]])
  // CHECK:   llm.layer_norm
  // CHECK-NEXT: llm.quantize
  %l = llm.layer_norm %s, %n, %n eps 1.0e-5 : tensor<?x64xf32>, tensor<64xf32>
  %lq = llm.quantize %l : tensor<?x64xf32> -> tensor<?x64x!llm.act<int8>>
  %z = llm.linear %lq, %v : (tensor<?x64x!llm.act<int8>>, tensor<64x64x!llm.q<q8_0>>) -> tensor<?x64xf32>
  // Two users: stays.
  // REMARK: remark: {{.*}}llm.rms_norm{{.*}}the result is not used by one quantize or addition only
  %t = llm.rms_norm %z, %n eps 1.0e-5 : tensor<?x64xf32>, tensor<64xf32>
  %tq = llm.quantize %t : tensor<?x64xf32> -> tensor<?x64x!llm.act<int8>>
  %u = llm.linear %tq, %v : (tensor<?x64x!llm.act<int8>>, tensor<64x64x!llm.q<q8_0>>) -> tensor<?x64xf32>
  %o = llm.add %t, %u : tensor<?x64xf32>
  return %o, %kv : tensor<?x64xf32>, !llm.kv
}
