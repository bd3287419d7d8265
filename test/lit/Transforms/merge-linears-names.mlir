// Params whose names joined read the same are not the same param.
// RUN: lathe-opt %s -llm-merge-linears | FileCheck %s
// RUN: lathe-interp %s --tokens 1,2,3 > %t.before
// RUN: lathe-opt %s -llm-merge-linears | lathe-interp - --tokens 1,2,3 | diff %t.before -

llm.param @e : tensor<8x32xf32> = #llm.synthetic<1, f32, [8, 32]>
// CHECK-DAG: llm.param @"[[FIRST:a\+b\+c[_0-9]*]]" : tensor<64x32xf32> = #llm.concat<[#llm.synthetic<2, {{.*}}>, #llm.synthetic<3, {{.*}}>]>
// CHECK-DAG: llm.param @"[[SECOND:a\+b\+c[_0-9]*]]" : tensor<64x32xf32> = #llm.concat<[#llm.synthetic<4, {{.*}}>, #llm.synthetic<5, {{.*}}>]>
llm.param @a : tensor<32x32xf32> = #llm.synthetic<2, f32, [32, 32]>
llm.param @"b+c" : tensor<32x32xf32> = #llm.synthetic<3, f32, [32, 32]>
llm.param @"a+b" : tensor<32x32xf32> = #llm.synthetic<4, f32, [32, 32]>
llm.param @c : tensor<32x32xf32> = #llm.synthetic<5, f32, [32, 32]>

// CHECK-LABEL: func.func @step
func.func @step(%b: !llm.batch) -> tensor<?x32xf32> {
  %e = llm.weight @e : tensor<8x32xf32>
  %x = llm.embed %b, %e : tensor<8x32xf32> -> tensor<?x32xf32>
  // CHECK: llm.weight @"[[FIRST]]"
  %w0 = llm.weight @a : tensor<32x32xf32>
  %w1 = llm.weight @"b+c" : tensor<32x32xf32>
  %p = llm.linear %x, %w0 : (tensor<?x32xf32>, tensor<32x32xf32>) -> tensor<?x32xf32>
  %q = llm.linear %x, %w1 : (tensor<?x32xf32>, tensor<32x32xf32>) -> tensor<?x32xf32>
  %y = llm.mul %p, %q : tensor<?x32xf32>
  // CHECK: llm.weight @"[[SECOND]]"
  %w2 = llm.weight @"a+b" : tensor<32x32xf32>
  %w3 = llm.weight @c : tensor<32x32xf32>
  %r = llm.linear %y, %w2 : (tensor<?x32xf32>, tensor<32x32xf32>) -> tensor<?x32xf32>
  %s = llm.linear %y, %w3 : (tensor<?x32xf32>, tensor<32x32xf32>) -> tensor<?x32xf32>
  %z = llm.mul %r, %s : tensor<?x32xf32>
  return %z : tensor<?x32xf32>
}
