// RUN: lathe-opt %s | lathe-opt | FileCheck %s

// CHECK: onnx.param @w : tensor<4x2xf32> = #onnx.file<"model.onnx.data", 0, 32>
onnx.param @w : tensor<4x2xf32> = #onnx.file<"model.onnx.data", 0, 32>
// CHECK: onnx.param @q : tensor<3xui4> = #onnx.file<"model.onnx", 7, 2>
onnx.param @q : tensor<3xui4> = #onnx.file<"model.onnx", 7, 2>

// CHECK-LABEL: func.func @main
func.func @main(%a: tensor<?x4xf32> {onnx.name = "a", onnx.dims = ["batch", ""]}, %c: tensor<i1>) -> tensor<?x2xf32> {
  // CHECK: onnx.weight @w : tensor<4x2xf32>
  %w = onnx.weight @w : tensor<4x2xf32>
  // CHECK: onnx.op "MatMul"(%{{.*}}, %{{.*}}) {version = 13 : i64} : (tensor<?x4xf32>, tensor<4x2xf32>) -> tensor<?x2xf32>
  %m = onnx.op "MatMul"(%a, %w) {version = 13 : i64} : (tensor<?x4xf32>, tensor<4x2xf32>) -> tensor<?x2xf32>
  %axes = onnx.constant dense<[0, 1]> : tensor<2xi64>
  // CHECK: onnx.none : none
  %n = onnx.none : none
  // CHECK: onnx.op "Clip"(%{{.*}}, %{{.*}}, %{{.*}})
  %b = onnx.op "Clip"(%m, %n, %n) {version = 13 : i64} : (tensor<?x2xf32>, none, none) -> tensor<?x2xf32>
  // CHECK: onnx.op "If"(%{{.*}}) {version = 16 : i64} : (tensor<i1>) -> tensor<*x!onnx.any>
  // CHECK: onnx.yield
  // CHECK: }, {
  %i = onnx.op "If"(%c) {version = 16 : i64} : (tensor<i1>) -> tensor<*x!onnx.any> {
    onnx.yield %m : tensor<?x2xf32>
  }, {
    onnx.yield %b : tensor<?x2xf32>
  }
  // CHECK: "GroupQueryAttention"
  %g:3 = onnx.op "GroupQueryAttention"(%m, %n, %n, %n, %n, %axes, %axes) {domain = "com.microsoft", version = 1 : i64, attrs = {num_heads = 2 : i64, kv_num_heads = 1 : i64}}
      : (tensor<?x2xf32>, none, none, none, none, tensor<2xi64>, tensor<2xi64>) -> (tensor<*xf32>, tensor<*xf32>, tensor<*xf32>)
  return %b : tensor<?x2xf32>
}
