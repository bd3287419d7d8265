// A draft program is planned beside the step: buckets of its own in the same arena, its KV groups behind the step's.
// RUN: lathe-opt %S/../Transforms/speculate.mlir -pass-pipeline='builtin.module(llm-speculate,func.func(llm-set-activations{format=f32}),llm-page-kv{page=16},llm-to-kernel,kernel-to-plan{max-seq=128},plan-verify)' | FileCheck %s
// RUN: lathe-opt %S/../Transforms/speculate-layerskip.mlir -pass-pipeline='builtin.module(llm-speculate{method=layerskip layers=1},func.func(llm-set-activations{format=f32}),llm-page-kv{page=16},llm-to-kernel,kernel-to-plan{max-seq=128},plan-verify)' | FileCheck %s --check-prefix=SKIP
// RUN: lathe-opt %s -pass-pipeline='builtin.module(llm-to-kernel,kernel-to-plan{max-seq=128})' -split-input-file -verify-diagnostics

// CHECK: draftMaxSeq = 64
// CHECK: plan.kv_group @kv {{.*}} block_bytes {{[0-9]+}} {planes
// CHECK: plan.kv_group @draft.kv {{.*}} block_bytes {{[0-9]+}} draft
// CHECK: plan.entry "step"
// CHECK: plan.entry "head"
// CHECK: plan.entry "draft"
// CHECK: plan.bucket 64
// CHECK: @draft.kv
// CHECK: plan.bucket 512
// CHECK: plan.entry "draft_head"

// A weight that both read is one.
// SKIP: draftMaxSeq = 128
// SKIP: plan.weight @packed.q0
// SKIP-NOT: plan.weight @packed.q0
// SKIP-NOT: block_bytes {{[0-9]+}} draft
// SKIP: plan.entry "draft"
// SKIP: @packed.q0

llm.param @w : tensor<16x16xf32> = #llm.synthetic<1, f32, [16, 16]>
llm.param @h : tensor<16x16xf32> = #llm.synthetic<2, f32, [16, 16]>
llm.param @l : tensor<32x16xf32> = #llm.synthetic<3, f32, [32, 16]>
func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x16xf32>, !llm.kv) {
  %w = llm.weight @w : tensor<16x16xf32>
  %h = llm.weight @h : tensor<16x16xf32>
  %x = llm.embed %b, %w : tensor<16x16xf32> -> tensor<?x16xf32>
  %s = llm.select_rows %x, %b : tensor<?x16xf32>
  %y = llm.linear %s, %h : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
  return %y, %kv : tensor<?x16xf32>, !llm.kv
}
// expected-error @below {{expected drafts of 16 tokens, found 32}}
func.func @draft(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x32xf32>, !llm.kv) {
  %w = llm.weight @w : tensor<16x16xf32>
  %l = llm.weight @l : tensor<32x16xf32>
  %x = llm.embed %b, %w : tensor<16x16xf32> -> tensor<?x16xf32>
  %s = llm.select_rows %x, %b : tensor<?x16xf32>
  %y = llm.linear %s, %l : (tensor<?x16xf32>, tensor<32x16xf32>) -> tensor<?x32xf32>
  return %y, %kv : tensor<?x32xf32>, !llm.kv
}

// -----

