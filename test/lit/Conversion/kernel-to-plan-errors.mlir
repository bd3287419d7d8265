// What cannot be planned.
// RUN: lathe-opt %s --kernel-to-plan -split-input-file -verify-diagnostics

// expected-error@+1 {{expected a function named 'step'}}
module {
}

// -----

// expected-error@+1 {{expected a positive max-seq, found 0}}
module {
  func.func @step(%kv: !llm.kv) {
    return
  }
}

// -----

module attributes {llm.model = {max_sequence = 64 : i64}} {
  // expected-error@+1 {{expected a kernel.output at the end of the step}}
  func.func @step(%kv: !llm.kv) {
    return
  }
}

// -----

module attributes {llm.model = {max_sequence = 64 : i64}} {
  llm.param @w : tensor<16x16xf32> = #llm.synthetic<1, f32, [16, 16]>
  kernel.packed @p params [@w] storage f32 n 16 k 16 interleave 0
  func.func @step(%kv: !llm.kv) {
    %x = kernel.gather @p scale 1.0 -> <16, 16>
    %s = kernel.select %x : !kernel.rows<16, 16> -> <16, 16, true>
    %q = kernel.quantize %s : !kernel.rows<16, 16, true> -> <16, f32 out true>
    // expected-error@+1 {{expected a result of width 2 for 16 outputs with argmax, found '!kernel.rows<4, 16, true>'}}
    %y = kernel.matmul %q weights [@p] columns [0] bias [] argmax : !kernel.act<16, f32 out true> -> !kernel.rows<4, 16, true>
    kernel.output hidden %x logits %s : !kernel.rows<16, 16>, !kernel.rows<16, 16, true>
    return
  }
}
