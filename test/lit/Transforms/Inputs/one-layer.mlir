// The first layer of the model in speculate.mlir, with its head.
llm.kv_group @kv layers [#llm.kv_layer<1, 4, 4>] key f32 value f32 window 0 page 0
llm.param @e : tensor<12x8xf32> = #llm.synthetic<1, f32, [12, 8]>
llm.param @f : tensor<2xf32> = #llm.synthetic<2, f32, [2]>
llm.param @n : tensor<8xf32> = #llm.synthetic<3, f32, [8]>
llm.param @a0 : tensor<8xf32> = #llm.synthetic<10, f32, [8]>
llm.param @q0 : tensor<8x8xf32> = #llm.synthetic<11, f32, [8, 8]>
llm.param @k0 : tensor<4x8xf32> = #llm.synthetic<12, f32, [4, 8]>
llm.param @v0 : tensor<4x8xf32> = #llm.synthetic<13, f32, [4, 8]>
llm.param @o0 : tensor<8x8xf32> = #llm.synthetic<14, f32, [8, 8]>
llm.param @m0 : tensor<8xf32> = #llm.synthetic<15, f32, [8]>
llm.param @g0 : tensor<16x8xf32> = #llm.synthetic<16, f32, [16, 8]>
llm.param @u0 : tensor<16x8xf32> = #llm.synthetic<17, f32, [16, 8]>
llm.param @d0 : tensor<8x16xf32> = #llm.synthetic<18, f32, [8, 16]>
func.func @step(%b: !llm.batch, %kv0: !llm.kv) -> (tensor<?x12xf32>, !llm.kv) {
  %e = llm.weight @e : tensor<12x8xf32>
  %f = llm.weight @f : tensor<2xf32>
  %n = llm.weight @n : tensor<8xf32>
  %a0 = llm.weight @a0 : tensor<8xf32>
  %q0 = llm.weight @q0 : tensor<8x8xf32>
  %k0 = llm.weight @k0 : tensor<4x8xf32>
  %v0 = llm.weight @v0 : tensor<4x8xf32>
  %o0 = llm.weight @o0 : tensor<8x8xf32>
  %m0 = llm.weight @m0 : tensor<8xf32>
  %g0 = llm.weight @g0 : tensor<16x8xf32>
  %u0 = llm.weight @u0 : tensor<16x8xf32>
  %d0 = llm.weight @d0 : tensor<8x16xf32>
  %x0 = llm.embed %b, %e : tensor<12x8xf32> -> tensor<?x8xf32>
  %angles = llm.angles %b, %f : tensor<2xf32> -> tensor<?x4xf32>
  %an0 = llm.rms_norm %x0, %a0 eps 1.0e-5 : tensor<?x8xf32>, tensor<8xf32>
  %qq0 = llm.linear %an0, %q0 : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  %kk0 = llm.linear %an0, %k0 : (tensor<?x8xf32>, tensor<4x8xf32>) -> tensor<?x4xf32>
  %vv0 = llm.linear %an0, %v0 : (tensor<?x8xf32>, tensor<4x8xf32>) -> tensor<?x4xf32>
  %qr0 = llm.rope %qq0, %angles heads 2 : tensor<?x8xf32>, tensor<?x4xf32>
  %kr0 = llm.rope %kk0, %angles heads 1 : tensor<?x4xf32>, tensor<?x4xf32>
  %kv1 = llm.kv.append %kv0, %kr0, %vv0, %b group @kv layer 0 : tensor<?x4xf32>, tensor<?x4xf32>
  %at0 = llm.attention %qr0, %kv1, %b group @kv layer 0 heads 2 scale 0.5 : tensor<?x8xf32> -> tensor<?x8xf32>
  %oo0 = llm.linear %at0, %o0 : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  %y0 = llm.add %x0, %oo0 : tensor<?x8xf32>
  %mn0 = llm.rms_norm %y0, %m0 eps 1.0e-5 : tensor<?x8xf32>, tensor<8xf32>
  %gg0 = llm.linear %mn0, %g0 : (tensor<?x8xf32>, tensor<16x8xf32>) -> tensor<?x16xf32>
  %uu0 = llm.linear %mn0, %u0 : (tensor<?x8xf32>, tensor<16x8xf32>) -> tensor<?x16xf32>
  %h0 = llm.glu silu %gg0, %uu0 : tensor<?x16xf32>
  %dd0 = llm.linear %h0, %d0 : (tensor<?x16xf32>, tensor<8x16xf32>) -> tensor<?x8xf32>
  %x1 = llm.add %y0, %dd0 : tensor<?x8xf32>
  %s = llm.select_rows %x1, %b : tensor<?x8xf32>
  %fn = llm.rms_norm %s, %n eps 1.0e-5 : tensor<?x8xf32>, tensor<8xf32>
  %logits = llm.linear %fn, %e : (tensor<?x8xf32>, tensor<12x8xf32>) -> tensor<?x12xf32>
  return %logits, %kv1 : tensor<?x12xf32>, !llm.kv
}
