// What the interpreter refuses, with the place.
// RUN: not lathe-interp %s --tokens 7 2>&1 | FileCheck %s --check-prefix=TOKEN
// RUN: not lathe-interp %s --function missing 2>&1 | FileCheck %s --check-prefix=MISSING
// RUN: not lathe-interp %s --function bad_argument 2>&1 | FileCheck %s --check-prefix=ARGUMENT
// RUN: not lathe-interp %s --function no_rows 2>&1 | FileCheck %s --check-prefix=ROWS
// RUN: not lathe-interp %s --function two_blocks 2>&1 | FileCheck %s --check-prefix=BLOCKS
// RUN: not lathe-interp %s --function unknown --tokens 1 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// RUN: not lathe-interp %s --function history --tokens 1 2>&1 | FileCheck %s --check-prefix=HISTORY
// RUN: not lathe-interp %s --function no_file --tokens 1 2>&1 | FileCheck %s --check-prefix=NOFILE
// RUN: not lathe-interp %s --function positions --tokens 0,0,0 2>&1 | FileCheck %s --check-prefix=POSITION
// RUN: printf 1234567 > %t.short && sed 's|nowhere.bin|%t.short|' %s | not lathe-interp - --function no_file --tokens 1 2>&1 | FileCheck %s --check-prefix=SHORT
// RUN: not lathe-interp %s --function rows_as_weight --tokens 0 2>&1 | FileCheck %s --check-prefix=ASWEIGHT
// RUN: not lathe-interp %s --function weight_as_rows --tokens 0 2>&1 | FileCheck %s --check-prefix=ASROWS
// RUN: not lathe-interp %s --function weight_result --tokens 0 2>&1 | FileCheck %s --check-prefix=RESULT
// RUN: not lathe-interp %s --tokens 1,x 2>&1 | FileCheck %s --check-prefix=LIST
// RUN: not lathe-interp %s --tokens 1 --json --top 1 2>&1 | FileCheck %s --check-prefix=JSON
// RUN: not lathe-interp no-such-file.mlir 2>&1 | FileCheck %s --check-prefix=INPUT

// LIST: error: --tokens: expected a list of token ids, found 'x'
// JSON: error: --json goes with neither --top nor --dump-values
// INPUT: error: {{.*}}no-such-file.mlir
// MISSING: error: expected a function 'missing' with a body

llm.param @w : tensor<2x2xf32> = dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>
llm.param @f : tensor<2x2xf32> = #llm.file<"nowhere.bin", "blk.0.w", 0, f32, [2, 2]>
llm.kv_group @kv layers [#llm.kv_layer<1, 2, 2>] key f32 value f32 window 0 page 0

func.func @step(%b: !llm.batch) -> tensor<?x2xf32> {
  %w = llm.weight @w : tensor<2x2xf32>
  // TOKEN: [[@LINE+1]]:8: error: 'llm.embed' op row 0: expected a token below 2, found 7
  %x = llm.embed %b, %w : tensor<2x2xf32> -> tensor<?x2xf32>
  return %x : tensor<?x2xf32>
}

// ARGUMENT: [[@LINE+1]]:1: error: expected arguments of types !llm.batch and !llm.kv, found 'i32'
func.func @bad_argument(%b: i32) { return }
// ROWS: [[@LINE+1]]:1: error: expected a result of rows
func.func @no_rows(%b: !llm.batch) { return }
// BLOCKS: [[@LINE+1]]:1: error: expected a single block
func.func @two_blocks(%b: !llm.batch, %x: tensor<?x2xf32>) -> tensor<?x2xf32> {
  llvm.br ^next
^next:
  return %x : tensor<?x2xf32>
}

func.func @unknown(%b: !llm.batch) -> tensor<?x2xf32> {
  %w = llm.weight @w : tensor<2x2xf32>
  %x = llm.embed %b, %w : tensor<2x2xf32> -> tensor<?x2xf32>
  // UNKNOWN: [[@LINE+1]]:8: error: 'arith.addf' op the interpreter does not know this op
  %y = arith.addf %x, %x : tensor<?x2xf32>
  return %y : tensor<?x2xf32>
}

func.func @history(%b: !llm.batch, %kv: !llm.kv) -> (tensor<?x2xf32>, !llm.kv) {
  %w = llm.weight @w : tensor<2x2xf32>
  %x = llm.embed %b, %w : tensor<2x2xf32> -> tensor<?x2xf32>
  // HISTORY: [[@LINE+1]]:8: error: 'llm.attention' op expected entries 0 .. 0 of sequence 0, entry 0 was never appended
  %y = llm.attention %x, %kv, %b group @kv layer 0 heads 1 scale 1.0 : tensor<?x2xf32> -> tensor<?x2xf32>
  return %y, %kv : tensor<?x2xf32>, !llm.kv
}


func.func @no_file(%b: !llm.batch) -> tensor<?x2xf32> {
  %w = llm.weight @f : tensor<2x2xf32>
  // NOFILE: [[@LINE+2]]:8: error: 'llm.embed' op {{.*}}nowhere.bin
  // SHORT: [[@LINE+1]]:8: error: 'llm.embed' op tensor 'blk.0.w': expected 16 bytes at offset 0 of '{{.*}}', file ends at 7
  %x = llm.embed %b, %w : tensor<2x2xf32> -> tensor<?x2xf32>
  return %x : tensor<?x2xf32>
}

func.func @positions(%b: !llm.batch) -> tensor<?x2xf32> {
  %w = llm.weight @w : tensor<2x2xf32>
  // POSITION: [[@LINE+1]]:8: error: 'llm.embed' op row 2: expected a position below 2, found 2
  %x = llm.embed %b, %w positions : tensor<2x2xf32> -> tensor<?x2xf32>
  return %x : tensor<?x2xf32>
}

func.func @rows_as_weight(%b: !llm.batch) -> tensor<?x2xf32> {
  %w = llm.weight @w : tensor<2x2xf32>
  %x = llm.embed %b, %w : tensor<2x2xf32> -> tensor<?x2xf32>
  // ASWEIGHT: [[@LINE+1]]:8: error: 'llm.embed' op operand 1: expected a weight made by llm.weight
  %y = llm.embed %b, %x : tensor<?x2xf32> -> tensor<?x2xf32>
  return %y : tensor<?x2xf32>
}

func.func @weight_as_rows(%b: !llm.batch) -> tensor<2x2xf32> {
  %w = llm.weight @w : tensor<2x2xf32>
  // ASROWS: [[@LINE+1]]:8: error: 'llm.add' op operand 0: expected rows, found a weight
  %y = llm.add %w, %w : tensor<2x2xf32>
  return %y : tensor<2x2xf32>
}

// RESULT: [[@LINE+1]]:1: error: expected rows as a result, found a weight
func.func @weight_result(%b: !llm.batch) -> tensor<2x2xf32> {
  %w = llm.weight @w : tensor<2x2xf32>
  return %w : tensor<2x2xf32>
}
