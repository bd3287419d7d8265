// The draft's first head has the weights of the model's own, so it says what the step says; the second is the model that has its block in front.
// RUN: lathe-opt %s -pass-pipeline='builtin.module(llm-speculate{method=medusa})' | FileCheck %s
// RUN: lathe-interp %s --tokens 1,2,3,4 --tokens 5,6 > %t.step
// RUN: lathe-opt %s -pass-pipeline='builtin.module(llm-speculate{method=medusa})' | lathe-interp - --tokens 1,2,3,4 --tokens 5,6 | diff %t.step -
// RUN: lathe-opt %s -pass-pipeline='builtin.module(llm-speculate{method=medusa})' | lathe-interp - --function draft --tokens 1,2,3,4 --tokens 5,6 | diff %t.step -
// RUN: lathe-opt %s -pass-pipeline='builtin.module(llm-speculate{method=medusa})' | lathe-interp - --function draft --chunk 1 --tokens 1,2,3,4 --tokens 5,6 | diff %t.step -
// RUN: lathe-interp %s --function second --tokens 1,2,3,4 --tokens 5,6 > %t.second
// RUN: lathe-opt %s -pass-pipeline='builtin.module(llm-speculate{method=medusa})' | lathe-interp - --function draft --result 1 --tokens 1,2,3,4 --tokens 5,6 | diff %t.second -
// The plan has an input for the hidden rows, two results, and nothing to run before the head.
// RUN: lathe-opt %s -pass-pipeline='builtin.module(llm-speculate{method=medusa},func.func(llm-set-activations{format=f32}),symbol-dce,llm-to-kernel,kernel-to-plan{max-seq=128},plan-verify)' | FileCheck %s --check-prefix=PLAN
// Rounds of drafts, the step over them and acceptance: what the step says alone, in chains and in trees.
// RUN: lathe-interp %s --generate 12 --tokens 1,2,3,4 --tokens 5 > %t.alone12
// RUN: lathe-opt %s -pass-pipeline='builtin.module(llm-speculate{method=medusa})' > %t.medusa.rounds.mlir
// RUN: lathe-interp %t.medusa.rounds.mlir --generate 12 --drafts 3 --tokens 1,2,3,4 --tokens 5 | diff %t.alone12 -
// RUN: lathe-interp %t.medusa.rounds.mlir --generate 12 --drafts 3 --draft-choices 3 --tokens 1,2,3,4 --tokens 5 2> %t.medusa.counts | diff %t.alone12 -
// RUN: FileCheck %s --check-prefix=ROUNDS --input-file %t.medusa.counts

// ROUNDS: sequence 0: {{[0-9]+}} rounds, {{[0-9]+}} drafts, {{[1-9][0-9]*}} right

// CHECK: module attributes {llm.draft = {method = "medusa"}}
// Every param of the heads is one of the model: none is added.
// CHECK-NOT: llm.param @draft
// CHECK: func.func @step
// CHECK: func.func @draft(%[[B:.*]]: !llm.batch, %[[KV:.*]]: !llm.kv, %[[H:.*]]: tensor<?x8xf32>) -> (tensor<?x12xf32>, tensor<?x12xf32>, !llm.kv)
// CHECK-NOT: llm.embed
// CHECK: %[[S:.*]] = llm.select_rows %[[H]], %[[B]]
// CHECK: %[[N:.*]] = llm.rms_norm %[[S]],
// CHECK: %[[L0:.*]] = llm.linear %[[N]],
// CHECK: %[[L1:.*]] = llm.linear
// CHECK: return %[[L0]], %{{.*}}, %[[KV]]

// PLAN: draftInputOffset = [[IN:[0-9]+]] : i64, draftInputSize = 8 : i64, draftInputStride = 16 : i64
// PLAN-SAME: draftMethod = 1 : i64, draftMoreLogits = array<i64: {{[0-9]+}}>
// PLAN: plan.buffer @{{.*}} at [[IN]] bytes
// PLAN: plan.entry "draft"
// PLAN: plan.bucket 512 {
// PLAN-NEXT: }
// PLAN: plan.entry "draft_head"
// PLAN-COUNT-3: "matmul"

llm.param @e : tensor<12x8xf32> = #llm.synthetic<1, f32, [12, 8]>
llm.param @n : tensor<8xf32> = #llm.synthetic<3, f32, [8]>
llm.param @v : tensor<8x8xf32> = #llm.synthetic<4, f32, [8, 8]>
llm.param @c : tensor<8xf32> = #llm.synthetic<5, f32, [8]>
func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x12xf32>, !llm.kv) {
  %e = llm.weight @e : tensor<12x8xf32>
  %n = llm.weight @n : tensor<8xf32>
  %x = llm.embed %b, %e : tensor<12x8xf32> -> tensor<?x8xf32>
  %s = llm.select_rows %x, %b : tensor<?x8xf32>
  %r = llm.rms_norm %s, %n eps 1.0e-5 : tensor<?x8xf32>, tensor<8xf32>
  %y = llm.linear %r, %e : (tensor<?x8xf32>, tensor<12x8xf32>) -> tensor<?x12xf32>
  return %y, %kv : tensor<?x12xf32>, !llm.kv
}
func.func private @second(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x12xf32>, !llm.kv) {
  %e = llm.weight @e : tensor<12x8xf32>
  %n = llm.weight @n : tensor<8xf32>
  %v = llm.weight @v : tensor<8x8xf32>
  %c = llm.weight @c : tensor<8xf32>
  %x = llm.embed %b, %e : tensor<12x8xf32> -> tensor<?x8xf32>
  %s = llm.select_rows %x, %b : tensor<?x8xf32>
  %r = llm.rms_norm %s, %n eps 1.0e-5 : tensor<?x8xf32>, tensor<8xf32>
  %m = llm.linear %r, %v bias %c : tensor<8xf32> : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  %a = llm.activation silu %m : tensor<?x8xf32>
  %z = llm.add %r, %a : tensor<?x8xf32>
  %y = llm.linear %z, %e : (tensor<?x8xf32>, tensor<12x8xf32>) -> tensor<?x12xf32>
  return %y, %kv : tensor<?x12xf32>, !llm.kv
}
module @draft {
  llm.param @e : tensor<12x8xf32> = #llm.synthetic<1, f32, [12, 8]>
  llm.param @w : tensor<8x8xf32> = #llm.synthetic<4, f32, [8, 8]>
  llm.param @b : tensor<8xf32> = #llm.synthetic<5, f32, [8]>
  func.func @heads(%x: tensor<?x8xf32>) -> (tensor<?x12xf32>, tensor<?x12xf32>) {
    %e = llm.weight @e : tensor<12x8xf32>
    %w = llm.weight @w : tensor<8x8xf32>
    %b = llm.weight @b : tensor<8xf32>
    %y = llm.linear %x, %e : (tensor<?x8xf32>, tensor<12x8xf32>) -> tensor<?x12xf32>
    %m = llm.linear %x, %w bias %b : tensor<8xf32> : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
    %a = llm.activation silu %m : tensor<?x8xf32>
    %z = llm.add %x, %a : tensor<?x8xf32>
    %l = llm.linear %z, %e : (tensor<?x8xf32>, tensor<12x8xf32>) -> tensor<?x12xf32>
    return %y, %l : tensor<?x12xf32>, tensor<?x12xf32>
  }
}
