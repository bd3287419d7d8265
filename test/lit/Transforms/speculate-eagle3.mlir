// EAGLE-3's layer with weights of zeros for features is a model of its own with a head of fewer tokens. The step returns the rows in front of three layers.
// RUN: lathe-opt %s -pass-pipeline='builtin.module(llm-speculate{method=eagle3})' | FileCheck %s
// RUN: lathe-interp %s --tokens 1,2,3,4 --tokens 5,6 > %t.step
// RUN: lathe-opt %s -pass-pipeline='builtin.module(llm-speculate{method=eagle3})' | lathe-interp - --tokens 1,2,3,4 --tokens 5,6 | diff %t.step -
// RUN: lathe-interp %s --function alone --tokens 1,2,3,4 --tokens 5,6 > %t.alone
// RUN: lathe-opt %s -pass-pipeline='builtin.module(llm-speculate{method=eagle3})' | lathe-interp - --function draft --tokens 1,2,3,4 --tokens 5,6 | diff %t.alone -
// RUN: lathe-opt %s -pass-pipeline='builtin.module(llm-speculate{method=eagle3})' | lathe-interp - --function draft --chunk 1 --tokens 1,2,3,4 --tokens 5,6 | diff %t.alone -
// RUN: lathe-opt %s -pass-pipeline='builtin.module(llm-speculate{method=eagle3},func.func(llm-set-activations{format=f32}),llm-page-kv{page=16},symbol-dce,llm-to-kernel,kernel-to-plan{max-seq=128},plan-verify)' | FileCheck %s --check-prefix=PLAN
// What a feature is: the embedding of the low one.
// RUN: lathe-interp %s --function embedded --tokens 1,2,3 > %t.embedded
// RUN: lathe-opt %s -pass-pipeline='builtin.module(llm-speculate{method=eagle3})' | lathe-interp - --result 1 --tokens 1,2,3 | diff %t.embedded -
// Rounds of drafts, the step over them and acceptance: what the step says alone, in chains and in trees.
// RUN: lathe-interp %s --generate 12 --tokens 0,10 --tokens 3,1,4,1,5 > %t.alone12
// RUN: lathe-opt %s -pass-pipeline='builtin.module(llm-speculate{method=eagle3})' > %t.eagle3.rounds.mlir
// RUN: lathe-interp %t.eagle3.rounds.mlir --generate 12 --drafts 3 --tokens 0,10 --tokens 3,1,4,1,5 | diff %t.alone12 -
// RUN: lathe-interp %t.eagle3.rounds.mlir --generate 12 --drafts 3 --draft-choices 3 --tokens 0,10 --tokens 3,1,4,1,5 2> %t.eagle3.counts | diff %t.alone12 -
// RUN: FileCheck %s --check-prefix=ROUNDS --input-file %t.eagle3.counts

// ROUNDS: sequence 0: {{[0-9]+}} rounds, {{[0-9]+}} drafts, {{[1-9][0-9]*}} right

// CHECK: llm.draft = {max_sequence = 64 : i64, method = "eagle3", tokens = dense<[0, 3, 4, 6, 8, 9, 11]> : tensor<7xi32>}
// CHECK: func.func @step(%{{.*}}) -> (tensor<?x12xf32>, tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>, !llm.kv)
// CHECK: %[[X:.*]] = llm.embed
// CHECK: %[[X1:.*]] = llm.add %[[X]],
// CHECK: %[[X2:.*]] = llm.add %[[X1]],
// CHECK: return %{{.*}}, %[[X]], %[[X1]], %[[X2]], %
// CHECK: func.func @draft({{.*}}: tensor<?x32xf32>) -> (tensor<?x7xf32>, !llm.kv)

// PLAN: draftFeatures = array<i64: {{[0-9]+}}, {{[0-9]+}}, {{[0-9]+}}>
// PLAN-SAME: draftInputSize = 32 : i64
// PLAN-SAME: draftMethod = 4 : i64
// PLAN-SAME: draftTokens = dense<[0, 3, 4, 6, 8, 9, 11]>

