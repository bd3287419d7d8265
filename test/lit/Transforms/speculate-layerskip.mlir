// RUN: lathe-interp %S/Inputs/one-layer.mlir --tokens 1,2,3,4 --tokens 5,6 > %t.draft
// RUN: lathe-interp %s --tokens 1,2,3,4 --tokens 5,6 > %t.step
// RUN: lathe-opt %s -pass-pipeline='builtin.module(llm-speculate{method=layerskip layers=1})' | FileCheck %s --check-prefix=SKIP
// RUN: lathe-opt %s -pass-pipeline='builtin.module(llm-speculate{method=layerskip layers=1})' | lathe-interp - --function draft --tokens 1,2,3,4 --tokens 5,6 | diff %t.draft -
// RUN: lathe-opt %s -pass-pipeline='builtin.module(llm-speculate{method=layerskip layers=1})' | lathe-interp - --tokens 1,2,3,4 --tokens 5,6 | diff %t.step -
// Merged weights of the layer are merged in both, and stored once.
// RUN: lathe-opt %s -pass-pipeline='builtin.module(llm-speculate{method=layerskip layers=1},llm-merge-linears)' | FileCheck %s --check-prefix=MERGED
// RUN: lathe-opt %s -pass-pipeline='builtin.module(llm-speculate{method=layerskip layers=1},llm-merge-linears)' | lathe-interp - --function draft --tokens 1,2,3,4 --tokens 5,6 | diff %t.draft -
// Rounds of drafts, the step over them and acceptance: what the step says alone, in chains and in trees.
// RUN: lathe-interp %s --generate 12 --tokens 1,2,3,4 --tokens 5 > %t.alone12
// RUN: lathe-opt %s -pass-pipeline='builtin.module(llm-speculate{method=layerskip layers=1})' > %t.layerskip.rounds.mlir
// RUN: lathe-interp %t.layerskip.rounds.mlir --generate 12 --drafts 3 --tokens 1,2,3,4 --tokens 5 | diff %t.alone12 -
// RUN: lathe-interp %t.layerskip.rounds.mlir --generate 12 --drafts 3 --draft-choices 3 --tokens 1,2,3,4 --tokens 5 2> %t.layerskip.counts | diff %t.alone12 -
// RUN: FileCheck %s --check-prefix=ROUNDS --input-file %t.layerskip.counts

// ROUNDS: sequence 0: {{[0-9]+}} rounds, {{[0-9]+}} drafts, {{[1-9][0-9]*}} right

// SKIP: module attributes {llm.draft = {layers = 1 : i64, method = "layerskip"}}
// SKIP-NOT: draft.
// SKIP: func.func @draft(%[[B:.*]]: !llm.batch, %[[KV:.*]]: !llm.kv)
// SKIP: %[[KV1:.*]] = llm.kv.append %[[KV]],
// SKIP-NOT: llm.kv.append
// SKIP: llm.select_rows
// SKIP: return %{{.*}}, %[[KV1]]

