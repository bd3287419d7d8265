// What general code refuses, with node, operator, opset, what was expected and what was found.
// RUN: lathe-opt %s --onnx-to-linalg -split-input-file -verify-diagnostics

// expected-error@+1 {{expected a function 'main' with an onnx graph}}
module {
}

// -----

// expected-error@+1 {{expected a tensor of numbers with a known rank, found}}
func.func @main(%a: tensor<*xf32>) {
  return
}

// -----

func.func @main(%a: tensor<2x3xf32>, %b: tensor<4x5xf32>) -> tensor<2x5xf32> {
  // expected-error@+1 {{node 'MatMul' (MatMul, opset 13): expected equal inner dimensions, found float[2,3] and float[4,5]}}
  %c = onnx.op "MatMul"(%a, %b) {version = 13 : i64} : (tensor<2x3xf32>, tensor<4x5xf32>) -> tensor<2x5xf32>
  return %c : tensor<2x5xf32>
}

// -----

func.func @main(%a: tensor<2x3xf32>, %b: tensor<2xf32>) -> tensor<2x3xf32> {
  // expected-error@+1 {{node 'Add' (Add, opset 14): expected shapes that broadcast, found float[2,3] and float[2]}}
  %c = onnx.op "Add"(%a, %b) {version = 14 : i64} : (tensor<2x3xf32>, tensor<2xf32>) -> tensor<2x3xf32>
  return %c : tensor<2x3xf32>
}

// -----

func.func @main(%a: tensor<2x3xf32>, %b: tensor<2x3xi64>) -> tensor<2x3xf32> {
  // expected-error@+1 {{node 'Mul' (Mul, opset 14): expected input 1 of type float, found int64[2,3]}}
  %c = onnx.op "Mul"(%a, %b) {version = 14 : i64} : (tensor<2x3xf32>, tensor<2x3xi64>) -> tensor<2x3xf32>
  return %c : tensor<2x3xf32>
}

// -----

func.func @main(%a: tensor<2x3xf32>) -> tensor<2x3xf32> {
  // expected-error@+1 {{node 'Softmax' (Softmax, opset 13): expected an axis of -2 .. 1, found 5}}
  %c = onnx.op "Softmax"(%a) {version = 13 : i64, attrs = {axis = 5 : i64}} : (tensor<2x3xf32>) -> tensor<2x3xf32>
  return %c : tensor<2x3xf32>
}

// -----

func.func @main(%a: tensor<2x3xi32>) -> tensor<2x3xi32> {
  // expected-error@+1 {{node 'Exp' (Exp, opset 13): expected a float type for input 0, found int32[2,3]}}
  %c = onnx.op "Exp"(%a) {version = 13 : i64} : (tensor<2x3xi32>) -> tensor<2x3xi32>
  return %c : tensor<2x3xi32>
}

// -----

func.func @main(%a: tensor<2x6xf32>) -> tensor<5x2xf32> {
  %s = onnx.constant dense<[5, 2]> : tensor<2xi64>
  // expected-error@+1 {{node 'Reshape' (Reshape, opset 14): expected a shape of as many elements as float[2,6], found [5,2]}}
  %c = onnx.op "Reshape"(%a, %s) {version = 14 : i64} : (tensor<2x6xf32>, tensor<2xi64>) -> tensor<5x2xf32>
  return %c : tensor<5x2xf32>
}

// -----

func.func @main(%a: tensor<2x6xf32>, %s: tensor<?xi64>) -> tensor<*xf32> {
  // expected-error@+1 {{node 'Reshape' (Reshape, opset 14): expected shape of known length, found int64[?]}}
  %c = onnx.op "Reshape"(%a, %s) {version = 14 : i64} : (tensor<2x6xf32>, tensor<?xi64>) -> tensor<*xf32>
  return %c : tensor<*xf32>
}

// -----

func.func @main(%x: tensor<1x4x8xf32>, %w: tensor<8x2xf32>) -> tensor<1x4x8xf32> {
  // expected-error@+1 {{node 'CausalConvWithState' (CausalConvWithState, opset 27): expected an operator that general code covers (docs/onnx-operators.md), found 'CausalConvWithState'}}
  %c:2 = onnx.op "CausalConvWithState"(%x, %w) {version = 27 : i64} : (tensor<1x4x8xf32>, tensor<8x2xf32>) -> (tensor<1x4x8xf32>, tensor<*x!onnx.any>)
  return %c#0 : tensor<1x4x8xf32>
}

