// RUN: lathe-opt %s -split-input-file -pass-pipeline='builtin.module(llm-speculate{method=eagle3})' -verify-diagnostics

// expected-error @below {{llm-speculate: expected a module named 'draft' with a function 'layer' and a function 'head'}}
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
  module @draft {
    func.func @layer(%b: !llm.batch, %kv: !llm.kv, %e: tensor<?x2xf32>, %f: tensor<?x2xf32>) -> (tensor<?x2xf32>, !llm.kv) {
      return %f, %kv : tensor<?x2xf32>, !llm.kv
    }
  }
}

// -----

module {
  llm.kv_group @kv layers [#llm.kv_layer<1, 2, 2>, #llm.kv_layer<1, 2, 2>, #llm.kv_layer<1, 3, 3>] key f32 value f32 window 0 page 0
  llm.param @v : tensor<3x2xf32> = dense<1.0> : tensor<3x2xf32>
  llm.param @w : tensor<2x2xf32> = dense<1.0> : tensor<2x2xf32>
  llm.param @n : tensor<2xf32> = dense<1.0> : tensor<2xf32>
  // expected-note @below {{the model it drafts for}}
  func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x2xf32>, !llm.kv) {
    %w = llm.weight @w : tensor<2x2xf32>
    %n = llm.weight @n : tensor<2xf32>
    %x = llm.embed %b, %w : tensor<2x2xf32> -> tensor<?x2xf32>
    %v = llm.weight @v : tensor<3x2xf32>
    %kv1 = llm.kv.append %kv, %x, %x, %b group @kv layer 0 : tensor<?x2xf32>, tensor<?x2xf32>
    %kv2 = llm.kv.append %kv1, %x, %x, %b group @kv layer 1 : tensor<?x2xf32>, tensor<?x2xf32>
    %l = llm.linear %x, %v : (tensor<?x2xf32>, tensor<3x2xf32>) -> tensor<?x3xf32>
    %m = llm.scale %l by 2.0 : tensor<?x3xf32>
    %kv3 = llm.kv.append %kv2, %m, %m, %b group @kv layer 2 : tensor<?x3xf32>, tensor<?x3xf32>
    %s = llm.select_rows %x, %b : tensor<?x2xf32>
    %r = llm.rms_norm %s, %n eps 1.0e-5 : tensor<?x2xf32>, tensor<2xf32>
    %y = llm.linear %r, %w : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
    return %y, %kv3 : tensor<?x2xf32>, !llm.kv
  }
  module @draft {
    func.func @layer(%b: !llm.batch, %kv: !llm.kv, %e: tensor<?x2xf32>, %o: tensor<?x2xf32>, %f: tensor<?x2xf32>, %g: tensor<?x2xf32>, %h: tensor<?x2xf32>) -> (tensor<?x2xf32>, !llm.kv) {
      return %f, %kv : tensor<?x2xf32>, !llm.kv
    }
    // expected-error @below {{llm-speculate: expected a function of type (tensor<?x2xf32>) -> logits, found '(tensor<?x3xf32>) -> tensor<?x3xf32>'}}
    func.func @head(%x: tensor<?x3xf32>) -> tensor<?x3xf32> {
      return %x : tensor<?x3xf32>
    }
  }
}

// -----

module {
  llm.kv_group @kv layers [#llm.kv_layer<1, 2, 2>, #llm.kv_layer<1, 2, 2>, #llm.kv_layer<1, 3, 3>] key f32 value f32 window 0 page 0
  llm.param @v : tensor<3x2xf32> = dense<1.0> : tensor<3x2xf32>
  llm.param @w : tensor<2x2xf32> = dense<1.0> : tensor<2x2xf32>
  llm.param @n : tensor<2xf32> = dense<1.0> : tensor<2xf32>
  func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x2xf32>, !llm.kv) {
    %w = llm.weight @w : tensor<2x2xf32>
    %n = llm.weight @n : tensor<2xf32>
    %x = llm.embed %b, %w : tensor<2x2xf32> -> tensor<?x2xf32>
    %v = llm.weight @v : tensor<3x2xf32>
    %kv1 = llm.kv.append %kv, %x, %x, %b group @kv layer 0 : tensor<?x2xf32>, tensor<?x2xf32>
    %kv2 = llm.kv.append %kv1, %x, %x, %b group @kv layer 1 : tensor<?x2xf32>, tensor<?x2xf32>
    %l = llm.linear %x, %v : (tensor<?x2xf32>, tensor<3x2xf32>) -> tensor<?x3xf32>
    %m = llm.scale %l by 2.0 : tensor<?x3xf32>
    %kv3 = llm.kv.append %kv2, %m, %m, %b group @kv layer 2 : tensor<?x3xf32>, tensor<?x3xf32>
    %s = llm.select_rows %x, %b : tensor<?x2xf32>
    %r = llm.rms_norm %s, %n eps 1.0e-5 : tensor<?x2xf32>, tensor<2xf32>
    %y = llm.linear %r, %w : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
    return %y, %kv3 : tensor<?x2xf32>, !llm.kv
  }
  // expected-error @below {{llm-speculate: expected an attribute llm.eagle with three features, layers below 3}}
  module @draft {
    func.func @layer(%b: !llm.batch, %kv: !llm.kv, %e: tensor<?x2xf32>, %o: tensor<?x2xf32>, %f: tensor<?x2xf32>, %g: tensor<?x2xf32>, %h: tensor<?x2xf32>) -> (tensor<?x2xf32>, !llm.kv) {
      return %f, %kv : tensor<?x2xf32>, !llm.kv
    }
    func.func @head(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
      return %x : tensor<?x2xf32>
    }
  }
}

