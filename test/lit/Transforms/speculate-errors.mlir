// RUN: lathe-opt %s -split-input-file -llm-speculate -verify-diagnostics
// RUN: not lathe-opt %S/speculate-layerskip.mlir -pass-pipeline='builtin.module(llm-speculate{method=eagle9})' 2>&1 | FileCheck %s --check-prefix=METHOD
// RUN: not lathe-opt %S/speculate-layerskip.mlir -pass-pipeline='builtin.module(llm-speculate{method=layerskip layers=2})' 2>&1 | FileCheck %s --check-prefix=LAYERS
// RUN: lathe-opt %S/speculate.mlir -llm-speculate | not lathe-opt -llm-speculate 2>&1 | FileCheck %s --check-prefix=TWICE

// A step that is only declared has no layers to take.
// RUN: echo 'func.func private @step(!llm.batch, !llm.kv) -> (tensor<?x2xf32>, !llm.kv)' | not lathe-opt -pass-pipeline='builtin.module(llm-speculate{method=layerskip layers=1})' 2>&1 | FileCheck %s --check-prefix=DECLARED

// DECLARED: error: llm-speculate: expected a function of one block, found 0
// METHOD: error: llm-speculate: expected method draft, layerskip, medusa, eagle, eagle2 or eagle3, found 'eagle9'
// LAYERS: error: llm-speculate: expected layers in 1 .. 1 of a model of 2, found 2
// TWICE: error: llm-speculate: the module has a draft program already

// expected-error @below {{llm-speculate: expected a function named 'step'}}
module {
}

// -----

// expected-error @below {{llm-speculate: expected a module named 'draft' with the draft model's 'step'}}
module {
  llm.param @w : tensor<2x2xf32> = dense<1.0> : tensor<2x2xf32>
  func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x2xf32>, !llm.kv) {
    %w = llm.weight @w : tensor<2x2xf32>
    %x = llm.embed %b, %w : tensor<2x2xf32> -> tensor<?x2xf32>
    return %x, %kv : tensor<?x2xf32>, !llm.kv
  }
}

// -----

module {
  llm.param @w : tensor<2x2xf32> = dense<1.0> : tensor<2x2xf32>
  // expected-note @below {{the model it drafts for}}
  func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x2xf32>, !llm.kv) {
    %w = llm.weight @w : tensor<2x2xf32>
    %x = llm.embed %b, %w : tensor<2x2xf32> -> tensor<?x2xf32>
    return %x, %kv : tensor<?x2xf32>, !llm.kv
  }
  module @draft {
    llm.param @w : tensor<3x3xf32> = dense<1.0> : tensor<3x3xf32>
    // expected-error @below {{llm-speculate: expected a draft model of type '(!llm.batch, !llm.kv) -> (tensor<?x2xf32>, !llm.kv)', found '(!llm.batch, !llm.kv) -> (tensor<?x3xf32>, !llm.kv)'}}
    func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x3xf32>, !llm.kv) {
      %w = llm.weight @w : tensor<3x3xf32>
      %x = llm.embed %b, %w : tensor<3x3xf32> -> tensor<?x3xf32>
      return %x, %kv : tensor<?x3xf32>, !llm.kv
    }
  }
}
