// RUN: lathe-opt %s --load-pass-plugin=%plugin --pass-pipeline="builtin.module(example-merge-scales)" -o %t.after
// RUN: FileCheck %s --input-file=%t.after
// The same bits before and after (%.9g names every float32).
// RUN: lathe-interp %s --tokens 1,0,7 --tokens 3 > %t.out.before
// RUN: lathe-interp %t.after --tokens 1,0,7 --tokens 3 > %t.out.after
// RUN: diff %t.out.before %t.out.after
// Without the other rows the diff would say nothing.
// RUN: FileCheck %s --check-prefix=ROWS --input-file=%t.out.before
// ROWS: 0 2: {{[-0-9.e]+}} {{[-0-9.e]+}}
// ROWS: 1 0:

llm.param @e : tensor<8x4xf32> = #llm.synthetic<1, f32, [8, 4]>

// CHECK-LABEL: func.func @step
func.func @step(%b: !llm.batch) -> tensor<?x4xf32> {
  %e = llm.weight @e : tensor<8x4xf32>
  // A scale folded into the embedding would not reach rows that a batch gives as embeddings: it stays.
  // CHECK: %[[X:.*]] = llm.embed
  %x = llm.embed %b, %e : tensor<8x4xf32> -> tensor<?x4xf32>
  // A power of two goes into what is before it, or after it: 0.7 * 2, 3 * -0.25, 8 * 0.3. One factor for 1.4 and -0.75 would round
  // otherwise than two.
  // CHECK-NEXT: %[[A:.*]] = llm.scale %[[X]] by 1.400000e+00
  // CHECK-NEXT: %[[B:.*]] = llm.scale %[[A]] by -7.500000e-01
  %x1 = llm.scale %x by 0.7 : tensor<?x4xf32>
  %x2 = llm.scale %x1 by 2.0 : tensor<?x4xf32>
  %x3 = llm.scale %x2 by 3.0 : tensor<?x4xf32>
  %x4 = llm.scale %x3 by -0.25 : tensor<?x4xf32>
  %x5 = llm.scale %x4 by 8.0 : tensor<?x4xf32>
  // The last one has two users and takes no other with it.
  // CHECK-NEXT: %[[Y:.*]] = llm.scale %[[B]] by 2.400000e+00
  // CHECK-NEXT: %[[Z:.*]] = llm.scale %[[Y]] by 2.000000e+00
  // CHECK-NEXT: %[[S:.*]] = llm.add %[[Y]], %[[Z]]
  %y = llm.scale %x5 by 0.3 : tensor<?x4xf32>
  %z = llm.scale %y by 2.0 : tensor<?x4xf32>
  %s = llm.add %y, %z : tensor<?x4xf32>
  // Here the product of the factors would leave the range of float32.
  // CHECK-NEXT: %[[T:.*]] = llm.scale %[[S]] by 1.0{{.*}}e-30
  // CHECK-NEXT: %[[U:.*]] = llm.scale %[[T]] by 3.55271
  %t = llm.scale %s by 1.0e-30 : tensor<?x4xf32>
  %u = llm.scale %t by 3.5527136788005009e-15 : tensor<?x4xf32>
  %w = llm.add %s, %u : tensor<?x4xf32>
  return %w : tensor<?x4xf32>
}
