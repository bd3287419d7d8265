// RUN: lathe-opt %s --split-input-file --verify-diagnostics

func.func @unknown(%a: tensor<f32>) {
  // expected-error@+1 {{'NoSuchOp': no operator of this name is supported in domain ''}}
  %0 = onnx.op "NoSuchOp"(%a) {version = 13 : i64} : (tensor<f32>) -> tensor<f32>
  return
}

// -----

func.func @domain(%a: tensor<f32>) {
  // expected-error@+1 {{'Relu': operators of domain 'acme' are not supported, only those of the standard and of com.microsoft are}}
  %0 = onnx.op "Relu"(%a) {domain = "acme", version = 1 : i64} : (tensor<f32>) -> tensor<f32>
  return
}

// -----

func.func @newer(%a: tensor<f32>) {
  // expected-error@+1 {{'Relu': operator set 99 of domain '' is newer than 28, the newest that is supported}}
  %0 = onnx.op "Relu"(%a) {version = 99 : i64} : (tensor<f32>) -> tensor<f32>
  return
}

// -----

func.func @older(%a: tensor<f32>) {
  // expected-error@+1 {{'Swish': the operator is supported from operator set 24 on, found 13}}
  %0 = onnx.op "Swish"(%a) {version = 13 : i64} : (tensor<f32>) -> tensor<f32>
  return
}

// -----

func.func @deprecated(%a: tensor<f32>) {
  // expected-error@+1 {{'Upsample': the operator is deprecated since operator set 10, found 13}}
  %0 = onnx.op "Upsample"(%a, %a) {version = 13 : i64} : (tensor<f32>, tensor<f32>) -> tensor<f32>
  return
}

// -----

func.func @version(%a: tensor<f32>) {
  // expected-error@+1 {{'Relu': expected the version that operator set 14 introduced, found 15}}
  %0 = onnx.op "Relu"(%a) {version = 15 : i64} : (tensor<f32>) -> tensor<f32>
  return
}

// -----

func.func @inputs(%a: tensor<f32>) {
  // expected-error@+1 {{'MatMul': expected 2 inputs, found 1}}
  %0 = onnx.op "MatMul"(%a) {version = 13 : i64} : (tensor<f32>) -> tensor<f32>
  return
}

// -----

func.func @variadic() {
  // expected-error@+1 {{'Concat': expected 1 or more inputs, found 0}}
  %0 = onnx.op "Concat"() {version = 13 : i64, attrs = {axis = 0 : i64}} : () -> tensor<f32>
  return
}

// -----

func.func @outputs(%a: tensor<f32>) {
  // expected-error@+1 {{'TopK': expected 2 outputs, found 1}}
  %0 = onnx.op "TopK"(%a, %a) {version = 24 : i64} : (tensor<f32>, tensor<f32>) -> tensor<f32>
  return
}

// -----

func.func @unknown_attribute(%a: tensor<f32>) {
  // expected-error@+1 {{'Softmax': attribute 'axes' is not known to version 13}}
  %0 = onnx.op "Softmax"(%a) {version = 13 : i64, attrs = {axes = 1 : i64}} : (tensor<f32>) -> tensor<f32>
  return
}

// -----

func.func @attribute_type(%a: tensor<f32>) {
  // expected-error@+1 {{'Softmax': attribute 'axis': expected an integer, found "1"}}
  %0 = onnx.op "Softmax"(%a) {version = 13 : i64, attrs = {axis = "1"}} : (tensor<f32>) -> tensor<f32>
  return
}

// -----

func.func @flag(%a: tensor<1x2x3x4xf32>) {
  // expected-error@+1 {{'Attention': attribute 'is_causal': expected 0 or 1, found 2}}
  %0 = onnx.op "Attention"(%a, %a, %a) {version = 23 : i64, attrs = {is_causal = 2 : i64}} : (tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>) -> tensor<1x2x3x4xf32>
  return
}

// -----

func.func @negative_flag(%a: tensor<1x2x3x4xf32>) {
  // expected-error@+1 {{'RotaryEmbedding': attribute 'interleaved': expected 0 or 1, found -1}}
  %0 = onnx.op "RotaryEmbedding"(%a, %a, %a) {version = 23 : i64, attrs = {interleaved = -1 : i64}} : (tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>) -> tensor<1x2x3x4xf32>
  return
}

// -----

func.func @required(%a: tensor<f32>) {
  // expected-error@+1 {{'Concat': expected an attribute 'axis'}}
  %0 = onnx.op "Concat"(%a) {version = 13 : i64} : (tensor<f32>) -> tensor<f32>
  return
}

// -----

func.func @subgraphs(%a: tensor<i1>) {
  // expected-error@+1 {{'If': expected 2 subgraphs, found 0}}
  %0 = onnx.op "If"(%a) {version = 16 : i64} : (tensor<i1>) -> tensor<f32>
  return
}

// -----

func.func @ends(%a: tensor<i1>) {
  // expected-error@+1 {{'If': expected subgraphs of one block that ends in onnx.yield}}
  %0 = onnx.op "If"(%a) {version = 16 : i64} : (tensor<i1>) -> tensor<i1> {
    onnx.yield %a : tensor<i1>
  }, {
    %1 = onnx.none : none
  }
  return
}

// -----

// expected-error@+1 {{expected a tensor of known sizes, found 'tensor<?xf32>'}}
onnx.param @w : tensor<?xf32> = #onnx.file<"f", 0, 4>

// -----

// expected-error@+1 {{expected a value of type 'tensor<2xf32>', found 'tensor<1xf32>'}}
onnx.param @w : tensor<2xf32> = dense<1.0> : tensor<1xf32>

// -----

// expected-error@+1 {{expected #onnx.file or a dense value, found 1 : i64}}
onnx.param @w : tensor<2xf32> = 1 : i64

// -----

// expected-error@+1 {{expected 8 bytes of 'tensor<2xf32>' at a positive offset, found 4 at 0}}
onnx.param @w : tensor<2xf32> = #onnx.file<"f", 0, 4>

// -----

func.func @no_param() {
  // expected-error@+1 {{expected an onnx.param named @w}}
  %0 = onnx.weight @w : tensor<2xf32>
  return
}

// -----

onnx.param @w : tensor<2xf32> = #onnx.file<"f", 0, 8>
func.func @type() {
  // expected-error@+1 {{expected type 'tensor<2xf32>' of @w, found 'tensor<2xf64>'}}
  %0 = onnx.weight @w : tensor<2xf64>
  return
}
