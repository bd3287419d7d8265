// A layer whose weights for features are zeros is a model of its own, which the interpreter can compare with; another, in which features matter and nothing else does,
// says at each token what follows from the token before.
// RUN: lathe-opt %s -pass-pipeline='builtin.module(llm-speculate{method=eagle})' | FileCheck %s
// RUN: lathe-interp %s --tokens 1,2,3,4 --tokens 5,6 > %t.step
// RUN: lathe-opt %s -pass-pipeline='builtin.module(llm-speculate{method=eagle})' | lathe-interp - --tokens 1,2,3,4 --tokens 5,6 | diff %t.step -
// RUN: lathe-interp %s --function alone --tokens 1,2,3,4 --tokens 5,6 > %t.alone
// RUN: lathe-opt %s -pass-pipeline='builtin.module(llm-speculate{method=eagle})' | lathe-interp - --function draft --tokens 1,2,3,4 --tokens 5,6 | diff %t.alone -
// RUN: lathe-opt %s -pass-pipeline='builtin.module(llm-speculate{method=eagle})' | lathe-interp - --function draft --chunk 1 --tokens 1,2,3,4 --tokens 5,6 | diff %t.alone -
// The zeros and the weights of the embedding in each other's place, and no attention: token 3's row is what the layer makes of token 2's last norm. That of token 1 is the same
// as token 1's behind another token, whose own row does not matter.
// RUN: sed -e 's/llm.linear %e, %w/llm.linear %e, %z_/; s/llm.linear %f, %z/llm.linear %f, %w/; s/%e, %z_/%e, %z/; s/synthetic<7, f32, \[8, 4\]>/columns<dense<0.0> : tensor<8x5xf32>, 0, 4>/' %s > %t.feature.mlir
// RUN: lathe-opt %t.feature.mlir -pass-pipeline='builtin.module(llm-speculate{method=eagle})' > %t.feature.draft.mlir
// RUN: lathe-interp %t.feature.draft.mlir --function draft --tokens 7,1,2 | tail -1 | sed 's/^0 2:/row/' > %t.seven
// RUN: lathe-interp %t.feature.draft.mlir --function draft --tokens 7,1,9 | tail -1 | sed 's/^0 2:/row/' | diff %t.seven -
// RUN: lathe-interp %t.feature.draft.mlir --function draft --tokens 7,3,9 | tail -1 | sed 's/^0 2:/row/' | not diff %t.seven - > %t.differs
// RUN: lathe-interp %t.feature.draft.mlir --function draft --chunk 1 --tokens 7,1,2 | tail -1 | sed 's/^0 2:/row/' | diff %t.seven -
// The plan has an input of [own | hidden], rows of its own and KV of its own; what the norm adds to is in rows of its stride.
// RUN: lathe-opt %s -pass-pipeline='builtin.module(llm-speculate{method=eagle},func.func(llm-set-activations{format=f32}),llm-page-kv{page=16},symbol-dce,func.func(llm-fuse-norm),llm-to-kernel)' | FileCheck %s --check-prefix=KERNELS
// RUN: lathe-opt %s -pass-pipeline='builtin.module(llm-speculate{method=eagle2},func.func(llm-set-activations{format=f32}),llm-page-kv{page=16},symbol-dce,llm-to-kernel,kernel-to-plan{max-seq=128},plan-verify)' | FileCheck %s --check-prefix=PLAN
// Rounds of drafts, the step over them and acceptance: what the step says alone, in chains and in trees.
// RUN: lathe-interp %s --generate 12 --tokens 11,2,7 --tokens 3,1,4,1,5 > %t.alone12
// RUN: lathe-opt %s -pass-pipeline='builtin.module(llm-speculate{method=eagle})' > %t.eagle.rounds.mlir
// RUN: lathe-interp %t.eagle.rounds.mlir --generate 12 --drafts 3 --tokens 11,2,7 --tokens 3,1,4,1,5 | diff %t.alone12 -
// RUN: lathe-interp %t.eagle.rounds.mlir --generate 12 --drafts 3 --draft-choices 3 --tokens 11,2,7 --tokens 3,1,4,1,5 2> %t.eagle.counts | diff %t.alone12 -
// RUN: FileCheck %s --check-prefix=ROUNDS --input-file %t.eagle.counts
// RUN: lathe-opt %s -pass-pipeline='builtin.module(llm-speculate{method=eagle2})' > %t.eagle2.rounds.mlir
// RUN: lathe-interp %t.eagle2.rounds.mlir --generate 12 --drafts 3 --tokens 11,2,7 --tokens 3,1,4,1,5 | diff %t.alone12 -
// RUN: lathe-interp %t.eagle2.rounds.mlir --generate 12 --drafts 3 --draft-choices 3 --tokens 11,2,7 --tokens 3,1,4,1,5 2> %t.eagle2.counts | diff %t.alone12 -
// RUN: FileCheck %s --check-prefix=ROUNDS --input-file %t.eagle2.counts

// ROUNDS: sequence 0: {{[0-9]+}} rounds, {{[0-9]+}} drafts, {{[1-9][0-9]*}} right

