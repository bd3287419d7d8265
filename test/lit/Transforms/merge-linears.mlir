// RUN: lathe-opt %s -llm-merge-linears -remarks-filter=".*" -remark-format=emitRemark 2>%t.remarks | FileCheck %s
// RUN: FileCheck %s --check-prefix=REMARK < %t.remarks
// RUN: lathe-interp %s --tokens 1,2,3 > %t.before
// RUN: lathe-opt %s -llm-merge-linears | lathe-interp - --tokens 1,2,3 | diff %t.before -
// RUN: lathe-opt %s -pass-pipeline='builtin.module(llm-merge-linears{concat=false glu=true})' | FileCheck %s --check-prefix=SEGMENTS
// RUN: lathe-opt %s -pass-pipeline='builtin.module(llm-merge-linears{concat=false glu=true})' | lathe-interp - --tokens 1,2,3 | diff %t.before -

llm.param @e : tensor<8x64xf32> = #llm.synthetic<1, f32, [8, 64]>
llm.param @n : tensor<64xf32> = #llm.synthetic<2, f32, [64]>
llm.param @w : tensor<64x64x!llm.q<q8_0>> = #llm.synthetic<3, q8_0, [64, 64]>
llm.param @v : tensor<64x64x!llm.q<q8_0>> = #llm.synthetic<4, q8_0, [64, 64]>
// CHECK: llm.param @"wq+wk" : tensor<96x64x!llm.q<q8_0>> = #llm.concat<[#llm.synthetic<11, {{.*}}>, #llm.synthetic<12, {{.*}}>]>
// CHECK-NOT: llm.param @wq
llm.param @wq : tensor<64x64x!llm.q<q8_0>> = #llm.synthetic<11, q8_0, [64, 64]>
llm.param @wk : tensor<32x64x!llm.q<q8_0>> = #llm.synthetic<12, q8_0, [32, 64]>
llm.param @wv : tensor<32x64xf16> = #llm.synthetic<13, f16, [32, 64]>
// CHECK: llm.param @"bw+bv" : tensor<128xf32>
llm.param @ow : tensor<64x32xf32> = #llm.synthetic<16, f32, [64, 32]>
llm.param @bw : tensor<64xf32> = #llm.synthetic<14, f32, [64]>
llm.param @bv : tensor<64xf32> = #llm.synthetic<15, f32, [64]>

// CHECK-LABEL: func.func @step
// SEGMENTS-LABEL: func.func @step
func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x64xf32>, !llm.kv) {
  %e = llm.weight @e : tensor<8x64xf32>
  %n = llm.weight @n : tensor<64xf32>
  %w = llm.weight @w : tensor<64x64x!llm.q<q8_0>>
  %v = llm.weight @v : tensor<64x64x!llm.q<q8_0>>
  %x = llm.embed %b, %e {scale = 8.0 : f32} : tensor<8x64xf32> -> tensor<?x64xf32>
  %wq = llm.weight @wq : tensor<64x64x!llm.q<q8_0>>
  %wk = llm.weight @wk : tensor<32x64x!llm.q<q8_0>>
  // CHECK: %[[C:.*]] = llm.weight @"wq+wk"
  // CHECK: %[[V:.*]] = llm.weight @wv
  // CHECK: %[[M:.*]] = llm.linear %{{.*}}, %[[C]], %[[V]] :
  // CHECK-NEXT: %[[Q:.*]] = llm.columns %[[M]] from 0 : tensor<?x128xf32> -> tensor<?x64xf32>
  // CHECK-NEXT: %[[K:.*]] = llm.columns %[[M]] from 64 : tensor<?x128xf32> -> tensor<?x32xf32>
  // CHECK-NEXT: llm.columns %[[M]] from 96 : tensor<?x128xf32> -> tensor<?x32xf32>
  // SEGMENTS: llm.linear %{{[^ ]*}}, %{{[^ ]*}}, %{{[^ ]*}}, %{{[^ ]*}} :
  %q = llm.linear %x, %wq : (tensor<?x64xf32>, tensor<64x64x!llm.q<q8_0>>) -> tensor<?x64xf32>
  %k = llm.linear %x, %wk : (tensor<?x64xf32>, tensor<32x64x!llm.q<q8_0>>) -> tensor<?x32xf32>
  %wv = llm.weight @wv : tensor<32x64xf16>
  %val = llm.linear %x, %wv : (tensor<?x64xf32>, tensor<32x64xf16>) -> tensor<?x32xf32>
  %t = llm.mul %k, %val : tensor<?x32xf32>
  // Both weights have another reader, so they stay segments; the biases are joined.
  // CHECK: llm.linear %[[Q]], %{{.*}}, %{{.*}} bias %{{.*}} : tensor<128xf32>
  %bw = llm.weight @bw : tensor<64xf32>
  %ow = llm.weight @ow : tensor<64x32xf32>
  %bv = llm.weight @bv : tensor<64xf32>
  %y = llm.linear %q, %w bias %bw : tensor<64xf32> : (tensor<?x64xf32>, tensor<64x64x!llm.q<q8_0>>) -> tensor<?x64xf32>
  %z = llm.linear %q, %v bias %bv : tensor<64xf32> : (tensor<?x64xf32>, tensor<64x64x!llm.q<q8_0>>) -> tensor<?x64xf32>
  // A gate and up pair is left to llm-fuse-glu.
  // REMARK-COUNT-2: remark: {{.*}}a gate and up pair of equal storage, left to llm-fuse-glu
  // CHECK: llm.linear
  // CHECK-NEXT: llm.linear
  // CHECK-NEXT: llm.glu
  // SEGMENTS: llm.linear %{{[^ ]*}}, %{{[^ ]*}}, %{{[^ ]*}} :
  // SEGMENTS-NEXT: llm.columns
  // SEGMENTS-NEXT: llm.columns
  // SEGMENTS-NEXT: llm.glu
  %g = llm.linear %y, %w : (tensor<?x64xf32>, tensor<64x64x!llm.q<q8_0>>) -> tensor<?x64xf32>
  %u = llm.linear %y, %v : (tensor<?x64xf32>, tensor<64x64x!llm.q<q8_0>>) -> tensor<?x64xf32>
  %s = llm.glu silu %g, %u : tensor<?x64xf32>
  %r0 = llm.mul %s, %z : tensor<?x64xf32>
  // REMARK: remark: {{.*}}some linears of the input have a bias and some have none
  // CHECK: llm.linear
  // CHECK-NEXT: llm.linear
  %i = llm.linear %t, %ow : (tensor<?x32xf32>, tensor<64x32xf32>) -> tensor<?x64xf32>
  %j = llm.linear %t, %ow bias %bw : tensor<64xf32> : (tensor<?x32xf32>, tensor<64x32xf32>) -> tensor<?x64xf32>
  %ij = llm.add %i, %j : tensor<?x64xf32>
  %tt = llm.columns %t from 0 : tensor<?x32xf32> -> tensor<?x32xf32>
  %r = llm.mul %r0, %ij : tensor<?x64xf32>
  return %r, %kv : tensor<?x64xf32>, !llm.kv
}