// -----

// As many axes as a stored tensor may have.
func.func @main(%x: tensor<1xf32>) -> tensor<*x!onnx.any> {
  %s = onnx.constant dense<1> : tensor<65xi64>
  // expected-error@+1 {{(Reshape, opset 14): expected a result of at most 64 axes, found 65}}
  %r = onnx.op "Reshape"(%x, %s) {version = 14 : i64} : (tensor<1xf32>, tensor<65xi64>) -> tensor<*x!onnx.any>
  return %r : tensor<*x!onnx.any>
}

// -----

func.func @main(%x: tensor<1xf32>) -> tensor<*x!onnx.any> {
  %a = onnx.constant dense<1> : tensor<64xi64>
  // expected-error@+1 {{(Unsqueeze, opset 13): expected a result of at most 64 axes, found 65}}
  %r = onnx.op "Unsqueeze"(%x, %a) {version = 13 : i64} : (tensor<1xf32>, tensor<64xi64>) -> tensor<*x!onnx.any>
  return %r : tensor<*x!onnx.any>
}

// -----

func.func @main(%x: tensor<1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1xf32>) -> tensor<*x!onnx.any> {
  // expected-error@+1 {{(Neg, opset 13): expected inputs of at most 64 axes, found 65}}
  %r = onnx.op "Neg"(%x) {version = 13 : i64} : (tensor<1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1x1xf32>) -> tensor<*x!onnx.any>
  return %r : tensor<*x!onnx.any>
}

// -----

func.func @main(%x: tensor<1x4x8xf32>) -> tensor<1x4x8xf32> {
  // expected-error@+1 {{node 'LinearAttention' (LinearAttention, opset 27): expected an operator that general code covers (docs/onnx-operators.md), found 'LinearAttention'}}
  %c:2 = onnx.op "LinearAttention"(%x, %x, %x) {version = 27 : i64, attrs = {q_num_heads = 2 : i64, kv_num_heads = 2 : i64}}
    : (tensor<1x4x8xf32>, tensor<1x4x8xf32>, tensor<1x4x8xf32>) -> (tensor<1x4x8xf32>, tensor<*x!onnx.any>)
  return %c#0 : tensor<1x4x8xf32>
}

// -----

func.func @main(%a: tensor<f32>) -> tensor<f32> {
  // expected-error@+1 {{node 'If' (If, opset 16): expected a condition of bool, found float}}
  %c = onnx.op "If"(%a) {version = 16 : i64} : (tensor<f32>) -> tensor<f32> {
    onnx.yield %a : tensor<f32>
  }, {
    onnx.yield %a : tensor<f32>
  }
  return %c : tensor<f32>
}

// -----

func.func @main(%a: tensor<1xf32>) -> tensor<1x!onnx.string> {
  // expected-error@+1 {{expected a constant of numbers, found}}
  %s = onnx.constant dense<["a"]> : tensor<1x!onnx.string>
  return %s : tensor<1x!onnx.string>
}

// -----

func.func @main(%a: tensor<1xf32>) -> tensor<1xf32> {
  // expected-error@+1 {{expected ops of the onnx dialect}}
  %s = arith.constant dense<1.0> : tensor<1xf32>
  return %s : tensor<1xf32>
}

// -----

func.func @main(%a: tensor<1xf32>) -> none {
  // expected-error@+1 {{expected a tensor as result of the graph}}
  %n = onnx.none : none
  return %n : none
}

// -----

func.func @main(%q: tensor<1x2x8xf32>, %k: tensor<1x2x4xf32>, %p: tensor<1x1x?x4xf32>, %s: tensor<1x1xi32>, %t: tensor<1xi32>) -> tensor<1x2x8xf32> {
  // expected-error@+1 {{expected no 'smooth_softmax', found 1}}
  %r:3 = onnx.op "GroupQueryAttention"(%q, %k, %k, %p, %p, %s, %t) {domain = "com.microsoft", version = 1 : i64, attrs = {num_heads = 2 : i64, kv_num_heads = 1 : i64, smooth_softmax = 1 : i64}} : (tensor<1x2x8xf32>, tensor<1x2x4xf32>, tensor<1x2x4xf32>, tensor<1x1x?x4xf32>, tensor<1x1x?x4xf32>, tensor<1x1xi32>, tensor<1xi32>) -> (tensor<1x2x8xf32>, tensor<1x1x?x4xf32>, tensor<1x1x?x4xf32>)
  return %r#0 : tensor<1x2x8xf32>
}

