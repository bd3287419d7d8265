// RUN: lathe-opt %s -split-input-file -pass-pipeline='builtin.module(llm-speculate{method=layerskip layers=1})' -verify-diagnostics

llm.kv_group @kv layers [#llm.kv_layer<1, 4, 4>, #llm.kv_layer<1, 4, 4>] key f32 value f32 window 0 page 0
llm.param @w : tensor<4x4xf32> = #llm.synthetic<1, f32, [4, 4]>
// expected-error @below {{llm-speculate: expected one llm.select_rows in the step, found 0}}
func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x4xf32>, !llm.kv) {
  %w = llm.weight @w : tensor<4x4xf32>
  %x = llm.embed %b, %w : tensor<4x4xf32> -> tensor<?x4xf32>
  %kv1 = llm.kv.append %kv, %x, %x, %b group @kv layer 0 : tensor<?x4xf32>, tensor<?x4xf32>
  %kv2 = llm.kv.append %kv1, %x, %x, %b group @kv layer 1 : tensor<?x4xf32>, tensor<?x4xf32>
  return %x, %kv2 : tensor<?x4xf32>, !llm.kv
}

// -----

// What the layer starts from cannot be the head's input.
llm.kv_group @kv layers [#llm.kv_layer<1, 2, 2>, #llm.kv_layer<1, 2, 2>] key f32 value f32 window 0 page 0
llm.param @w : tensor<4x4xf32> = #llm.synthetic<1, f32, [4, 4]>
func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x4xf32>, !llm.kv) {
  %w = llm.weight @w : tensor<4x4xf32>
  %x = llm.embed %b, %w : tensor<4x4xf32> -> tensor<?x4xf32>
  %c = llm.columns %x from 0 : tensor<?x4xf32> -> tensor<?x2xf32>
  %a = llm.activation silu %c : tensor<?x2xf32>
  %kv1 = llm.kv.append %kv, %c, %c, %b group @kv layer 0 : tensor<?x2xf32>, tensor<?x2xf32>
  // expected-error @below {{llm-speculate: expected rows of type 'tensor<?x4xf32>' in front of layer 1, found 'tensor<?x2xf32>'}}
  %kv2 = llm.kv.append %kv1, %a, %a, %b group @kv layer 1 : tensor<?x2xf32>, tensor<?x2xf32>
  %s = llm.select_rows %x, %b : tensor<?x4xf32>
  return %s, %kv2 : tensor<?x4xf32>, !llm.kv
}
