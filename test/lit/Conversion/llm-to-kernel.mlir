// A small Llama layer, with the fused ops that the passes make and a head.
// RUN: lathe-opt %s --llm-to-kernel --verify-roundtrip | FileCheck %s
// RUN: lathe-opt %s --llm-to-kernel --kernel-to-plan="max-rows=64 max-seq=1024 split-rows=16" --plan-verify --verify-roundtrip | FileCheck %s --check-prefix=PLAN
// Attention is split for steps of up to 64 rows, fewer where partials would take more than 64 MB (a row 2 MB here), and of up to 16 on a GPU.
// RUN: lathe-opt %s --llm-to-kernel --kernel-to-plan="max-rows=128 max-seq=1024" --plan-verify | FileCheck %s --check-prefix=SPLIT
// RUN: lathe-opt %s --llm-to-kernel --kernel-to-plan="max-rows=128 max-seq=1300000" --plan-verify | FileCheck %s --check-prefix=LONG
// RUN: lathe-opt %s --llm-to-kernel --kernel-to-plan="max-rows=128 max-seq=4000000" --plan-verify | FileCheck %s --check-prefix=LONGER
// RUN: lathe-opt %s --llm-to-kernel --kernel-to-plan="max-rows=128 max-seq=1024 gpu=true" --plan-verify | FileCheck %s --check-prefix=GPU