// -----

module {
  llm.kv_group @kv layers [#llm.kv_layer<1, 2, 2>, #llm.kv_layer<1, 2, 2>, #llm.kv_layer<1, 3, 3>] key f32 value f32 window 0 page 0
  llm.param @v : tensor<3x2xf32> = dense<1.0> : tensor<3x2xf32>
  llm.param @w : tensor<2x2xf32> = dense<1.0> : tensor<2x2xf32>
  llm.param @n : tensor<2xf32> = dense<1.0> : tensor<2xf32>
  func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x2xf32>, !llm.kv) {
    %w = llm.weight @w : tensor<2x2xf32>
    %n = llm.weight @n : tensor<2xf32>
    %x = llm.embed %b, %w : tensor<2x2xf32> -> tensor<?x2xf32>
    %v = llm.weight @v : tensor<3x2xf32>
    %kv1 = llm.kv.append %kv, %x, %x, %b group @kv layer 0 : tensor<?x2xf32>, tensor<?x2xf32>
    %kv2 = llm.kv.append %kv1, %x, %x, %b group @kv layer 1 : tensor<?x2xf32>, tensor<?x2xf32>
    %l = llm.linear %x, %v : (tensor<?x2xf32>, tensor<3x2xf32>) -> tensor<?x3xf32>
    %m = llm.scale %l by 2.0 : tensor<?x3xf32>
    %kv3 = llm.kv.append %kv2, %m, %m, %b group @kv layer 2 : tensor<?x3xf32>, tensor<?x3xf32>
    %s = llm.select_rows %x, %b : tensor<?x2xf32>
    %r = llm.rms_norm %s, %n eps 1.0e-5 : tensor<?x2xf32>, tensor<2xf32>
    %y = llm.linear %r, %w : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
    return %y, %kv3 : tensor<?x2xf32>, !llm.kv
  }
  // expected-error @below {{llm-speculate: expected an attribute llm.eagle with three features, layers below 3}}
  module @draft attributes {llm.eagle = {features = array<i64: 0, 1, 3>}} {
    func.func @layer(%b: !llm.batch, %kv: !llm.kv, %e: tensor<?x2xf32>, %o: tensor<?x2xf32>, %f: tensor<?x2xf32>, %g: tensor<?x2xf32>, %h: tensor<?x2xf32>) -> (tensor<?x2xf32>, !llm.kv) {
      return %f, %kv : tensor<?x2xf32>, !llm.kv
    }
    func.func @head(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
      return %x : tensor<?x2xf32>
    }
  }
}

// -----