// -----

func.func @main(%q: tensor<1x2x8xf32>, %k: tensor<1x2x4xf32>, %p: tensor<1x1x?x4xf32>, %s: tensor<1x1xi32>, %t: tensor<1xi32>) -> tensor<1x2x8xf32> {
  // expected-error@+1 {{expected 'causal' of 1, found 0}}
  %r:3 = onnx.op "GroupQueryAttention"(%q, %k, %k, %p, %p, %s, %t) {domain = "com.microsoft", version = 1 : i64, attrs = {num_heads = 2 : i64, kv_num_heads = 1 : i64, causal = 0 : i64}} : (tensor<1x2x8xf32>, tensor<1x2x4xf32>, tensor<1x2x4xf32>, tensor<1x1x?x4xf32>, tensor<1x1x?x4xf32>, tensor<1x1xi32>, tensor<1xi32>) -> (tensor<1x2x8xf32>, tensor<1x1x?x4xf32>, tensor<1x1x?x4xf32>)
  return %r#0 : tensor<1x2x8xf32>
}

// -----

func.func @main(%q: tensor<1x2x8xf32>, %k: tensor<1x2x4xf32>, %p: tensor<1x1x?x4xf32>, %s: tensor<1x1xi32>, %t: tensor<1xi32>) -> tensor<1x2x8xf32> {
  // expected-error@+1 {{expected 'local_window_size' of -1, or of 1 and above, found 0}}
  %r:3 = onnx.op "GroupQueryAttention"(%q, %k, %k, %p, %p, %s, %t) {domain = "com.microsoft", version = 1 : i64, attrs = {num_heads = 2 : i64, kv_num_heads = 1 : i64, local_window_size = 0 : i64}} : (tensor<1x2x8xf32>, tensor<1x2x4xf32>, tensor<1x2x4xf32>, tensor<1x1x?x4xf32>, tensor<1x1x?x4xf32>, tensor<1x1xi32>, tensor<1xi32>) -> (tensor<1x2x8xf32>, tensor<1x1x?x4xf32>, tensor<1x1x?x4xf32>)
  return %r#0 : tensor<1x2x8xf32>
}

// -----

func.func @main(%q: tensor<1x2x8xf32>, %k: tensor<1x2x4xf32>, %p: tensor<1x1x?x4xf32>, %s: tensor<1x1xi32>, %t: tensor<1xi32>) -> tensor<1x2x8xf32> {
  // expected-error@+1 {{expected neither 'sliding_window_cache' nor 'qk_output', found 1 and 0}}
  %r:3 = onnx.op "GroupQueryAttention"(%q, %k, %k, %p, %p, %s, %t) {domain = "com.microsoft", version = 1 : i64, attrs = {num_heads = 2 : i64, kv_num_heads = 1 : i64, sliding_window_cache = 1 : i64}} : (tensor<1x2x8xf32>, tensor<1x2x4xf32>, tensor<1x2x4xf32>, tensor<1x1x?x4xf32>, tensor<1x1x?x4xf32>, tensor<1x1xi32>, tensor<1xi32>) -> (tensor<1x2x8xf32>, tensor<1x1x?x4xf32>, tensor<1x1x?x4xf32>)
  return %r#0 : tensor<1x2x8xf32>
}

// -----

func.func @main(%q: tensor<1x2x8xf32>, %k: tensor<1x2x4xf32>, %p: tensor<1x1x?x4xf32>, %s: tensor<1x1xi32>, %t: tensor<1xi32>) -> tensor<1x2x8xf32> {
  // expected-error@+1 {{expected a cache that is not quantized, found 'k_quant_type', 'v_quant_type', 'kv_cache_bit_width' or scales}}
  %r:3 = onnx.op "GroupQueryAttention"(%q, %k, %k, %p, %p, %s, %t) {domain = "com.microsoft", version = 1 : i64, attrs = {num_heads = 2 : i64, kv_num_heads = 1 : i64, k_quant_type = "PER_TENSOR"}} : (tensor<1x2x8xf32>, tensor<1x2x4xf32>, tensor<1x2x4xf32>, tensor<1x1x?x4xf32>, tensor<1x1x?x4xf32>, tensor<1x1xi32>, tensor<1xi32>) -> (tensor<1x2x8xf32>, tensor<1x1x?x4xf32>, tensor<1x1x?x4xf32>)
  return %r#0 : tensor<1x2x8xf32>
}