llm.kv_group @one layers [#llm.kv_layer<1, 16, 16>] key f32 value f32 window 0 page 16
llm.kv_group @two layers [#llm.kv_layer<1, 16, 16>] key f32 value f32 window 0 page 16
llm.param @w : tensor<16x16xf32> = #llm.synthetic<1, f32, [16, 16]>
func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x16xf32>, !llm.kv) {
  %w = llm.weight @w : tensor<16x16xf32>
  %x = llm.embed %b, %w : tensor<16x16xf32> -> tensor<?x16xf32>
  %kv1 = llm.kv.append %kv, %x, %x, %b group @one layer 0 : tensor<?x16xf32>, tensor<?x16xf32>
  %a = llm.attention %x, %kv1, %b group @one layer 0 heads 1 scale 1.0 : tensor<?x16xf32> -> tensor<?x16xf32>
  %s = llm.select_rows %a, %b : tensor<?x16xf32>
  %y = llm.linear %s, %w : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
  return %y, %kv1 : tensor<?x16xf32>, !llm.kv
}
// expected-error @below {{expected a draft that reads KV groups of its own or those of the step, found both}}
func.func @draft(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x16xf32>, !llm.kv) {
  %w = llm.weight @w : tensor<16x16xf32>
  %x = llm.embed %b, %w : tensor<16x16xf32> -> tensor<?x16xf32>
  %kv1 = llm.kv.append %kv, %x, %x, %b group @one layer 0 : tensor<?x16xf32>, tensor<?x16xf32>
  %kv2 = llm.kv.append %kv1, %x, %x, %b group @two layer 0 : tensor<?x16xf32>, tensor<?x16xf32>
  %a = llm.attention %x, %kv2, %b group @one layer 0 heads 1 scale 1.0 : tensor<?x16xf32> -> tensor<?x16xf32>
  %c = llm.attention %a, %kv2, %b group @two layer 0 heads 1 scale 1.0 : tensor<?x16xf32> -> tensor<?x16xf32>
  %s = llm.select_rows %c, %b : tensor<?x16xf32>
  %y = llm.linear %s, %w : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
  return %y, %kv2 : tensor<?x16xf32>, !llm.kv
}

// -----

llm.param @w : tensor<16x16xf32> = #llm.synthetic<1, f32, [16, 16]>
llm.param @l : tensor<32x16xf32> = #llm.synthetic<3, f32, [32, 16]>
func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x16xf32>, !llm.kv) {
  %w = llm.weight @w : tensor<16x16xf32>
  %x = llm.embed %b, %w : tensor<16x16xf32> -> tensor<?x16xf32>
  %s = llm.select_rows %x, %b : tensor<?x16xf32>
  %y = llm.linear %s, %w : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
  return %y, %kv : tensor<?x16xf32>, !llm.kv
}
// expected-error @below {{expected a draft that takes rows of 16, found 32}}
func.func @draft(%b: !llm.batch, %kv: !llm.kv, %h: tensor<?x32xf32>) -> (tensor<?x16xf32>, !llm.kv) {
  %w = llm.weight @w : tensor<16x16xf32>
  %s = llm.select_rows %h, %b : tensor<?x32xf32>
  %c = llm.columns %s from 0 : tensor<?x32xf32> -> tensor<?x16xf32>
  %y = llm.linear %c, %w : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
  return %y, %kv : tensor<?x16xf32>, !llm.kv
}

// -----

llm.param @w : tensor<16x16xf32> = #llm.synthetic<1, f32, [16, 16]>
llm.param @l : tensor<32x16xf32> = #llm.synthetic<3, f32, [32, 16]>
func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x16xf32>, !llm.kv) {
  %w = llm.weight @w : tensor<16x16xf32>
  %x = llm.embed %b, %w : tensor<16x16xf32> -> tensor<?x16xf32>
  %s = llm.select_rows %x, %b : tensor<?x16xf32>
  %y = llm.linear %s, %w : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
  return %y, %kv : tensor<?x16xf32>, !llm.kv
}
// expected-error @below {{unsupported: 2 heads of a draft that takes no rows}}
func.func @draft(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x16xf32>, tensor<?x16xf32>, !llm.kv) {
  %w = llm.weight @w : tensor<16x16xf32>
  %x = llm.embed %b, %w : tensor<16x16xf32> -> tensor<?x16xf32>
  %s = llm.select_rows %x, %b : tensor<?x16xf32>
  %y = llm.linear %s, %w : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
  %z = llm.linear %y, %w : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
  return %y, %z, %kv : tensor<?x16xf32>, tensor<?x16xf32>, !llm.kv
}

// -----

llm.param @w : tensor<16x16xf32> = #llm.synthetic<1, f32, [16, 16]>
llm.param @l : tensor<32x16xf32> = #llm.synthetic<3, f32, [32, 16]>
func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x16xf32>, !llm.kv) {
  %w = llm.weight @w : tensor<16x16xf32>
  %x = llm.embed %b, %w : tensor<16x16xf32> -> tensor<?x16xf32>
  %s = llm.select_rows %x, %b : tensor<?x16xf32>
  %y = llm.linear %s, %w : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
  return %y, %kv : tensor<?x16xf32>, !llm.kv
}
// expected-error @below {{unsupported: logits that are columns of other rows}}
func.func @draft(%b: !llm.batch, %kv: !llm.kv, %h: tensor<?x16xf32>) -> (tensor<?x16xf32>, tensor<?x16xf32>, !llm.kv) {
  %w = llm.weight @w : tensor<16x16xf32>
  %l = llm.weight @l : tensor<32x16xf32>
  %s = llm.select_rows %h, %b : tensor<?x16xf32>
  %y = llm.linear %s, %w : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
  %z = llm.linear %s, %l : (tensor<?x16xf32>, tensor<32x16xf32>) -> tensor<?x32xf32>
  %c = llm.columns %z from 16 : tensor<?x32xf32> -> tensor<?x16xf32>
  return %y, %c, %kv : tensor<?x16xf32>, tensor<?x16xf32>, !llm.kv
}

