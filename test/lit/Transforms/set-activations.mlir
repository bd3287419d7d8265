// RUN: lathe-opt %s -llm-set-activations | FileCheck %s
// RUN: lathe-opt %s -pass-pipeline='builtin.module(func.func(llm-set-activations{format=bf16}))' | FileCheck %s --check-prefix=BF16
// RUN: lathe-opt %s -pass-pipeline='builtin.module(func.func(llm-set-activations{format=int8z}))' -remarks-filter=".*" -remark-format=emitRemark 2>&1 | FileCheck %s --check-prefix=INT8Z
// RUN: lathe-opt %s -pass-pipeline='builtin.module(func.func(llm-set-activations{format=e4m3}))' -remarks-filter=".*" -remark-format=emitRemark 2>%t.remarks | FileCheck %s --check-prefix=E4M3
// RUN: FileCheck %s --check-prefix=REMARK < %t.remarks
// RUN: not lathe-opt %s -pass-pipeline='builtin.module(func.func(llm-set-activations{format=int7}))' 2>&1 | FileCheck %s --check-prefix=ERROR
// With float32 nothing changes; a rounding changes a little.
// RUN: lathe-interp %s --tokens 1,2,3 > %t.before
// RUN: lathe-opt %s -pass-pipeline='builtin.module(func.func(llm-set-activations{format=f32}))' | lathe-interp - --tokens 1,2,3 | diff %t.before -
// RUN: lathe-opt %s -llm-set-activations | lathe-interp - --tokens 1,2,3 | not diff -q %t.before -
// RUN: lathe-opt %s -pass-pipeline='builtin.module(func.func(llm-set-activations{format=e4m3}))' | lathe-interp - --tokens 1,2,3 | not diff -q %t.before -
// Done twice it does nothing.
// RUN: lathe-opt %s -llm-set-activations > %t.once && lathe-opt %t.once -llm-set-activations | diff %t.once -

// ERROR: error: llm-set-activations: expected format auto, int8, int8z, e4m3, bf16 or f32, found 'int7'

llm.param @e : tensor<8x64xf32> = #llm.synthetic<1, f32, [8, 64]>
llm.param @wi : tensor<64x64x!llm.q<q8_0>> = #llm.synthetic<2, q8_0, [64, 64]>
llm.param @wb : tensor<64x64xbf16> = #llm.synthetic<3, bf16, [64, 64]>
llm.param @we : tensor<64x64x!llm.q<e4m3>> = #llm.synthetic<6, e4m3, [64, 64]>
llm.param @wh : tensor<64x64xf16> = #llm.synthetic<4, f16, [64, 64]>
llm.param @head : tensor<8x64x!llm.q<q8_0>> = #llm.synthetic<5, q8_0, [8, 64]>

// What is fused already is left.
// INT8Z: remark: {{.*}}inside a fused op
func.func @fused(%x: tensor<?x64xf32>, %w: tensor<64x64xf32>) -> tensor<?x64xf32> {
  %y = llm.fused "residual_linear" (%x, %w) : (tensor<?x64xf32>, tensor<64x64xf32>) -> tensor<?x64xf32> {
  ^bb0(%a: tensor<?x64xf32>, %b: tensor<64x64xf32>):
    %p = llm.linear %a, %b : (tensor<?x64xf32>, tensor<64x64xf32>) -> tensor<?x64xf32>
    %q = llm.add %a, %p : tensor<?x64xf32>
    llm.yield %q : tensor<?x64xf32>
  }
  return %y : tensor<?x64xf32>
}

