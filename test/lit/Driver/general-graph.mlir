// A graph that is not raised becomes general code, with a warning; what no step can give it is an error.
// RUN: lathe-compiler compile %s -o %t.lathe --target avx2 2>&1 | FileCheck %s --check-prefix=OK
// RUN: sed 's/"input_ids"/"hours"/' %s > %t.1.mlir
// RUN: not lathe-compiler compile %t.1.mlir -o %t.lathe 2>&1 | FileCheck %s --check-prefix=INPUT
// RUN: sed 's/"input_ids"/"attention_mask"/' %s > %t.2.mlir
// RUN: not lathe-compiler compile %t.2.mlir -o %t.lathe 2>&1 | FileCheck %s --check-prefix=TOKENS
// RUN: sed 's/"logits"/"out"/' %s > %t.3.mlir
// RUN: not lathe-compiler compile %t.3.mlir -o %t.lathe 2>&1 | FileCheck %s --check-prefix=LOGITS
// RUN: sed 's/tensor<?x2x?x4xf32>/tensor<?x?x?x4xf32>/g' %s > %t.4.mlir
// RUN: not lathe-compiler compile %t.4.mlir -o %t.lathe 2>&1 | FileCheck %s --check-prefix=CACHE
// RUN: sed 's/tensor<?x2x?x4xf32>/tensor<f32>/g' %s > %t.5.mlir
// RUN: not lathe-compiler compile %t.5.mlir -o %t.lathe 2>&1 | FileCheck %s --check-prefix=SCALAR
// RUN: sed 's/to = 1 : i64, saturate/to = 10 : i64, saturate/' %s > %t.6.mlir
// RUN: not lathe-compiler compile %t.6.mlir -o %t.lathe 2>&1 | FileCheck %s --check-prefix=PRESENT
// RUN: sed 's/"logits"/"other"/; s/"extra"/"logits"/' %s > %t.7.mlir
// RUN: not lathe-compiler compile %t.7.mlir -o %t.lathe 2>&1 | FileCheck %s --check-prefix=VOCABULARY
// RUN: sed 's/, %%past: [^}]*}//; s/"Cast"(%%past)/"Cast"(%%x)/; s/(tensor<?x2x?x4xf32>) ->/(tensor<*x!onnx.any>) ->/' %s > %t.8.mlir
// RUN: not lathe-compiler compile %t.8.mlir -o %t.lathe 2>&1 | FileCheck %s --check-prefix=NO-PAST
// RUN: sed 's/tensor<?x?xi64> {/tensor<1x8xi64> {/; s/"Cast"(%%ids) \(.*\) : (tensor<?x?xi64>)/"Cast"(%%ids) \1 : (tensor<1x8xi64>)/' %s > %t.9.mlir
// RUN: not lathe-compiler compile %t.9.mlir -o %t.lathe 2>&1 | FileCheck %s --check-prefix=FIXED
// RUN: sed 's/"logits"/"last_hidden_state"/' %t.8.mlir > %t.10.mlir
// RUN: not lathe-compiler compile %t.10.mlir -o %t.lathe 2>&1 | FileCheck %s --check-prefix=ENCODER
// FIXED: As general code: input 'input_ids' of int64[1,8]: expected any number of tokens, found a fixed size: export the model with dynamic axes, for the step, the past and the mask
// ENCODER: As general code: expected a decoder, with a result 'logits' and inputs 'past_key_values.*', found neither: an encoder such as BERT makes no tokens
// RUN: lathe-compiler compile %s -o %t.lathe --target sm_80 2>&1 | FileCheck %s --check-prefix=OK
// RUN: lathe-compiler compile %s -o %t.lathe --target avx2,sm_80 2>&1 | FileCheck %s --check-prefix=OK
// RUN: not lathe run %t.lathe --device emulator --device-plan megakernel --prompt-ids 1 -n 1 2>&1 | FileCheck %s --check-prefix=PLAN
// RUN: not lathe-compiler compile %s -o %t.lathe --target sm_80 --megakernel 2>&1 | FileCheck %s --check-prefix=MEGA
// PLAN: error: {{.*}}expected a language model for a step by megakernels, found a graph that is not raised to one, whose kernels are launched one by one
// MEGA: error: --megakernel: expected a language model, found '{{.*}}general-graph.mlir', a graph that is not raised to one; the warning says why

// OK: warning: the graph is not raised to llm ops
// OK: warning: the graph was not recognised and runs as general code: slowly, one sequence at a time with a contiguous cache, and without the promise of exact tokens
// NO-PAST: As general code: expected inputs 'past_key_values.*' with results 'present.*', found none: without a cache each step would forget what came before; export the model with its cache
// INPUT: is a graph that is not raised to a language model; the warning says why. As general code: input 'hours' of int64[?,?]: a graph that was not recognised takes input_ids, attention_mask and position_ids of integers [batch, tokens], past_key_values.* with results present.*, and nothing else
// TOKENS: expected an input 'input_ids' of [batch, sequence] integers
// LOGITS: expected a result 'logits'
// CACHE: input 'past_key_values.0.key': expected a cache of which batch and sequence alone have unknown sizes
// SCALAR: input 'past_key_values.0.key': expected a cache with a sequence axis, found a scalar
// PRESENT: result 'present.0.key': expected the type of input 'past_key_values.0.key'
// VOCABULARY: result 'logits': expected float [batch, sequence, vocabulary] with a known vocabulary
module attributes {onnx.model = {path = "m.onnx"}} {
  func.func @main(%ids: tensor<?x?xi64> {onnx.name = "input_ids"}, %past: tensor<?x2x?x4xf32> {onnx.name = "past_key_values.0.key"})
      -> (tensor<*x!onnx.any> {onnx.name = "logits"}, tensor<*x!onnx.any> {onnx.name = "present.0.key"}, tensor<*x!onnx.any> {onnx.name = "extra"}) {
    %axis = onnx.constant dense<2> : tensor<1xi64>
    %table = onnx.constant dense<[[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]]> : tensor<1x8xf32>
    %x = onnx.op "Cast"(%ids) {version = 13 : i64, attrs = {to = 1 : i64}} : (tensor<?x?xi64>) -> tensor<*x!onnx.any>
    %column = onnx.op "Unsqueeze"(%x, %axis) {version = 13 : i64} : (tensor<*x!onnx.any>, tensor<1xi64>) -> tensor<*x!onnx.any>
    %logits = onnx.op "MatMul"(%column, %table) {version = 13 : i64} : (tensor<*x!onnx.any>, tensor<1x8xf32>) -> tensor<*x!onnx.any>
    %present = onnx.op "Cast"(%past) {version = 19 : i64, attrs = {to = 1 : i64, saturate = 1 : i64}} : (tensor<?x2x?x4xf32>) -> tensor<*x!onnx.any>
    return %logits, %present, %x : tensor<*x!onnx.any>, tensor<*x!onnx.any>, tensor<*x!onnx.any>
  }
}
