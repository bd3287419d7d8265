// RUN: lathe-opt %s -llm-fuse-rope-append -remarks-filter=".*" -remark-format=emitRemark 2>%t.remarks | FileCheck %s
// RUN: FileCheck %s --check-prefix=REMARK < %t.remarks
// RUN: lathe-interp %s --tokens 1,2,3 > %t.before
// RUN: lathe-opt %s -llm-fuse-rope-append | lathe-interp - --tokens 1,2,3 | diff %t.before -

llm.param @e : tensor<8x64xf32> = #llm.synthetic<1, f32, [8, 64]>
llm.param @n : tensor<64xf32> = #llm.synthetic<2, f32, [64]>
llm.param @w : tensor<64x64x!llm.q<q8_0>> = #llm.synthetic<3, q8_0, [64, 64]>
llm.param @v : tensor<64x64x!llm.q<q8_0>> = #llm.synthetic<4, q8_0, [64, 64]>
llm.kv_group @kv layers [#llm.kv_layer<1, 32, 32>, #llm.kv_layer<1, 32, 32>] key f16 value f16 window 0 page 0
llm.param @f : tensor<16xf32> = dense<0.25> : tensor<16xf32>
llm.param @hn : tensor<32xf32> = #llm.synthetic<6, f32, [32]>

// CHECK-LABEL: func.func @step
func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x64xf32>, !llm.kv) {
  %e = llm.weight @e : tensor<8x64xf32>
  %n = llm.weight @n : tensor<64xf32>
  %w = llm.weight @w : tensor<64x64x!llm.q<q8_0>>
  %v = llm.weight @v : tensor<64x64x!llm.q<q8_0>>
  %x = llm.embed %b, %e {scale = 8.0 : f32} : tensor<8x64xf32> -> tensor<?x64xf32>
  %f = llm.weight @f : tensor<16xf32>
  %hn = llm.weight @hn : tensor<32xf32>
  %a = llm.angles %b, %f : tensor<16xf32> -> tensor<?x32xf32>
  %m = llm.linear %x, %w, %v : (tensor<?x64xf32>, tensor<64x64x!llm.q<q8_0>>, tensor<64x64x!llm.q<q8_0>>) -> tensor<?x128xf32>
  %q = llm.columns %m from 0 : tensor<?x128xf32> -> tensor<?x64xf32>
  %k = llm.columns %m from 64 : tensor<?x128xf32> -> tensor<?x32xf32>
  %val = llm.columns %m from 96 : tensor<?x128xf32> -> tensor<?x32xf32>
  // CHECK: %[[F:.*]]:2 = llm.fused "rope_append"(%[[Q:.*]], %[[A:.*]], %[[K:.*]], %[[KV:.*]], %[[V:.*]], %[[B:.*]]) :
  // CHECK-NEXT: ^bb0(%[[A0:.*]]: tensor<?x64xf32>, %[[A1:.*]]: tensor<?x32xf32>, %[[A2:.*]]: tensor<?x32xf32>, %[[A3:.*]]: !llm.kv, %[[A4:.*]]: tensor<?x32xf32>, %[[A5:.*]]: !llm.batch):
  // CHECK-NEXT:   %[[QR:.*]] = llm.rope %[[A0]], %[[A1]] heads 2
  // CHECK-NEXT:   %[[KR:.*]] = llm.rope %[[A2]], %[[A1]] heads 1
  // CHECK-NEXT:   %[[C:.*]] = llm.kv.append %[[A3]], %[[KR]], %[[A4]], %[[A5]] group @kv layer 0
  // CHECK-NEXT:   llm.yield %[[QR]], %[[C]]
  // CHECK: llm.attention %[[F]]#0, %[[F]]#1
  %kr = llm.rope %k, %a heads 1 : tensor<?x32xf32>, tensor<?x32xf32>
  %kv1 = llm.kv.append %kv, %kr, %val, %b group @kv layer 0 : tensor<?x32xf32>, tensor<?x32xf32>
  %qr = llm.rope %q, %a heads 2 : tensor<?x64xf32>, tensor<?x32xf32>
  %o = llm.attention %qr, %kv1, %b group @kv layer 0 heads 2 scale 0.25 : tensor<?x64xf32> -> tensor<?x64xf32>
  // Head norms of q and k.
  // CHECK: llm.fused "rope_append"
  // CHECK:   llm.rms_norm %{{.*}} heads 2
  // CHECK-NEXT: llm.rope
  // CHECK-NEXT: llm.rms_norm
  // CHECK-NEXT: llm.rope
  // CHECK-NEXT: llm.kv.append
  %m2 = llm.linear %o, %w, %v : (tensor<?x64xf32>, tensor<64x64x!llm.q<q8_0>>, tensor<64x64x!llm.q<q8_0>>) -> tensor<?x128xf32>
  %q2 = llm.columns %m2 from 0 : tensor<?x128xf32> -> tensor<?x64xf32>
  %k2 = llm.columns %m2 from 64 : tensor<?x128xf32> -> tensor<?x32xf32>
  %val2 = llm.columns %m2 from 96 : tensor<?x128xf32> -> tensor<?x32xf32>
  %qn = llm.rms_norm %q2, %hn eps 1.0e-5 heads 2 : tensor<?x64xf32>, tensor<32xf32>
  %kn = llm.rms_norm %k2, %hn eps 1.0e-5 heads 1 : tensor<?x32xf32>, tensor<32xf32>
  %qr2 = llm.rope %qn, %a heads 2 : tensor<?x64xf32>, tensor<?x32xf32>
  %kr2 = llm.rope %kn, %a heads 1 : tensor<?x32xf32>, tensor<?x32xf32>
  %kv2 = llm.kv.append %kv1, %kr2, %val2, %b group @kv layer 1 : tensor<?x32xf32>, tensor<?x32xf32>
  %o2 = llm.attention %qr2, %kv2, %b group @kv layer 1 heads 2 scale 0.25 : tensor<?x64xf32> -> tensor<?x64xf32>
  // Keys that are not rotated: stays.
  // REMARK: remark: {{.*}}llm.kv.append{{.*}}q or k is not rotated
  // CHECK-NOT: llm.fused
  %kv3 = llm.kv.append %kv2, %k2, %val2, %b group @kv layer 0 : tensor<?x32xf32>, tensor<?x32xf32>
  %o3 = llm.attention %o2, %kv3, %b group @kv layer 0 heads 2 scale 0.25 : tensor<?x64xf32> -> tensor<?x64xf32>
  return %o3, %kv3 : tensor<?x64xf32>, !llm.kv
}