// MERGED: llm.param @"q0+k0+v0"
// MERGED-NOT: llm.param @"q0+k0+v0
// MERGED-NOT: llm.param @k0
// MERGED: func.func @step
// MERGED: llm.weight @"q0+k0+v0"
// MERGED: func.func @draft
// MERGED: llm.weight @"q0+k0+v0"
llm.kv_group @kv layers [#llm.kv_layer<1, 4, 4>, #llm.kv_layer<1, 4, 4>] key f32 value f32 window 0 page 0
llm.param @e : tensor<12x8xf32> = #llm.synthetic<1, f32, [12, 8]>
llm.param @f : tensor<2xf32> = #llm.synthetic<2, f32, [2]>
llm.param @n : tensor<8xf32> = #llm.synthetic<3, f32, [8]>
llm.param @a0 : tensor<8xf32> = #llm.synthetic<10, f32, [8]>
llm.param @q0 : tensor<8x8xf32> = #llm.synthetic<11, f32, [8, 8]>
llm.param @k0 : tensor<4x8xf32> = #llm.synthetic<12, f32, [4, 8]>
llm.param @v0 : tensor<4x8xf32> = #llm.synthetic<13, f32, [4, 8]>
llm.param @o0 : tensor<8x8xf32> = #llm.synthetic<14, f32, [8, 8]>
llm.param @m0 : tensor<8xf32> = #llm.synthetic<15, f32, [8]>
llm.param @g0 : tensor<16x8xf32> = #llm.synthetic<16, f32, [16, 8]>
llm.param @u0 : tensor<16x8xf32> = #llm.synthetic<17, f32, [16, 8]>
llm.param @d0 : tensor<8x16xf32> = #llm.synthetic<18, f32, [8, 16]>
llm.param @a1 : tensor<8xf32> = #llm.synthetic<20, f32, [8]>
llm.param @q1 : tensor<8x8xf32> = #llm.synthetic<21, f32, [8, 8]>
llm.param @k1 : tensor<4x8xf32> = #llm.synthetic<22, f32, [4, 8]>
llm.param @v1 : tensor<4x8xf32> = #llm.synthetic<23, f32, [4, 8]>
llm.param @o1 : tensor<8x8xf32> = #llm.synthetic<24, f32, [8, 8]>
llm.param @m1 : tensor<8xf32> = #llm.synthetic<25, f32, [8]>
llm.param @g1 : tensor<16x8xf32> = #llm.synthetic<26, f32, [16, 8]>
llm.param @u1 : tensor<16x8xf32> = #llm.synthetic<27, f32, [16, 8]>
llm.param @d1 : tensor<8x16xf32> = #llm.synthetic<28, f32, [8, 16]>
func.func @step(%b: !llm.batch, %kv0: !llm.kv) -> (tensor<?x12xf32>, !llm.kv) {
  %e = llm.weight @e : tensor<12x8xf32>
  %f = llm.weight @f : tensor<2xf32>
  %n = llm.weight @n : tensor<8xf32>
  %a0 = llm.weight @a0 : tensor<8xf32>
  %q0 = llm.weight @q0 : tensor<8x8xf32>
  %k0 = llm.weight @k0 : tensor<4x8xf32>
  %v0 = llm.weight @v0 : tensor<4x8xf32>
  %o0 = llm.weight @o0 : tensor<8x8xf32>
  %m0 = llm.weight @m0 : tensor<8xf32>
  %g0 = llm.weight @g0 : tensor<16x8xf32>
  %u0 = llm.weight @u0 : tensor<16x8xf32>
  %d0 = llm.weight @d0 : tensor<8x16xf32>
  %a1 = llm.weight @a1 : tensor<8xf32>
  %q1 = llm.weight @q1 : tensor<8x8xf32>
  %k1 = llm.weight @k1 : tensor<4x8xf32>
  %v1 = llm.weight @v1 : tensor<4x8xf32>
  %o1 = llm.weight @o1 : tensor<8x8xf32>
  %m1 = llm.weight @m1 : tensor<8xf32>
  %g1 = llm.weight @g1 : tensor<16x8xf32>
  %u1 = llm.weight @u1 : tensor<16x8xf32>
  %d1 = llm.weight @d1 : tensor<8x16xf32>
  %x0 = llm.embed %b, %e : tensor<12x8xf32> -> tensor<?x8xf32>
  %angles = llm.angles %b, %f : tensor<2xf32> -> tensor<?x4xf32>
  %an0 = llm.rms_norm %x0, %a0 eps 1.0e-5 : tensor<?x8xf32>, tensor<8xf32>
  %qq0 = llm.linear %an0, %q0 : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  %kk0 = llm.linear %an0, %k0 : (tensor<?x8xf32>, tensor<4x8xf32>) -> tensor<?x4xf32>
  %vv0 = llm.linear %an0, %v0 : (tensor<?x8xf32>, tensor<4x8xf32>) -> tensor<?x4xf32>
  %qr0 = llm.rope %qq0, %angles heads 2 : tensor<?x8xf32>, tensor<?x4xf32>
  %kr0 = llm.rope %kk0, %angles heads 1 : tensor<?x4xf32>, tensor<?x4xf32>
  %kv1 = llm.kv.append %kv0, %kr0, %vv0, %b group @kv layer 0 : tensor<?x4xf32>, tensor<?x4xf32>
  %at0 = llm.attention %qr0, %kv1, %b group @kv layer 0 heads 2 scale 0.5 : tensor<?x8xf32> -> tensor<?x8xf32>
  %oo0 = llm.linear %at0, %o0 : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  %y0 = llm.add %x0, %oo0 : tensor<?x8xf32>
  %mn0 = llm.rms_norm %y0, %m0 eps 1.0e-5 : tensor<?x8xf32>, tensor<8xf32>
  %gg0 = llm.linear %mn0, %g0 : (tensor<?x8xf32>, tensor<16x8xf32>) -> tensor<?x16xf32>
  %uu0 = llm.linear %mn0, %u0 : (tensor<?x8xf32>, tensor<16x8xf32>) -> tensor<?x16xf32>
  %h0 = llm.glu silu %gg0, %uu0 : tensor<?x16xf32>
  %dd0 = llm.linear %h0, %d0 : (tensor<?x16xf32>, tensor<8x16xf32>) -> tensor<?x8xf32>
  %x1 = llm.add %y0, %dd0 : tensor<?x8xf32>
  %an1 = llm.rms_norm %x1, %a1 eps 1.0e-5 : tensor<?x8xf32>, tensor<8xf32>
  %qq1 = llm.linear %an1, %q1 : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  %kk1 = llm.linear %an1, %k1 : (tensor<?x8xf32>, tensor<4x8xf32>) -> tensor<?x4xf32>
  %vv1 = llm.linear %an1, %v1 : (tensor<?x8xf32>, tensor<4x8xf32>) -> tensor<?x4xf32>
  %qr1 = llm.rope %qq1, %angles heads 2 : tensor<?x8xf32>, tensor<?x4xf32>
  %kr1 = llm.rope %kk1, %angles heads 1 : tensor<?x4xf32>, tensor<?x4xf32>
  %kv2 = llm.kv.append %kv1, %kr1, %vv1, %b group @kv layer 1 : tensor<?x4xf32>, tensor<?x4xf32>
  %at1 = llm.attention %qr1, %kv2, %b group @kv layer 1 heads 2 scale 0.5 : tensor<?x8xf32> -> tensor<?x8xf32>
  %oo1 = llm.linear %at1, %o1 : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  %y1 = llm.add %x1, %oo1 : tensor<?x8xf32>
  %mn1 = llm.rms_norm %y1, %m1 eps 1.0e-5 : tensor<?x8xf32>, tensor<8xf32>
  %gg1 = llm.linear %mn1, %g1 : (tensor<?x8xf32>, tensor<16x8xf32>) -> tensor<?x16xf32>
  %uu1 = llm.linear %mn1, %u1 : (tensor<?x8xf32>, tensor<16x8xf32>) -> tensor<?x16xf32>
  %h1 = llm.glu silu %gg1, %uu1 : tensor<?x16xf32>
  %dd1 = llm.linear %h1, %d1 : (tensor<?x16xf32>, tensor<8x16xf32>) -> tensor<?x8xf32>
  %x2 = llm.add %y1, %dd1 : tensor<?x8xf32>
  %s = llm.select_rows %x2, %b : tensor<?x8xf32>
  %fn = llm.rms_norm %s, %n eps 1.0e-5 : tensor<?x8xf32>, tensor<8xf32>
  %logits = llm.linear %fn, %e : (tensor<?x8xf32>, tensor<12x8xf32>) -> tensor<?x12xf32>
  return %logits, %kv2 : tensor<?x12xf32>, !llm.kv
}
