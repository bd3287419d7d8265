// Weight expressions by rows: the result of token t is row t of the expression.
// RUN: lathe-interp %s --function concat --tokens 0,1,2 | FileCheck %s --check-prefix=CONCAT
// RUN: lathe-interp %s --function interleave --tokens 0,1,2,3,4,5,6,7 | FileCheck %s --check-prefix=INTER
// RUN: lathe-interp %s --function unrope --tokens 0,1,2,3 | FileCheck %s --check-prefix=UNROPE
// RUN: lathe-interp %s --function transpose --tokens 0,1 | FileCheck %s --check-prefix=TRANSPOSE
// RUN: lathe-interp %s --function add_one --tokens 0,1 | FileCheck %s --check-prefix=ADD
// RUN: lathe-interp %s --function round --tokens 0 | FileCheck %s --check-prefix=ROUND
// RUN: %python -c "import struct; open('weights.bin', 'wb').write(b'??' + struct.pack('<4e', 1, 2, 3, 0.5))" && lathe-interp %s --function file --tokens 0,1 | FileCheck %s --check-prefix=FILE
// RUN: mkdir -p %t.dir && mv weights.bin %t.dir && lathe-interp %s --function file --tokens 0,1 --weights-dir %t.dir | FileCheck %s --check-prefix=FILE

// CONCAT: 0 0: 1 2
// CONCAT-NEXT: 0 1: 5 6
// CONCAT-NEXT: 0 2: 7 8
llm.param @concat_w : tensor<3x2xf32> = #llm.concat<[dense<[[1.0, 2.0]]> : tensor<1x2xf32>, #llm.slice<dense<[[3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]> : tensor<3x2xf32>, 1, 3>]>
func.func @concat(%b: !llm.batch) -> tensor<?x2xf32> {
  %w = llm.weight @concat_w : tensor<3x2xf32>
  %x = llm.embed %b, %w : tensor<3x2xf32> -> tensor<?x2xf32>
  return %x : tensor<?x2xf32>
}

// Blocks of two rows; three rows are padded to four.
// INTER: 0 0: 1
// INTER-NEXT: 0 1: 2
// INTER-NEXT: 0 2: 11
// INTER-NEXT: 0 3: 12
// INTER-NEXT: 0 4: 3
// INTER-NEXT: 0 5: 0
// INTER-NEXT: 0 6: 13
// INTER-NEXT: 0 7: 0
llm.param @interleave_w : tensor<8x1xf32> = #llm.interleave<dense<[[1.0], [2.0], [3.0]]> : tensor<3x1xf32>, dense<[[11.0], [12.0], [13.0]]> : tensor<3x1xf32>, 2>
func.func @interleave(%b: !llm.batch) -> tensor<?x1xf32> {
  %w = llm.weight @interleave_w : tensor<8x1xf32>
  %x = llm.embed %b, %w : tensor<8x1xf32> -> tensor<?x1xf32>
  return %x : tensor<?x1xf32>
}

// UNROPE: 0 0: 10
// UNROPE-NEXT: 0 1: 30
// UNROPE-NEXT: 0 2: 20
// UNROPE-NEXT: 0 3: 40
llm.param @unrope_w : tensor<4x1xf32> = #llm.unrope<dense<[[10.0], [20.0], [30.0], [40.0]]> : tensor<4x1xf32>, 1>
func.func @unrope(%b: !llm.batch) -> tensor<?x1xf32> {
  %w = llm.weight @unrope_w : tensor<4x1xf32>
  %x = llm.embed %b, %w : tensor<4x1xf32> -> tensor<?x1xf32>
  return %x : tensor<?x1xf32>
}

// TRANSPOSE: 0 0: 1 3 5
// TRANSPOSE-NEXT: 0 1: 2 4 6
llm.param @transpose_w : tensor<2x3xf32> = #llm.transpose<dense<[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]> : tensor<3x2xf32>>
func.func @transpose(%b: !llm.batch) -> tensor<?x3xf32> {
  %w = llm.weight @transpose_w : tensor<2x3xf32>
  %x = llm.embed %b, %w : tensor<2x3xf32> -> tensor<?x3xf32>
  return %x : tensor<?x3xf32>
}

// ADD: 0 0: 1.5
// ADD-NEXT: 0 1: 0
llm.param @add_one_w : tensor<2x1xf32> = #llm.add_one<dense<[[0.5], [-1.0]]> : tensor<2x1xf32>>
func.func @add_one(%b: !llm.batch) -> tensor<?x1xf32> {
  %w = llm.weight @add_one_w : tensor<2x1xf32>
  %x = llm.embed %b, %w : tensor<2x1xf32> -> tensor<?x1xf32>
  return %x : tensor<?x1xf32>
}

// The scale of a row is its maximum / 127: 127 and 64 steps.
// ROUND: 0 0: 254 128
llm.param @round_w : tensor<1x2x!llm.q<int8>> = #llm.round<dense<[[254.0, 128.75]]> : tensor<1x2xf32>, int8>
func.func @round(%b: !llm.batch) -> tensor<?x2xf32> {
  %w = llm.weight @round_w : tensor<1x2x!llm.q<int8>>
  %x = llm.embed %b, %w : tensor<1x2x!llm.q<int8>> -> tensor<?x2xf32>
  return %x : tensor<?x2xf32>
}

// FILE: 0 0: 1 2
// FILE-NEXT: 0 1: 3 0.5
llm.param @file_w : tensor<2x2xf16> = #llm.file<"weights.bin", "w", 2, f16, [2, 2]>
func.func @file(%b: !llm.batch) -> tensor<?x2xf32> {
  %w = llm.weight @file_w : tensor<2x2xf16>
  %x = llm.embed %b, %w : tensor<2x2xf16> -> tensor<?x2xf32>
  return %x : tensor<?x2xf32>
}
