// What is no language model stays a graph, and the warning says why.
// RUN: lathe-opt %s --split-input-file --onnx-raise --verify-diagnostics | FileCheck %s

// CHECK-LABEL: func.func @main
// CHECK: onnx.op "Conv"
// CHECK-NOT: llm.
func.func @main(%ids: tensor<?x?xi64> {onnx.name = "input_ids"}, %image: tensor<1x3x8x8xf32>, %w: tensor<4x3x3x3xf32>) -> tensor<*xf32> {
  // expected-warning@+1 {{the graph is not raised to llm ops: Conv: an operator without a part in a language model}}
  %0 = onnx.op "Conv"(%image, %w) {version = 11 : i64} : (tensor<1x3x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<*xf32>
  return %0 : tensor<*xf32>
}

// -----

// expected-warning@+1 {{input 'hidden' is neither tokens, positions, a mask nor a past of [batch, heads, past, size]}}
func.func @main(%ids: tensor<?x?xi64> {onnx.name = "input_ids"}, %h: tensor<?x?x8xf32> {onnx.name = "hidden"}) -> tensor<*xf32> {
  %0 = onnx.op "Relu"(%h) {version = 14 : i64} : (tensor<?x?x8xf32>) -> tensor<*xf32>
  return %0 : tensor<*xf32>
}

// -----

// expected-warning@+1 {{input 'attention_mask' is a mask of rank 4, which may hide any token from any other: expected one of [batch, past + step]}}
func.func @main(%ids: tensor<?x?xi64> {onnx.name = "input_ids"}, %m: tensor<?x1x?x?xf32> {onnx.name = "attention_mask"}) -> tensor<*xf32> {
  %0 = onnx.op "Relu"(%m) {version = 14 : i64} : (tensor<?x1x?x?xf32>) -> tensor<*xf32>
  return %0 : tensor<*xf32>
}

// -----

// expected-warning@+1 {{input 'inputs_embeds' has rows of an embedding where a step has tokens: expected an export with its embedding, of integers [batch, step]}}
func.func @main(%x: tensor<?x?x8xf32> {onnx.name = "inputs_embeds"}, %m: tensor<?x?xi64> {onnx.name = "attention_mask"}) -> tensor<*xf32> {
  %0 = onnx.op "Relu"(%x) {version = 14 : i64} : (tensor<?x?x8xf32>) -> tensor<*xf32>
  return %0 : tensor<*xf32>
}

// -----

// Sizes whose product is no number.
// expected-warning@+1 {{input 'past' is neither tokens, positions, a mask nor a past of [batch, heads, past, size]}}
func.func @main(%ids: tensor<?x?xi64> {onnx.name = "input_ids"}, %p: tensor<?x9223372036854775807x?x8xf32> {onnx.name = "past"}) -> tensor<*xf32> {
  %0 = onnx.op "Relu"(%p) {version = 14 : i64} : (tensor<?x9223372036854775807x?x8xf32>) -> tensor<*xf32>
  return %0 : tensor<*xf32>
}

// -----

// Attention that sees the future.
onnx.param @e : tensor<4x4xf32> = dense<1.0> : tensor<4x4xf32>
func.func @main(%ids: tensor<?x?xi64> {onnx.name = "input_ids"}, %pk: tensor<?x1x?x4xf32>, %pv: tensor<?x1x?x4xf32>)
    -> (tensor<*xf32>, tensor<*xf32>, tensor<*xf32>) {
  %e = onnx.weight @e : tensor<4x4xf32>
  %x = onnx.op "Gather"(%e, %ids) {version = 13 : i64} : (tensor<4x4xf32>, tensor<?x?xi64>) -> tensor<*xf32>
  %q = onnx.op "MatMul"(%x, %e) {version = 13 : i64} : (tensor<*xf32>, tensor<4x4xf32>) -> tensor<*xf32>
  %axis = onnx.constant dense<1> : tensor<1xi64>
  %h = onnx.op "Unsqueeze"(%q, %axis) {version = 13 : i64} : (tensor<*xf32>, tensor<1xi64>) -> tensor<*xf32>
  %k = onnx.op "Concat"(%pk, %h) {version = 13 : i64, attrs = {axis = 2 : i64}} : (tensor<?x1x?x4xf32>, tensor<*xf32>) -> tensor<*xf32>
  %v = onnx.op "Concat"(%pv, %h) {version = 13 : i64, attrs = {axis = 2 : i64}} : (tensor<?x1x?x4xf32>, tensor<*xf32>) -> tensor<*xf32>
  %t = onnx.op "Transpose"(%k) {version = 13 : i64, attrs = {perm = array<i64: 0, 1, 3, 2>}} : (tensor<*xf32>) -> tensor<*xf32>
  %s = onnx.op "MatMul"(%h, %t) {version = 13 : i64} : (tensor<*xf32>, tensor<*xf32>) -> tensor<*xf32>
  // expected-warning@+1 {{the graph is not raised to llm ops: Softmax: attention without a causal mask}}
  %p = onnx.op "Softmax"(%s) {version = 13 : i64, attrs = {axis = -1 : i64}} : (tensor<*xf32>) -> tensor<*xf32>
  %y = onnx.op "MatMul"(%p, %v) {version = 13 : i64} : (tensor<*xf32>, tensor<*xf32>) -> tensor<*xf32>
  %z = onnx.op "Squeeze"(%y, %axis) {version = 13 : i64} : (tensor<*xf32>, tensor<1xi64>) -> tensor<*xf32>
  return %z, %k, %v : tensor<*xf32>, tensor<*xf32>, tensor<*xf32>
}

// -----

// Logits that are no head's.
onnx.param @e : tensor<4x4xf32> = dense<1.0> : tensor<4x4xf32>
// expected-warning@+1 {{the graph is not raised to llm ops: expected a linear as head, found embed @e}}
func.func @main(%ids: tensor<?x?xi64> {onnx.name = "input_ids"}) -> tensor<*xf32> {
  %e = onnx.weight @e : tensor<4x4xf32>
  %x = onnx.op "Gather"(%e, %ids) {version = 13 : i64} : (tensor<4x4xf32>, tensor<?x?xi64>) -> tensor<*xf32>
  return %x : tensor<*xf32>
}

// -----

// A function of that name that is not a graph of onnx ops is left alone.
func.func @main(%a: f32) -> f32 {
  return %a : f32
}

// -----

func.func @main(%ids: tensor<?x?xi64> {onnx.name = "input_ids"}) -> tensor<*x!onnx.any> {
  %a = onnx.constant dense<1.0> : tensor<4xf32>
  // expected-warning@+1 {{the graph is not raised to llm ops: If: the condition depends on the tokens}}
  %0 = onnx.op "If"(%ids) {version = 16 : i64} : (tensor<?x?xi64>) -> tensor<*x!onnx.any> {
    onnx.yield %a : tensor<4xf32>
  }, {
    onnx.yield %a : tensor<4xf32>
  }
  return %0 : tensor<*x!onnx.any>
}

// -----

func.func @main(%ids: tensor<?x?xi64> {onnx.name = "input_ids"}) -> tensor<*x!onnx.any> {
  %c = onnx.constant dense<true> : tensor<i1>
  %a = onnx.constant dense<1.0> : tensor<4xf32>
  %0 = onnx.op "If"(%c) {version = 16 : i64} : (tensor<i1>) -> tensor<*x!onnx.any> {
  %1 = onnx.op "If"(%c) {version = 16 : i64} : (tensor<i1>) -> tensor<*x!onnx.any> {
  %2 = onnx.op "If"(%c) {version = 16 : i64} : (tensor<i1>) -> tensor<*x!onnx.any> {
  %3 = onnx.op "If"(%c) {version = 16 : i64} : (tensor<i1>) -> tensor<*x!onnx.any> {
  %4 = onnx.op "If"(%c) {version = 16 : i64} : (tensor<i1>) -> tensor<*x!onnx.any> {
  %5 = onnx.op "If"(%c) {version = 16 : i64} : (tensor<i1>) -> tensor<*x!onnx.any> {
  %6 = onnx.op "If"(%c) {version = 16 : i64} : (tensor<i1>) -> tensor<*x!onnx.any> {
  %7 = onnx.op "If"(%c) {version = 16 : i64} : (tensor<i1>) -> tensor<*x!onnx.any> {
  %8 = onnx.op "If"(%c) {version = 16 : i64} : (tensor<i1>) -> tensor<*x!onnx.any> {
  %9 = onnx.op "If"(%c) {version = 16 : i64} : (tensor<i1>) -> tensor<*x!onnx.any> {
  %10 = onnx.op "If"(%c) {version = 16 : i64} : (tensor<i1>) -> tensor<*x!onnx.any> {
  %11 = onnx.op "If"(%c) {version = 16 : i64} : (tensor<i1>) -> tensor<*x!onnx.any> {
  %12 = onnx.op "If"(%c) {version = 16 : i64} : (tensor<i1>) -> tensor<*x!onnx.any> {
  %13 = onnx.op "If"(%c) {version = 16 : i64} : (tensor<i1>) -> tensor<*x!onnx.any> {
  %14 = onnx.op "If"(%c) {version = 16 : i64} : (tensor<i1>) -> tensor<*x!onnx.any> {
  %15 = onnx.op "If"(%c) {version = 16 : i64} : (tensor<i1>) -> tensor<*x!onnx.any> {
  // expected-warning@+1 {{the graph is not raised to llm ops: If: nested too deep}}
  %16 = onnx.op "If"(%c) {version = 16 : i64} : (tensor<i1>) -> tensor<*x!onnx.any> {
  onnx.yield %a : tensor<4xf32>
  }, { onnx.yield %a : tensor<4xf32> }
  onnx.yield %16 : tensor<*x!onnx.any>
  }, { onnx.yield %a : tensor<4xf32> }
  onnx.yield %15 : tensor<*x!onnx.any>
  }, { onnx.yield %a : tensor<4xf32> }
  onnx.yield %14 : tensor<*x!onnx.any>
  }, { onnx.yield %a : tensor<4xf32> }
  onnx.yield %13 : tensor<*x!onnx.any>
  }, { onnx.yield %a : tensor<4xf32> }
  onnx.yield %12 : tensor<*x!onnx.any>
  }, { onnx.yield %a : tensor<4xf32> }
  onnx.yield %11 : tensor<*x!onnx.any>
  }, { onnx.yield %a : tensor<4xf32> }
  onnx.yield %10 : tensor<*x!onnx.any>
  }, { onnx.yield %a : tensor<4xf32> }
  onnx.yield %9 : tensor<*x!onnx.any>
  }, { onnx.yield %a : tensor<4xf32> }
  onnx.yield %8 : tensor<*x!onnx.any>
  }, { onnx.yield %a : tensor<4xf32> }
  onnx.yield %7 : tensor<*x!onnx.any>
  }, { onnx.yield %a : tensor<4xf32> }
  onnx.yield %6 : tensor<*x!onnx.any>
  }, { onnx.yield %a : tensor<4xf32> }
  onnx.yield %5 : tensor<*x!onnx.any>
  }, { onnx.yield %a : tensor<4xf32> }
  onnx.yield %4 : tensor<*x!onnx.any>
  }, { onnx.yield %a : tensor<4xf32> }
  onnx.yield %3 : tensor<*x!onnx.any>
  }, { onnx.yield %a : tensor<4xf32> }
  onnx.yield %2 : tensor<*x!onnx.any>
  }, { onnx.yield %a : tensor<4xf32> }
  onnx.yield %1 : tensor<*x!onnx.any>
  }, { onnx.yield %a : tensor<4xf32> }
  return %0 : tensor<*x!onnx.any>
}

// -----

// A shape, and cosines, that are not there.
onnx.param @e : tensor<4x4xf32> = dense<1.0> : tensor<4x4xf32>
func.func @main(%ids: tensor<?x?xi64> {onnx.name = "input_ids"}) -> tensor<*xf32> {
  %e = onnx.weight @e : tensor<4x4xf32>
  %x = onnx.op "Gather"(%e, %ids) {version = 13 : i64} : (tensor<4x4xf32>, tensor<?x?xi64>) -> tensor<*xf32>
  %n = onnx.none : none
  // expected-warning@+1 {{the graph is not raised to llm ops: Reshape: the target shape depends on the tokens}}
  %0 = onnx.op "Reshape"(%x, %n) {version = 14 : i64} : (tensor<*xf32>, none) -> tensor<*xf32>
  return %0 : tensor<*xf32>
}

// -----

onnx.param @e : tensor<4x4xf32> = dense<1.0> : tensor<4x4xf32>
func.func @main(%ids: tensor<?x?xi64> {onnx.name = "input_ids"}, %p: tensor<?x?xi64> {onnx.name = "position_ids"}) -> tensor<*xf32> {
  %e = onnx.weight @e : tensor<4x4xf32>
  %x = onnx.op "Gather"(%e, %ids) {version = 13 : i64} : (tensor<4x4xf32>, tensor<?x?xi64>) -> tensor<*xf32>
  %c = onnx.constant dense<> : tensor<4x0xf32>
  // expected-warning@+1 {{the graph is not raised to llm ops: com.microsoft::RotaryEmbedding: cosines without a size}}
  %0 = onnx.op "RotaryEmbedding"(%x, %p, %c, %c) {domain = "com.microsoft", version = 1 : i64} : (tensor<*xf32>, tensor<?x?xi64>, tensor<4x0xf32>, tensor<4x0xf32>) -> tensor<*xf32>
  return %0 : tensor<*xf32>
}

// -----

// Rows of numbers: the graph computes nothing of its tokens.
func.func @main(%ids: tensor<?x?xi64> {onnx.name = "input_ids"}, %p: tensor<?x?xi64> {onnx.name = "position_ids"}) -> tensor<*xf32> {
  %x = onnx.op "Identity"(%ids) {version = 14 : i64} : (tensor<?x?xi64>) -> tensor<*xi64>
  %c = onnx.constant dense<1.0> : tensor<4x2xf32>
  // expected-warning@+1 {{the graph is not raised to llm ops: com.microsoft::RotaryEmbedding: rows that are not computed from the tokens}}
  %0 = onnx.op "RotaryEmbedding"(%x, %p, %c, %c) {domain = "com.microsoft", version = 1 : i64} : (tensor<*xi64>, tensor<?x?xi64>, tensor<4x2xf32>, tensor<4x2xf32>) -> tensor<*xf32>
  return %0 : tensor<*xf32>
}

// -----

// Axes and permutations that the rank does not have.
onnx.param @e : tensor<4x4xf32> = dense<1.0> : tensor<4x4xf32>
func.func @main(%ids: tensor<?x?xi64> {onnx.name = "input_ids"}) -> tensor<*xf32> {
  %e = onnx.weight @e : tensor<4x4xf32>
  %x = onnx.op "Gather"(%e, %ids) {version = 13 : i64} : (tensor<4x4xf32>, tensor<?x?xi64>) -> tensor<*xf32>
  // expected-warning@+1 {{the graph is not raised to llm ops: Flatten: expected an axis from -3 to 3, found 7}}
  %0 = onnx.op "Flatten"(%x) {version = 13 : i64, attrs = {axis = 7 : i64}} : (tensor<*xf32>) -> tensor<*xf32>
  return %0 : tensor<*xf32>
}

// -----

onnx.param @e : tensor<4x4xf32> = dense<1.0> : tensor<4x4xf32>
func.func @main(%ids: tensor<?x?xi64> {onnx.name = "input_ids"}) -> tensor<*xf32> {
  %e = onnx.weight @e : tensor<4x4xf32>
  %x = onnx.op "Gather"(%e, %ids) {version = 13 : i64} : (tensor<4x4xf32>, tensor<?x?xi64>) -> tensor<*xf32>
  // expected-warning@+1 {{the graph is not raised to llm ops: Transpose: expected a permutation of 3 axes, found [0, 0, 2]}}
  %0 = onnx.op "Transpose"(%x) {version = 13 : i64, attrs = {perm = array<i64: 0, 0, 2>}} : (tensor<*xf32>) -> tensor<*xf32>
  return %0 : tensor<*xf32>
}

// -----

// A past as one row of numbers is none that tokens are written into.
onnx.param @e : tensor<4x4xf32> = dense<1.0> : tensor<4x4xf32>
func.func @main(%ids: tensor<?x?xi64> {onnx.name = "input_ids"}, %pk: tensor<?x1x?x4xf32>) -> tensor<*xf32> {
  %e = onnx.weight @e : tensor<4x4xf32>
  %x = onnx.op "Gather"(%e, %ids) {version = 13 : i64} : (tensor<4x4xf32>, tensor<?x?xi64>) -> tensor<*xf32>
  %axes = onnx.constant dense<1> : tensor<1xi64>
  %p = onnx.op "Squeeze"(%pk, %axes) {version = 13 : i64} : (tensor<?x1x?x4xf32>, tensor<1xi64>) -> tensor<*xf32>
  // expected-warning@+1 {{the graph is not raised to llm ops: TensorScatter: writes into something else than a past}}
  %0 = onnx.op "TensorScatter"(%p, %x) {version = 24 : i64} : (tensor<*xf32>, tensor<*xf32>) -> tensor<*xf32>
  return %0 : tensor<*xf32>
}

// -----

// What an input is follows from its name, or from what uses it; never from what is left.
onnx.param @e : tensor<4x4xf32> = dense<1.0> : tensor<4x4xf32>
// expected-warning@+1 {{the graph is not raised to llm ops: input 'token_type_ids' is neither tokens, positions nor a mask by its name or by what uses it}}
func.func @main(%ids: tensor<?x?xi64> {onnx.name = "input_ids"}, %types: tensor<?x?xi64> {onnx.name = "token_type_ids"}) -> tensor<*xf32> {
  %e = onnx.weight @e : tensor<4x4xf32>
  %x = onnx.op "Gather"(%e, %ids) {version = 13 : i64} : (tensor<4x4xf32>, tensor<?x?xi64>) -> tensor<*xf32>
  %t = onnx.op "Gather"(%e, %types) {version = 13 : i64} : (tensor<4x4xf32>, tensor<?x?xi64>) -> tensor<*xf32>
  %0 = onnx.op "Add"(%x, %t) {version = 14 : i64} : (tensor<*xf32>, tensor<*xf32>) -> tensor<*xf32>
  return %0 : tensor<*xf32>
}

// -----

onnx.param @e : tensor<4x4xf32> = dense<1.0> : tensor<4x4xf32>
// expected-warning@+1 {{the graph is not raised to llm ops: the names of the inputs leave none for the tokens, or say one part twice}}
func.func @main(%ids: tensor<?x?xi64> {onnx.name = "position_ids"}, %more: tensor<?x?xi64> {onnx.name = "positions"}) -> tensor<*xf32> {
  %e = onnx.weight @e : tensor<4x4xf32>
  %x = onnx.op "Gather"(%e, %ids) {version = 13 : i64} : (tensor<4x4xf32>, tensor<?x?xi64>) -> tensor<*xf32>
  return %x : tensor<*xf32>
}

// -----

onnx.param @e : tensor<4x4xf32> = dense<1.0> : tensor<4x4xf32>
// expected-warning@+1 {{the graph is not raised to llm ops: input 'sharp' is a number or a choice that nothing says the value of}}
func.func @main(%ids: tensor<?x?xi64> {onnx.name = "input_ids"}, %sharp: tensor<i1> {onnx.name = "sharp"}) -> tensor<*xf32> {
  %e = onnx.weight @e : tensor<4x4xf32>
  %x = onnx.op "Gather"(%e, %ids) {version = 13 : i64} : (tensor<4x4xf32>, tensor<?x?xi64>) -> tensor<*xf32>
  return %x : tensor<*xf32>
}

// -----

onnx.param @e : tensor<4x4xf32> = dense<1.0> : tensor<4x4xf32>
// expected-warning@+1 {{the graph is not raised to llm ops: input 'num_beams' is a number or a choice that nothing says the value of}}
func.func @main(%ids: tensor<?x?xi64> {onnx.name = "input_ids"}, %beams: tensor<i64> {onnx.name = "num_beams"}) -> tensor<*xf32> {
  %e = onnx.weight @e : tensor<4x4xf32>
  %x = onnx.op "Gather"(%e, %ids) {version = 13 : i64} : (tensor<4x4xf32>, tensor<?x?xi64>) -> tensor<*xf32>
  return %x : tensor<*xf32>
}

// -----

// Numbers without heads to rotate.
// expected-warning@+1 {{the graph is not raised to llm ops: output '0' does not depend on the tokens}}
func.func @main(%ids: tensor<?x?xi64> {onnx.name = "input_ids"}) -> tensor<*xf32> {
  %x = onnx.constant dense<> : tensor<1x0x2x4xf32>
  %p = onnx.constant dense<0> : tensor<1x2xi64>
  %c = onnx.constant dense<1.0> : tensor<3x2xf32>
  %r = onnx.op "RotaryEmbedding"(%x, %p, %c, %c) {domain = "com.microsoft", version = 1 : i64} : (tensor<1x0x2x4xf32>, tensor<1x2xi64>, tensor<3x2xf32>, tensor<3x2xf32>) -> tensor<*xf32>
  return %r : tensor<*xf32>
}

// -----

onnx.param @e : tensor<4x4xf32> = dense<1.0> : tensor<4x4xf32>
func.func @main(%ids: tensor<?x?xi64> {onnx.name = "input_ids"}) -> tensor<*xf32> {
  %e = onnx.weight @e : tensor<4x4xf32>
  %x = onnx.op "Gather"(%e, %ids) {version = 13 : i64} : (tensor<4x4xf32>, tensor<?x?xi64>) -> tensor<*xf32>
  %c0 = onnx.constant dense<9> : tensor<1xi64>
  // expected-warning@+1 {{the graph is not raised to llm ops: Unsqueeze: expected an axis from -4 to 3, found 9}}
  %0 = onnx.op "Unsqueeze"(%x, %c0) {version = 13 : i64} : (tensor<*xf32>, tensor<1xi64>) -> tensor<*xf32>
  return %0 : tensor<*xf32>
}

// -----

onnx.param @e : tensor<4x4xf32> = dense<1.0> : tensor<4x4xf32>
func.func @main(%ids: tensor<?x?xi64> {onnx.name = "input_ids"}) -> tensor<*xf32> {
  %e = onnx.weight @e : tensor<4x4xf32>
  %x = onnx.op "Gather"(%e, %ids) {version = 13 : i64} : (tensor<4x4xf32>, tensor<?x?xi64>) -> tensor<*xf32>
  %c0 = onnx.constant dense<[0, 3]> : tensor<2xi64>
  // expected-warning@+1 {{the graph is not raised to llm ops: Reshape: expected a shape of the 56 elements of [2, 7, 4], found [0, 3]}}
  %0 = onnx.op "Reshape"(%x, %c0) {version = 14 : i64} : (tensor<*xf32>, tensor<2xi64>) -> tensor<*xf32>
  return %0 : tensor<*xf32>
}

// -----

onnx.param @e : tensor<4x4xf32> = dense<1.0> : tensor<4x4xf32>
func.func @main(%ids: tensor<?x?xi64> {onnx.name = "input_ids"}) -> tensor<*xf32> {
  %e = onnx.weight @e : tensor<4x4xf32>
  %x = onnx.op "Gather"(%e, %ids) {version = 13 : i64} : (tensor<4x4xf32>, tensor<?x?xi64>) -> tensor<*xf32>
  %c0 = onnx.constant dense<[3, 7, 4]> : tensor<3xi64>
  // expected-warning@+1 {{the graph is not raised to llm ops: Expand: expected a shape that [2, 7, 4] broadcasts with, found [3, 7, 4]}}
  %0 = onnx.op "Expand"(%x, %c0) {version = 13 : i64} : (tensor<*xf32>, tensor<3xi64>) -> tensor<*xf32>
  return %0 : tensor<*xf32>
}

// -----

onnx.param @e : tensor<4x4xf32> = dense<1.0> : tensor<4x4xf32>
func.func @main(%ids: tensor<?x?xi64> {onnx.name = "input_ids"}) -> tensor<*xf32> {
  %e = onnx.weight @e : tensor<4x4xf32>
  %x = onnx.op "Gather"(%e, %ids) {version = 13 : i64} : (tensor<4x4xf32>, tensor<?x?xi64>) -> tensor<*xf32>
  %c0 = onnx.constant dense<[1, 1]> : tensor<2xi64>
  // expected-warning@+1 {{the graph is not raised to llm ops: Tile: expected repeats of 3 axes, found 2}}
  %0 = onnx.op "Tile"(%x, %c0) {version = 13 : i64} : (tensor<*xf32>, tensor<2xi64>) -> tensor<*xf32>
  return %0 : tensor<*xf32>
}

// -----

onnx.param @e : tensor<4x4xf32> = dense<1.0> : tensor<4x4xf32>
func.func @main(%ids: tensor<?x?xi64> {onnx.name = "input_ids"}) -> tensor<*xf32> {
  %e = onnx.weight @e : tensor<4x4xf32>
  %x = onnx.op "Gather"(%e, %ids) {version = 13 : i64} : (tensor<4x4xf32>, tensor<?x?xi64>) -> tensor<*xf32>
  %c0 = onnx.constant dense<[0, 1]> : tensor<2xi64>
  %c1 = onnx.constant dense<2> : tensor<1xi64>
  %c2 = onnx.constant dense<[5, 0]> : tensor<2xi64>
  // expected-warning@+1 {{the graph is not raised to llm ops: Slice: expected as many starts, ends, axes below 3 and steps other than 0, found [0, 1], [2], [5, 0] and []}}
  %0 = onnx.op "Slice"(%x, %c0, %c1, %c2) {version = 13 : i64} : (tensor<*xf32>, tensor<2xi64>, tensor<1xi64>, tensor<2xi64>) -> tensor<*xf32>
  return %0 : tensor<*xf32>
}

// -----

onnx.param @e : tensor<4x4xf32> = dense<1.0> : tensor<4x4xf32>
func.func @main(%ids: tensor<?x?xi64> {onnx.name = "input_ids"}) -> tensor<*xf32> {
  %e = onnx.weight @e : tensor<4x4xf32>
  %x = onnx.op "Gather"(%e, %ids) {version = 13 : i64} : (tensor<4x4xf32>, tensor<?x?xi64>) -> tensor<*xf32>
  %c0 = onnx.constant dense<[1, 2]> : tensor<2xi64>
  // expected-warning@+1 {{the graph is not raised to llm ops: Split: expected 2 parts of 4 together, found [1, 2]}}
  %0:2 = onnx.op "Split"(%x, %c0) {version = 18 : i64, attrs = {axis = 2 : i64}} : (tensor<*xf32>, tensor<2xi64>) -> (tensor<*xf32>, tensor<*xf32>)
  return %0#0 : tensor<*xf32>
}

// -----

onnx.param @e : tensor<4x4xf32> = dense<1.0> : tensor<4x4xf32>
func.func @main(%ids: tensor<?x?xi64> {onnx.name = "input_ids"}) -> tensor<*xf32> {
  %e = onnx.weight @e : tensor<4x4xf32>
  %x = onnx.op "Gather"(%e, %ids) {version = 13 : i64} : (tensor<4x4xf32>, tensor<?x?xi64>) -> tensor<*xf32>
  %c0 = onnx.constant dense<[1, 3]> : tensor<2xi64>
  // expected-warning@+1 {{the graph is not raised to llm ops: Split: expected an axis from -3 to 2, found 3}}
  %0:2 = onnx.op "Split"(%x, %c0) {version = 18 : i64, attrs = {axis = 3 : i64}} : (tensor<*xf32>, tensor<2xi64>) -> (tensor<*xf32>, tensor<*xf32>)
  return %0#0 : tensor<*xf32>
}

// -----

onnx.param @e : tensor<4x4xf32> = dense<1.0> : tensor<4x4xf32>
func.func @main(%ids: tensor<?x?xi64> {onnx.name = "input_ids"}) -> tensor<*xf32> {
  %e = onnx.weight @e : tensor<4x4xf32>
  %x = onnx.op "Gather"(%e, %ids) {version = 13 : i64} : (tensor<4x4xf32>, tensor<?x?xi64>) -> tensor<*xf32>
  %c0 = onnx.constant dense<-5> : tensor<i64>
  // expected-warning@+1 {{the graph is not raised to llm ops: Gather: expected an index from -4 to 3, found -5}}
  %0 = onnx.op "Gather"(%x, %c0) {version = 13 : i64, attrs = {axis = 2 : i64}} : (tensor<*xf32>, tensor<i64>) -> tensor<*xf32>
  return %0 : tensor<*xf32>
}

// -----

onnx.param @e : tensor<4x4xf32> = dense<1.0> : tensor<4x4xf32>
func.func @main(%ids: tensor<?x?xi64> {onnx.name = "input_ids"}) -> tensor<*xf32> {
  %e = onnx.weight @e : tensor<4x4xf32>
  %x = onnx.op "Gather"(%e, %ids) {version = 13 : i64} : (tensor<4x4xf32>, tensor<?x?xi64>) -> tensor<*xf32>
  %c0 = onnx.constant dense<0> : tensor<i64>
  // expected-warning@+1 {{the graph is not raised to llm ops: Gather: expected an axis from -3 to 2, found -4}}
  %0 = onnx.op "Gather"(%x, %c0) {version = 13 : i64, attrs = {axis = -4 : i64}} : (tensor<*xf32>, tensor<i64>) -> tensor<*xf32>
  return %0 : tensor<*xf32>
}

// -----

onnx.param @e : tensor<4x4xf32> = dense<1.0> : tensor<4x4xf32>
func.func @main(%ids: tensor<?x?xi64> {onnx.name = "input_ids"}) -> tensor<*xf32> {
  %e = onnx.weight @e : tensor<4x4xf32>
  %x = onnx.op "Gather"(%e, %ids) {version = 13 : i64} : (tensor<4x4xf32>, tensor<?x?xi64>) -> tensor<*xf32>
  %c0 = onnx.constant dense<[1.0, 2.0, 3.0]> : tensor<3xf32>
  // expected-warning@+1 {{the graph is not raised to llm ops: Add: expected shapes that broadcast, found [2, 7, 4] and [3]}}
  %0 = onnx.op "Add"(%x, %c0) {version = 14 : i64} : (tensor<*xf32>, tensor<3xf32>) -> tensor<*xf32>
  return %0 : tensor<*xf32>
}

// -----

// Settings beside the model are of their kind, or an error.
// expected-error@+2 {{genai_config.json beside the model: 'model/context_length': expected an integer, found string}}
module attributes {onnx.genai_config = "{\"model\": {\"context_length\": \"long\"}}"} {
func.func @main(%ids: tensor<?x?xi64> {onnx.name = "input_ids"}) -> tensor<*xi64> {
  %0 = onnx.op "Identity"(%ids) {version = 14 : i64} : (tensor<?x?xi64>) -> tensor<*xi64>
  return %0 : tensor<*xi64>
}
}

// -----

// expected-error@+2 {{genai_config.json beside the model: 'model/decoder/head_size': expected an integer, found number}}
module attributes {onnx.genai_config = "{\"model\": {\"decoder\": {\"head_size\": 6.5}}}"} {
func.func @main(%ids: tensor<?x?xi64> {onnx.name = "input_ids"}) -> tensor<*xi64> {
  %0 = onnx.op "Identity"(%ids) {version = 14 : i64} : (tensor<?x?xi64>) -> tensor<*xi64>
  return %0 : tensor<*xi64>
}
}

// -----

// expected-error@+2 {{config.json beside the model: not valid JSON}}
module attributes {onnx.config = "{"} {
func.func @main(%ids: tensor<?x?xi64> {onnx.name = "input_ids"}) -> tensor<*xi64> {
  %0 = onnx.op "Identity"(%ids) {version = 14 : i64} : (tensor<?x?xi64>) -> tensor<*xi64>
  return %0 : tensor<*xi64>
}
}

// -----

// expected-error@+2 {{config.json beside the model: expected an object, found array}}
module attributes {onnx.config = "[]"} {
func.func @main(%ids: tensor<?x?xi64> {onnx.name = "input_ids"}) -> tensor<*xi64> {
  %0 = onnx.op "Identity"(%ids) {version = 14 : i64} : (tensor<?x?xi64>) -> tensor<*xi64>
  return %0 : tensor<*xi64>
}
}