// -----

func.func @main(%q: tensor<1x2x8xf32>, %k: tensor<1x2x4xf32>, %p: tensor<1x1x?x4xf32>, %s: tensor<1x1xi32>, %t: tensor<1xi32>, %w: tensor<4xf32>) -> tensor<1x2x8xf32> {
  %n = onnx.none : none
  // expected-error@+1 {{expected q_norm_weight and k_norm_weight together, found float[4] and nothing}}
  %r:3 = onnx.op "GroupQueryAttention"(%q, %k, %k, %p, %p, %s, %t, %n, %n, %n, %n, %n, %n, %n, %w, %n) {domain = "com.microsoft", version = 1 : i64, attrs = {num_heads = 2 : i64, kv_num_heads = 1 : i64}} : (tensor<1x2x8xf32>, tensor<1x2x4xf32>, tensor<1x2x4xf32>, tensor<1x1x?x4xf32>, tensor<1x1x?x4xf32>, tensor<1x1xi32>, tensor<1xi32>, none, none, none, none, none, none, none, tensor<4xf32>, none) -> (tensor<1x2x8xf32>, tensor<1x1x?x4xf32>, tensor<1x1x?x4xf32>)
  return %r#0 : tensor<1x2x8xf32>
}

// -----

func.func @main(%q: tensor<1x2x8xf32>, %k: tensor<1x2x4xf32>, %p: tensor<1x1x?x4xf32>, %s: tensor<1x1xi32>, %t: tensor<1xi32>, %w: tensor<8xf32>) -> tensor<1x2x8xf32> {
  %n = onnx.none : none
  // expected-error@+1 {{expected a weight for each element of a head, found float[8]}}
  %r:3 = onnx.op "GroupQueryAttention"(%q, %k, %k, %p, %p, %s, %t, %n, %n, %n, %n, %n, %n, %n, %w, %w) {domain = "com.microsoft", version = 1 : i64, attrs = {num_heads = 2 : i64, kv_num_heads = 1 : i64}} : (tensor<1x2x8xf32>, tensor<1x2x4xf32>, tensor<1x2x4xf32>, tensor<1x1x?x4xf32>, tensor<1x1x?x4xf32>, tensor<1x1xi32>, tensor<1xi32>, none, none, none, none, none, none, none, tensor<8xf32>, tensor<8xf32>) -> (tensor<1x2x8xf32>, tensor<1x1x?x4xf32>, tensor<1x1x?x4xf32>)
  return %r#0 : tensor<1x2x8xf32>
}

// -----

func.func @main(%q: tensor<1x2x8xf32>, %k: tensor<1x2x4xf32>, %p: tensor<1x1x?x4xf32>, %s: tensor<1x1xi32>, %t: tensor<1xi32>, %w: tensor<1x4xf32>) -> tensor<1x2x8xf32> {
  %n = onnx.none : none
  // expected-error@+1 {{expected q_norm_weight and k_norm_weight of rank 1, found float[1,4]}}
  %r:3 = onnx.op "GroupQueryAttention"(%q, %k, %k, %p, %p, %s, %t, %n, %n, %n, %n, %n, %n, %n, %w, %w) {domain = "com.microsoft", version = 1 : i64, attrs = {num_heads = 2 : i64, kv_num_heads = 1 : i64}} : (tensor<1x2x8xf32>, tensor<1x2x4xf32>, tensor<1x2x4xf32>, tensor<1x1x?x4xf32>, tensor<1x1x?x4xf32>, tensor<1x1xi32>, tensor<1xi32>, none, none, none, none, none, none, none, tensor<1x4xf32>, tensor<1x4xf32>) -> (tensor<1x2x8xf32>, tensor<1x1x?x4xf32>, tensor<1x1x?x4xf32>)
  return %r#0 : tensor<1x2x8xf32>
}

// -----