// -----

// Heads by hand, of no method.
llm.param @w : tensor<16x16xf32> = #llm.synthetic<1, f32, [16, 16]>
func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x16xf32>, !llm.kv) {
  %w = llm.weight @w : tensor<16x16xf32>
  %x = llm.embed %b, %w : tensor<16x16xf32> -> tensor<?x16xf32>
  %s = llm.select_rows %x, %b : tensor<?x16xf32>
  %y = llm.linear %s, %w : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
  return %y, %kv : tensor<?x16xf32>, !llm.kv
}
// expected-error @below {{expected an attribute llm.draft of the module with a method that takes rows, such as 'medusa'}}
func.func @draft(%b: !llm.batch, %kv: !llm.kv, %h: tensor<?x16xf32>) -> (tensor<?x16xf32>, !llm.kv) {
  %w = llm.weight @w : tensor<16x16xf32>
  %s = llm.select_rows %h, %b : tensor<?x16xf32>
  %y = llm.linear %s, %w : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
  return %y, %kv : tensor<?x16xf32>, !llm.kv
}

// -----

module attributes {llm.draft = {method = "medusa"}} {
llm.param @w : tensor<16x16xf32> = #llm.synthetic<1, f32, [16, 16]>
func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x16xf32>, !llm.kv) {
  %w = llm.weight @w : tensor<16x16xf32>
  %x = llm.embed %b, %w : tensor<16x16xf32> -> tensor<?x16xf32>
  %s = llm.select_rows %x, %b : tensor<?x16xf32>
  %y = llm.linear %s, %w : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
  return %y, %kv : tensor<?x16xf32>, !llm.kv
}
// expected-error @below {{expected at most 16 heads, found 17}}
func.func @draft(%b: !llm.batch, %kv: !llm.kv, %h: tensor<?x16xf32>) -> (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>, !llm.kv) {
  %w = llm.weight @w : tensor<16x16xf32>
  %s = llm.select_rows %h, %b : tensor<?x16xf32>
  %y0 = llm.linear %s, %w : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
  %y1 = llm.linear %s, %w : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
  %y2 = llm.linear %s, %w : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
  %y3 = llm.linear %s, %w : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
  %y4 = llm.linear %s, %w : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
  %y5 = llm.linear %s, %w : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
  %y6 = llm.linear %s, %w : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
  %y7 = llm.linear %s, %w : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
  %y8 = llm.linear %s, %w : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
  %y9 = llm.linear %s, %w : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
  %y10 = llm.linear %s, %w : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
  %y11 = llm.linear %s, %w : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
  %y12 = llm.linear %s, %w : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
  %y13 = llm.linear %s, %w : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
  %y14 = llm.linear %s, %w : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
  %y15 = llm.linear %s, %w : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
  %y16 = llm.linear %s, %w : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
  return %y0, %y1, %y2, %y3, %y4, %y5, %y6, %y7, %y8, %y9, %y10, %y11, %y12, %y13, %y14, %y15, %y16, %kv : tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>, !llm.kv
}
}

// -----