// CHECK-LABEL: func.func @step
// BF16-LABEL: func.func @step
// Only weights of 8-bit floats are multiplied with activations of theirs.
// REMARK: remark: {{.*}}llm.linear{{.*}}e4m3 activations need e4m3 weights
// E4M3-LABEL: func.func @step
// E4M3: %[[B:.*]] = llm.quantize %{{.*}} -> tensor<?x64x!llm.act<bf16>>
// E4M3-NEXT: llm.linear %[[B]]
// E4M3-NEXT: llm.linear %[[B]]
// E4M3-NEXT: llm.linear %[[B]]
// E4M3-NEXT: %[[Q:.*]] = llm.quantize %{{.*}} -> tensor<?x64x!llm.act<e4m3>>
// E4M3-NEXT: llm.linear %[[Q]]
// E4M3-NEXT: llm.linear %[[B]]
func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x8xf32>, !llm.kv) {
  %e = llm.weight @e : tensor<8x64xf32>
  %wi = llm.weight @wi : tensor<64x64x!llm.q<q8_0>>
  %wb = llm.weight @wb : tensor<64x64xbf16>
  %we = llm.weight @we : tensor<64x64x!llm.q<e4m3>>
  %wh = llm.weight @wh : tensor<64x64xf16>
  %head = llm.weight @head : tensor<8x64x!llm.q<q8_0>>
  // CHECK: %[[X:.*]] = llm.embed
  %x = llm.embed %b, %e : tensor<8x64xf32> -> tensor<?x64xf32>
  // Integer and float weights of one input: one rounding for each format.
  // CHECK: %[[Q:.*]] = llm.quantize %[[X]] : tensor<?x64xf32> -> tensor<?x64x!llm.act<int8>>
  // CHECK-NEXT: llm.linear %[[Q]]
  // CHECK-NEXT: llm.linear %[[Q]]
  // BF16: %[[Q:.*]] = llm.quantize %{{.*}} -> tensor<?x64x!llm.act<bf16>>
  // BF16-NEXT: llm.linear %[[Q]]
  // BF16-NEXT: llm.linear %[[Q]]
  // BF16-NEXT: llm.linear %[[Q]]
  // BF16-NEXT: llm.linear %[[Q]]
  // BF16-NEXT: llm.linear %[[Q]]
  %p = llm.linear %x, %wi : (tensor<?x64xf32>, tensor<64x64x!llm.q<q8_0>>) -> tensor<?x64xf32>
  %r = llm.linear %x, %wi : (tensor<?x64xf32>, tensor<64x64x!llm.q<q8_0>>) -> tensor<?x64xf32>
  // CHECK: %[[B:.*]] = llm.quantize %[[X]] : tensor<?x64xf32> -> tensor<?x64x!llm.act<bf16>>
  // CHECK-NEXT: llm.linear %[[B]]
  // INT8Z: remark: {{.*}}llm.linear{{.*}}int8 activations need integer weights
  %s0 = llm.linear %x, %wb : (tensor<?x64xf32>, tensor<64x64xbf16>) -> tensor<?x64xf32>
  // 8-bit floats, too.
  // CHECK-NEXT: llm.linear %[[B]]
  // INT8Z: remark: {{.*}}llm.linear{{.*}}int8 activations need integer weights
  %s1 = llm.linear %x, %we : (tensor<?x64xf32>, tensor<64x64x!llm.q<e4m3>>) -> tensor<?x64xf32>
  // CHECK: %[[F:.*]] = llm.quantize %[[X]] : tensor<?x64xf32> -> tensor<?x64x!llm.act<f32>>
  // CHECK-NEXT: llm.linear %[[F]]
  %t = llm.linear %x, %wh : (tensor<?x64xf32>, tensor<64x64xf16>) -> tensor<?x64xf32>
  %s = llm.add %s0, %s1 : tensor<?x64xf32>
  %u = llm.mul %p, %r : tensor<?x64xf32>
  %v = llm.add %s, %t : tensor<?x64xf32>
  %y = llm.add %u, %v : tensor<?x64xf32>
  %z = llm.select_rows %y, %b : tensor<?x64xf32>
  %zz = llm.scale %z by 0.5 : tensor<?x64xf32>
  // CHECK: %[[Z:.*]] = llm.quantize %{{.*}} : tensor<?x64xf32> -> tensor<?x64x!llm.act<int8z>>
  // CHECK-NEXT: llm.linear %[[Z]]
  %l = llm.linear %zz, %head : (tensor<?x64xf32>, tensor<8x64x!llm.q<q8_0>>) -> tensor<?x8xf32>
  return %l, %kv : tensor<?x8xf32>, !llm.kv
}
