// RUN: lathe-opt %s -llm-fuse-attention-quantize -remarks-filter=".*" -remark-format=emitRemark 2>%t.remarks | FileCheck %s
// RUN: FileCheck %s --check-prefix=REMARK < %t.remarks
// RUN: lathe-interp %s --tokens 1,2,3 > %t.before
// RUN: lathe-opt %s -llm-fuse-attention-quantize | lathe-interp - --tokens 1,2,3 | diff %t.before -

llm.param @e : tensor<8x64xf32> = #llm.synthetic<1, f32, [8, 64]>
llm.param @n : tensor<64xf32> = #llm.synthetic<2, f32, [64]>
llm.param @w : tensor<64x64x!llm.q<q8_0>> = #llm.synthetic<3, q8_0, [64, 64]>
llm.param @v : tensor<64x64x!llm.q<q8_0>> = #llm.synthetic<4, q8_0, [64, 64]>
llm.kv_group @kv layers [#llm.kv_layer<1, 32, 32>, #llm.kv_layer<1, 32, 16>] key f16 value f16 window 0 page 0
llm.param @f : tensor<16xf32> = dense<0.25> : tensor<16xf32>
llm.param @hn : tensor<32xf32> = #llm.synthetic<6, f32, [32]>

// CHECK-LABEL: func.func @step
func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x64xf32>, !llm.kv) {
  %e = llm.weight @e : tensor<8x64xf32>
  %n = llm.weight @n : tensor<64xf32>
  %w = llm.weight @w : tensor<64x64x!llm.q<q8_0>>
  %v = llm.weight @v : tensor<64x64x!llm.q<q8_0>>
  %x = llm.embed %b, %e {scale = 8.0 : f32} : tensor<8x64xf32> -> tensor<?x64xf32>

  %k = llm.columns %x from 0 : tensor<?x64xf32> -> tensor<?x32xf32>
  %val = llm.columns %x from 32 : tensor<?x64xf32> -> tensor<?x32xf32>
  %small = llm.columns %x from 32 : tensor<?x64xf32> -> tensor<?x16xf32>
  %kv1 = llm.kv.append %kv, %k, %val, %b group @kv layer 0 : tensor<?x32xf32>, tensor<?x32xf32>
  %kv2 = llm.kv.append %kv1, %k, %small, %b group @kv layer 1 : tensor<?x32xf32>, tensor<?x16xf32>
  // CHECK: llm.fused "attention"(%[[X:.*]], %[[KV:.*]], %[[B:.*]]) : (tensor<?x64xf32>, !llm.kv, !llm.batch) -> tensor<?x64x!llm.act<int8>> {
  // CHECK:   %[[O:.*]] = llm.attention %{{.*}} group @kv layer 0
  // CHECK-NEXT: llm.quantize %[[O]]
  %o = llm.attention %x, %kv1, %b group @kv layer 0 heads 2 scale 0.25 : tensor<?x64xf32> -> tensor<?x64xf32>
  %oq = llm.quantize %o : tensor<?x64xf32> -> tensor<?x64x!llm.act<int8>>
  %y = llm.linear %oq, %w : (tensor<?x64x!llm.act<int8>>, tensor<64x64x!llm.q<q8_0>>) -> tensor<?x64xf32>
  // Values of 16: a group of the rounding spans two heads.
  // REMARK: remark: {{.*}}a group of the rounding would span two heads
  // CHECK: llm.attention {{.*}} layer 1
  // CHECK-NEXT: llm.quantize
  // CHECK-NEXT: return
  %p = llm.attention %y, %kv2, %b group @kv layer 1 heads 2 scale 0.25 : tensor<?x64xf32> -> tensor<?x32xf32>
  %pq = llm.quantize %p : tensor<?x32xf32> -> tensor<?x32x!llm.act<int8>>
  return %y, %kv2 : tensor<?x64xf32>, !llm.kv
}
