// Sizes that do not fit each other, where the types say so: code that relied on them would read outside a tensor.
// RUN: lathe-opt %s --onnx-to-linalg -split-input-file -verify-diagnostics

func.func @main(%x: tensor<2x3xf32>) -> tensor<*x!onnx.any> {
  %a = onnx.constant dense<[0, 1, 0]> : tensor<3xi64>
  // expected-error@+1 {{(Squeeze, opset 13): expected at most 2 axes, found 3}}
  %r = onnx.op "Squeeze"(%x, %a) {version = 13 : i64} : (tensor<2x3xf32>, tensor<3xi64>) -> tensor<*x!onnx.any>
  return %r : tensor<*x!onnx.any>
}

// -----

func.func @main(%x: tensor<2x3xf32>) -> tensor<*x!onnx.any> {
  %a = onnx.constant dense<[1, -3]> : tensor<2xi64>
  // expected-error@+1 {{(Unsqueeze, opset 13): expected axes that differ, found -3 twice}}
  %r = onnx.op "Unsqueeze"(%x, %a) {version = 13 : i64} : (tensor<2x3xf32>, tensor<2xi64>) -> tensor<*x!onnx.any>
  return %r : tensor<*x!onnx.any>
}

// -----

func.func @main(%x: tensor<2x3xf32>) -> tensor<*x!onnx.any> {
  %s = onnx.constant dense<[-1, -1]> : tensor<2xi64>
  // expected-error@+1 {{(Reshape, opset 14): expected at most one -1 in the shape, found 2}}
  %r = onnx.op "Reshape"(%x, %s) {version = 14 : i64} : (tensor<2x3xf32>, tensor<2xi64>) -> tensor<*x!onnx.any>
  return %r : tensor<*x!onnx.any>
}

// -----

func.func @main(%x: tensor<2x3xf32>) -> tensor<*x!onnx.any> {
  %s = onnx.constant dense<[-1, 0]> : tensor<2xi64>
  // expected-error@+1 {{(Reshape, opset 14): expected no 0 beside -1 in the shape, found one}}
  %r = onnx.op "Reshape"(%x, %s) {version = 14 : i64, attrs = {allowzero = 1 : i64}} : (tensor<2x3xf32>, tensor<2xi64>) -> tensor<*x!onnx.any>
  return %r : tensor<*x!onnx.any>
}

// -----

func.func @main(%x: tensor<2x3xf32>) -> tensor<*x!onnx.any> {
  %one = onnx.constant dense<[1]> : tensor<1xi64>
  %a = onnx.constant dense<[2]> : tensor<1xi64>
  // expected-error@+1 {{(Slice, opset 13): expected axes of -2 .. 1, found 2}}
  %r = onnx.op "Slice"(%x, %one, %one, %a) {version = 13 : i64} : (tensor<2x3xf32>, tensor<1xi64>, tensor<1xi64>, tensor<1xi64>) -> tensor<*x!onnx.any>
  return %r : tensor<*x!onnx.any>
}

// -----

func.func @main(%x: tensor<2x3xf32>) -> tensor<*x!onnx.any> {
  %k = onnx.constant dense<[4]> : tensor<1xi64>
  // expected-error@+1 {{(TopK, opset 11): expected a k of 0 .. the extent of the axis, found 4 for float[2,3]}}
  %r:2 = onnx.op "TopK"(%x, %k) {version = 11 : i64} : (tensor<2x3xf32>, tensor<1xi64>) -> (tensor<*x!onnx.any>, tensor<*x!onnx.any>)
  return %r#0 : tensor<*x!onnx.any>
}

// -----

func.func @main(%x: tensor<2x3xf32>, %k: tensor<0xi64>) -> tensor<*x!onnx.any> {
  // expected-error@+1 {{(Trilu, opset 14): expected k of one element, found int64[0]}}
  %r = onnx.op "Trilu"(%x, %k) {version = 14 : i64} : (tensor<2x3xf32>, tensor<0xi64>) -> tensor<*x!onnx.any>
  return %r : tensor<*x!onnx.any>
}

// -----

func.func @main(%x: tensor<2xf32>, %v: tensor<f64>) -> tensor<*x!onnx.any> {
  %p = onnx.constant dense<[1, 1]> : tensor<2xi64>
  // expected-error@+1 {{(Pad, opset 13): expected a value to pad with of type float, found double[]}}
  %r = onnx.op "Pad"(%x, %p, %v) {version = 13 : i64} : (tensor<2xf32>, tensor<2xi64>, tensor<f64>) -> tensor<*x!onnx.any>
  return %r : tensor<*x!onnx.any>
}

