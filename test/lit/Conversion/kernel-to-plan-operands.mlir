// Which weights meet which activations is one rule for CPUs and GPUs.
// RUN: lathe-opt %s --kernel-to-plan -split-input-file -verify-diagnostics
// RUN: lathe-opt %s --kernel-to-plan=gpu=true -split-input-file -verify-diagnostics

module attributes {llm.model = {max_sequence = 64 : i64}} {
  llm.param @w : tensor<16x32xbf16> = #llm.synthetic<1, bf16, [16, 32]>
  kernel.packed @packed.w params [@w] storage bf16 n 16 k 32 interleave 0
  func.func @step(%kv: !llm.kv) {
    %x = kernel.gather @packed.w scale 1.0 -> <32, 32>
    %s = kernel.select %x : !kernel.rows<32, 32> -> <32, 32, true>
    %q = kernel.quantize %s : !kernel.rows<32, 32, true> -> <32, e4m3 out true>
    // expected-error@+1 {{weight 'packed.w' of bf16: expected e4m3 weights for e4m3 activations}}
    %y = kernel.matmul %q weights [@packed.w] columns [0] bias [] : !kernel.act<32, e4m3 out true> -> !kernel.rows<16, 16, true>
    kernel.output hidden %x logits %y : !kernel.rows<32, 32>, !kernel.rows<16, 16, true>
    return
  }
}

// -----

module attributes {llm.model = {max_sequence = 64 : i64}} {
  llm.param @w : tensor<16x32x!llm.q<e4m3>> = #llm.synthetic<1, e4m3, [16, 32]>
  kernel.packed @packed.w params [@w] storage e4m3 n 16 k 32 interleave 0
  func.func @step(%kv: !llm.kv) {
    %x = kernel.gather @packed.w scale 1.0 -> <32, 32>
    %s = kernel.select %x : !kernel.rows<32, 32> -> <32, 32, true>
    %q = kernel.quantize %s : !kernel.rows<32, 32, true> -> <32, int8 out true>
    // expected-error@+1 {{weight 'packed.w' of e4m3: expected f32 or bf16 activations for float weights, found int8}}
    %y = kernel.matmul %q weights [@packed.w] columns [0] bias [] : !kernel.act<32, int8 out true> -> !kernel.rows<16, 16, true>
    kernel.output hidden %x logits %y : !kernel.rows<32, 32>, !kernel.rows<16, 16, true>
    return
  }
}
