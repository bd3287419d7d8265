// Every message of the dialect's verifiers.
// RUN: lathe-opt %s -split-input-file -verify-diagnostics

func.func @f(%a: !kernel.act<64, int8>) {
  // expected-error@+1 {{expected one column offset for each weight, found 2 weights and 1 offsets}}
  %0 = kernel.matmul %a weights [@w, @v] columns [0] bias [] : !kernel.act<64, int8> -> !kernel.rows<64, 64>
  return
}

// -----

func.func @f(%a: !kernel.act<64, int8>) {
  // expected-error@+1 {{expected one interleaved weight with glu, found 2}}
  %0 = kernel.matmul %a weights [@w, @v] columns [0, 64] bias [] glu silu : !kernel.act<64, int8> -> !kernel.act<64, int8>
  return
}

// -----

func.func @f(%a: !kernel.act<64, int8>) {
  // expected-error@+1 {{expected activations as the result exactly with glu, found '!kernel.act<64, int8>'}}
  %0 = kernel.matmul %a weights [@w] columns [0] bias [] : !kernel.act<64, int8> -> !kernel.act<64, int8>
  return
}

// -----

func.func @f(%a: !kernel.act<64, int8>) {
  // expected-error@+1 {{expected one weight and neither glu nor residual with argmax, found 2 weights}}
  %0 = kernel.matmul %a weights [@w, @v] columns [0, 64] bias [] argmax : !kernel.act<64, int8> -> !kernel.rows<2, 16>
  return
}

// -----

func.func @f(%a: !kernel.rows<64, 64>) {
  // expected-error@+1 {{expected a result of width 2 over the input's rows, found '!kernel.rows<4, 16>'}}
  %0 = kernel.argmax %a : !kernel.rows<64, 64> -> !kernel.rows<4, 16>
  return
}

// -----

func.func @f(%a: !kernel.rows<63, 64>) {
  // expected-error@+1 {{expected as many indexes as values, found a width of 63}}
  %0 = kernel.argmax %a pairs : !kernel.rows<63, 64> -> !kernel.rows<2, 16>
  return
}

// -----

func.func @f(%a: !kernel.rows<64, 64>) {
  // expected-error@+1 {{columns 32 .. 96 are outside a stride of 64}}
  %0 = kernel.view %a from 32 : !kernel.rows<64, 64> -> !kernel.rows<64, 64>
  return
}

// -----

func.func @f(%a: !kernel.rows<64, 64>) {
  // expected-error@+1 {{expected the input's stride 64, found 32}}
  %0 = kernel.view %a from 32 : !kernel.rows<64, 64> -> !kernel.rows<32, 32>
  return
}

// -----

func.func @f(%a: !kernel.rows<64, 64>) {
  // expected-error@+1 {{expected one f32 body argument for each of 1 inputs}}
  %0 = kernel.loops (%a) : (!kernel.rows<64, 64>) -> !kernel.rows<64, 64> {
  ^bb0(%x: f32, %y: f32):
    kernel.yield %x
  }
  return
}

// -----

func.func @f(%a: !kernel.rows<64, 64>) {
  // expected-error@+1 {{expected inputs of width 32, found '!kernel.rows<64, 64>'}}
  %0 = kernel.loops (%a) : (!kernel.rows<64, 64>) -> !kernel.rows<32, 64> {
  ^bb0(%x: f32):
    kernel.yield %x
  }
  return
}
