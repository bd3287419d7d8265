// The head's two forms become two entries that share their beginning, and the second writes no logits. On a GPU the argmax reads them.
// RUN: lathe-opt %S/../Transforms/fuse-head.mlir -pass-pipeline='builtin.module(llm-page-kv,func.func(llm-fuse-head),llm-to-kernel)' | lathe-opt | FileCheck %s --check-prefix=KERNEL
// RUN: lathe-opt %S/../Transforms/fuse-head.mlir -pass-pipeline='builtin.module(llm-page-kv,func.func(llm-fuse-head),llm-to-kernel,kernel-to-plan{max-seq=64},plan-verify)' | lathe-opt | FileCheck %s --check-prefix=PLAN
// RUN: lathe-opt %S/../Transforms/fuse-head.mlir -pass-pipeline='builtin.module(llm-page-kv,func.func(llm-fuse-head{epilogue=false}),llm-to-kernel,kernel-to-plan{max-seq=64 gpu=true},plan-verify)' | FileCheck %s --check-prefix=GPU
// RUN: not lathe-opt %S/../Transforms/fuse-head.mlir -pass-pipeline='builtin.module(llm-page-kv,func.func(llm-fuse-head),llm-to-kernel,kernel-to-plan{max-seq=64 gpu=true})' 2>&1 | FileCheck %s --check-prefix=REFUSED

// KERNEL: %[[A:.*]] = kernel.quantize
// KERNEL: %[[L:.*]] = kernel.matmul %[[A]] weights [@packed.w] columns [0] bias [@vector.c] : {{.*}} -> !kernel.rows<300, 304, true>
// Two runs of 256 outputs: two values, two indexes.
// KERNEL: %[[M:.*]] = kernel.matmul %[[A]] weights [@packed.w] columns [0] bias [@vector.c] argmax : {{.*}} -> !kernel.rows<4, 16, true>
// KERNEL: %[[C:.*]] = kernel.argmax %[[M]] pairs : <4, 16, true> -> <2, 16, true>
// KERNEL: kernel.output hidden %{{.*}} logits %[[L]] choices %[[C]] : !kernel.rows<2, 16, true>

// PLAN: choicesOffset = {{[0-9]+}} : i64, choicesStride = 16 : i64
// PLAN: plan.entry "head" {
// PLAN: plan.launch "quantize" @[[Q:.*]] [
// PLAN-NEXT: plan.launch "matmul"
// PLAN-NEXT: }
// PLAN: plan.entry "head_choices" {
// PLAN: plan.launch "quantize" @[[Q]] [
// PLAN-NEXT: plan.launch "matmul"
// PLAN-NEXT: plan.launch "argmax"
// PLAN-NEXT: }

// GPU: plan.entry "head" {
// GPU-NOT: plan.launch "argmax"
// GPU: plan.entry "head_choices" {
// GPU: plan.launch "matmul"
// GPU-NEXT: plan.launch "argmax"

// REFUSED: unsupported: a matmul with argmax on a GPU, where 'llm-fuse-head' takes epilogue=false
