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
