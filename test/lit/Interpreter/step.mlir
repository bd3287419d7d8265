// The same bits for every way to cut a batch, page size and thread count; window, soft cap and formats are seen.
// RUN: lathe-interp %s --tokens 0,1,2,3,4,5,6,7,0,2,4,6,1,3,5,7,7,6,5,4 --tokens 3,1 > %t.whole
// RUN: lathe-interp %s --tokens 0,1,2,3,4,5,6,7,0,2,4,6,1,3,5,7,7,6,5,4 --tokens 3,1 --chunk 1 | diff %t.whole -
// RUN: lathe-interp %s --tokens 0,1,2,3,4,5,6,7,0,2,4,6,1,3,5,7,7,6,5,4 --tokens 3,1 --chunk 7 --jobs 1 | diff %t.whole -
// RUN: sed 's/page 0/page 16/' %s | lathe-interp - --tokens 0,1,2,3,4,5,6,7,0,2,4,6,1,3,5,7,7,6,5,4 --tokens 3,1 --chunk 3 | diff %t.whole -
// RUN: sed 's/window 4/window 0/' %s | lathe-interp - --tokens 0,1,2,3,4,5,6,7,0,2,4,6,1,3,5,7,7,6,5,4 --tokens 3,1 | not diff -q %t.whole -
// RUN: lathe-interp %s --tokens 0,1,2 --tokens 3 --last | FileCheck %s --check-prefix=LAST
// RUN: lathe-interp %s --tokens 0,1,2 --tokens 3 --json | FileCheck %s --check-prefix=JSON
// RUN: lathe-interp %s --tokens 0,1 --top 2 | FileCheck %s --check-prefix=TOP
// RUN: lathe-interp %s --tokens 0,1 --float64 | FileCheck %s --check-prefix=DOUBLE
// RUN: lathe-interp %s --tokens 0,1 --raw %t.raw && wc -c < %t.raw | FileCheck %s --check-prefix=RAW
// RUN: lathe-interp %s --tokens 0,1 --dump-values | FileCheck %s --check-prefix=DUMP

// LAST: 0 -1: {{.*}}
// LAST-NEXT: 1 -1: {{.*}}
// JSON: {{^}}[{{\[\[}}{{[-0-9.e]+,}}
// TOP: 0 0: {{[0-3]:[-0-9.e]+ [0-3]:[-0-9.e]+$}}
// DOUBLE: 0 0: {{-?[0-9][.][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9][0-9]}}
// RAW: {{^ *}}32{{$}}
// DUMP: llm.embed loc("embed") [2 x 4]
// DUMP-NEXT: {{^  -?[0-9]}}
// DUMP: llm.quantize

llm.param @w : tensor<8x4xf32> = dense<[[0.5, -1.0, 0.25, 2.0], [1.0, 0.0, -0.5, 1.5], [-1.0, 1.0, 0.75, 0.1], [0.3, -0.2, 0.6, -0.9],
                                        [0.9, 0.8, -0.7, 0.6], [-0.4, 0.3, 0.2, 0.1], [1.1, -1.2, 1.3, 1.4], [0.0, 0.5, -1.0, 0.5]]> : tensor<8x4xf32>
llm.param @m : tensor<4x4xf32> = #llm.slice<dense<[[0.5, -1.0, 0.25, 2.0], [1.0, 0.0, -0.5, 1.5], [-1.0, 1.0, 0.75, 0.1], [0.3, -0.2, 0.6, -0.9], [9.0, 9.0, 9.0, 9.0]]> : tensor<5x4xf32>, 0, 4>
llm.kv_group @kv layers [#llm.kv_layer<1, 2, 2>, #llm.kv_layer<1, 2, 2>] key int8 value f16 window 4 page 0
func.func @step(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x4xf32>, !llm.kv) {
  %w = llm.weight @w : tensor<8x4xf32>
  %m = llm.weight @m : tensor<4x4xf32>
  %x = llm.embed %b, %w : tensor<8x4xf32> -> tensor<?x4xf32> loc("embed")
  %k = llm.columns %x from 0 : tensor<?x4xf32> -> tensor<?x2xf32>
  %v = llm.columns %x from 2 : tensor<?x4xf32> -> tensor<?x2xf32>
  %kv1 = llm.kv.append %kv, %k, %v, %b group @kv layer 0 : tensor<?x2xf32>, tensor<?x2xf32>
  %kv2 = llm.kv.append %kv1, %v, %k, %b group @kv layer 1 : tensor<?x2xf32>, tensor<?x2xf32>
  // Reads the cache from before the second append: it has to be a copy.
  %o = llm.attention %x, %kv1, %b group @kv layer 0 heads 2 scale 0.7 {softcap = 2.0 : f32} : tensor<?x4xf32> -> tensor<?x4xf32>
  %p = llm.attention %o, %kv2, %b group @kv layer 1 heads 2 scale 0.7 : tensor<?x4xf32> -> tensor<?x4xf32>
  %q = llm.quantize %p : tensor<?x4xf32> -> tensor<?x4x!llm.act<int8z>>
  %y = llm.linear %q, %m : (tensor<?x4x!llm.act<int8z>>, tensor<4x4xf32>) -> tensor<?x4xf32>
  return %y, %kv2 : tensor<?x4xf32>, !llm.kv
}
