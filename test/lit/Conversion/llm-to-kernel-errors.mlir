// What cannot be lowered, each with its place.
// RUN: lathe-opt %s --llm-to-kernel -split-input-file -verify-diagnostics

// expected-error@+1 {{expected a function named 'step'}}
module {
}

// -----

// expected-error@+1 {{expected a step of type (!llm.batch, !llm.kv) -> (logits[, choices][, rows...], !llm.kv), found '(!llm.batch) -> ()'}}
func.func @step(%b: !llm.batch) {
  return
}

// -----

llm.param @e : tensor<64x64xf32> = #llm.synthetic<1, f32, [64, 64]>
func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x64xf32>, !llm.kv) {
  %e = llm.weight @e : tensor<64x64xf32>
  %x = llm.embed %b, %e : tensor<64x64xf32> -> tensor<?x64xf32>
  // expected-error@+1 {{unsupported: no kernel for this op in a step}}
  %y = arith.addf %x, %x : tensor<?x64xf32>
  return %x, %kv : tensor<?x64xf32>, !llm.kv
}

// -----

llm.param @e : tensor<64x64xf32> = #llm.synthetic<1, f32, [64, 64]>
func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x64xf32>, !llm.kv) {
  %e = llm.weight @e : tensor<64x64xf32>
  %x = llm.embed %b, %e : tensor<64x64xf32> -> tensor<?x64xf32>
  // expected-error@+1 {{expected an llm.select_rows before the logits}}
  return %x, %kv : tensor<?x64xf32>, !llm.kv
}

// -----

llm.param @e : tensor<64x64xf32> = #llm.synthetic<1, f32, [64, 64]>
func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x64xf32>, !llm.kv) {
  %e = llm.weight @e : tensor<64x64xf32>
  %x = llm.embed %b, %e : tensor<64x64xf32> -> tensor<?x64xf32>
  %z = llm.select_rows %x, %b : tensor<?x64xf32>
  // expected-error@+1 {{expected logits that depend on llm.select_rows}}
  return %x, %kv : tensor<?x64xf32>, !llm.kv
}

// -----

llm.param @e : tensor<64x64xf32> = #llm.synthetic<1, f32, [64, 64]>
func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x64xf32>, !llm.kv) {
  %e = llm.weight @e : tensor<64x64xf32>
  %x = llm.embed %b, %e : tensor<64x64xf32> -> tensor<?x64xf32>
  %z = llm.select_rows %x, %b : tensor<?x64xf32>
  // expected-error@+1 {{unsupported: output rows are selected twice}}
  %y = llm.select_rows %z, %b : tensor<?x64xf32>
  return %x, %kv : tensor<?x64xf32>, !llm.kv
}

// -----

llm.kv_group @kv layers [#llm.kv_layer<1, 64, 64>] key f16 value f16 window 0 page 0
llm.param @e : tensor<64x64xf32> = #llm.synthetic<1, f32, [64, 64]>
func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x64xf32>, !llm.kv) {
  %e = llm.weight @e : tensor<64x64xf32>
  %x = llm.embed %b, %e : tensor<64x64xf32> -> tensor<?x64xf32>
  %kv1 = llm.kv.append %kv, %x, %x, %b group @kv layer 0 : tensor<?x64xf32>, tensor<?x64xf32>
  // expected-error@+1 {{unsupported: attention over a cache that is not paged; run llm-page-kv first}}
  %y = llm.attention %x, %kv1, %b group @kv layer 0 heads 1 scale 1.0 : tensor<?x64xf32> -> tensor<?x64xf32>
  return %x, %kv : tensor<?x64xf32>, !llm.kv
}

// -----

llm.param @e : tensor<64x64xf32> = #llm.synthetic<1, f32, [64, 64]>
llm.param @s : tensor<24x64xf32> = #llm.synthetic<1, f32, [24, 64]>
llm.param @t : tensor<40x64xf32> = #llm.synthetic<2, f32, [40, 64]>
func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x64xf32>, !llm.kv) {
  %e = llm.weight @e : tensor<64x64xf32>
  %x = llm.embed %b, %e : tensor<64x64xf32> -> tensor<?x64xf32>
  %s = llm.weight @s : tensor<24x64xf32>
  %t = llm.weight @t : tensor<40x64xf32>
  %y = llm.linear %x, %s, %t : (tensor<?x64xf32>, tensor<24x64xf32>, tensor<40x64xf32>) -> tensor<?x64xf32>
  // expected-error@+1 {{unsupported: columns across parts of a merged linear that are not multiples of 16}}
  %c = llm.columns %y from 8 : tensor<?x64xf32> -> tensor<?x32xf32>
  return %x, %kv : tensor<?x64xf32>, !llm.kv
}

// -----

llm.param @e : tensor<64x64xf32> = #llm.synthetic<1, f32, [64, 64]>
llm.param @p : tensor<64x64xf32> = #llm.synthetic<3, f32, [64, 64]>
func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x64xf32>, !llm.kv) {
  %e = llm.weight @e : tensor<64x64xf32>
  %x = llm.embed %b, %e : tensor<64x64xf32> -> tensor<?x64xf32>
  %p = llm.weight @p : tensor<64x64xf32>
  %q = llm.embed %b, %p positions : tensor<64x64xf32> -> tensor<?x64xf32>
  %d = llm.scale %x by 2.0 : tensor<?x64xf32>
  // expected-error@+1 {{unsupported: position embeddings added to something else than token embeddings}}
  %y = llm.add %d, %q : tensor<?x64xf32>
  return %x, %kv : tensor<?x64xf32>, !llm.kv
}

