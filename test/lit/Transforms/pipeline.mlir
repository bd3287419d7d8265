// The whole way from an imported module to fused ops: two layers of different families.
// RUN: lathe-opt %s -llm-pipeline="activations=f32 key=f32 value=f32" | FileCheck %s
// RUN: lathe-opt %s -llm-pipeline="activations=f32 key=f32 value=f32 fuse=false" | FileCheck %s --check-prefix=PLAIN
// RUN: lathe-opt %s -llm-pipeline="quantize=int4-g32 asymmetric=true skip=embed" | FileCheck %s --check-prefix=INT4
// Without roundings the pipeline keeps every bit; with them, fused and not fused are equal.
// RUN: lathe-interp %s --tokens 1,2,3,4,5,6,7 --tokens 6 > %t.before
// RUN: lathe-opt %s -llm-pipeline="activations=f32 key=f32 value=f32" | lathe-interp - --tokens 1,2,3,4,5,6,7 --tokens 6 --chunk 2 | diff %t.before -
// RUN: lathe-opt %s -llm-pipeline="fuse=false merge=false page=0" | lathe-interp - --tokens 1,2,3,4,5,6,7 --tokens 6 > %t.rounded
// RUN: lathe-opt %s -llm-pipeline="page=16" | lathe-interp - --tokens 1,2,3,4,5,6,7 --tokens 6 | diff %t.rounded -
// RUN: %python %source_root/test/lit/Inputs/close.py %t.before %t.rounded 0.05

// INT4: llm.param @embed : tensor<16x64xf32>
// INT4: #llm.round<#llm.synthetic<{{[0-9]+}}, q8_0, {{.*}}>, int4z_g32>

