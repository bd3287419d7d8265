// What the interpreter refuses of drafts that take hidden rows.
// RUN: not lathe-interp %s --function draft --tokens 1 2>&1 | FileCheck %s --check-prefix=SELECTS
// RUN: not lathe-interp %S/../Transforms/speculate-medusa.mlir --function second --result 1 --tokens 1 2>&1 | FileCheck %s --check-prefix=NUMBER
// RUN: sed 's/@step/@other/' %s | not lathe-interp - --function draft --tokens 1 2>&1 | FileCheck %s --check-prefix=STEP
// The step of the lines behind "OTHER" has rows of another width.
// RUN: (grep -v '@draft' %s; sed -n 's,^//OTHER ,,p' %s) | not lathe-interp - --function draft --tokens 1 2>&1 | FileCheck %s --check-prefix=ROWS

// SELECTS: error: expected one llm.select_rows in the step of a draft that takes rows, found 0
// NUMBER: error: --result: expected a number below 1, found 1
// STEP: error: expected a function 'step' whose hidden rows this one takes
// ROWS: error: expected rows of type 'tensor<?x2xf32>', found 'tensor<?x3xf32>'

llm.param @w : tensor<2x2xf32> = dense<[[1.0, 2.0], [3.0, 4.0]]> : tensor<2x2xf32>
func.func @draft(%b: !llm.batch, %r: tensor<?x2xf32>) -> tensor<?x2xf32> { return %r : tensor<?x2xf32> } // @draft
func.func @step(%b: !llm.batch) -> tensor<?x2xf32> {
  %w = llm.weight @w : tensor<2x2xf32>
  %x = llm.embed %b, %w : tensor<2x2xf32> -> tensor<?x2xf32>
  %y = llm.scale %x by 2.0 : tensor<?x2xf32>
//OTHER   %s = llm.select_rows %y, %b : tensor<?x2xf32>
//OTHER   return %s : tensor<?x2xf32>
//OTHER }
//OTHER func.func @draft(%b: !llm.batch, %r: tensor<?x3xf32>) -> tensor<?x3xf32> { return %r : tensor<?x3xf32> }
  return %y : tensor<?x2xf32> // @draft
} // @draft