// -----

llm.param @e : tensor<64x64xf32> = #llm.synthetic<1, f32, [64, 64]>
func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x64xf32>, !llm.kv) {
  %e = llm.weight @e : tensor<64x64xf32>
  %x = llm.embed %b, %e : tensor<64x64xf32> -> tensor<?x64xf32>
  // expected-error@+1 {{expected a weight made by llm.weight}}
  %y = llm.embed %b, %x : tensor<?x64xf32> -> tensor<?x64xf32>
  return %x, %kv : tensor<?x64xf32>, !llm.kv
}

// -----

llm.param @w : tensor<16x16xf32> = #llm.synthetic<1, f32, [16, 16]>
func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x16xf32>, !llm.kv) {
  %w = llm.weight @w : tensor<16x16xf32>
  %x = llm.embed %b, %w : tensor<16x16xf32> -> tensor<?x16xf32>
  %s = llm.select_rows %x, %b : tensor<?x16xf32>
  %y = llm.linear %s, %w : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
  return %y, %kv : tensor<?x16xf32>, !llm.kv
}
// expected-error@+1 {{expected a draft of type (!llm.batch, !llm.kv[, rows]) -> (logits..., !llm.kv), found '(!llm.batch, !llm.kv, !llm.kv) -> !llm.kv'}}
func.func @draft(%b: !llm.batch, %kv: !llm.kv, %h: !llm.kv) -> !llm.kv {
  return %kv : !llm.kv
}

// -----

llm.param @w : tensor<16x16xf32> = #llm.synthetic<1, f32, [16, 16]>
func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x16xf32>, tensor<?x16xf32>, !llm.kv) {
  %w = llm.weight @w : tensor<16x16xf32>
  %x = llm.embed %b, %w : tensor<16x16xf32> -> tensor<?x16xf32>
  %s = llm.select_rows %x, %b : tensor<?x16xf32>
  %y = llm.linear %s, %w : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
  // expected-error@+1 {{expected the step's choices to be an llm.argmax of its logits}}
  return %y, %y, %kv : tensor<?x16xf32>, tensor<?x16xf32>, !llm.kv
}

// -----

// As wide as the logits, of another weight.
llm.param @w : tensor<16x16xf32> = #llm.synthetic<1, f32, [16, 16]>
llm.param @t : tensor<16x16xf32> = #llm.synthetic<2, f32, [16, 16]>
func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x16xf32>, tensor<?x2xf32>, !llm.kv) {
  %w = llm.weight @w : tensor<16x16xf32>
  %t = llm.weight @t : tensor<16x16xf32>
  %x = llm.embed %b, %w : tensor<16x16xf32> -> tensor<?x16xf32>
  %s = llm.select_rows %x, %b : tensor<?x16xf32>
  %y = llm.linear %s, %w : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
  %z = llm.linear %s, %t : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
  %c = llm.argmax %z : tensor<?x16xf32> -> tensor<?x2xf32>
  // expected-error@+1 {{expected the step's choices to be an llm.argmax of its logits}}
  return %y, %c, %kv : tensor<?x16xf32>, tensor<?x2xf32>, !llm.kv
}

// -----

llm.param @w : tensor<16x16xf32> = #llm.synthetic<1, f32, [16, 16]>
llm.param @t : tensor<24x16xf32> = #llm.synthetic<2, f32, [24, 16]>
func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x16xf32>, tensor<?x2xf32>, !llm.kv) {
  %w = llm.weight @w : tensor<16x16xf32>
  %t = llm.weight @t : tensor<24x16xf32>
  %x = llm.embed %b, %w : tensor<16x16xf32> -> tensor<?x16xf32>
  %s = llm.select_rows %x, %b : tensor<?x16xf32>
  %y = llm.linear %s, %t, %w : (tensor<?x16xf32>, tensor<24x16xf32>, tensor<16x16xf32>) -> tensor<?x40xf32>
  // expected-error@+1 {{unsupported: argmax over parts of a merged linear that are not multiples of 16}}
  %c = llm.argmax %y : tensor<?x40xf32> -> tensor<?x2xf32>
  return %x, %c, %kv : tensor<?x16xf32>, tensor<?x2xf32>, !llm.kv
}

// -----

llm.param @w : tensor<16x16xf32> = #llm.synthetic<1, f32, [16, 16]>
func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>, !llm.kv) {
  %w = llm.weight @w : tensor<16x16xf32>
  %x = llm.embed %b, %w : tensor<16x16xf32> -> tensor<?x16xf32>
  %s = llm.select_rows %x, %b : tensor<?x16xf32>
  %y = llm.linear %s, %w : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
  // expected-error @below {{expected logits and perhaps choices that depend on llm.select_rows, found 3 results}}
  return %y, %s, %s, %kv : tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>, !llm.kv
}
