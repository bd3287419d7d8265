// Heads of a draft that read the same rows are left apart: each one's logits are a result of their own. What is no result is merged.
// RUN: lathe-opt %s -llm-merge-linears | FileCheck %s
// RUN: lathe-interp %s --function draft --result 1 --tokens 0,1 > %t
// RUN: lathe-opt %s -llm-merge-linears | lathe-interp - --function draft --result 1 --tokens 0,1 | diff %t -
// RUN: lathe-opt %s -pass-pipeline='builtin.module(llm-merge-linears,func.func(llm-set-activations{format=f32}),llm-to-kernel,kernel-to-plan{max-seq=64},plan-verify)' | FileCheck %s --check-prefix=PLAN

// CHECK: func.func @draft
// CHECK: %[[A:.*]] = llm.linear
// CHECK: %[[B:.*]] = llm.linear
// CHECK: llm.linear {{.*}} -> tensor<?x8xf32>
// CHECK: return %[[A]], %{{.*}}, %{{.*}}
// PLAN: draftMoreLogits = array<i64: {{[0-9]+}}, {{[0-9]+}}>

module attributes {llm.draft = {method = "medusa"}} {
llm.param @e : tensor<4x4xf32> = #llm.synthetic<1, f32, [4, 4]>
llm.param @a : tensor<4x4xf32> = #llm.synthetic<2, f32, [4, 4]>
llm.param @b : tensor<4x4xf32> = #llm.synthetic<3, f32, [4, 4]>
llm.param @c : tensor<4x4xf32> = #llm.synthetic<4, f32, [4, 4]>
llm.param @d : tensor<4x4xf32> = #llm.synthetic<5, f32, [4, 4]>
func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x4xf32>, !llm.kv) {
  %e = llm.weight @e : tensor<4x4xf32>
  %x = llm.embed %b, %e : tensor<4x4xf32> -> tensor<?x4xf32>
  %s = llm.select_rows %x, %b : tensor<?x4xf32>
  %y = llm.linear %s, %e : (tensor<?x4xf32>, tensor<4x4xf32>) -> tensor<?x4xf32>
  return %y, %kv : tensor<?x4xf32>, !llm.kv
}
func.func @draft(%b: !llm.batch, %kv: !llm.kv, %h: tensor<?x4xf32>) -> (tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x4xf32>, !llm.kv) {
  %wa = llm.weight @a : tensor<4x4xf32>
  %wb = llm.weight @b : tensor<4x4xf32>
  %wc = llm.weight @c : tensor<4x4xf32>
  %wd = llm.weight @d : tensor<4x4xf32>
  %s = llm.select_rows %h, %b : tensor<?x4xf32>
  %y = llm.linear %s, %wa : (tensor<?x4xf32>, tensor<4x4xf32>) -> tensor<?x4xf32>
  %z = llm.linear %s, %wb : (tensor<?x4xf32>, tensor<4x4xf32>) -> tensor<?x4xf32>
  %m = llm.linear %s, %wc : (tensor<?x4xf32>, tensor<4x4xf32>) -> tensor<?x4xf32>
  %n = llm.linear %s, %wd : (tensor<?x4xf32>, tensor<4x4xf32>) -> tensor<?x4xf32>
  %o = llm.add %m, %n : tensor<?x4xf32>
  %l = llm.linear %o, %wa : (tensor<?x4xf32>, tensor<4x4xf32>) -> tensor<?x4xf32>
  return %y, %z, %l, %kv : tensor<?x4xf32>, tensor<?x4xf32>, tensor<?x4xf32>, !llm.kv
}
}