// CHECK: module attributes {llm.draft = {method = "eagle"}}
// CHECK: llm.kv_group @draft.kv
// CHECK: func.func @step(%{{.*}}) -> (tensor<?x12xf32>, !llm.kv)
// CHECK: func.func @draft(%[[B:.*]]: !llm.batch, %[[KV:.*]]: !llm.kv, %[[R:.*]]: tensor<?x16xf32>) -> (tensor<?x12xf32>, !llm.kv)
// CHECK: %[[OWN:.*]] = llm.columns %[[R]] from 0
// CHECK: %[[HIDDEN:.*]] = llm.columns %[[R]] from 8
// CHECK: %[[E:.*]] = llm.embed %[[B]]
// CHECK: %[[N:.*]] = llm.rms_norm %[[HIDDEN]],
// CHECK: %[[F:.*]] = llm.add %[[OWN]], %[[N]]
// CHECK: llm.linear %[[E]],
// CHECK: llm.linear %[[F]],
// CHECK: llm.kv.append %[[KV]], {{.*}} group @draft.kv
// CHECK: %[[S:.*]] = llm.select_rows %{{.*}}, %[[B]]
// CHECK: llm.linear %[[S]], %{{.*}} -> tensor<?x12xf32>

// KERNELS: func.func @draft
// KERNELS: kernel.norm %{{.*}} residual %{{.*}} : !kernel.rows<8, 16> weight @vector.n {{.*}} -> !kernel.rows<8, 16>

// PLAN: draftInputSize = 16 : i64, draftInputStride = 16 : i64
// PLAN-SAME: draftMethod = 3 : i64
// PLAN-SAME: draftOwnOffset = {{[0-9]+}} : i64
// PLAN: plan.kv_group @draft.kv {{.*}} draft
// PLAN: plan.entry "draft"
// PLAN: "attention"

llm.kv_group @kv layers [#llm.kv_layer<1, 4, 4>] key f32 value f32 window 0 page 0
llm.param @e : tensor<12x8xf32> = #llm.synthetic<1, f32, [12, 8]>
llm.param @n : tensor<8xf32> = #llm.synthetic<3, f32, [8]>
llm.param @k : tensor<4x8xf32> = #llm.synthetic<4, f32, [4, 8]>
llm.param @w : tensor<8x8xf32> = #llm.columns<#llm.synthetic<5, f32, [8, 16]>, 0, 8>
llm.param @o : tensor<8x4xf32> = #llm.synthetic<7, f32, [8, 4]>
func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x12xf32>, !llm.kv) {
  %e = llm.weight @e : tensor<12x8xf32>
  %n = llm.weight @n : tensor<8xf32>
  %k = llm.weight @k : tensor<4x8xf32>
  %x = llm.embed %b, %e : tensor<12x8xf32> -> tensor<?x8xf32>
  %q0 = llm.columns %x from 0 : tensor<?x8xf32> -> tensor<?x4xf32>
  %k0 = llm.linear %x, %k : (tensor<?x8xf32>, tensor<4x8xf32>) -> tensor<?x4xf32>
  %kv1 = llm.kv.append %kv, %k0, %k0, %b group @kv layer 0 : tensor<?x4xf32>, tensor<?x4xf32>
  %a0 = llm.attention %q0, %kv1, %b group @kv layer 0 heads 1 scale 0.5 : tensor<?x4xf32> -> tensor<?x4xf32>
  %o = llm.weight @o : tensor<8x4xf32>
  %y0 = llm.linear %a0, %o : (tensor<?x4xf32>, tensor<8x4xf32>) -> tensor<?x8xf32>
  %x1 = llm.add %x, %y0 : tensor<?x8xf32>
  %s = llm.select_rows %x1, %b : tensor<?x8xf32>
  %r = llm.rms_norm %s, %n eps 1.0e-5 : tensor<?x8xf32>, tensor<8xf32>
  %y = llm.linear %r, %e : (tensor<?x8xf32>, tensor<12x8xf32>) -> tensor<?x12xf32>
  return %y, %kv1 : tensor<?x12xf32>, !llm.kv
}
// The layer as a model of its own: what it says when features do not matter.
func.func private @alone(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x12xf32>, !llm.kv) {
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
  %l = llm.linear %s, %e : (tensor<?x8xf32>, tensor<12x8xf32>) -> tensor<?x12xf32>
  return %l, %kv1 : tensor<?x12xf32>, !llm.kv
}
module @draft {
  llm.kv_group @kv layers [#llm.kv_layer<1, 4, 4>] key f32 value f32 window 0 page 0
  llm.param @w : tensor<8x8xf32> = #llm.columns<#llm.synthetic<5, f32, [8, 16]>, 0, 8>
  llm.param @z : tensor<8x8xf32> = dense<0.0> : tensor<8x8xf32>
  llm.param @k : tensor<4x8xf32> = #llm.synthetic<4, f32, [4, 8]>
  llm.param @o : tensor<8x4xf32> = #llm.synthetic<7, f32, [8, 4]>
  func.func @layer(%b: !llm.batch, %kv: !llm.kv, %e: tensor<?x8xf32>, %f: tensor<?x8xf32>) -> (tensor<?x8xf32>, !llm.kv) {
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
}
