// RUN: lathe-opt %s -canonicalize -cse | FileCheck %s

llm.param @e : tensor<8x4xf32> = #llm.synthetic<1, f32, [8, 4]>
llm.param @f : tensor<2xf32> = dense<1.0> : tensor<2xf32>

// A scale by one and columns that are all columns go; other ones stay.
// CHECK-LABEL: func.func @step
// CHECK: %[[X:.*]] = llm.embed
// CHECK-NEXT: %[[Y:.*]] = llm.scale %[[X]] by 2.000000e+00
// CHECK-NEXT: %[[Z:.*]] = llm.columns %[[Y]] from 2
// CHECK-NEXT: return %[[Z]]
func.func @step(%b: !llm.batch) -> tensor<?x2xf32> {
  %e = llm.weight @e : tensor<8x4xf32>
  %x = llm.embed %b, %e : tensor<8x4xf32> -> tensor<?x4xf32>
  %one = llm.scale %x by 1.0 : tensor<?x4xf32>
  %two = llm.scale %one by 2.0 : tensor<?x4xf32>
  %all = llm.columns %two from 0 : tensor<?x4xf32> -> tensor<?x4xf32>
  %some = llm.columns %all from 2 : tensor<?x4xf32> -> tensor<?x2xf32>
  return %some : tensor<?x2xf32>
}

// Equal ops are one, unused ones none: angles are computed once a step.
// CHECK-LABEL: func.func @cse
// CHECK-COUNT-1: llm.angles
// CHECK-NOT: llm.angles
// CHECK-NOT: llm.kv.append
// CHECK: return
func.func @cse(%b: !llm.batch, %kv: !llm.kv) -> tensor<?x4xf32> {
  %f = llm.weight @f : tensor<2xf32>
  %g = llm.weight @f : tensor<2xf32>
  %a = llm.angles %b, %f : tensor<2xf32> -> tensor<?x4xf32>
  %c = llm.angles %b, %g : tensor<2xf32> -> tensor<?x4xf32>
  %dead = llm.mul %a, %a : tensor<?x4xf32>
  %s = llm.add %a, %c : tensor<?x4xf32>
  return %s : tensor<?x4xf32>
}
