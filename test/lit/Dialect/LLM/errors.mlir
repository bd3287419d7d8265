// Every message of the dialect's verifiers.
// RUN: lathe-opt %s -split-input-file -verify-diagnostics

// expected-error@+1 {{expected a weight of 1 or 2 positive dimensions, found 3}}
llm.param @w : tensor<2x2xf32> = dense<0.0> : tensor<1x2x2xf32>

// -----

// expected-error@+1 {{expected a weight of 1 or 2 positive dimensions, found 2}}
llm.param @w : tensor<2x2xf32> = #llm.file<"m", "t", 0, f32, [2, 0]>

// -----

// expected-error@+1 {{expected rows of a multiple of 256 elements for q4_k, found 64}}
llm.param @w : tensor<2x64x!llm.q<q4_k>> = #llm.file<"m", "t", 0, q4_k, [2, 64]>

// -----

// expected-error@+1 {{expected a constant of f32, found 'f64'}}
llm.param @w : tensor<2xf32> = dense<0.0> : tensor<2xf64>

// -----

// expected-error@+1 {{expected at least one part in a concat}}
llm.param @w : tensor<2xf32> = #llm.concat<[]>

// -----

// expected-error@+1 {{parts of a concat differ in storage or width}}
llm.param @w : tensor<4x2xf32> = #llm.concat<[dense<0.0> : tensor<2x2xf32>, dense<0.0> : tensor<2x3xf32>]>

// -----

// expected-error@+1 {{parts of an interleave differ in storage or shape}}
llm.param @w : tensor<4x2xf32> = #llm.interleave<dense<0.0> : tensor<2x2xf32>, dense<0.0> : tensor<3x2xf32>, 2>

// -----

// expected-error@+1 {{expected a positive interleave block, found 0}}
llm.param @w : tensor<4x2xf32> = #llm.interleave<dense<0.0> : tensor<2x2xf32>, dense<0.0> : tensor<2x2xf32>, 0>

// -----

// expected-error@+1 {{expected rows that divide into 2 heads of even size, found 6}}
llm.param @w : tensor<6x2xf32> = #llm.unrope<dense<0.0> : tensor<6x2xf32>, 2>

// -----

// expected-error@+1 {{slice 1 .. 3 is outside 2 rows}}
llm.param @w : tensor<2x2xf32> = #llm.slice<dense<0.0> : tensor<2x2xf32>, 1, 3>

// -----

// expected-error@+1 {{columns 1 .. 3 are outside 2 columns}}
llm.param @w : tensor<2x2xf32> = #llm.columns<dense<0.0> : tensor<2x2xf32>, 1, 3>

// -----

// expected-error@+1 {{expected an unquantized matrix to take columns of}}
llm.param @w : tensor<2x16x!llm.q<q8_0>> = #llm.columns<#llm.file<"m", "t", 0, q8_0, [2, 32]>, 0, 16>

// -----

// expected-error@+1 {{expected an unquantized matrix to transpose}}
llm.param @w : tensor<32x2x!llm.q<q8_0>> = #llm.transpose<#llm.file<"m", "t", 0, q8_0, [2, 32]>>

// -----

// expected-error@+1 {{expected an unquantized weight to add one to}}
llm.param @w : tensor<2x32xf32> = #llm.add_one<#llm.file<"m", "t", 0, q8_0, [2, 32]>>

// -----

// expected-error@+1 {{expected a weight expression, found 7 : i64}}
llm.param @w : tensor<2xf32> = 7

// -----

// expected-error@+1 {{expected an expression of type 'tensor<2x2xf32>', found 'tensor<2x3xf32>'}}
llm.param @w : tensor<2x2xf32> = dense<0.0> : tensor<2x3xf32>

// -----

// expected-error@+1 {{failed to satisfy constraint: type attribute of a weight tensor}}
llm.param @w : tensor<2x2x2xf32> = dense<0.0> : tensor<2x2xf32>

// -----

