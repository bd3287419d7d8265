// General code for onnx graphs: sizes that the types do not state are computed, what only a run can tell is checked.
// RUN: lathe-opt %s --onnx-to-linalg -split-input-file | FileCheck %s

// A row vector broadcasts without a check: its only dimension is known.
// CHECK-LABEL: func.func @graph(
// CHECK-SAME: %[[A:.*]]: tensor<?x4xf32> {bufferization.writable = false, lathe.type = tensor<?x4xf32>, onnx.name = "a"}, %[[B:.*]]: tensor<4xf32>
// CHECK: %[[N:.*]] = tensor.dim %[[A]]
// CHECK: tensor.generate %[[N]]
// CHECK: %[[X:.*]] = tensor.extract %[[A]]
// CHECK: %[[Y:.*]] = tensor.extract %[[B]]
// CHECK: arith.addf %[[X]], %[[Y]] : f32
// CHECK-NOT: lathe_graph_fail
// CHECK: return
func.func @main(%a: tensor<?x4xf32> {onnx.name = "a"}, %b: tensor<4xf32>) -> tensor<?x4xf32> {
  %c = onnx.op "Add"(%a, %b) {version = 14 : i64} : (tensor<?x4xf32>, tensor<4xf32>) -> tensor<?x4xf32>
  return %c : tensor<?x4xf32>
}

// -----

// Two unknown sizes may be equal, or one of them 1: anything else ends the run.
// CHECK: module attributes {lathe.checks = ["node 'Add' (Add, opset 14): expected shapes that broadcast"]}
// CHECK-LABEL: func.func @graph(
// CHECK: func.call @lathe_graph_fail
// CHECK: arith.addi
func.func @main(%a: tensor<?xi64>, %b: tensor<?xi64>) -> tensor<?xi64> {
  %c = onnx.op "Add"(%a, %b) {version = 14 : i64} : (tensor<?xi64>, tensor<?xi64>) -> tensor<?xi64>
  return %c : tensor<?xi64>
}

// -----

// Weights are arguments; bool and bfloat16 have storage types; a product of matrices is a linalg op whose innermost loop
// walks a row.
// CHECK-DAG: affine_map<(d0, d1, d2) -> (d0, d1)>
// CHECK-DAG: affine_map<(d0, d1, d2) -> (d1, d2)>
// CHECK-LABEL: func.func @graph(
// CHECK-SAME: tensor<?x8xf32>
// CHECK-SAME: tensor<i8> {{.*}}lathe.type = tensor<i1>
// CHECK-SAME: tensor<8x4xi16> {{.*}}lathe.type = tensor<8x4xbf16>{{.*}}lathe.weight = "w"
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "reduction", "parallel"]
onnx.param @w : tensor<8x4xbf16> = #onnx.file<"m.data", 0, 64>
func.func @main(%a: tensor<?x8xf32>, %p: tensor<i1>) -> tensor<*x!onnx.any> {
  %w = onnx.weight @w : tensor<8x4xbf16>
  %f = onnx.op "Cast"(%w) {version = 13 : i64, attrs = {to = 1 : i64}} : (tensor<8x4xbf16>) -> tensor<*x!onnx.any>
  %c = onnx.op "MatMul"(%a, %f) {version = 13 : i64} : (tensor<?x8xf32>, tensor<*x!onnx.any>) -> tensor<*x!onnx.any>
  return %c : tensor<*x!onnx.any>
}

// -----

// A computed shape is followed as sizes: it is not read back from memory, and what is known of it is in the type.
// CHECK-LABEL: func.func @graph(
// CHECK-NOT: tensor.extract
// CHECK: tensor.reshape
// CHECK-SAME: -> tensor<?x6x2xf32>
// CHECK: return {{.*}} : tensor<?x6x2xf32>
func.func @main(%a: tensor<?x12xf32>) -> tensor<*x!onnx.any> {
  %s = onnx.op "Shape"(%a) {version = 15 : i64, attrs = {end = 1 : i64}} : (tensor<?x12xf32>) -> tensor<1xi64>
  %k = onnx.constant dense<[6, 2]> : tensor<2xi64>
  %shape = onnx.op "Concat"(%s, %k) {version = 13 : i64, attrs = {axis = 0 : i64}} : (tensor<1xi64>, tensor<2xi64>) -> tensor<3xi64>
  %r = onnx.op "Reshape"(%a, %shape) {version = 14 : i64} : (tensor<?x12xf32>, tensor<3xi64>) -> tensor<*x!onnx.any>
  return %r : tensor<*x!onnx.any>
}

// -----

// CHECK-LABEL: func.func @graph(
// CHECK: scf.if {{.*}} -> (tensor<?xf32>)
func.func @main(%p: tensor<i1>, %a: tensor<2xf32>, %b: tensor<3xf32>) -> tensor<?xf32> {
  %c = onnx.op "If"(%p) {version = 16 : i64} : (tensor<i1>) -> tensor<?xf32> {
    %x = onnx.op "Neg"(%a) {version = 13 : i64} : (tensor<2xf32>) -> tensor<2xf32>
    onnx.yield %x : tensor<2xf32>
  }, {
    onnx.yield %b : tensor<3xf32>
  }
  return %c : tensor<?xf32>
}

// -----

// No sizes and one size give no sizes.
// CHECK-LABEL: func.func @graph(
// CHECK-SAME: -> (tensor<f32>
// CHECK: tensor.reshape
func.func @main(%a: tensor<1xf32>) -> tensor<*x!onnx.any> {
  %none = onnx.op "Shape"(%a) {version = 15 : i64, attrs = {start = 1 : i64}} : (tensor<1xf32>) -> tensor<0xi64>
  %one = onnx.constant dense<[5]> : tensor<1xi64>
  %shape = onnx.op "Mul"(%none, %one) {version = 14 : i64} : (tensor<0xi64>, tensor<1xi64>) -> tensor<0xi64>
  %r = onnx.op "Reshape"(%a, %shape) {version = 14 : i64} : (tensor<1xf32>, tensor<0xi64>) -> tensor<*x!onnx.any>
  return %r : tensor<*x!onnx.any>
}