module {
  llm.kv_group @kv layers [#llm.kv_layer<1, 2, 2>, #llm.kv_layer<1, 2, 2>, #llm.kv_layer<1, 3, 3>] key f32 value f32 window 0 page 0
  llm.param @v : tensor<3x2xf32> = dense<1.0> : tensor<3x2xf32>
  llm.param @w : tensor<2x2xf32> = dense<1.0> : tensor<2x2xf32>
  llm.param @n : tensor<2xf32> = dense<1.0> : tensor<2xf32>
  func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x2xf32>, !llm.kv) {
    %w = llm.weight @w : tensor<2x2xf32>
    %n = llm.weight @n : tensor<2xf32>
    %x = llm.embed %b, %w : tensor<2x2xf32> -> tensor<?x2xf32>
    %v = llm.weight @v : tensor<3x2xf32>
    %kv1 = llm.kv.append %kv, %x, %x, %b group @kv layer 0 : tensor<?x2xf32>, tensor<?x2xf32>
    %kv2 = llm.kv.append %kv1, %x, %x, %b group @kv layer 1 : tensor<?x2xf32>, tensor<?x2xf32>
    %l = llm.linear %x, %v : (tensor<?x2xf32>, tensor<3x2xf32>) -> tensor<?x3xf32>
    %m = llm.scale %l by 2.0 : tensor<?x3xf32>
    // expected-error @below {{llm-speculate: expected rows of type 'tensor<?x2xf32>' in front of layer 2, found 'tensor<?x3xf32>'}}
    %kv3 = llm.kv.append %kv2, %m, %m, %b group @kv layer 2 : tensor<?x3xf32>, tensor<?x3xf32>
    %s = llm.select_rows %x, %b : tensor<?x2xf32>
    %r = llm.rms_norm %s, %n eps 1.0e-5 : tensor<?x2xf32>, tensor<2xf32>
    %y = llm.linear %r, %w : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
    return %y, %kv3 : tensor<?x2xf32>, !llm.kv
  }
  module @draft attributes {llm.eagle = {features = array<i64: 0, 1, 2>}} {
    func.func @layer(%b: !llm.batch, %kv: !llm.kv, %e: tensor<?x2xf32>, %o: tensor<?x2xf32>, %f: tensor<?x2xf32>, %g: tensor<?x2xf32>, %h: tensor<?x2xf32>) -> (tensor<?x2xf32>, !llm.kv) {
      return %f, %kv : tensor<?x2xf32>, !llm.kv
    }
    func.func @head(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
      return %x : tensor<?x2xf32>
    }
  }
}

// -----

module {
  llm.kv_group @kv layers [#llm.kv_layer<1, 2, 2>, #llm.kv_layer<1, 2, 2>, #llm.kv_layer<1, 3, 3>] key f32 value f32 window 0 page 0
  llm.param @v : tensor<3x2xf32> = dense<1.0> : tensor<3x2xf32>
  llm.param @w : tensor<2x2xf32> = dense<1.0> : tensor<2x2xf32>
  llm.param @n : tensor<2xf32> = dense<1.0> : tensor<2xf32>
  func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x2xf32>, !llm.kv) {
    %w = llm.weight @w : tensor<2x2xf32>
    %n = llm.weight @n : tensor<2xf32>
    %x = llm.embed %b, %w : tensor<2x2xf32> -> tensor<?x2xf32>
    %v = llm.weight @v : tensor<3x2xf32>
    %kv1 = llm.kv.append %kv, %x, %x, %b group @kv layer 0 : tensor<?x2xf32>, tensor<?x2xf32>
    %kv2 = llm.kv.append %kv1, %x, %x, %b group @kv layer 1 : tensor<?x2xf32>, tensor<?x2xf32>
    %l = llm.linear %x, %v : (tensor<?x2xf32>, tensor<3x2xf32>) -> tensor<?x3xf32>
    %m = llm.scale %l by 2.0 : tensor<?x3xf32>
    %kv3 = llm.kv.append %kv2, %m, %m, %b group @kv layer 2 : tensor<?x3xf32>, tensor<?x3xf32>
    %s = llm.select_rows %x, %b : tensor<?x2xf32>
    %r = llm.rms_norm %s, %n eps 1.0e-5 : tensor<?x2xf32>, tensor<2xf32>
    %y = llm.linear %r, %w : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
    return %y, %kv3 : tensor<?x2xf32>, !llm.kv
  }
  module @draft attributes {llm.eagle = {features = array<i64: 0, 0, 1>, tokens = dense<1> : tensor<1xi32>}} {
    func.func @layer(%b: !llm.batch, %kv: !llm.kv, %e: tensor<?x2xf32>, %o: tensor<?x2xf32>, %f: tensor<?x2xf32>, %g: tensor<?x2xf32>, %h: tensor<?x2xf32>) -> (tensor<?x2xf32>, !llm.kv) {
      return %f, %kv : tensor<?x2xf32>, !llm.kv
    }
    // expected-error @below {{llm-speculate: expected a head of 1 tokens, found 2}}
    func.func @head(%x: tensor<?x2xf32>) -> tensor<?x2xf32> {
      return %x : tensor<?x2xf32>
    }
  }
}