// -----

func.func @main(%c: tensor<2x1x4x8xf32>, %u: tensor<2x1x1x8xf32>, %w: tensor<2x1xi64>) -> tensor<*x!onnx.any> {
  // expected-error@+1 {{(TensorScatter, opset 24): expected write indices of rank 1, found int64[2,1]}}
  %r = onnx.op "TensorScatter"(%c, %u, %w) {version = 24 : i64} : (tensor<2x1x4x8xf32>, tensor<2x1x1x8xf32>, tensor<2x1xi64>) -> tensor<*x!onnx.any>
  return %r : tensor<*x!onnx.any>
}

// -----

func.func @main(%x: tensor<2x1x4x8xf32>, %n: tensor<2x1xi64>) -> tensor<*x!onnx.any> {
  %none = onnx.none : none
  // expected-error@+1 {{(Attention, opset 24): expected 'nonpad_kv_seqlen' of rank 1, found int64[2,1]}}
  %r = onnx.op "Attention"(%x, %x, %x, %none, %none, %none, %n) {version = 24 : i64} : (tensor<2x1x4x8xf32>, tensor<2x1x4x8xf32>, tensor<2x1x4x8xf32>, none, none, none, tensor<2x1xi64>) -> tensor<*x!onnx.any>
  return %r : tensor<*x!onnx.any>
}

// -----

func.func @main(%x: tensor<2x1x4x8xf32>, %m: tensor<4x0xi1>) -> tensor<*x!onnx.any> {
  // expected-error@+1 {{(Attention, opset 24): expected a mask that broadcasts to [batch, heads, queries, keys], found bool[4,0]}}
  %r = onnx.op "Attention"(%x, %x, %x, %m) {version = 24 : i64} : (tensor<2x1x4x8xf32>, tensor<2x1x4x8xf32>, tensor<2x1x4x8xf32>, tensor<4x0xi1>) -> tensor<*x!onnx.any>
  return %r : tensor<*x!onnx.any>
}

// -----

func.func @main(%q: tensor<1x2x8xf32>, %k: tensor<1x2x4xf32>, %p: tensor<1x1x?x4xf32>, %s: tensor<i32>, %t: tensor<1xi32>) -> tensor<*x!onnx.any> {
  // expected-error@+1 {{(GroupQueryAttention, com.microsoft opset 1): expected seqlens_k as [batch] or [batch, 1], found int32[]}}
  %r:3 = onnx.op "GroupQueryAttention"(%q, %k, %k, %p, %p, %s, %t) {domain = "com.microsoft", version = 1 : i64, attrs = {num_heads = 2 : i64, kv_num_heads = 1 : i64}} : (tensor<1x2x8xf32>, tensor<1x2x4xf32>, tensor<1x2x4xf32>, tensor<1x1x?x4xf32>, tensor<1x1x?x4xf32>, tensor<i32>, tensor<1xi32>) -> (tensor<*x!onnx.any>, tensor<*x!onnx.any>, tensor<*x!onnx.any>)
  return %r#0 : tensor<*x!onnx.any>
}

// -----

func.func @main(%q: tensor<1x2x8xf32>, %k: tensor<1x2x4xf32>, %p: tensor<1x1x?x4xf32>, %s: tensor<1xi32>, %t: tensor<0xi32>) -> tensor<*x!onnx.any> {
  // expected-error@+1 {{expected total_sequence_length of one element, found int32[0]}}
  %r:3 = onnx.op "GroupQueryAttention"(%q, %k, %k, %p, %p, %s, %t) {domain = "com.microsoft", version = 1 : i64, attrs = {num_heads = 2 : i64, kv_num_heads = 1 : i64}} : (tensor<1x2x8xf32>, tensor<1x2x4xf32>, tensor<1x2x4xf32>, tensor<1x1x?x4xf32>, tensor<1x1x?x4xf32>, tensor<1xi32>, tensor<0xi32>) -> (tensor<*x!onnx.any>, tensor<*x!onnx.any>, tensor<*x!onnx.any>)
  return %r#0 : tensor<*x!onnx.any>
}

// -----