// Rows and KV groups of the step.
module attributes {llm.draft = {method = "medusa"}} {
llm.kv_group @one layers [#llm.kv_layer<1, 16, 16>] key f32 value f32 window 0 page 16
llm.kv_group @two layers [#llm.kv_layer<1, 16, 16>] key f32 value f32 window 0 page 16
llm.param @w : tensor<16x16xf32> = #llm.synthetic<1, f32, [16, 16]>
func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x16xf32>, !llm.kv) {
  %w = llm.weight @w : tensor<16x16xf32>
  %x = llm.embed %b, %w : tensor<16x16xf32> -> tensor<?x16xf32>
  %kv1 = llm.kv.append %kv, %x, %x, %b group @one layer 0 : tensor<?x16xf32>, tensor<?x16xf32>
  %a = llm.attention %x, %kv1, %b group @one layer 0 heads 1 scale 1.0 : tensor<?x16xf32> -> tensor<?x16xf32>
  %s = llm.select_rows %a, %b : tensor<?x16xf32>
  %y = llm.linear %s, %w : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
  return %y, %kv1 : tensor<?x16xf32>, !llm.kv
}
// expected-error @below {{expected no KV group of a draft that takes rows, found 1}}
func.func @draft(%b: !llm.batch, %kv: !llm.kv, %h: tensor<?x16xf32>) -> (tensor<?x16xf32>, !llm.kv) {
  %w = llm.weight @w : tensor<16x16xf32>
  %kv1 = llm.kv.append %kv, %h, %h, %b group @one layer 0 : tensor<?x16xf32>, tensor<?x16xf32>
  %a = llm.attention %h, %kv1, %b group @one layer 0 heads 1 scale 1.0 : tensor<?x16xf32> -> tensor<?x16xf32>
  %s = llm.select_rows %a, %b : tensor<?x16xf32>
  %y = llm.linear %s, %w : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
  return %y, %kv1 : tensor<?x16xf32>, !llm.kv
}
}

// -----

// Rows and KV groups of its own.
module attributes {llm.draft = {method = "medusa"}} {
llm.kv_group @one layers [#llm.kv_layer<1, 16, 16>] key f32 value f32 window 0 page 16
llm.kv_group @two layers [#llm.kv_layer<1, 16, 16>] key f32 value f32 window 0 page 16
llm.param @w : tensor<16x16xf32> = #llm.synthetic<1, f32, [16, 16]>
func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x16xf32>, !llm.kv) {
  %w = llm.weight @w : tensor<16x16xf32>
  %x = llm.embed %b, %w : tensor<16x16xf32> -> tensor<?x16xf32>
  %kv1 = llm.kv.append %kv, %x, %x, %b group @one layer 0 : tensor<?x16xf32>, tensor<?x16xf32>
  %a = llm.attention %x, %kv1, %b group @one layer 0 heads 1 scale 1.0 : tensor<?x16xf32> -> tensor<?x16xf32>
  %s = llm.select_rows %a, %b : tensor<?x16xf32>
  %y = llm.linear %s, %w : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
  return %y, %kv1 : tensor<?x16xf32>, !llm.kv
}
// expected-error @below {{expected no KV group of a draft that takes rows, found 1}}
func.func @draft(%b: !llm.batch, %kv: !llm.kv, %h: tensor<?x16xf32>) -> (tensor<?x16xf32>, !llm.kv) {
  %w = llm.weight @w : tensor<16x16xf32>
  %kv1 = llm.kv.append %kv, %h, %h, %b group @two layer 0 : tensor<?x16xf32>, tensor<?x16xf32>
  %a = llm.attention %h, %kv1, %b group @two layer 0 heads 1 scale 1.0 : tensor<?x16xf32> -> tensor<?x16xf32>
  %s = llm.select_rows %a, %b : tensor<?x16xf32>
  %y = llm.linear %s, %w : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
  return %y, %kv1 : tensor<?x16xf32>, !llm.kv
}
}

// -----

module attributes {llm.draft = {method = "medusa"}} {
  llm.param @w : tensor<16x16xf32> = #llm.synthetic<1, f32, [16, 16]>
  func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x16xf32>, tensor<?x16xf32>, !llm.kv) {
    %w = llm.weight @w : tensor<16x16xf32>
    %x = llm.embed %b, %w : tensor<16x16xf32> -> tensor<?x16xf32>
    %s = llm.select_rows %x, %b : tensor<?x16xf32>
    %y = llm.linear %s, %w : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
    return %y, %x, %kv : tensor<?x16xf32>, tensor<?x16xf32>, !llm.kv
  }
  // expected-error @below {{expected a method of llm.draft that goes on from its own rows, such as 'eagle3'}}
  func.func @draft(%b: !llm.batch, %kv: !llm.kv, %r: tensor<?x16xf32>) -> (tensor<?x16xf32>, !llm.kv) {
    %w = llm.weight @w : tensor<16x16xf32>
    %s = llm.select_rows %r, %b : tensor<?x16xf32>
    %y = llm.linear %s, %w : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
    return %y, %kv : tensor<?x16xf32>, !llm.kv
  }
}

// -----

module attributes {llm.draft = {method = "eagle3"}} {
  llm.param @w : tensor<16x16xf32> = #llm.synthetic<1, f32, [16, 16]>
  llm.param @l : tensor<32x16xf32> = #llm.synthetic<2, f32, [32, 16]>
  // expected-error @below {{expected rows for the draft of 16, as the head starts from, found 32}}
  func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x16xf32>, tensor<?x32xf32>, !llm.kv) {
    %w = llm.weight @w : tensor<16x16xf32>
    %l = llm.weight @l : tensor<32x16xf32>
    %x = llm.embed %b, %w : tensor<16x16xf32> -> tensor<?x16xf32>
    %z = llm.linear %x, %l : (tensor<?x16xf32>, tensor<32x16xf32>) -> tensor<?x32xf32>
    %s = llm.select_rows %x, %b : tensor<?x16xf32>
    %y = llm.linear %s, %w : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
    return %y, %z, %kv : tensor<?x16xf32>, tensor<?x32xf32>, !llm.kv
  }
  func.func @draft(%b: !llm.batch, %kv: !llm.kv, %r: tensor<?x32xf32>) -> (tensor<?x16xf32>, !llm.kv) {
    %w = llm.weight @w : tensor<16x16xf32>
    %c = llm.columns %r from 0 : tensor<?x32xf32> -> tensor<?x16xf32>
    %s = llm.select_rows %c, %b : tensor<?x16xf32>
    %y = llm.linear %s, %w : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
    return %y, %kv : tensor<?x16xf32>, !llm.kv
  }
}

