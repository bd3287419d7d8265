// RUN: lathe-opt %s -split-input-file -pass-pipeline='builtin.module(llm-speculate{method=eagle})' -verify-diagnostics

// expected-error @below {{llm-speculate: expected a module named 'draft' with a function 'layer'}}
module {
  llm.param @w : tensor<2x2xf32> = dense<1.0> : tensor<2x2xf32>
  llm.param @n : tensor<2xf32> = dense<1.0> : tensor<2xf32>
  func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x2xf32>, !llm.kv) {
    %w = llm.weight @w : tensor<2x2xf32>
    %n = llm.weight @n : tensor<2xf32>
    %x = llm.embed %b, %w : tensor<2x2xf32> -> tensor<?x2xf32>
    %s = llm.select_rows %x, %b : tensor<?x2xf32>
    %r = llm.rms_norm %s, %n eps 1.0e-5 : tensor<?x2xf32>, tensor<2xf32>
    %y = llm.linear %r, %w : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
    return %y, %kv : tensor<?x2xf32>, !llm.kv
  }
}

// -----

module {
  llm.param @w : tensor<2x2xf32> = dense<1.0> : tensor<2x2xf32>
  llm.param @n : tensor<2xf32> = dense<1.0> : tensor<2xf32>
  // expected-note @below {{the model it drafts for}}
  func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x2xf32>, !llm.kv) {
    %w = llm.weight @w : tensor<2x2xf32>
    %n = llm.weight @n : tensor<2xf32>
    %x = llm.embed %b, %w : tensor<2x2xf32> -> tensor<?x2xf32>
    %s = llm.select_rows %x, %b : tensor<?x2xf32>
    %r = llm.rms_norm %s, %n eps 1.0e-5 : tensor<?x2xf32>, tensor<2xf32>
    %y = llm.linear %r, %w : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
    return %y, %kv : tensor<?x2xf32>, !llm.kv
  }
  module @draft {
    // expected-error @below {{llm-speculate: expected a function of type (!llm.batch, !llm.kv, tensor<?x2xf32>, tensor<?x2xf32>) -> (tensor<?x2xf32>, !llm.kv), found '(!llm.batch, !llm.kv, tensor<?x2xf32>, tensor<?x3xf32>) -> (tensor<?x2xf32>, !llm.kv)'}}
    func.func @layer(%b: !llm.batch, %kv: !llm.kv, %e: tensor<?x2xf32>, %f: tensor<?x3xf32>) -> (tensor<?x2xf32>, !llm.kv) {
      return %e, %kv : tensor<?x2xf32>, !llm.kv
    }
  }
}

// -----

module {
  llm.param @w : tensor<2x2xf32> = dense<1.0> : tensor<2x2xf32>
  llm.param @n : tensor<2xf32> = dense<1.0> : tensor<2xf32>
  // expected-error @below {{llm-speculate: expected a step that embeds tokens once, in rows of type 'tensor<?x2xf32>'}}
  func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x2xf32>, !llm.kv) {
    %w = llm.weight @w : tensor<2x2xf32>
    %n = llm.weight @n : tensor<2xf32>
    %x = llm.embed %b, %w : tensor<2x2xf32> -> tensor<?x2xf32>
    %p = llm.embed %b, %w : tensor<2x2xf32> -> tensor<?x2xf32>
    %x2 = llm.add %x, %p : tensor<?x2xf32>
    %s = llm.select_rows %x2, %b : tensor<?x2xf32>
    %r = llm.rms_norm %s, %n eps 1.0e-5 : tensor<?x2xf32>, tensor<2xf32>
    %y = llm.linear %r, %w : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
    return %y, %kv : tensor<?x2xf32>, !llm.kv
  }
  module @draft {
    func.func @layer(%b: !llm.batch, %kv: !llm.kv, %e: tensor<?x2xf32>, %f: tensor<?x2xf32>) -> (tensor<?x2xf32>, !llm.kv) {
      return %f, %kv : tensor<?x2xf32>, !llm.kv
    }
  }
}

// -----

module {
  llm.param @w : tensor<2x2xf32> = dense<1.0> : tensor<2x2xf32>
  llm.param @n : tensor<2xf32> = dense<1.0> : tensor<2xf32>
  // expected-error @below {{llm-speculate: expected an llm.rms_norm between llm.select_rows and the last linear}}
  func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x2xf32>, !llm.kv) {
    %w = llm.weight @w : tensor<2x2xf32>
    %n = llm.weight @n : tensor<2xf32>
    %x = llm.embed %b, %w : tensor<2x2xf32> -> tensor<?x2xf32>
    %s = llm.select_rows %x, %b : tensor<?x2xf32>
    %r = llm.rms_norm %s, %n eps 1.0e-5 : tensor<?x2xf32>, tensor<2xf32>
    %y = llm.linear %s, %w : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
    return %y, %kv : tensor<?x2xf32>, !llm.kv
  }
  module @draft {
    func.func @layer(%b: !llm.batch, %kv: !llm.kv, %e: tensor<?x2xf32>, %f: tensor<?x2xf32>) -> (tensor<?x2xf32>, !llm.kv) {
      return %f, %kv : tensor<?x2xf32>, !llm.kv
    }
  }
}
