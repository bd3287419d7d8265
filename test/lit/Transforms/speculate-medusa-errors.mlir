// RUN: lathe-opt %s -split-input-file -allow-unregistered-dialect -pass-pipeline='builtin.module(llm-speculate{method=medusa})' -verify-diagnostics

// expected-error @below {{llm-speculate: expected a module named 'draft' with a function 'heads'}}
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
  // expected-error @below {{llm-speculate: expected one llm.select_rows in the step, found 0}}
  func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x2xf32>, !llm.kv) {
    %w = llm.weight @w : tensor<2x2xf32>
    %x = llm.embed %b, %w : tensor<2x2xf32> -> tensor<?x2xf32>
    return %x, %kv : tensor<?x2xf32>, !llm.kv
  }
  module @draft {
    func.func @heads(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
      return %x : tensor<?x2xf32>
    }
  }
}

// -----

module {
  llm.param @w : tensor<2x2xf32> = dense<1.0> : tensor<2x2xf32>
  // expected-error @below {{llm-speculate: expected logits made by a linear}}
  func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x2xf32>, !llm.kv) {
    %w = llm.weight @w : tensor<2x2xf32>
    %x = llm.embed %b, %w : tensor<2x2xf32> -> tensor<?x2xf32>
    %s = llm.select_rows %x, %b : tensor<?x2xf32>
    return %s, %kv : tensor<?x2xf32>, !llm.kv
  }
  module @draft {
    func.func @heads(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
      return %x : tensor<?x2xf32>
    }
  }
}

// -----

module {
  llm.param @w : tensor<3x2xf32> = dense<1.0> : tensor<3x2xf32>
  // expected-note @below {{the model they draft for}}
  func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x3xf32>, !llm.kv) {
    %w = llm.weight @w : tensor<3x2xf32>
    %x = llm.embed %b, %w : tensor<3x2xf32> -> tensor<?x2xf32>
    %s = llm.select_rows %x, %b : tensor<?x2xf32>
    %y = llm.linear %s, %w : (tensor<?x2xf32>, tensor<3x2xf32>) -> tensor<?x3xf32>
    return %y, %kv : tensor<?x3xf32>, !llm.kv
  }
  module @draft {
    // expected-error @below {{llm-speculate: expected heads that take 'tensor<?x2xf32>' and give 'tensor<?x3xf32>', found '(tensor<?x2xf32>) -> tensor<?x2xf32>'}}
    func.func @heads(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
      return %x : tensor<?x2xf32>
    }
  }
}

// -----

module {
  llm.param @w : tensor<2x2xf32> = dense<1.0> : tensor<2x2xf32>
  // expected-error @below {{llm-speculate: expected a step of type (!llm.batch, !llm.kv) -> (logits, !llm.kv), found '(!llm.batch, !llm.kv) -> tensor<?x2xf32>'}}
  func.func @step(%b: !llm.batch, %kv: !llm.kv) -> tensor<?x2xf32> {
    %w = llm.weight @w : tensor<2x2xf32>
    %x = llm.embed %b, %w : tensor<2x2xf32> -> tensor<?x2xf32>
    %s = llm.select_rows %x, %b : tensor<?x2xf32>
    %y = llm.linear %s, %w : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
    return %y : tensor<?x2xf32>
  }
  module @draft {
    func.func @heads(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
      return %x : tensor<?x2xf32>
    }
  }
}

// -----

module {
  llm.param @w : tensor<2x2xf32> = dense<1.0> : tensor<2x2xf32>
  // expected-error @below {{llm-speculate: expected a step of type (!llm.batch, !llm.kv) -> (logits, !llm.kv), found '(!llm.batch, !llm.kv) -> (!llm.kv, tensor<?x2xf32>)'}}
  func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (!llm.kv, tensor<?x2xf32>) {
    %w = llm.weight @w : tensor<2x2xf32>
    %x = llm.embed %b, %w : tensor<2x2xf32> -> tensor<?x2xf32>
    %s = llm.select_rows %x, %b : tensor<?x2xf32>
    %y = llm.linear %s, %w : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
    return %kv, %y : !llm.kv, tensor<?x2xf32>
  }
  module @draft {
    func.func @heads(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
      return %x : tensor<?x2xf32>
    }
  }
}

// -----

module {
  llm.param @w : tensor<2x2xf32> = dense<1.0> : tensor<2x2xf32>
  // expected-error @below {{llm-speculate: expected a step of type (!llm.batch, !llm.kv) -> (logits, !llm.kv), found '(!llm.batch) -> tensor<?x2xf32>'}}
  func.func @step(%b: !llm.batch) -> tensor<?x2xf32> {
    %w = llm.weight @w : tensor<2x2xf32>
    %x = llm.embed %b, %w : tensor<2x2xf32> -> tensor<?x2xf32>
    %s = llm.select_rows %x, %b : tensor<?x2xf32>
    %y = llm.linear %s, %w : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
    return %y : tensor<?x2xf32>
  }
  module @draft {
    func.func @heads(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
      return %x : tensor<?x2xf32>
    }
  }
}

// -----

module {
  // expected-error @below {{llm-speculate: expected a function of one block, found 0}}
  func.func private @step(!llm.batch, !llm.kv) -> (tensor<?x2xf32>, !llm.kv)
  module @draft {
    func.func @heads(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
      return %x : tensor<?x2xf32>
    }
  }
}

// -----

module {
  llm.param @w : tensor<2x2xf32> = dense<1.0> : tensor<2x2xf32>
  // expected-error @below {{llm-speculate: expected a function of one block, found 2}}
  func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x2xf32>, !llm.kv) {
    %w = llm.weight @w : tensor<2x2xf32>
    %x = llm.embed %b, %w : tensor<2x2xf32> -> tensor<?x2xf32>
    %s = llm.select_rows %x, %b : tensor<?x2xf32>
    %y = llm.linear %s, %w : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
    cf.br ^end
  ^end:
    return %y, %kv : tensor<?x2xf32>, !llm.kv
  }
  module @draft {
    func.func @heads(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
      return %x : tensor<?x2xf32>
    }
  }
}

// -----

module {
  llm.param @w : tensor<2x2xf32> = dense<1.0> : tensor<2x2xf32>
  func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x2xf32>, !llm.kv) {
    %w = llm.weight @w : tensor<2x2xf32>
    %x = llm.embed %b, %w : tensor<2x2xf32> -> tensor<?x2xf32>
    %s = llm.select_rows %x, %b : tensor<?x2xf32>
    %y = llm.linear %s, %w : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
    return %y, %kv : tensor<?x2xf32>, !llm.kv
  }
  module @draft {
    // expected-error @below {{llm-speculate: expected a function of one block, found 0}}
    func.func private @heads(tensor<?x2xf32>) -> tensor<?x2xf32>
  }
}

// -----

module {
  llm.param @w : tensor<2x2xf32> = dense<1.0> : tensor<2x2xf32>
  func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x2xf32>, !llm.kv) {
    %w = llm.weight @w : tensor<2x2xf32>
    %x = llm.embed %b, %w : tensor<2x2xf32> -> tensor<?x2xf32>
    %s = llm.select_rows %x, %b : tensor<?x2xf32>
    %y = llm.linear %s, %w : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
    return %y, %kv : tensor<?x2xf32>, !llm.kv
  }
  module @draft {
    func.func @heads(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
      // expected-error @below {{llm-speculate: expected a function that ends in func.return, found test.end}}
      "test.end"() : () -> ()
    }
  }
}
