// lathe-compiler bisect names the op to blame, through merging, fusing and paging.
// RUN: sed 's/scale 0.25/scale 0.3/' %S/../Transforms/Inputs/two-layers.mlir > %t.wrong.mlir
// RUN: lathe-opt %S/../Transforms/Inputs/two-layers.mlir -mlir-print-debuginfo -llm-pipeline="activations=f32 key=f32 value=f32" -o %t.fused.mlir
// RUN: lathe-opt %t.wrong.mlir -mlir-print-debuginfo -llm-pipeline="activations=f32 key=f32 value=f32" -o %t.wrong-fused.mlir
// RUN: lathe-compiler bisect %S/../Transforms/Inputs/two-layers.mlir %t.fused.mlir --tokens 1,2,3 --tokens 4 --tolerance 0 | FileCheck %s --check-prefix=EQUAL
// RUN: not lathe-compiler bisect %S/../Transforms/Inputs/two-layers.mlir %t.wrong-fused.mlir --tokens 1,2,3 --chunk 2 | FileCheck %s --check-prefix=WRONG
// RUN: not lathe-compiler bisect %S/../Transforms/Inputs/two-layers.mlir %t.wrong-fused.mlir --tokens 1,2,3 --json | FileCheck %s --check-prefix=JSON
// RUN: not lathe-compiler bisect a.mlir b.mlir c.mlir 2>&1 | FileCheck %s --check-prefix=THREE
// RUN: not lathe-compiler bisect a.mlir b.mlir --tokens 1,y 2>&1 | FileCheck %s --check-prefix=LIST

// EQUAL: no difference
// EQUAL-NEXT: {{[1-9][0-9]}} values compared
// WRONG: llm.attention 'layers.0.attention' differs: relative error
// JSON: "difference":{{{.*}}"name":"layers.0.attention"
// THREE: error: expected two modules or one model, found 3 files
// LIST: error: --tokens: expected a list of token ids, found 'y'
