// Why a head keeps one form.
// RUN: lathe-opt %s -split-input-file -pass-pipeline='builtin.module(func.func(llm-fuse-head))' -remarks-filter=".*" -remark-format=emitRemark 2>%t.remarks | FileCheck %s
// RUN: FileCheck %s --check-prefix=REMARK < %t.remarks
// CHECK-NOT: argmax
// REMARK: remark: {{.*}}the logits are not the result of a linear
// REMARK: remark: {{.*}}the linear has several weights
// REMARK: remark: {{.*}}the step does not return logits and a cache
// REMARK: remark: {{.*}}the step does not return logits and a cache
// REMARK: remark: {{.*}}the step has several blocks

llm.param @e : tensor<8x64xf32> = #llm.synthetic<1, f32, [8, 64]>
func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x64xf32>, !llm.kv) {
  %e = llm.weight @e : tensor<8x64xf32>
  %x = llm.embed %b, %e : tensor<8x64xf32> -> tensor<?x64xf32>
  %y = llm.softcap %x cap 30.0 : tensor<?x64xf32>
  return %y, %kv : tensor<?x64xf32>, !llm.kv
}

// -----

llm.param @e : tensor<8x64xf32> = #llm.synthetic<1, f32, [8, 64]>
func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x16xf32>, !llm.kv) {
  %e = llm.weight @e : tensor<8x64xf32>
  %x = llm.embed %b, %e : tensor<8x64xf32> -> tensor<?x64xf32>
  %y = llm.linear %x, %e, %e : (tensor<?x64xf32>, tensor<8x64xf32>, tensor<8x64xf32>) -> tensor<?x16xf32>
  return %y, %kv : tensor<?x16xf32>, !llm.kv
}

// -----

func.func @step(%b: !llm.batch, %kv: !llm.kv) -> !llm.kv {
  return %kv : !llm.kv
}

// -----

func.func @step(%a: tensor<f32>, %kv: !llm.kv) -> (tensor<f32>, !llm.kv) {
  return %a, %kv : tensor<f32>, !llm.kv
}

// -----

func.func @step(%a: tensor<?x4xf32>, %kv: !llm.kv) -> (tensor<?x4xf32>, !llm.kv) {
  cf.br ^next
^next:
  return %a, %kv : tensor<?x4xf32>, !llm.kv
}
