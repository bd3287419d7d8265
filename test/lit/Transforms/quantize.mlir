// RUN: lathe-opt %s -pass-pipeline='builtin.module(llm-quantize{type=int4-g32 asymmetric=true skip=^skip})' -remarks-filter=".*" -remark-format=emitRemark 2>%t.remarks | FileCheck %s
// RUN: FileCheck %s --check-prefix=REMARK < %t.remarks
// RUN: lathe-opt %s -llm-quantize | FileCheck %s --check-prefix=INT8
// RUN: lathe-opt %s -pass-pipeline='builtin.module(llm-quantize{type=e4m3})' | FileCheck %s --check-prefix=E4M3
// RUN: not lathe-opt %s -pass-pipeline='builtin.module(llm-quantize{type=int3})' 2>&1 | FileCheck %s --check-prefix=ERROR
// RUN: not lathe-opt %s -pass-pipeline='builtin.module(llm-quantize{asymmetric=true})' 2>&1 | FileCheck %s --check-prefix=ASYMMETRIC
// RUN: not lathe-opt %s -pass-pipeline='builtin.module(llm-quantize{skip=[})' 2>&1 | FileCheck %s --check-prefix=SKIP
// The interpreter computes with the rounded values: close to before at int8, and the same when everything is skipped.
// RUN: lathe-interp %s --tokens 1,2,3 > %t.before
// RUN: lathe-opt %s -pass-pipeline='builtin.module(llm-quantize{skip=.})' | lathe-interp - --tokens 1,2,3 | diff %t.before -
// Every type within half as much again of what it costs (of groups of 128 there is one weight, behind the others), and no two alike.
// DEFINE: %{how} =
// DEFINE: %{name} =
// DEFINE: %{limit} =
// DEFINE: %{round} = lathe-opt %s -pass-pipeline='builtin.module(llm-quantize{%{how}})' | lathe-interp - --tokens 1,2,3 > %t.%{name} && %python %source_root/test/lit/Inputs/close.py %t.before %t.%{name} %{limit}
// REDEFINE: %{how} = type=int8
// REDEFINE: %{name} = int8
// REDEFINE: %{limit} = 0.012
// RUN: %{round}
// REDEFINE: %{how} = type=int4-g32
// REDEFINE: %{name} = int4-g32
// REDEFINE: %{limit} = 0.2
// RUN: %{round}
// REDEFINE: %{how} = type=int4-g64
// REDEFINE: %{name} = int4-g64
// REDEFINE: %{limit} = 0.26
// RUN: %{round}
// REDEFINE: %{how} = type=int4-g128
// REDEFINE: %{name} = int4-g128
// REDEFINE: %{limit} = 0.042
// RUN: %{round}
// REDEFINE: %{how} = type=int4-g32 asymmetric=true
// REDEFINE: %{name} = int4-g32-z
// REDEFINE: %{limit} = 0.14
// RUN: %{round}
// REDEFINE: %{how} = type=int4-g64 asymmetric=true
// REDEFINE: %{name} = int4-g64-z
// REDEFINE: %{limit} = 0.22
// RUN: %{round}
// REDEFINE: %{how} = type=int4-g128 asymmetric=true
// REDEFINE: %{name} = int4-g128-z
// REDEFINE: %{limit} = 0.068
// RUN: %{round}
// REDEFINE: %{how} = type=e4m3
// REDEFINE: %{name} = e4m3
// REDEFINE: %{limit} = 0.06
// RUN: %{round}
// REDEFINE: %{how} = type=q8_0
// REDEFINE: %{name} = q8_0
// REDEFINE: %{limit} = 0.009
// RUN: %{round}
// REDEFINE: %{how} = type=q4_0
// REDEFINE: %{name} = q4_0
// REDEFINE: %{limit} = 0.2
// RUN: %{round}
// REDEFINE: %{how} = type=f16
// REDEFINE: %{name} = f16
// REDEFINE: %{limit} = 0.0004
// RUN: %{round}
// REDEFINE: %{how} = type=bf16
// REDEFINE: %{name} = bf16
// REDEFINE: %{limit} = 0.0025
// RUN: %{round}
// RUN: cksum %t.before %t.int8 %t.int4-g32 %t.int4-g64 %t.int4-g128 %t.int4-g32-z %t.int4-g64-z %t.int4-g128-z %t.e4m3 %t.q8_0 %t.q4_0 %t.f16 %t.bf16 | cut -d' ' -f1 | sort -u | count 13
// RUN: lathe-opt %s -pass-pipeline='builtin.module(llm-quantize{type=int4-g64})' | FileCheck %s --check-prefix=G64
// RUN: lathe-opt %s -pass-pipeline='builtin.module(llm-quantize{type=int4-g128})' | FileCheck %s --check-prefix=G128
// RUN: lathe-opt %s -pass-pipeline='builtin.module(llm-quantize{type=int4-g64 asymmetric=true})' | FileCheck %s --check-prefix=G64-Z
// RUN: lathe-opt %s -pass-pipeline='builtin.module(llm-quantize{type=int4-g128 asymmetric=true})' | FileCheck %s --check-prefix=G128-Z

