// The step gets a second result: the largest logit of each row. The first one stays as it is.
// RUN: lathe-opt %s -pass-pipeline='builtin.module(func.func(llm-fuse-head))' | FileCheck %s
// RUN: lathe-opt %s -pass-pipeline='builtin.module(func.func(llm-fuse-head{epilogue=false}))' | FileCheck %s --check-prefix=PLAIN
// RUN: lathe-interp %s --tokens 1,2,3 --tokens 5 > %t.before
// RUN: lathe-opt %s -pass-pipeline='builtin.module(func.func(llm-fuse-head))' > %t.mlir
// RUN: lathe-interp %t.mlir --tokens 1,2,3 --tokens 5 | diff %t.before -
// What it says is what the logits say: "ID:LOGIT" of the top one against "ID LOGIT".
// RUN: lathe-interp %s --tokens 1,2,3 --tokens 5 --top 1 | sed 's/\([0-9]*\):\([^:]*\)$/\1 \2/' > %t.top
// RUN: lathe-interp %t.mlir --tokens 1,2,3 --tokens 5 --result 1 | diff %t.top -
// RUN: lathe-opt %s -pass-pipeline='builtin.module(func.func(llm-fuse-head{epilogue=false}))' | lathe-interp - --tokens 1,2,3 --tokens 5 --result 1 | diff %t.top -

llm.param @e : tensor<8x64xf32> = #llm.synthetic<1, f32, [8, 64]>
llm.param @w : tensor<300x64x!llm.q<q8_0>> = #llm.synthetic<3, q8_0, [300, 64]>
llm.param @c : tensor<300xf32> = #llm.synthetic<4, f32, [300]>

// CHECK-LABEL: func.func @step(%{{.*}}: !llm.batch, %{{.*}}: !llm.kv) -> (tensor<?x300xf32>, tensor<?x2xf32>, !llm.kv)
// PLAIN-LABEL: func.func @step(%{{.*}}: !llm.batch, %{{.*}}: !llm.kv) -> (tensor<?x300xf32>, tensor<?x2xf32>, !llm.kv)
func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x300xf32>, !llm.kv) {
  %e = llm.weight @e : tensor<8x64xf32>
  %w = llm.weight @w : tensor<300x64x!llm.q<q8_0>>
  %c = llm.weight @c : tensor<300xf32>
  %x = llm.embed %b, %e : tensor<8x64xf32> -> tensor<?x64xf32>
  %s = llm.select_rows %x, %b : tensor<?x64xf32>
  %q = llm.quantize %s : tensor<?x64xf32> -> tensor<?x64x!llm.act<int8z>>
  // CHECK: %[[L:.*]] = llm.linear
  // CHECK-NEXT: %[[C:.*]] = llm.fused "argmax_linear"(%{{.*}}, %{{.*}}, %{{.*}}) : (tensor<?x64x!llm.act<int8z>>, tensor<300x64x!llm.q<q8_0>>, tensor<300xf32>) -> tensor<?x2xf32> {
  // CHECK: %[[Y:.*]] = llm.linear
  // CHECK-NEXT: %[[A:.*]] = llm.argmax %[[Y]]
  // CHECK-NEXT: llm.yield %[[A]]
  // CHECK: return %[[L]], %[[C]], %{{.*}} : tensor<?x300xf32>, tensor<?x2xf32>, !llm.kv
  // PLAIN: %[[L:.*]] = llm.linear
  // PLAIN-NEXT: %[[C:.*]] = llm.argmax %[[L]]
  // PLAIN-NEXT: return %[[L]], %[[C]], %{{.*}} : tensor<?x300xf32>, tensor<?x2xf32>, !llm.kv
  %y = llm.linear %q, %w bias %c : tensor<300xf32> : (tensor<?x64x!llm.act<int8z>>, tensor<300x64x!llm.q<q8_0>>) -> tensor<?x300xf32>
  return %y, %kv : tensor<?x300xf32>, !llm.kv
}

// Another function has one form.
// CHECK-LABEL: func.func @other
// CHECK-NOT: argmax
func.func @other(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x64xf32>, !llm.kv) {
  %e = llm.weight @e : tensor<8x64xf32>
  %x = llm.embed %b, %e : tensor<8x64xf32> -> tensor<?x64xf32>
  return %x, %kv : tensor<?x64xf32>, !llm.kv
}
