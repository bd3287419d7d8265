// Two layers of different families; every value has the name of its layer as location.
llm.kv_group @full layers [#llm.kv_layer<1, 32, 32>] key f32 value f32 window 0 page 0
llm.kv_group @window layers [#llm.kv_layer<1, 32, 32>] key f32 value f32 window 4 page 0
llm.param @embed : tensor<16x64xf32> = #llm.synthetic<1, f32, [16, 64]>
llm.param @freq : tensor<16xf32> = dense<0.25> : tensor<16xf32>
llm.param @n0 : tensor<64xf32> = #llm.synthetic<2, f32, [64]>
llm.param @hn : tensor<32xf32> = #llm.synthetic<3, f32, [32]>
llm.param @q0 : tensor<64x64x!llm.q<q8_0>> = #llm.synthetic<4, q8_0, [64, 64]>
llm.param @k0 : tensor<32x64x!llm.q<q8_0>> = #llm.synthetic<5, q8_0, [32, 64]>
llm.param @v0 : tensor<32x64x!llm.q<q8_0>> = #llm.synthetic<6, q8_0, [32, 64]>
llm.param @o0 : tensor<64x64x!llm.q<q8_0>> = #llm.synthetic<7, q8_0, [64, 64]>
llm.param @g0 : tensor<96x64x!llm.q<q8_0>> = #llm.synthetic<8, q8_0, [96, 64]>
llm.param @u0 : tensor<96x64x!llm.q<q8_0>> = #llm.synthetic<9, q8_0, [96, 64]>
llm.param @d0 : tensor<64x96x!llm.q<q8_0>> = #llm.synthetic<10, q8_0, [64, 96]>
llm.param @q1 : tensor<64x64x!llm.q<q8_0>> = #llm.synthetic<14, q8_0, [64, 64]>
llm.param @k1 : tensor<32x64x!llm.q<q8_0>> = #llm.synthetic<15, q8_0, [32, 64]>
llm.param @v1 : tensor<32x64x!llm.q<q8_0>> = #llm.synthetic<16, q8_0, [32, 64]>
llm.param @o1 : tensor<64x64x!llm.q<q8_0>> = #llm.synthetic<17, q8_0, [64, 64]>
llm.param @g1 : tensor<96x64x!llm.q<q8_0>> = #llm.synthetic<18, q8_0, [96, 64]>
llm.param @u1 : tensor<96x64xf16> = #llm.synthetic<19, f16, [96, 64]>
llm.param @d1 : tensor<64x96x!llm.q<q8_0>> = #llm.synthetic<20, q8_0, [64, 96]>

func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x16xf32>, !llm.kv) {
  %embed = llm.weight @embed : tensor<16x64xf32>
  %x = llm.embed %b, %embed : tensor<16x64xf32> -> tensor<?x64xf32>
  // Layer 0.
  %nw0 = llm.weight @n0 : tensor<64xf32>
  %f0 = llm.weight @freq : tensor<16xf32>
  %a0 = llm.angles %b, %f0 : tensor<16xf32> -> tensor<?x32xf32>
  %h0 = llm.rms_norm %x, %nw0 eps 1.0e-5 : tensor<?x64xf32>, tensor<64xf32> loc("layers.0.attention_norm")
  %qw0 = llm.weight @q0 : tensor<64x64x!llm.q<q8_0>>
  %q0 = llm.linear %h0, %qw0 : (tensor<?x64xf32>, tensor<64x64x!llm.q<q8_0>>) -> tensor<?x64xf32> loc("layers.0.q")
  %kw0 = llm.weight @k0 : tensor<32x64x!llm.q<q8_0>>
  %k0 = llm.linear %h0, %kw0 : (tensor<?x64xf32>, tensor<32x64x!llm.q<q8_0>>) -> tensor<?x32xf32> loc("layers.0.k")
  %vw0 = llm.weight @v0 : tensor<32x64x!llm.q<q8_0>>
  %v0 = llm.linear %h0, %vw0 : (tensor<?x64xf32>, tensor<32x64x!llm.q<q8_0>>) -> tensor<?x32xf32> loc("layers.0.v")
  %qr0 = llm.rope %q0, %a0 heads 2 : tensor<?x64xf32>, tensor<?x32xf32> loc("layers.0.attention")
  %kr0 = llm.rope %k0, %a0 heads 1 : tensor<?x32xf32>, tensor<?x32xf32> loc("layers.0.attention")
  %kv0 = llm.kv.append %kv, %kr0, %v0, %b group @full layer 0 : tensor<?x32xf32>, tensor<?x32xf32> loc("layers.0.attention")
  %at0 = llm.attention %qr0, %kv0, %b group @full layer 0 heads 2 scale 0.25 : tensor<?x64xf32> -> tensor<?x64xf32> loc("layers.0.attention")
  %ow0 = llm.weight @o0 : tensor<64x64x!llm.q<q8_0>>
  %o0 = llm.linear %at0, %ow0 : (tensor<?x64xf32>, tensor<64x64x!llm.q<q8_0>>) -> tensor<?x64xf32> loc("layers.0.o")
  %m0 = llm.add %x, %o0 : tensor<?x64xf32> loc("layers.0.attention_residual")
  %mn0 = llm.rms_norm %m0, %nw0 eps 1.0e-5 : tensor<?x64xf32>, tensor<64xf32> loc("layers.0.feed_forward_norm")
  %gw0 = llm.weight @g0 : tensor<96x64x!llm.q<q8_0>>
  %uw0 = llm.weight @u0 : tensor<96x64x!llm.q<q8_0>>
  %g0 = llm.linear %mn0, %gw0 : (tensor<?x64xf32>, tensor<96x64x!llm.q<q8_0>>) -> tensor<?x96xf32> loc("layers.0.gate")
  %u0 = llm.linear %mn0, %uw0 : (tensor<?x64xf32>, tensor<96x64x!llm.q<q8_0>>) -> tensor<?x96xf32> loc("layers.0.up")
  %y0 = llm.glu silu %g0, %u0 : tensor<?x96xf32> loc("layers.0.activation")
  %dw0 = llm.weight @d0 : tensor<64x96x!llm.q<q8_0>>
  %d0 = llm.linear %y0, %dw0 : (tensor<?x96xf32>, tensor<64x96x!llm.q<q8_0>>) -> tensor<?x64xf32> loc("layers.0.down")
  %x0 = llm.add %m0, %d0 : tensor<?x64xf32> loc("layers.0.feed_forward_residual")
  // Layer 1.
  %nw1 = llm.weight @n0 : tensor<64xf32>
  %f1 = llm.weight @freq : tensor<16xf32>
  %a1 = llm.angles %b, %f1 : tensor<16xf32> -> tensor<?x32xf32>
  %h1 = llm.rms_norm %x0, %nw1 eps 1.0e-5 : tensor<?x64xf32>, tensor<64xf32> loc("layers.1.attention_norm")
  %qw1 = llm.weight @q1 : tensor<64x64x!llm.q<q8_0>>
  %q1 = llm.linear %h1, %qw1 : (tensor<?x64xf32>, tensor<64x64x!llm.q<q8_0>>) -> tensor<?x64xf32> loc("layers.1.q")
  %kw1 = llm.weight @k1 : tensor<32x64x!llm.q<q8_0>>
  %k1 = llm.linear %h1, %kw1 : (tensor<?x64xf32>, tensor<32x64x!llm.q<q8_0>>) -> tensor<?x32xf32> loc("layers.1.k")
  %vw1 = llm.weight @v1 : tensor<32x64x!llm.q<q8_0>>
  %v1 = llm.linear %h1, %vw1 : (tensor<?x64xf32>, tensor<32x64x!llm.q<q8_0>>) -> tensor<?x32xf32> loc("layers.1.v")
  %hn1 = llm.weight @hn : tensor<32xf32>
  %qn1 = llm.rms_norm %q1, %hn1 eps 1.0e-5 heads 2 : tensor<?x64xf32>, tensor<32xf32> loc("layers.1.q_norm")
  %kn1 = llm.rms_norm %k1, %hn1 eps 1.0e-5 : tensor<?x32xf32>, tensor<32xf32> loc("layers.1.k_norm")
  %qr1 = llm.rope %qn1, %a1 heads 2 : tensor<?x64xf32>, tensor<?x32xf32> loc("layers.1.attention")
  %kr1 = llm.rope %kn1, %a1 heads 1 : tensor<?x32xf32>, tensor<?x32xf32> loc("layers.1.attention")
  %kv1 = llm.kv.append %kv0, %kr1, %v1, %b group @window layer 0 : tensor<?x32xf32>, tensor<?x32xf32> loc("layers.1.attention")
  %at1 = llm.attention %qr1, %kv1, %b group @window layer 0 heads 2 scale 0.25 : tensor<?x64xf32> -> tensor<?x64xf32> loc("layers.1.attention")
  %ow1 = llm.weight @o1 : tensor<64x64x!llm.q<q8_0>>
  %o1 = llm.linear %at1, %ow1 : (tensor<?x64xf32>, tensor<64x64x!llm.q<q8_0>>) -> tensor<?x64xf32> loc("layers.1.o")
  %m1p = llm.rms_norm %o1, %nw1 eps 1.0e-5 : tensor<?x64xf32>, tensor<64xf32> loc("layers.1.attention_residual.norm")
  %m1 = llm.add %x0, %m1p : tensor<?x64xf32> loc("layers.1.attention_residual")
  %mn1 = llm.rms_norm %m1, %nw1 eps 1.0e-5 : tensor<?x64xf32>, tensor<64xf32> loc("layers.1.feed_forward_norm")
  %gw1 = llm.weight @g1 : tensor<96x64x!llm.q<q8_0>>
  %uw1 = llm.weight @u1 : tensor<96x64xf16>
  %g1 = llm.linear %mn1, %gw1 : (tensor<?x64xf32>, tensor<96x64x!llm.q<q8_0>>) -> tensor<?x96xf32> loc("layers.1.gate")
  %u1 = llm.linear %mn1, %uw1 : (tensor<?x64xf32>, tensor<96x64xf16>) -> tensor<?x96xf32> loc("layers.1.up")
  %y1 = llm.glu silu %g1, %u1 : tensor<?x96xf32> loc("layers.1.activation")
  %dw1 = llm.weight @d1 : tensor<64x96x!llm.q<q8_0>>
  %d1 = llm.linear %y1, %dw1 : (tensor<?x96xf32>, tensor<64x96x!llm.q<q8_0>>) -> tensor<?x64xf32> loc("layers.1.down")
  %x1p = llm.rms_norm %d1, %nw1 eps 1.0e-5 : tensor<?x64xf32>, tensor<64xf32> loc("layers.1.feed_forward_residual.norm")
  %x1 = llm.add %m1, %x1p : tensor<?x64xf32> loc("layers.1.feed_forward_residual")
  %z = llm.select_rows %x1, %b : tensor<?x64xf32>
  %zw = llm.weight @n0 : tensor<64xf32>
  %zn = llm.rms_norm %z, %zw eps 1.0e-5 : tensor<?x64xf32>, tensor<64xf32>
  %l = llm.linear %zn, %embed : (tensor<?x64xf32>, tensor<16x64xf32>) -> tensor<?x16xf32>
  return %l, %kv1 : tensor<?x16xf32>, !llm.kv
}
