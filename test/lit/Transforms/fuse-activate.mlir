// RUN: lathe-opt %s -llm-fuse-activate -remarks-filter=".*" -remark-format=emitRemark 2>%t.remarks | FileCheck %s
// RUN: FileCheck %s --check-prefix=REMARK < %t.remarks
// RUN: lathe-interp %s --tokens 1,2,3 > %t.before
// RUN: lathe-opt %s -llm-fuse-activate | lathe-interp - --tokens 1,2,3 | diff %t.before -

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

  // CHECK: llm.fused "activate"(%{{.*}}) : (tensor<?x64xf32>) -> tensor<?x64x!llm.act<int8>> {
  // CHECK:   llm.activation gelu_tanh
  // CHECK-NEXT: llm.quantize
  %a = llm.activation gelu_tanh %x : tensor<?x64xf32>
  %aq = llm.quantize %a : tensor<?x64xf32> -> tensor<?x64x!llm.act<int8>>
  %y = llm.linear %aq, %w : (tensor<?x64x!llm.act<int8>>, tensor<64x64x!llm.q<q8_0>>) -> tensor<?x64xf32>
  // CHECK: llm.fused "activate"(%{{.*}}, %{{.*}}) : (tensor<?x64xf32>, tensor<?x64xf32>) -> tensor<?x64x!llm.act<int8>> {
  // CHECK:   llm.glu silu
  // CHECK-NEXT: llm.quantize
  %g = llm.glu silu %x, %y : tensor<?x64xf32>
  %gq = llm.quantize %g : tensor<?x64xf32> -> tensor<?x64x!llm.act<int8>>
  %z = llm.linear %gq, %v : (tensor<?x64x!llm.act<int8>>, tensor<64x64x!llm.q<q8_0>>) -> tensor<?x64xf32>
  // REMARK: remark: {{.*}}llm.activation{{.*}}the result is not used by one quantize only
  // CHECK: llm.activation relu
  // CHECK-NEXT: return
  %o = llm.activation relu %z : tensor<?x64xf32>
  return %o, %kv : tensor<?x64xf32>, !llm.kv
}