llm.kv_group @kv layers [#llm.kv_layer<1, 32, 32>] key f16 value f16 window 0 page 16
llm.param @e : tensor<96x64x!llm.q<q8_0>> = #llm.file<"m.gguf", "e", 0, q8_0, [96, 64]>
llm.param @q : tensor<64x64x!llm.q<q4_1>> = #llm.file<"m.gguf", "q", 0, q4_1, [64, 64]>
llm.param @k : tensor<32x64x!llm.q<q4_1>> = #llm.file<"m.gguf", "k", 0, q4_1, [32, 64]>
llm.param @v : tensor<32x64x!llm.q<q8_0>> = #llm.file<"m.gguf", "v", 0, q8_0, [32, 64]>
llm.param @n : tensor<64xf32> = #llm.file<"m.gguf", "n", 0, f32, [64]>
llm.param @f : tensor<16xf32> = dense<1.0> : tensor<16xf32>

// Each weight once: the tied embedding is the head's weight too.
// CHECK-DAG: kernel.packed @packed.e params [@e] storage q8_0 n 96 k 64 interleave 0
// CHECK-DAG: kernel.packed @packed.q.1 params [@q, @q] storage q4_1 n 128 k 64 interleave 32
// CHECK-DAG: kernel.vector @vector.n params [@n] n 1 k 64
// CHECK-LABEL: func.func @step(%{{.*}}: !llm.kv)
func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x96xf32>, !llm.kv) {
  %e = llm.weight @e : tensor<96x64x!llm.q<q8_0>>
  %wq = llm.weight @q : tensor<64x64x!llm.q<q4_1>>
  %wk = llm.weight @k : tensor<32x64x!llm.q<q4_1>>
  %wv = llm.weight @v : tensor<32x64x!llm.q<q8_0>>
  %n = llm.weight @n : tensor<64xf32>
  %f = llm.weight @f : tensor<16xf32>
  // CHECK: %[[X:.*]] = kernel.gather @packed.e scale 1.0{{.*}} -> <64, 64>
  %x = llm.embed %b, %e : tensor<96x64x!llm.q<q8_0>> -> tensor<?x64xf32>
  // CHECK: %[[ANGLES:.*]] = kernel.angles @vector.f
  %a = llm.angles %b, %f : tensor<16xf32> -> tensor<?x32xf32>
  // CHECK: %[[H:.*]] = kernel.norm %[[X]] weight @vector.n {{.*}} -> !kernel.act<64, int8>
  %h = llm.fused "norm" (%x, %n) : (tensor<?x64xf32>, tensor<64xf32>) -> tensor<?x64x!llm.act<int8>> {
  ^bb0(%i: tensor<?x64xf32>, %w: tensor<64xf32>):
    %y = llm.rms_norm %i, %w eps 1.0e-5 : tensor<?x64xf32>, tensor<64xf32>
    %z = llm.quantize %y : tensor<?x64xf32> -> tensor<?x64x!llm.act<int8>>
    llm.yield %z : tensor<?x64x!llm.act<int8>>
  }
  // Segments of two storages fill one buffer.
  // CHECK: %[[QKV:.*]] = kernel.matmul %[[H]] weights [@packed.q{{.*}}, @packed.k, @packed.v] columns [0, 64, 96] bias [] : {{.*}} -> !kernel.rows<128, 128>
  %qkv = llm.linear %h, %wq, %wk, %wv : (tensor<?x64x!llm.act<int8>>, tensor<64x64x!llm.q<q4_1>>, tensor<32x64x!llm.q<q4_1>>, tensor<32x64x!llm.q<q8_0>>) -> tensor<?x128xf32>
  // CHECK: %[[Q:.*]] = kernel.view %[[QKV]] from 0
  // CHECK: %[[K:.*]] = kernel.view %[[QKV]] from 64
  // CHECK: %[[V:.*]] = kernel.view %[[QKV]] from 96
  %qc = llm.columns %qkv from 0 : tensor<?x128xf32> -> tensor<?x64xf32>
  %kc = llm.columns %qkv from 64 : tensor<?x128xf32> -> tensor<?x32xf32>
  %vc = llm.columns %qkv from 96 : tensor<?x128xf32> -> tensor<?x32xf32>
  // CHECK: "kernel.rope_append"(%[[Q]], %[[K]], %[[V]], %[[ANGLES]]
  %qr, %kv1 = llm.fused "rope_append" (%qc, %kc, %vc, %a, %kv, %b) : (tensor<?x64xf32>, tensor<?x32xf32>, tensor<?x32xf32>, tensor<?x32xf32>, !llm.kv, !llm.batch) -> (tensor<?x64xf32>, !llm.kv) {
  ^bb0(%i: tensor<?x64xf32>, %j: tensor<?x32xf32>, %l: tensor<?x32xf32>, %t: tensor<?x32xf32>, %c: !llm.kv, %d: !llm.batch):
    %r = llm.rope %i, %t heads 2 : tensor<?x64xf32>, tensor<?x32xf32>
    %s = llm.rope %j, %t heads 1 : tensor<?x32xf32>, tensor<?x32xf32>
    %u = llm.kv.append %c, %s, %l, %d group @kv layer 0 : tensor<?x32xf32>, tensor<?x32xf32>
    llm.yield %r, %u : tensor<?x64xf32>, !llm.kv
  }
  // CHECK: %[[O:.*]] = kernel.attention {{.*}} -> !kernel.act<64, int8>
  %o = llm.fused "attention" (%qr, %kv1, %b) : (tensor<?x64xf32>, !llm.kv, !llm.batch) -> tensor<?x64x!llm.act<int8>> {
  ^bb0(%i: tensor<?x64xf32>, %c: !llm.kv, %d: !llm.batch):
    %y = llm.attention %i, %c, %d group @kv layer 0 heads 2 scale 0.125 : tensor<?x64xf32> -> tensor<?x64xf32>
    %z = llm.quantize %y : tensor<?x64xf32> -> tensor<?x64x!llm.act<int8>>
    llm.yield %z : tensor<?x64x!llm.act<int8>>
  }
  // CHECK: %[[X1:.*]] = kernel.matmul %[[O]] residual %[[X]]
  %x1 = llm.fused "residual_linear" (%o, %wq, %x) : (tensor<?x64x!llm.act<int8>>, tensor<64x64x!llm.q<q4_1>>, tensor<?x64xf32>) -> tensor<?x64xf32> {
  ^bb0(%i: tensor<?x64x!llm.act<int8>>, %w: tensor<64x64x!llm.q<q4_1>>, %r: tensor<?x64xf32>):
    %y = llm.linear %i, %w : (tensor<?x64x!llm.act<int8>>, tensor<64x64x!llm.q<q4_1>>) -> tensor<?x64xf32>
    %z = llm.add %r, %y : tensor<?x64xf32>
    llm.yield %z : tensor<?x64xf32>
  }
  // CHECK: kernel.matmul {{.*}} weights [@packed.q.1] columns [0] bias [] glu silu
  %q1 = llm.quantize %x1 : tensor<?x64xf32> -> tensor<?x64x!llm.act<int8>>
  %g = llm.fused "glu_linear" (%q1, %wq, %wq) : (tensor<?x64x!llm.act<int8>>, tensor<64x64x!llm.q<q4_1>>, tensor<64x64x!llm.q<q4_1>>) -> tensor<?x64x!llm.act<int8>> {
  ^bb0(%i: tensor<?x64x!llm.act<int8>>, %w: tensor<64x64x!llm.q<q4_1>>, %u: tensor<64x64x!llm.q<q4_1>>):
    %y = llm.linear %i, %w : (tensor<?x64x!llm.act<int8>>, tensor<64x64x!llm.q<q4_1>>) -> tensor<?x64xf32>
    %z = llm.linear %i, %u : (tensor<?x64x!llm.act<int8>>, tensor<64x64x!llm.q<q4_1>>) -> tensor<?x64xf32>
    %s = llm.glu silu %y, %z : tensor<?x64xf32>
    %t = llm.quantize %s : tensor<?x64xf32> -> tensor<?x64x!llm.act<int8>>
    llm.yield %t : tensor<?x64x!llm.act<int8>>
  }
  %x2 = llm.linear %g, %wq : (tensor<?x64x!llm.act<int8>>, tensor<64x64x!llm.q<q4_1>>) -> tensor<?x64xf32>
  %x3 = llm.add %x1, %x2 : tensor<?x64xf32>
  // CHECK: kernel.loops
  // CHECK: arith.addf
  %s = llm.select_rows %x3, %b : tensor<?x64xf32>
  // CHECK: kernel.norm {{.*}} select : <64, 64> -> !kernel.rows<64, 64, true>
  %m = llm.rms_norm %s, %n eps 1.0e-5 : tensor<?x64xf32>, tensor<64xf32>
  %mq = llm.quantize %m : tensor<?x64xf32> -> tensor<?x64x!llm.act<int8z>>
  %logits = llm.linear %mq, %e : (tensor<?x64x!llm.act<int8z>>, tensor<96x64x!llm.q<q8_0>>) -> tensor<?x96xf32>
  // The rows behind the norm once more, for embeddings.
  // CHECK: %[[EMBED:.*]] = kernel.norm {{.*}} select : <64, 64> -> !kernel.rows<64, 64, true>
  // CHECK: kernel.output hidden {{.*}} logits {{.*}} embedding %[[EMBED]]
  return %logits, %kv1 : tensor<?x96xf32>, !llm.kv
}