// expected-error@+1 {{expected #llm.kv_layer for layer 1, found 3 : i64}}
llm.kv_group @kv layers [#llm.kv_layer<1, 2, 2>, 3] key f32 value f32 window 0 page 0

// -----

// expected-error@+1 {{layer 0: expected positive head count and sizes, found #llm.kv_layer<0, 2, 2>}}
llm.kv_group @kv layers [#llm.kv_layer<0, 2, 2>] key f32 value f32 window 0 page 0

// -----

// expected-error@+1 {{expected at least one layer}}
llm.kv_group @kv layers [] key f32 value f32 window 0 page 0

// -----

// expected-error@+1 {{expected a window of at least 0, found -1}}
llm.kv_group @kv layers [#llm.kv_layer<1, 2, 2>] key f32 value f32 window -1 page 0

// -----

// expected-error@+1 {{expected a page of a multiple of 16 tokens or 0, found 24}}
llm.kv_group @kv layers [#llm.kv_layer<1, 2, 2>] key f32 value f32 window 0 page 24

// -----

func.func @step(%b: !llm.batch, %kv: !llm.kv, %x: tensor<?x4xf32>, %w: tensor<2x4xf32>, %v: tensor<4xf32>, %a: tensor<?x4x!llm.act<int8>>) {
  // expected-error@+1 {{expected a param named @none}}
  %0 = llm.weight @none : tensor<2xf32>
  return
}

// -----

// expected-note@+1 {{declared here}}
llm.param @w : tensor<2xf32> = dense<0.0> : tensor<2xf32>
func.func @step(%b: !llm.batch, %kv: !llm.kv, %x: tensor<?x4xf32>, %w: tensor<2x4xf32>, %v: tensor<4xf32>, %a: tensor<?x4x!llm.act<int8>>) {
  // expected-error@+1 {{expected type 'tensor<2xf32>' of @w, found 'tensor<3xf32>'}}
  %0 = llm.weight @w : tensor<3xf32>
  return
}

// -----

func.func @step(%b: !llm.batch, %kv: !llm.kv, %x: tensor<?x4xf32>, %w: tensor<2x4xf32>, %v: tensor<4xf32>, %a: tensor<?x4x!llm.act<int8>>) {
  // expected-error@+1 {{expected a result of width 4, found 3}}
  %0 = llm.embed %b, %w : tensor<2x4xf32> -> tensor<?x3xf32>
  return
}

// -----

func.func @step(%b: !llm.batch, %kv: !llm.kv, %x: tensor<?x4xf32>, %w: tensor<2x4xf32>, %v: tensor<4xf32>, %a: tensor<?x4x!llm.act<int8>>) {
  // expected-error@+1 {{expected at least one weight}}
  %0 = "llm.linear"(%x) {operandSegmentSizes = array<i32: 1, 0, 0>} : (tensor<?x4xf32>) -> tensor<?x4xf32>
  return
}

// -----

func.func @step(%b: !llm.batch, %kv: !llm.kv, %x: tensor<?x4xf32>, %w: tensor<2x4xf32>, %u: tensor<2x3xf32>, %v: tensor<4xf32>, %a: tensor<?x4x!llm.act<int8>>) {
  // expected-error@+1 {{weight 1: expected rows of 4 elements as the input's, found 3}}
  %0 = llm.linear %x, %w, %u : (tensor<?x4xf32>, tensor<2x4xf32>, tensor<2x3xf32>) -> tensor<?x4xf32>
  return
}

// -----

func.func @step(%b: !llm.batch, %kv: !llm.kv, %x: tensor<?x4xf32>, %w: tensor<2x4xf32>, %v: tensor<4xf32>, %a: tensor<?x4x!llm.act<int8>>) {
  // expected-error@+1 {{expected a result of width 2 (the weights' rows), found 4}}
  %0 = llm.linear %x, %w : (tensor<?x4xf32>, tensor<2x4xf32>) -> tensor<?x4xf32>
  return
}

// -----

func.func @step(%b: !llm.batch, %kv: !llm.kv, %x: tensor<?x4xf32>, %w: tensor<2x4xf32>, %v: tensor<4xf32>, %a: tensor<?x4x!llm.act<int8>>) {
  // expected-error@+1 {{expected a bias of 2 elements, found 4}}
  %0 = llm.linear %x, %w bias %v : tensor<4xf32> : (tensor<?x4xf32>, tensor<2x4xf32>) -> tensor<?x2xf32>
  return
}

// -----

func.func @step(%b: !llm.batch, %kv: !llm.kv, %x: tensor<?x4xf32>, %w: tensor<2x4xf32>, %v: tensor<4xf32>, %a: tensor<?x4x!llm.act<int8>>) {
  // expected-error@+1 {{expected a result of width 2 (index, element), found 4}}
  %0 = llm.argmax %x : tensor<?x4xf32> -> tensor<?x4xf32>
  return
}

// -----

func.func @step(%b: !llm.batch, %kv: !llm.kv, %x: tensor<?x16777217xf32>) {
  // expected-error@+1 {{expected rows of 1 to 16777216 elements, found 16777217}}
  %0 = llm.argmax %x : tensor<?x16777217xf32> -> tensor<?x2xf32>
  return
}

// -----

func.func @step(%b: !llm.batch, %kv: !llm.kv, %x: tensor<?x4xf32>, %w: tensor<2x4xf32>, %v: tensor<4xf32>, %a: tensor<?x4x!llm.act<int8>>) {
  // expected-error@+1 {{expected a positive cap, found 0.000000e+00}}
  %0 = llm.softcap %x cap 0.0 : tensor<?x4xf32>
  return
}

// -----

func.func @step(%b: !llm.batch, %kv: !llm.kv, %x: tensor<?x4xf32>, %w: tensor<2x4xf32>, %v: tensor<4xf32>, %a: tensor<?x4x!llm.act<int8>>) {
  // expected-error@+1 {{expected 2 parts of 4 elements (the weight's), found rows of 4}}
  %0 = llm.rms_norm %x, %v eps 1.0e-5 heads 2 : tensor<?x4xf32>, tensor<4xf32>
  return
}

// -----

func.func @step(%b: !llm.batch, %kv: !llm.kv, %x: tensor<?x4xf32>, %w: tensor<2x4xf32>, %v: tensor<4xf32>, %u: tensor<3xf32>, %a: tensor<?x4x!llm.act<int8>>) {
  // expected-error@+1 {{expected weight and bias of 4 elements, found 3}}
  %0 = llm.layer_norm %x, %u, %u eps 1.0e-5 : tensor<?x4xf32>, tensor<3xf32>
  return
}

// -----

func.func @step(%b: !llm.batch, %kv: !llm.kv, %x: tensor<?x4xf32>, %w: tensor<2x4xf32>, %v: tensor<4xf32>, %a: tensor<?x4x!llm.act<int8>>) {
  // expected-error@+1 {{columns 3 .. 5 are outside a width of 4}}
  %0 = llm.columns %x from 3 : tensor<?x4xf32> -> tensor<?x2xf32>
  return
}

// -----

func.func @step(%b: !llm.batch, %kv: !llm.kv, %x: tensor<?x4xf32>, %w: tensor<2x4xf32>, %v: tensor<4xf32>, %a: tensor<?x4x!llm.act<int8>>) {
  // expected-error@+1 {{expected 8 columns for 4 frequencies, found 4}}
  %0 = llm.angles %b, %v : tensor<4xf32> -> tensor<?x4xf32>
  return
}

// -----

func.func @step(%b: !llm.batch, %kv: !llm.kv, %x: tensor<?x4xf32>, %w: tensor<2x4xf32>, %v: tensor<4xf32>, %a: tensor<?x4x!llm.act<int8>>) {
  // expected-error@+1 {{expected rows that divide into 3 heads, found a width of 4}}
  %0 = llm.rope %x, %x heads 3 : tensor<?x4xf32>, tensor<?x4xf32>
  return
}

// -----

func.func @step(%b: !llm.batch, %kv: !llm.kv, %x: tensor<?x4xf32>, %w: tensor<2x4xf32>, %v: tensor<4xf32>, %a: tensor<?x4x!llm.act<int8>>) {
  // expected-error@+1 {{expected at most 2 angle columns (the head size), found 4}}
  %0 = llm.rope %x, %x heads 2 : tensor<?x4xf32>, tensor<?x4xf32>
  return
}

// -----

func.func @step(%b: !llm.batch, %kv: !llm.kv, %x: tensor<?x4xf32>, %w: tensor<2x4xf32>, %v: tensor<4xf32>, %a: tensor<?x4x!llm.act<int8>>) {
  // expected-error@+1 {{expected a kv_group named @none}}
  %0 = llm.kv.append %kv, %x, %x, %b group @none layer 0 : tensor<?x4xf32>, tensor<?x4xf32>
  return
}

// -----

// expected-note@+1 {{group declared here}}
llm.kv_group @kv layers [#llm.kv_layer<2, 2, 2>] key f32 value f32 window 0 page 0
func.func @step(%b: !llm.batch, %kv: !llm.kv, %x: tensor<?x4xf32>, %w: tensor<2x4xf32>, %v: tensor<4xf32>, %a: tensor<?x4x!llm.act<int8>>) {
  // expected-error@+1 {{expected a layer below 1, found 1}}
  %0 = llm.kv.append %kv, %x, %x, %b group @kv layer 1 : tensor<?x4xf32>, tensor<?x4xf32>
  return
}

// -----

llm.kv_group @kv layers [#llm.kv_layer<2, 2, 2>] key f32 value f32 window 0 page 0
func.func @step(%b: !llm.batch, %kv: !llm.kv, %x: tensor<?x4xf32>, %w: tensor<2x4xf32>, %v: tensor<4xf32>, %u: tensor<?x3xf32>, %a: tensor<?x4x!llm.act<int8>>) {
  // expected-error@+1 {{expected keys of width 4 and values of width 4, found 4 and 3}}
  %0 = llm.kv.append %kv, %x, %u, %b group @kv layer 0 : tensor<?x4xf32>, tensor<?x3xf32>
  return
}

// -----

llm.kv_group @kv layers [#llm.kv_layer<2, 2, 2>] key f32 value f32 window 0 page 0
func.func @step(%b: !llm.batch, %kv: !llm.kv, %x: tensor<?x4xf32>, %w: tensor<2x4xf32>, %v: tensor<4xf32>, %a: tensor<?x4x!llm.act<int8>>) {
  // expected-error@+1 {{expected a multiple of 2 KV heads, found 3 query heads}}
  %0 = llm.attention %x, %kv, %b group @kv layer 0 heads 3 scale 1.0 : tensor<?x4xf32> -> tensor<?x4xf32>
  return
}

// -----

llm.kv_group @kv layers [#llm.kv_layer<2, 2, 2>] key f32 value f32 window 0 page 0
func.func @step(%b: !llm.batch, %kv: !llm.kv, %x: tensor<?x4xf32>, %w: tensor<2x4xf32>, %v: tensor<4xf32>, %a: tensor<?x4x!llm.act<int8>>) {
  // expected-error@+1 {{expected queries of width 8 and a result of width 8, found 4 and 4}}
  %0 = llm.attention %x, %kv, %b group @kv layer 0 heads 4 scale 1.0 : tensor<?x4xf32> -> tensor<?x4xf32>
  return
}

// -----

func.func @step(%b: !llm.batch, %kv: !llm.kv, %x: tensor<?x4xf32>, %w: tensor<2x4xf32>, %v: tensor<4xf32>, %a: tensor<?x4x!llm.act<int8>>) {
  // expected-error@+1 {{expected body arguments of the inputs' types}}
  %0 = "llm.fused"(%x) <{kind = "norm"}> ({
  ^bb0(%p: tensor<?x3xf32>):
    llm.yield %p : tensor<?x3xf32>
  }) : (tensor<?x4xf32>) -> tensor<?x3xf32>
  return
}

// -----

func.func @step(%b: !llm.batch, %kv: !llm.kv, %x: tensor<?x4xf32>, %w: tensor<2x4xf32>, %v: tensor<4xf32>, %a: tensor<?x4x!llm.act<int8>>) {
  // expected-error@+1 {{expected the body to yield the results' types}}
  %0 = "llm.fused"(%x) <{kind = "norm"}> ({
  ^bb0(%p: tensor<?x4xf32>):
    llm.yield %p : tensor<?x4xf32>
  }) : (tensor<?x4xf32>) -> tensor<?x3xf32>
  return
}

// -----

func.func @step(%b: !llm.batch, %kv: !llm.kv, %x: tensor<?x4xf32>, %w: tensor<2x4xf32>, %v: tensor<4xf32>, %a: tensor<?x4x!llm.act<int8>>) {
  // expected-error@+1 {{expects parent op 'llm.fused'}}
  llm.yield %x : tensor<?x4xf32>
  return
}

// -----

// expected-error@+1 {{expected a matrix of 4 bits in blocks of 32, 64 or 128, or of 8 bits in blocks of 32 without zero points}}
llm.param @w : tensor<4x32x!llm.q<int4_g32>> = #llm.nbits<"w", 4, block = 16, [4, 32], codes = "f" 0, scales = "f" 64 f32, zeros = "" 0>

// -----
// expected-error@+1 {{expected a matrix, found 1 axes}}
llm.param @w : tensor<32xf32> = #llm.nbits<"w", 4, block = 32, [32], codes = "f" 0, scales = "f" 64 f32, zeros = "" 0>

// -----
// expected-error@+1 {{expected rows of a multiple of 64 elements for int4_g64, found 80}}
llm.param @w : tensor<4x80x!llm.q<int4_g64>> = #llm.nbits<"w", 4, block = 64, [4, 80], codes = "f" 0, scales = "f" 256 f32, zeros = "" 0>

// -----
// expected-error @below {{expected codes of int8, uint8, int4 or uint4, found 'int2'}}
llm.param @w : tensor<4x32xf32> = #llm.qdq<"w", "int2", f32, [4, 32], rows = 0, block = [1, 32], codes = "f" 0, scales = "f" 128 f32 [], zeros = "" 0 [0]>

// -----
// expected-error @below {{expected a matrix whose rows are on axis 0 or 1, and two positive blocks}}
llm.param @w : tensor<4x32xf32> = #llm.qdq<"w", "int8", f32, [4, 32], rows = 2, block = [1, 32], codes = "f" 0, scales = "f" 128 f32 [], zeros = "" 0 [0]>

// -----
// expected-error @below {{expected f32 or int8 for these codes, found q8_0}}
llm.param @w : tensor<4x32x!llm.q<q8_0>> = #llm.qdq<"w", "int8", q8_0, [4, 32], rows = 0, block = [1, 32], codes = "f" 0, scales = "f" 128 f32 [], zeros = "" 0 [0]>

// -----
// expected-error @below {{expected f32 for these codes, found int8}}
llm.param @w : tensor<4x32x!llm.q<int8>> = #llm.qdq<"w", "int8", int8, [4, 32], rows = 0, block = [1, 16], codes = "f" 0, scales = "f" 128 f32 [], zeros = "" 0 [0]>

// -----
// expected-error @below {{expected a matrix of e4m3 with scales of f32, f16 or bf16}}
llm.param @w : tensor<4x32x!llm.q<e4m3>> = #llm.scaled<"w", [4, 32], codes = "f" 0, scales = "f" 128 q8_0, per_row = true>

// -----
// expected-error @below {{expected a matrix of e4m3 with scales of f32, f16 or bf16}}
llm.param @w : tensor<4xf32> = #llm.scaled<"w", [4], codes = "f" 0, scales = "f" 128 f32, per_row = false>