func.func @main(%q: tensor<1x2x8xf32>, %k: tensor<1x2x4xf32>, %p: tensor<1x1x?x4xf32>, %s: tensor<1x1xi32>, %t: tensor<1xi32>, %w: tensor<4xf32>) -> tensor<1x2x8xf32> {
  %n = onnx.none : none
  // expected-error@+1 {{expected no q_norm_weight, found float[4]}}
  %r:3 = onnx.op "GroupQueryAttention"(%q, %k, %k, %p, %p, %s, %t, %n, %n, %n, %n, %n, %n, %n, %w, %w) {domain = "com.microsoft", version = 1 : i64, attrs = {num_heads = 2 : i64, kv_num_heads = 1 : i64}} : (tensor<1x2x8xf32>, tensor<1x2x4xf32>, tensor<1x2x4xf32>, tensor<1x1x?x4xf32>, tensor<1x1x?x4xf32>, tensor<1x1xi32>, tensor<1xi32>, none, none, none, none, none, none, none, tensor<4xf32>, tensor<4xf32>) -> (tensor<1x2x8xf32>, tensor<1x1x?x4xf32>, tensor<1x1x?x4xf32>)
  return %r#0 : tensor<1x2x8xf32>
}

// -----

func.func @main(%x: tensor<2x32xf32>, %w: tensor<3x1x16xui8>, %s: tensor<3x1xf32>) -> tensor<2x3xf32> {
  // expected-error@+1 {{expected weights that are not 'weight_prepacked', found 1}}
  %r = onnx.op "MatMulNBits"(%x, %w, %s) {domain = "com.microsoft", version = 1 : i64, attrs = {K = 32 : i64, N = 3 : i64, block_size = 32 : i64, weight_prepacked = 1 : i64}} : (tensor<2x32xf32>, tensor<3x1x16xui8>, tensor<3x1xf32>) -> tensor<2x3xf32>
  return %r : tensor<2x3xf32>
}

// -----

func.func @main(%x: tensor<1x2x8xf32>, %p: tensor<1x2xi64>, %c: tensor<9x2xf32>) -> tensor<1x2x8xf32> {
  // expected-error@+1 {{expected neither a 'scale' nor 'is_packed_batching', found 2.000000 and 0}}
  %r = onnx.op "RotaryEmbedding"(%x, %p, %c, %c) {domain = "com.microsoft", version = 1 : i64, attrs = {scale = 2.0 : f32}} : (tensor<1x2x8xf32>, tensor<1x2xi64>, tensor<9x2xf32>, tensor<9x2xf32>) -> tensor<1x2x8xf32>
  return %r : tensor<1x2x8xf32>
}

// -----

func.func @main(%x: tensor<1x2x8xf32>, %p: tensor<1x2xi64>, %c: tensor<9x2xf32>, %s: tensor<5x2xf32>) -> tensor<1x2x8xf32> {
  // expected-error@+1 {{expected as many rows of sines as of cosines, found float[5,2] and float[9,2]}}
  %r = onnx.op "RotaryEmbedding"(%x, %p, %c, %s) {domain = "com.microsoft", version = 1 : i64} : (tensor<1x2x8xf32>, tensor<1x2xi64>, tensor<9x2xf32>, tensor<5x2xf32>) -> tensor<1x2x8xf32>
  return %r : tensor<1x2x8xf32>
}

// -----

func.func @main(%x: tensor<1x2x8xf32>, %p: tensor<0xi64>, %c: tensor<9x2xf32>, %s: tensor<9x2xf32>) -> tensor<1x2x8xf32> {
  // expected-error@+1 {{expected a first position of one element, found int64[0]}}
  %r = onnx.op "RotaryEmbedding"(%x, %p, %c, %s) {domain = "com.microsoft", version = 1 : i64} : (tensor<1x2x8xf32>, tensor<0xi64>, tensor<9x2xf32>, tensor<9x2xf32>) -> tensor<1x2x8xf32>
  return %r : tensor<1x2x8xf32>
}

// -----

func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %n = onnx.none : none
  // expected-error@+1 {{expected input 2, found nothing}}
  %r = onnx.op "Max"(%x, %x, %n) {version = 13 : i64} : (tensor<2xf32>, tensor<2xf32>, none) -> tensor<2xf32>
  return %r : tensor<2xf32>
}