// ERROR: error: llm-quantize: expected type int8, int4-g32, int4-g64, int4-g128, e4m3, q8_0, q4_0, f16 or bf16, found 'int3'
// ASYMMETRIC: error: llm-quantize: expected type int8, {{.*}} (asymmetric: an int4 type), found 'int8'
// SKIP: error: llm-quantize: skip '[': {{.*}}

// REMARK: remark: {{.*}}named by skip
// REMARK: remark: {{.*}}not larger than the type asked for
// REMARK: remark: {{.*}}rows do not divide into the type's groups
// CHECK: llm.param @w : tensor<64x64x!llm.q<int4z_g32>> = #llm.round<#llm.synthetic<2, f16, [64, 64]>, int4z_g32>
// E4M3: llm.param @w : tensor<64x64x!llm.q<e4m3>> = #llm.round<#llm.synthetic<2, f16, [64, 64]>, e4m3>
// INT8: llm.param @w : tensor<64x64x!llm.q<int8>> = #llm.round<#llm.synthetic<2, f16, [64, 64]>, int8>
llm.param @w : tensor<64x64xf16> = #llm.synthetic<2, f16, [64, 64]>
// An embedding that the head shares follows.
// CHECK: llm.param @e : tensor<8x64x!llm.q<int4z_g32>>
llm.param @e : tensor<8x64xf32> = #llm.synthetic<1, f32, [8, 64]>
// CHECK: llm.param @skipped : tensor<64x64xf16>
llm.param @skipped : tensor<64x64xf16> = #llm.synthetic<3, f16, [64, 64]>
// CHECK: llm.param @small : tensor<64x64x!llm.q<q4_0>>
llm.param @small : tensor<64x64x!llm.q<q4_0>> = #llm.synthetic<4, q4_0, [64, 64]>
// CHECK: llm.param @odd : tensor<64x16xf32>
llm.param @odd : tensor<64x16xf32> = #llm.synthetic<5, f32, [64, 16]>
// CHECK: llm.param @norm : tensor<64xf32>
llm.param @norm : tensor<64xf32> = #llm.synthetic<6, f32, [64]>
// Wide enough for groups of 128.
// CHECK: llm.param @up : tensor<128x64x!llm.q<int4z_g32>>
// G64: llm.param @up : tensor<128x64x!llm.q<int4_g64>>
// G64-Z: llm.param @up : tensor<128x64x!llm.q<int4z_g64>>
// G128: llm.param @up : tensor<128x64xf16>
// G128-Z: llm.param @up : tensor<128x64xf16>
llm.param @up : tensor<128x64xf16> = #llm.synthetic<7, f16, [128, 64]>
// CHECK: llm.param @down : tensor<64x128x!llm.q<int4z_g32>>
// G128: llm.param @down : tensor<64x128x!llm.q<int4_g128>>
// G128-Z: llm.param @down : tensor<64x128x!llm.q<int4z_g128>>
llm.param @down : tensor<64x128xf16> = #llm.synthetic<8, f16, [64, 128]>

func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x8xf32>, !llm.kv) {
  // CHECK: llm.weight @w : tensor<64x64x!llm.q<int4z_g32>>
  %w = llm.weight @w : tensor<64x64xf16>
  %e = llm.weight @e : tensor<8x64xf32>
  %skipped = llm.weight @skipped : tensor<64x64xf16>
  %small = llm.weight @small : tensor<64x64x!llm.q<q4_0>>
  %odd = llm.weight @odd : tensor<64x16xf32>
  %up = llm.weight @up : tensor<128x64xf16>
  %down = llm.weight @down : tensor<64x128xf16>
  %norm = llm.weight @norm : tensor<64xf32>
  // CHECK: llm.embed {{.*}} : tensor<8x64x!llm.q<int4z_g32>> -> tensor<?x64xf32>
  %x = llm.embed %b, %e {scale = 8.0 : f32} : tensor<8x64xf32> -> tensor<?x64xf32>
  %h = llm.rms_norm %x, %norm eps 1.0e-5 : tensor<?x64xf32>, tensor<64xf32>
  %y = llm.linear %h, %w : (tensor<?x64xf32>, tensor<64x64xf16>) -> tensor<?x64xf32>
  %wide = llm.linear %y, %up : (tensor<?x64xf32>, tensor<128x64xf16>) -> tensor<?x128xf32>
  %narrow = llm.linear %wide, %down : (tensor<?x128xf32>, tensor<64x128xf16>) -> tensor<?x64xf32>
  %z = llm.linear %narrow, %skipped : (tensor<?x64xf32>, tensor<64x64xf16>) -> tensor<?x64xf32>
  %u = llm.linear %z, %small : (tensor<?x64xf32>, tensor<64x64x!llm.q<q4_0>>) -> tensor<?x64xf32>
  %c = llm.columns %u from 16 : tensor<?x64xf32> -> tensor<?x16xf32>
  %o = llm.linear %c, %odd : (tensor<?x16xf32>, tensor<64x16xf32>) -> tensor<?x64xf32>
  %s = llm.add %o, %y : tensor<?x64xf32>
  %l = llm.linear %s, %e : (tensor<?x64xf32>, tensor<8x64xf32>) -> tensor<?x8xf32>
  return %l, %kv : tensor<?x8xf32>, !llm.kv
}
