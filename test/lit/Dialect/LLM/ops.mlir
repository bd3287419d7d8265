// RUN: lathe-opt %s --verify-roundtrip | FileCheck %s

// CHECK-LABEL: llm.param @w : tensor<64x64x!llm.q<q4_1>>
llm.param @w : tensor<64x64x!llm.q<q4_1>> = #llm.file<"m.gguf", "blk.0.w", 128, q4_1, [64, 64]>
llm.param @qk : tensor<128x64x!llm.q<q4_1>> = #llm.concat<[#llm.unrope<#llm.file<"m.gguf", "q", 128, q4_1, [64, 64]>, 2>, #llm.slice<#llm.file<"m.gguf", "k", 128, q4_1, [128, 64]>, 0, 64>]>
llm.param @gu : tensor<128x64xf16> = #llm.interleave<#llm.synthetic<7, f16, [64, 64]>, #llm.transpose<#llm.file<"m", "t", 0, f16, [64, 64]>>, 32>
llm.param @n : tensor<64xf32> = #llm.add_one<#llm.file<"m.gguf", "n", 0, bf16, [64]>>
llm.param @r : tensor<64x64x!llm.q<int8>> = #llm.round<#llm.file<"m", "t", 0, f16, [64, 64]>, int8>
// CHECK: #llm.scaled<"t", [64, 64], codes = "m" 64, scales = "m" 4160 bf16, per_row = true>
llm.param @s : tensor<64x64x!llm.q<e4m3>> = #llm.scaled<"t", [64, 64], codes = "m" 64, scales = "m" 4160 bf16, per_row = true>
llm.param @bias : tensor<128xf32> = dense<0.0> : tensor<128xf32>
llm.param @f : tensor<16xf32> = dense<1.0> : tensor<16xf32>
// CHECK: llm.kv_group @kv layers [#llm.kv_layer<1, 32, 32>] key f16 value int8 window 128 page 16
llm.kv_group @kv layers [#llm.kv_layer<1, 32, 32>] key f16 value int8 window 128 page 16

// CHECK-LABEL: func.func @step
func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x64xf32>, !llm.kv) {
  %w = llm.weight @w : tensor<64x64x!llm.q<q4_1>>
  %bias = llm.weight @bias : tensor<128xf32>
  %n = llm.weight @n : tensor<64xf32>
  %f = llm.weight @f : tensor<16xf32>
  %x = llm.embed %b, %w {scale = 2.0 : f32} : tensor<64x64x!llm.q<q4_1>> -> tensor<?x64xf32>
  %h = llm.rms_norm %x, %n eps 1.0e-5 heads 1 : tensor<?x64xf32>, tensor<64xf32>
  %q = llm.quantize %h : tensor<?x64xf32> -> tensor<?x64x!llm.act<int8>>
  // CHECK: llm.linear %{{.*}}, %{{.*}}, %{{.*}} bias
  %y = llm.linear %q, %w, %w bias %bias : tensor<128xf32> : (tensor<?x64x!llm.act<int8>>, tensor<64x64x!llm.q<q4_1>>, tensor<64x64x!llm.q<q4_1>>) -> tensor<?x128xf32>
  %a = llm.angles %b, %f : tensor<16xf32> -> tensor<?x32xf32>
  %qh = llm.columns %y from 0 : tensor<?x128xf32> -> tensor<?x64xf32>
  %k = llm.columns %y from 64 : tensor<?x128xf32> -> tensor<?x32xf32>
  %v = llm.columns %y from 96 : tensor<?x128xf32> -> tensor<?x32xf32>
  %qr = llm.rope %qh, %a heads 2 : tensor<?x64xf32>, tensor<?x32xf32>
  %kv1 = llm.kv.append %kv, %k, %v, %b group @kv layer 0 : tensor<?x32xf32>, tensor<?x32xf32>
  %o = llm.attention %qr, %kv1, %b group @kv layer 0 heads 2 scale 0.125 : tensor<?x64xf32> -> tensor<?x64xf32>
  // CHECK: llm.argmax %{{.*}} : tensor<?x128xf32> -> tensor<?x2xf32>
  %best = llm.argmax %y : tensor<?x128xf32> -> tensor<?x2xf32>
  return %o, %kv1 : tensor<?x64xf32>, !llm.kv
}