llm.kv_group @kv layers [#llm.kv_layer<1, 4, 4>, #llm.kv_layer<1, 4, 4>, #llm.kv_layer<1, 4, 4>] key f32 value f32 window 0 page 0
llm.param @e : tensor<12x8xf32> = #llm.synthetic<1, f32, [12, 8]>
llm.param @n : tensor<8xf32> = #llm.synthetic<3, f32, [8]>
llm.param @k : tensor<4x8xf32> = #llm.synthetic<4, f32, [4, 8]>
llm.param @w : tensor<8x8xf32> = #llm.columns<#llm.synthetic<5, f32, [8, 16]>, 0, 8>
llm.param @h : tensor<7x8xf32> = #llm.synthetic<6, f32, [7, 8]>
llm.param @o : tensor<8x4xf32> = #llm.synthetic<7, f32, [8, 4]>
func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x12xf32>, !llm.kv) {
  %e = llm.weight @e : tensor<12x8xf32>
  %n = llm.weight @n : tensor<8xf32>
  %k = llm.weight @k : tensor<4x8xf32>
  %o = llm.weight @o : tensor<8x4xf32>
  %x0 = llm.embed %b, %e : tensor<12x8xf32> -> tensor<?x8xf32>
  %q0 = llm.columns %x0 from 0 : tensor<?x8xf32> -> tensor<?x4xf32>
  %k0 = llm.linear %x0, %k : (tensor<?x8xf32>, tensor<4x8xf32>) -> tensor<?x4xf32>
  %kv1 = llm.kv.append %kv, %k0, %k0, %b group @kv layer 0 : tensor<?x4xf32>, tensor<?x4xf32>
  %a0 = llm.attention %q0, %kv1, %b group @kv layer 0 heads 1 scale 0.5 : tensor<?x4xf32> -> tensor<?x4xf32>
  %y0 = llm.linear %a0, %o : (tensor<?x4xf32>, tensor<8x4xf32>) -> tensor<?x8xf32>
  %x1 = llm.add %x0, %y0 : tensor<?x8xf32>
  %q1 = llm.columns %x1 from 1 : tensor<?x8xf32> -> tensor<?x4xf32>
  %k1 = llm.linear %x1, %k : (tensor<?x8xf32>, tensor<4x8xf32>) -> tensor<?x4xf32>
  %kv2 = llm.kv.append %kv1, %k1, %k1, %b group @kv layer 1 : tensor<?x4xf32>, tensor<?x4xf32>
  %a1 = llm.attention %q1, %kv2, %b group @kv layer 1 heads 1 scale 0.5 : tensor<?x4xf32> -> tensor<?x4xf32>
  %y1 = llm.linear %a1, %o : (tensor<?x4xf32>, tensor<8x4xf32>) -> tensor<?x8xf32>
  %x2 = llm.add %x1, %y1 : tensor<?x8xf32>
  %q2 = llm.columns %x2 from 2 : tensor<?x8xf32> -> tensor<?x4xf32>
  %k2 = llm.linear %x2, %k : (tensor<?x8xf32>, tensor<4x8xf32>) -> tensor<?x4xf32>
  %kv3 = llm.kv.append %kv2, %k2, %k2, %b group @kv layer 2 : tensor<?x4xf32>, tensor<?x4xf32>
  %a2 = llm.attention %q2, %kv3, %b group @kv layer 2 heads 1 scale 0.5 : tensor<?x4xf32> -> tensor<?x4xf32>
  %y2 = llm.linear %a2, %o : (tensor<?x4xf32>, tensor<8x4xf32>) -> tensor<?x8xf32>
  %x3 = llm.add %x2, %y2 : tensor<?x8xf32>
  %s = llm.select_rows %x3, %b : tensor<?x8xf32>
  %r = llm.rms_norm %s, %n eps 1.0e-5 : tensor<?x8xf32>, tensor<8xf32>
  %y = llm.linear %r, %e : (tensor<?x8xf32>, tensor<12x8xf32>) -> tensor<?x12xf32>
  return %y, %kv3 : tensor<?x12xf32>, !llm.kv
}
func.func private @embedded(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x8xf32>, !llm.kv) {
  %e = llm.weight @e : tensor<12x8xf32>
  %x = llm.embed %b, %e : tensor<12x8xf32> -> tensor<?x8xf32>
  return %x, %kv : tensor<?x8xf32>, !llm.kv
}
// The layer as a model of its own: what it says when features do not matter.
func.func private @alone(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x7xf32>, !llm.kv) {
  %e = llm.weight @e : tensor<12x8xf32>
  %w = llm.weight @w : tensor<8x8xf32>
  %k = llm.weight @k : tensor<4x8xf32>
  %o = llm.weight @o : tensor<8x4xf32>
  %x = llm.embed %b, %e : tensor<12x8xf32> -> tensor<?x8xf32>
  %g = llm.linear %x, %w : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  %q = llm.columns %g from 4 : tensor<?x8xf32> -> tensor<?x4xf32>
  %c = llm.linear %g, %k : (tensor<?x8xf32>, tensor<4x8xf32>) -> tensor<?x4xf32>
  %kv1 = llm.kv.append %kv, %c, %c, %b group @kv layer 0 : tensor<?x4xf32>, tensor<?x4xf32>
  %a = llm.attention %q, %kv1, %b group @kv layer 0 heads 1 scale 0.5 : tensor<?x4xf32> -> tensor<?x4xf32>
  %y = llm.linear %a, %o : (tensor<?x4xf32>, tensor<8x4xf32>) -> tensor<?x8xf32>
  %x1 = llm.add %g, %y : tensor<?x8xf32>
  %s = llm.select_rows %x1, %b : tensor<?x8xf32>
  %h = llm.weight @h : tensor<7x8xf32>
  %l = llm.linear %s, %h : (tensor<?x8xf32>, tensor<7x8xf32>) -> tensor<?x7xf32>
  return %l, %kv1 : tensor<?x7xf32>, !llm.kv
}
module @draft attributes {llm.eagle = {features = array<i64: 0, 1, 2>, max_sequence = 64 : i64, tokens = dense<[0, 3, 4, 6, 8, 9, 11]> : tensor<7xi32>}} {
  llm.kv_group @kv layers [#llm.kv_layer<1, 4, 4>] key f32 value f32 window 0 page 0
  llm.param @w : tensor<8x8xf32> = #llm.columns<#llm.synthetic<5, f32, [8, 16]>, 0, 8>
  llm.param @z : tensor<8x8xf32> = dense<0.0> : tensor<8x8xf32>
  llm.param @k : tensor<4x8xf32> = #llm.synthetic<4, f32, [4, 8]>
  llm.param @o : tensor<8x4xf32> = #llm.synthetic<7, f32, [8, 4]>
  func.func @layer(%b: !llm.batch, %kv: !llm.kv, %e: tensor<?x8xf32>, %f: tensor<?x8xf32>, %low: tensor<?x8xf32>, %middle: tensor<?x8xf32>, %high: tensor<?x8xf32>) -> (tensor<?x8xf32>, !llm.kv) {
    %w = llm.weight @w : tensor<8x8xf32>
    %z = llm.weight @z : tensor<8x8xf32>
    %k = llm.weight @k : tensor<4x8xf32>
    %o = llm.weight @o : tensor<8x4xf32>
    %g0 = llm.linear %e, %w : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
    %g1 = llm.linear %f, %z : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
    %g = llm.add %g0, %g1 : tensor<?x8xf32>
    %q = llm.columns %g from 4 : tensor<?x8xf32> -> tensor<?x4xf32>
    %c = llm.linear %g, %k : (tensor<?x8xf32>, tensor<4x8xf32>) -> tensor<?x4xf32>
    %kv1 = llm.kv.append %kv, %c, %c, %b group @kv layer 0 : tensor<?x4xf32>, tensor<?x4xf32>
    %a = llm.attention %q, %kv1, %b group @kv layer 0 heads 1 scale 0.5 : tensor<?x4xf32> -> tensor<?x4xf32>
    %y = llm.linear %a, %o : (tensor<?x4xf32>, tensor<8x4xf32>) -> tensor<?x8xf32>
    %x1 = llm.add %g, %y : tensor<?x8xf32>
    return %x1, %kv1 : tensor<?x8xf32>, !llm.kv
  }
  llm.param @h : tensor<7x8xf32> = #llm.synthetic<6, f32, [7, 8]>
  func.func @head(%x: tensor<?x8xf32>) -> tensor<?x7xf32> {
    %h = llm.weight @h : tensor<7x8xf32>
    %l = llm.linear %x, %h : (tensor<?x8xf32>, tensor<7x8xf32>) -> tensor<?x7xf32>
    return %l : tensor<?x7xf32>
  }
}