// SPLIT: plan.entry "step"
// SPLIT-NEXT: plan.bucket 64
// SPLIT-COUNT-2: "attention"
// SPLIT: plan.bucket 128
// SPLIT-COUNT-1: "attention"
// SPLIT-NOT: "attention"
// SPLIT: plan.entry "head"
// LONG: plan.entry "step"
// LONG-NEXT: plan.bucket 32
// LONG: plan.bucket 128
// LONGER: plan.entry "step"
// LONGER-NEXT: plan.bucket 16
// LONGER: plan.bucket 128
// GPU: plan.entry "step"
// GPU-NEXT: plan.bucket 8
// GPU: plan.bucket 16
// GPU-COUNT-2: "attention"
// GPU: plan.bucket 32
// GPU-COUNT-1: "attention"
// GPU-NOT: "attention"
// GPU: plan.bucket 64
// PLAN: plan.program max_rows 64 max_out_rows 64 max_seq 1024 vocabulary 96 hidden 64
// PLAN-DAG: plan.kernel @k0_gather family "gather"
// PLAN-DAG: form = 1
// PLAN-DAG: form = 2
// PLAN: plan.kv_group @kv kind 0 window 0 page 16 layers 1 block_bytes 2048
// PLAN: plan.entry "step"
// PLAN: plan.bucket 16
// PLAN: plan.bucket 64
// PLAN: plan.entry "head"
// PLAN: plan.bucket 64
// PLAN: plan.entry "embed"
// PLAN-NEXT: plan.bucket 64
// PLAN-NEXT: plan.launch {{.*}} @{{k.*_norm}} [@b{{[0-9]+}}, {{.*}} items 2 x 1
// PLAN-NOT: plan.launch