// -----

module attributes {llm.draft = {method = "eagle"}} {
  llm.param @w : tensor<16x16xf32> = #llm.synthetic<1, f32, [16, 16]>
  llm.param @l : tensor<16x32xf32> = #llm.synthetic<2, f32, [16, 32]>
  func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x16xf32>, !llm.kv) {
    %w = llm.weight @w : tensor<16x16xf32>
    %x = llm.embed %b, %w : tensor<16x16xf32> -> tensor<?x16xf32>
    %s = llm.select_rows %x, %b : tensor<?x16xf32>
    %y = llm.linear %s, %w : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
    return %y, %kv : tensor<?x16xf32>, !llm.kv
  }
  // expected-error @below {{expected own rows of 16, found 32}}
  func.func @draft(%b: !llm.batch, %kv: !llm.kv, %r: tensor<?x32xf32>) -> (tensor<?x16xf32>, !llm.kv) {
    %l = llm.weight @l : tensor<16x32xf32>
    %s = llm.select_rows %r, %b : tensor<?x32xf32>
    %y = llm.linear %s, %l : (tensor<?x32xf32>, tensor<16x32xf32>) -> tensor<?x16xf32>
    return %y, %kv : tensor<?x16xf32>, !llm.kv
  }
}

// -----

module attributes {llm.draft = {method = "eagle"}} {
  llm.kv_group @one layers [#llm.kv_layer<1, 16, 16>] key f32 value f32 window 0 page 16
  llm.param @w : tensor<16x16xf32> = #llm.synthetic<1, f32, [16, 16]>
  func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x16xf32>, !llm.kv) {
    %w = llm.weight @w : tensor<16x16xf32>
    %x = llm.embed %b, %w : tensor<16x16xf32> -> tensor<?x16xf32>
    %kv1 = llm.kv.append %kv, %x, %x, %b group @one layer 0 : tensor<?x16xf32>, tensor<?x16xf32>
    %a = llm.attention %x, %kv1, %b group @one layer 0 heads 1 scale 1.0 : tensor<?x16xf32> -> tensor<?x16xf32>
    %s = llm.select_rows %a, %b : tensor<?x16xf32>
    %y = llm.linear %s, %w : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
    return %y, %kv1 : tensor<?x16xf32>, !llm.kv
  }
  // expected-error @below {{expected KV groups of its own of a draft that goes on from its own rows, found the step's}}
  func.func @draft(%b: !llm.batch, %kv: !llm.kv, %r: tensor<?x32xf32>) -> (tensor<?x16xf32>, !llm.kv) {
    %w = llm.weight @w : tensor<16x16xf32>
    %c = llm.columns %r from 16 : tensor<?x32xf32> -> tensor<?x16xf32>
    %kv1 = llm.kv.append %kv, %c, %c, %b group @one layer 0 : tensor<?x16xf32>, tensor<?x16xf32>
    %a = llm.attention %c, %kv1, %b group @one layer 0 heads 1 scale 1.0 : tensor<?x16xf32> -> tensor<?x16xf32>
    %s = llm.select_rows %a, %b : tensor<?x16xf32>
    %y = llm.linear %s, %w : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
    return %y, %kv1 : tensor<?x16xf32>, !llm.kv
  }
}

// -----

// expected-error @below {{expected 'tokens' of llm.draft to be i32, found 'i64'}}
module attributes {llm.draft = {method = "eagle3", tokens = dense<[1, 2]> : tensor<2xi64>}} {
  llm.param @w : tensor<16x16xf32> = #llm.synthetic<1, f32, [16, 16]>
  func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x16xf32>, !llm.kv) {
    %w = llm.weight @w : tensor<16x16xf32>
    %x = llm.embed %b, %w : tensor<16x16xf32> -> tensor<?x16xf32>
    %s = llm.select_rows %x, %b : tensor<?x16xf32>
    %y = llm.linear %s, %w : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
    return %y, %kv : tensor<?x16xf32>, !llm.kv
  }
}