func.func @main(%q: tensor<1x2x8xf32>, %k: tensor<1x2x4xf32>, %p: tensor<1x1x?x4xf32>, %s: tensor<1xi32>, %t: tensor<1xi32>, %c: tensor<1x9x2xf32>) -> tensor<*x!onnx.any> {
  // expected-error@+1 {{expected cos_cache and sin_cache of rank 2, found float[1,9,2] and float[1,9,2]}}
  %r:3 = onnx.op "GroupQueryAttention"(%q, %k, %k, %p, %p, %s, %t, %c, %c) {domain = "com.microsoft", version = 1 : i64, attrs = {num_heads = 2 : i64, kv_num_heads = 1 : i64, do_rotary = 1 : i64}} : (tensor<1x2x8xf32>, tensor<1x2x4xf32>, tensor<1x2x4xf32>, tensor<1x1x?x4xf32>, tensor<1x1x?x4xf32>, tensor<1xi32>, tensor<1xi32>, tensor<1x9x2xf32>, tensor<1x9x2xf32>) -> (tensor<*x!onnx.any>, tensor<*x!onnx.any>, tensor<*x!onnx.any>)
  return %r#0 : tensor<*x!onnx.any>
}

// -----

func.func @main(%q: tensor<1x2x8xf32>, %k: tensor<1x2x4xf32>, %p: tensor<1x1x?x4xf32>, %s: tensor<1xi32>, %t: tensor<1xi32>) -> tensor<*x!onnx.any> {
  %none = onnx.none : none
  // expected-error@+1 {{expected past key and past value together, found float[1,1,?,4] and nothing}}
  %r:3 = onnx.op "GroupQueryAttention"(%q, %k, %k, %p, %none, %s, %t) {domain = "com.microsoft", version = 1 : i64, attrs = {num_heads = 2 : i64, kv_num_heads = 1 : i64}} : (tensor<1x2x8xf32>, tensor<1x2x4xf32>, tensor<1x2x4xf32>, tensor<1x1x?x4xf32>, none, tensor<1xi32>, tensor<1xi32>) -> (tensor<*x!onnx.any>, tensor<*x!onnx.any>, tensor<*x!onnx.any>)
  return %r#0 : tensor<*x!onnx.any>
}

// -----

// The sizes that follow from K and N would not be numbers of 64 bits.
func.func @main(%x: tensor<0x64xf32>, %w: tensor<0xui8>, %s: tensor<0xf32>) -> tensor<*x!onnx.any> {
  // expected-error@+1 {{(MatMulNBits, com.microsoft opset 1): expected 'K', 'N' and 'block_size' of a matrix of at most 2^48 elements, found 64, 4611686018427387904 and 32}}
  %r = onnx.op "MatMulNBits"(%x, %w, %s) {domain = "com.microsoft", version = 1 : i64, attrs = {K = 64 : i64, N = 4611686018427387904 : i64, block_size = 32 : i64}} : (tensor<0x64xf32>, tensor<0xui8>, tensor<0xf32>) -> tensor<*x!onnx.any>
  return %r : tensor<*x!onnx.any>
}

// -----

func.func @main(%x: tensor<3x16xui8>, %i: tensor<1xi64>, %s: tensor<3x1xf32>, %z: tensor<3xui8>) -> tensor<*x!onnx.any> {
  // expected-error@+1 {{(GatherBlockQuantized, com.microsoft opset 1): expected zero points of the data's type and rank, found uint8[3] for uint8[3,16]}}
  %r = onnx.op "GatherBlockQuantized"(%x, %i, %s, %z) {domain = "com.microsoft", version = 1 : i64, attrs = {block_size = 32 : i64, bits = 4 : i64}} : (tensor<3x16xui8>, tensor<1xi64>, tensor<3x1xf32>, tensor<3xui8>) -> tensor<*x!onnx.any>
  return %r : tensor<*x!onnx.any>
}

// -----

func.func @main(%x: tensor<2x3xf32>, %m: tensor<i1>) -> tensor<*x!onnx.any> {
  %none = onnx.none : none
  %yes = onnx.constant dense<true> : tensor<i1>
  // expected-error@+1 {{(Dropout, opset 13): expected training_mode that is absent or a constant false, found true}}
  %r = onnx.op "Dropout"(%x, %none, %yes) {version = 13 : i64} : (tensor<2x3xf32>, none, tensor<i1>) -> tensor<*x!onnx.any>
  return %r : tensor<*x!onnx.any>
}

// -----

func.func @main(%x: tensor<2x3xf32>, %c: tensor<2xi1>) -> tensor<*x!onnx.any> {
  // expected-error@+1 {{(If, opset 16): expected a condition of one element, found}}
  %r = onnx.op "If"(%c) {version = 16 : i64} : (tensor<2xi1>) -> tensor<*x!onnx.any> {
    onnx.yield %x : tensor<2x3xf32>
  }, {
    onnx.yield %x : tensor<2x3xf32>
  }
  return %r : tensor<*x!onnx.any>
}