llm.kv_group @full layers [#llm.kv_layer<1, 32, 32>] key f32 value f32 window 0 page 0
llm.kv_group @window layers [#llm.kv_layer<1, 32, 32>] key f32 value f32 window 4 page 0
llm.param @embed : tensor<16x64xf32> = #llm.synthetic<1, f32, [16, 64]>
llm.param @freq : tensor<16xf32> = dense<0.25> : tensor<16xf32>
llm.param @n0 : tensor<64xf32> = #llm.synthetic<2, f32, [64]>
llm.param @hn : tensor<32xf32> = #llm.synthetic<3, f32, [32]>
llm.param @q0 : tensor<64x64x!llm.q<q8_0>> = #llm.synthetic<4, q8_0, [64, 64]>
llm.param @k0 : tensor<32x64x!llm.q<q8_0>> = #llm.synthetic<5, q8_0, [32, 64]>
llm.param @v0 : tensor<32x64x!llm.q<q8_0>> = #llm.synthetic<6, q8_0, [32, 64]>
llm.param @o0 : tensor<64x64x!llm.q<q8_0>> = #llm.synthetic<7, q8_0, [64, 64]>
llm.param @g0 : tensor<96x64x!llm.q<q8_0>> = #llm.synthetic<8, q8_0, [96, 64]>
llm.param @u0 : tensor<96x64x!llm.q<q8_0>> = #llm.synthetic<9, q8_0, [96, 64]>
llm.param @d0 : tensor<64x96x!llm.q<q8_0>> = #llm.synthetic<10, q8_0, [64, 96]>
llm.param @q1 : tensor<64x64x!llm.q<q8_0>> = #llm.synthetic<14, q8_0, [64, 64]>
llm.param @k1 : tensor<32x64x!llm.q<q8_0>> = #llm.synthetic<15, q8_0, [32, 64]>
llm.param @v1 : tensor<32x64x!llm.q<q8_0>> = #llm.synthetic<16, q8_0, [32, 64]>
llm.param @o1 : tensor<64x64x!llm.q<q8_0>> = #llm.synthetic<17, q8_0, [64, 64]>
llm.param @g1 : tensor<96x64x!llm.q<q8_0>> = #llm.synthetic<18, q8_0, [96, 64]>
llm.param @u1 : tensor<96x64xf16> = #llm.synthetic<19, f16, [96, 64]>
llm.param @d1 : tensor<64x96x!llm.q<q8_0>> = #llm.synthetic<20, q8_0, [64, 96]>

// CHECK-LABEL: func.func @step
// PLAIN-LABEL: func.func @step
// PLAIN-NOT: llm.fused
// Angles once, then a layer in eight ops.
// CHECK-COUNT-1: llm.angles
// CHECK: llm.fused "norm"(
// CHECK: llm.linear
// CHECK: llm.columns
// CHECK: llm.columns
// CHECK: llm.columns
// CHECK: llm.fused "rope_append"(
// CHECK: llm.fused "attention"(
// CHECK: llm.fused "residual_linear"(
// CHECK: llm.fused "norm"(
// CHECK: llm.fused "glu_linear"(
// CHECK: llm.fused "residual_linear"(
// The second has head norms, norms behind sublayers, and a gate and up of two storages.
// CHECK: llm.fused "norm"(
// CHECK: llm.linear
// CHECK: llm.fused "rope_append"(
// CHECK: llm.fused "attention"(
// CHECK: llm.linear
// CHECK: llm.fused "norm"(
// CHECK-NEXT: ^bb0
// CHECK-NEXT: llm.rms_norm
// CHECK-NEXT: llm.add
// CHECK: llm.fused "norm"(
// CHECK: llm.linear
// CHECK: llm.fused "activate"(
// CHECK: llm.linear
// CHECK: llm.fused "norm"(
// CHECK: llm.select_rows
// CHECK: llm.fused "norm"(
// CHECK: llm.linear
func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x16xf32>, !llm.kv) {
  %embed = llm.weight @embed : tensor<16x64xf32>
  %x = llm.embed %b, %embed : tensor<16x64xf32> -> tensor<?x64xf32>
  // Layer 0.
  %nw0 = llm.weight @n0 : tensor<64xf32>
  %f0 = llm.weight @freq : tensor<16xf32>
  %a0 = llm.angles %b, %f0 : tensor<16xf32> -> tensor<?x32xf32>
  %h0 = llm.rms_norm %x, %nw0 eps 1.0e-5 : tensor<?x64xf32>, tensor<64xf32>
  %qw0 = llm.weight @q0 : tensor<64x64x!llm.q<q8_0>>
  %q0 = llm.linear %h0, %qw0 : (tensor<?x64xf32>, tensor<64x64x!llm.q<q8_0>>) -> tensor<?x64xf32>
  %kw0 = llm.weight @k0 : tensor<32x64x!llm.q<q8_0>>
  %k0 = llm.linear %h0, %kw0 : (tensor<?x64xf32>, tensor<32x64x!llm.q<q8_0>>) -> tensor<?x32xf32>
  %vw0 = llm.weight @v0 : tensor<32x64x!llm.q<q8_0>>
  %v0 = llm.linear %h0, %vw0 : (tensor<?x64xf32>, tensor<32x64x!llm.q<q8_0>>) -> tensor<?x32xf32>
  %qr0 = llm.rope %q0, %a0 heads 2 : tensor<?x64xf32>, tensor<?x32xf32>
  %kr0 = llm.rope %k0, %a0 heads 1 : tensor<?x32xf32>, tensor<?x32xf32>
  %kv0 = llm.kv.append %kv, %kr0, %v0, %b group @full layer 0 : tensor<?x32xf32>, tensor<?x32xf32>
  %at0 = llm.attention %qr0, %kv0, %b group @full layer 0 heads 2 scale 0.25 : tensor<?x64xf32> -> tensor<?x64xf32>
  %ow0 = llm.weight @o0 : tensor<64x64x!llm.q<q8_0>>
  %o0 = llm.linear %at0, %ow0 : (tensor<?x64xf32>, tensor<64x64x!llm.q<q8_0>>) -> tensor<?x64xf32>
  %m0 = llm.add %x, %o0 : tensor<?x64xf32>
  %mn0 = llm.rms_norm %m0, %nw0 eps 1.0e-5 : tensor<?x64xf32>, tensor<64xf32>
  %gw0 = llm.weight @g0 : tensor<96x64x!llm.q<q8_0>>
  %uw0 = llm.weight @u0 : tensor<96x64x!llm.q<q8_0>>
  %g0 = llm.linear %mn0, %gw0 : (tensor<?x64xf32>, tensor<96x64x!llm.q<q8_0>>) -> tensor<?x96xf32>
  %u0 = llm.linear %mn0, %uw0 : (tensor<?x64xf32>, tensor<96x64x!llm.q<q8_0>>) -> tensor<?x96xf32>
  %y0 = llm.glu silu %g0, %u0 : tensor<?x96xf32>
  %dw0 = llm.weight @d0 : tensor<64x96x!llm.q<q8_0>>
  %d0 = llm.linear %y0, %dw0 : (tensor<?x96xf32>, tensor<64x96x!llm.q<q8_0>>) -> tensor<?x64xf32>
  %x0 = llm.add %m0, %d0 : tensor<?x64xf32>
  // Layer 1.
  %nw1 = llm.weight @n0 : tensor<64xf32>
  %f1 = llm.weight @freq : tensor<16xf32>
  %a1 = llm.angles %b, %f1 : tensor<16xf32> -> tensor<?x32xf32>
  %h1 = llm.rms_norm %x0, %nw1 eps 1.0e-5 : tensor<?x64xf32>, tensor<64xf32>
  %qw1 = llm.weight @q1 : tensor<64x64x!llm.q<q8_0>>
  %q1 = llm.linear %h1, %qw1 : (tensor<?x64xf32>, tensor<64x64x!llm.q<q8_0>>) -> tensor<?x64xf32>
  %kw1 = llm.weight @k1 : tensor<32x64x!llm.q<q8_0>>
  %k1 = llm.linear %h1, %kw1 : (tensor<?x64xf32>, tensor<32x64x!llm.q<q8_0>>) -> tensor<?x32xf32>
  %vw1 = llm.weight @v1 : tensor<32x64x!llm.q<q8_0>>
  %v1 = llm.linear %h1, %vw1 : (tensor<?x64xf32>, tensor<32x64x!llm.q<q8_0>>) -> tensor<?x32xf32>
  %hn1 = llm.weight @hn : tensor<32xf32>
  %qn1 = llm.rms_norm %q1, %hn1 eps 1.0e-5 heads 2 : tensor<?x64xf32>, tensor<32xf32>
  %kn1 = llm.rms_norm %k1, %hn1 eps 1.0e-5 : tensor<?x32xf32>, tensor<32xf32>
  %qr1 = llm.rope %qn1, %a1 heads 2 : tensor<?x64xf32>, tensor<?x32xf32>
  %kr1 = llm.rope %kn1, %a1 heads 1 : tensor<?x32xf32>, tensor<?x32xf32>
  %kv1 = llm.kv.append %kv0, %kr1, %v1, %b group @window layer 0 : tensor<?x32xf32>, tensor<?x32xf32>
  %at1 = llm.attention %qr1, %kv1, %b group @window layer 0 heads 2 scale 0.25 : tensor<?x64xf32> -> tensor<?x64xf32>
  %ow1 = llm.weight @o1 : tensor<64x64x!llm.q<q8_0>>
  %o1 = llm.linear %at1, %ow1 : (tensor<?x64xf32>, tensor<64x64x!llm.q<q8_0>>) -> tensor<?x64xf32>
  %m1p = llm.rms_norm %o1, %nw1 eps 1.0e-5 : tensor<?x64xf32>, tensor<64xf32>
  %m1 = llm.add %x0, %m1p : tensor<?x64xf32>
  %mn1 = llm.rms_norm %m1, %nw1 eps 1.0e-5 : tensor<?x64xf32>, tensor<64xf32>
  %gw1 = llm.weight @g1 : tensor<96x64x!llm.q<q8_0>>
  %uw1 = llm.weight @u1 : tensor<96x64xf16>
  %g1 = llm.linear %mn1, %gw1 : (tensor<?x64xf32>, tensor<96x64x!llm.q<q8_0>>) -> tensor<?x96xf32>
  %u1 = llm.linear %mn1, %uw1 : (tensor<?x64xf32>, tensor<96x64xf16>) -> tensor<?x96xf32>
  %y1 = llm.glu silu %g1, %u1 : tensor<?x96xf32>
  %dw1 = llm.weight @d1 : tensor<64x96x!llm.q<q8_0>>
  %d1 = llm.linear %y1, %dw1 : (tensor<?x96xf32>, tensor<64x96x!llm.q<q8_0>>) -> tensor<?x64xf32>
  %x1p = llm.rms_norm %d1, %nw1 eps 1.0e-5 : tensor<?x64xf32>, tensor<64xf32>
  %x1 = llm.add %m1, %x1p : tensor<?x64xf32>
  %z = llm.select_rows %x1, %b : tensor<?x64xf32>
  %zw = llm.weight @n0 : tensor<64xf32>
  %zn = llm.rms_norm %z, %zw eps 1.0e-5 : tensor<?x64xf32>, tensor<64xf32>
  %l = llm.linear %zn, %embed : (tensor<?x64xf32>, tensor<16x64xf32>) -> tensor<?x16xf32>
  return %l, %kv1 : tensor<?x16xf32>, !llm.kv
}
