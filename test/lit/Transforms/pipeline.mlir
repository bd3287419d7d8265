// The whole way from an imported module to fused ops: two layers of different families.
// RUN: lathe-opt %S/Inputs/two-layers.mlir -llm-pipeline="activations=f32 key=f32 value=f32" | FileCheck %s
// RUN: lathe-opt %S/Inputs/two-layers.mlir -llm-pipeline="activations=f32 key=f32 value=f32 fuse=false" | FileCheck %s --check-prefix=PLAIN
// RUN: lathe-opt %S/Inputs/two-layers.mlir -llm-pipeline="quantize=int4-g32 asymmetric=true skip=embed" | FileCheck %s --check-prefix=INT4
// Without roundings the pipeline keeps every bit; with them, fused and not fused are equal.
// RUN: lathe-interp %S/Inputs/two-layers.mlir --tokens 1,2,3,4,5,6,7 --tokens 6 > %t.before
// RUN: lathe-opt %S/Inputs/two-layers.mlir -llm-pipeline="activations=f32 key=f32 value=f32" | lathe-interp - --tokens 1,2,3,4,5,6,7 --tokens 6 --chunk 2 | diff %t.before -
// RUN: lathe-opt %S/Inputs/two-layers.mlir -llm-pipeline="fuse=false merge=false page=0" | lathe-interp - --tokens 1,2,3,4,5,6,7 --tokens 6 > %t.rounded
// RUN: lathe-opt %S/Inputs/two-layers.mlir -llm-pipeline="page=16" | lathe-interp - --tokens 1,2,3,4,5,6,7 --tokens 6 | diff %t.rounded -
// RUN: %python %source_root/test/lit/Inputs/close.py %t.before %t.rounded 0.05

// INT4: llm.param @embed : tensor<16x64xf32>
// INT4: #llm.round<#llm.synthetic<{{[0-9]+}}, q8_0, {{.*}}>, int4z_g32>

// CHECK-LABEL: func.func @step
// PLAIN-LABEL: func.func @step
// PLAIN-NOT: llm.fused
// Angles once, then a layer in eight ops.
// CHECK-COUNT-1: llm.angles
// CHECK: llm.fused "norm"(
// CHECK: llm.linear
// CHECK: llm.columns
// CHECK: llm.columns
// CHECK: llm.columns
// CHECK: llm.fused "rope_append"(
// CHECK: llm.fused "attention"(
// CHECK: llm.fused "residual_linear"(
// CHECK: llm.fused "norm"(
// CHECK: llm.fused "glu_linear"(
// CHECK: llm.fused "residual_linear"(
// The second has head norms, norms behind sublayers, and a gate and up of two storages.
// CHECK: llm.fused "norm"(
// CHECK: llm.linear
// CHECK: llm.fused "rope_append"(
// CHECK: llm.fused "attention"(
// CHECK: llm.linear
// CHECK: llm.fused "norm"(
// CHECK-NEXT: ^bb0
// CHECK-NEXT: llm.rms_norm
// CHECK-NEXT: llm.add
// CHECK: llm.fused "norm"(
// CHECK: llm.linear
// CHECK: llm.fused "activate"(
// CHECK: llm.linear
// CHECK: llm.fused "norm"(
// CHECK: llm.select_rows
// CHECK: llm.fused "norm"(
// CHECK: llm.linear
// CHECK-NEXT: llm.fused "argmax_linear"(
