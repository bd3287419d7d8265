//===- lathe-interp.cpp - runs a module on the reference interpreter --------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// lathe-interp model.mlir --tokens 1,2,3 prints a row of outputs for every token. Each --tokens is a sequence; all
// run in one ragged batch. A graph of onnx ops (`func @main`) runs one sequence after the other. With --generate N it goes on with
// each sequence instead and prints N token ids; --drafts K guesses them with the module's draft, and they stay the same.
//===----------------------------------------------------------------------===//
#include "Generate.h"
#include "Graph.h"
#include "lathe/InitAll.h"
#include "lathe/Interpreter/Interpreter.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Support/FileUtilities.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/ToolOutputFile.h"
#include <cmath>
#include <numeric>

using namespace mlir;
using namespace lathe::llm;

static llvm::cl::opt<std::string> input(llvm::cl::Positional, llvm::cl::desc("<module>"), llvm::cl::init("-"));
static llvm::cl::list<std::string> tokenLists("tokens", llvm::cl::desc("token ids of a sequence, separated by commas; may be repeated"));
static llvm::cl::opt<std::string> function("function", llvm::cl::desc("the step function"), llvm::cl::init("step"));
static llvm::cl::opt<unsigned> resultNumber("result", llvm::cl::desc("which result of rows to print, from 0: the heads of a draft have several"), llvm::cl::init(0));
static llvm::cl::opt<std::string> weightDirectory("weights-dir", llvm::cl::desc("where relative paths of weight files start"));
static llvm::cl::opt<bool> float64("float64", llvm::cl::desc("compute in float64"));
static llvm::cl::opt<int64_t> chunk("chunk", llvm::cl::desc("at most so many tokens of a sequence a step; 0: all"));
static llvm::cl::opt<int> threads("jobs", llvm::cl::desc("threads; results do not depend on it"), llvm::cl::init(2));
static llvm::cl::opt<bool> last("last", llvm::cl::desc("only the last row of each sequence"));
static llvm::cl::opt<int> top("top", llvm::cl::desc("print only the ids and values of the largest so many outputs of a row"));
static llvm::cl::opt<bool> json("json", llvm::cl::desc("print JSON"));
static llvm::cl::opt<std::string> raw("raw", llvm::cl::desc("write the rows to a file as float32, little-endian, instead of printing them"));
static llvm::cl::opt<int64_t> newTokens("generate", llvm::cl::desc("print so many new token ids of each sequence, each the step's largest output"));
static llvm::cl::opt<int64_t> draftPlaces("drafts", llvm::cl::desc("with --generate: guess at most so many tokens by @draft and verify them in one step"));
static llvm::cl::opt<int64_t> draftChoices("draft-choices", llvm::cl::desc("with --drafts: guesses for the first of them, a tree if more than one"), llvm::cl::init(1));
static llvm::cl::opt<bool> dumpValues("dump-values", llvm::cl::desc("print every value as it is computed"));

/// Parses "1,2,3"; reports what is not a number.
static FailureOr<std::vector<int64_t>> parseTokens(llvm::StringRef list) {
  std::vector<int64_t> tokens;
  for (llvm::StringRef item : llvm::split(list, ',')) {
    int64_t token;
    if (item.getAsInteger(10, token) || token < 0) {
      llvm::errs() << "error: --tokens: expected a list of token ids, found '" << item << "'\n";
      return failure();
    }
    tokens.push_back(token);
  }
  return tokens;
}

static void printNumber(llvm::raw_ostream &os, double value) {
  if (json && !std::isfinite(value)) // JSON has no such numbers
    os << "null";
  else
    os << llvm::format(float64 ? "%.17g" : "%.9g", value);
}

static void printRow(llvm::raw_ostream &os, const RowValues &rows, int64_t r) {
  const double *row = rows.values.data() + r * rows.cols;
  std::vector<int64_t> order(rows.cols);
  std::iota(order.begin(), order.end(), 0);
  if (top) {
    // Equal values in order of their ids, as a sampler would take them.
    llvm::sort(order, [&](int64_t a, int64_t b) { return row[a] > row[b] || (row[a] == row[b] && a < b); });
    order.resize(std::min<size_t>(order.size(), top));
  }
  llvm::interleave(order, os, [&](int64_t i) {
    if (top) os << i << ':';
    printNumber(os, row[i]);
  }, json ? "," : " ");
}

static void printResults(llvm::raw_ostream &os, const std::vector<RowValues> &sequences) {
  if (json) os << '[';
  for (auto [s, rows] : llvm::enumerate(sequences)) {
    if (json) os << (s ? ",\n[" : "[");
    for (int64_t r = 0; r < rows.rows; ++r) {
      if (json) {
        os << (r ? ",\n[" : "[");
        printRow(os, rows, r);
        os << ']';
        continue;
      }
      os << s << ' ' << (last ? int64_t(-1) : r) << ": ";
      printRow(os, rows, r);
      os << '\n';
    }
    if (json) os << ']';
  }
  if (json) os << "]\n";
}

static LogicalResult writeRaw(const std::vector<RowValues> &sequences) {
  std::string message;
  auto file = openOutputFile(raw, &message);
  if (!file) {
    llvm::errs() << "error: " << message << '\n';
    return failure();
  }
  for (const RowValues &rows : sequences)
    for (double value : rows.values) {
      float single = value;
      file->os().write(reinterpret_cast<const char *>(&single), sizeof(single));
    }
  file->keep();
  return success();
}

static void dump(Operation *op, unsigned result, const RowValues &values) {
  llvm::outs() << op->getName().getStringRef() << ' ' << op->getLoc() << " [" << values.rows << " x " << values.cols << "]\n";
  for (int64_t r = 0; r < values.rows; ++r) {
    llvm::outs() << "  ";
    printRow(llvm::outs(), values, r);
    llvm::outs() << '\n';
  }
}

/// Prints what |sequences| go on with, and of drafts what became of them.
static LogicalResult runGenerate(ModuleOp module, const InterpreterOptions &options, const std::vector<std::vector<int64_t>> &sequences) {
  auto made = generate(module, options, sequences, {newTokens, draftPlaces, draftChoices});
  if (failed(made)) return failure();
  llvm::raw_ostream &os = llvm::outs();
  if (json) os << '[';
  for (auto [s, one] : llvm::enumerate(*made)) {
    if (json)
      os << (s ? ",\n[" : "[");
    else
      os << s << ": ";
    llvm::interleave(one.tokens, os, json ? "," : " ");
    os << (json ? "]" : "\n");
  }
  if (json) os << "]\n";
  if (draftPlaces > 0)
    for (auto [s, one] : llvm::enumerate(*made))
      llvm::errs() << "sequence " << s << ": " << one.rounds << " rounds, " << one.drafts << " drafts, " << one.right << " right\n";
  return success();
}

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  llvm::cl::ParseCommandLineOptions(argc, argv, "Lathe reference interpreter\n");
  if (json && (top || dumpValues)) {
    llvm::errs() << "error: --json goes with neither --top nor --dump-values\n";
    return 1;
  }
  if (newTokens < 0 || draftPlaces < 0 || draftChoices < 1) {
    llvm::errs() << "error: expected --generate and --drafts of at least 0 and --draft-choices of at least 1, found " << newTokens << ", " << draftPlaces << " and " << draftChoices << '\n';
    return 1;
  }
  if (newTokens ? top || last || chunk || resultNumber || dumpValues || !raw.empty() || function != "step" : draftPlaces > 0) {
    llvm::errs() << (newTokens ? "error: --generate goes with none of --top, --last, --chunk, --result, --raw, --dump-values and --function\n" : "error: --drafts goes with --generate only\n");
    return 1;
  }
  std::vector<std::vector<int64_t>> sequences;
  for (const std::string &list : tokenLists) {
    auto tokens = parseTokens(list);
    if (failed(tokens)) return 1;
    sequences.push_back(std::move(*tokens));
  }
  DialectRegistry registry;
  lathe::registerAllDialects(registry);
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  std::string message;
  auto buffer = openInputFile(input, &message);
  if (!buffer) {
    llvm::errs() << "error: " << message << '\n';
    return 1;
  }
  auto sources = std::make_shared<llvm::SourceMgr>();
  sources->AddNewSourceBuffer(std::move(buffer), llvm::SMLoc());
  SourceMgrDiagnosticHandler handler(*sources, &context);
  OwningOpRef<ModuleOp> module = parseSourceFile<ModuleOp>(sources, &context);
  if (!module) return 1;
  if (module->lookupSymbol("main") && !module->lookupSymbol(function)) {
    auto results = runGraph(*module, sequences, chunk, last);
    if (failed(results)) return 1;
    if (!raw.empty()) return failed(writeRaw(*results));
    printResults(llvm::outs(), *results);
    return 0;
  }
  InterpreterOptions options;
  options.float64 = float64;
  options.threads = threads;
  options.function = function;
  options.weightDirectory = weightDirectory;
  if (newTokens) return failed(runGenerate(*module, options, sequences));
  auto interpreter = Interpreter::create(*module, options);
  if (failed(interpreter)) return 1;
  auto function = cast<func::FuncOp>(module->lookupSymbol(options.function));
  if (auto rows = llvm::count_if(function.getResultTypes(), llvm::IsaPred<RankedTensorType>); resultNumber >= rows) {
    llvm::errs() << "error: --result: expected a number below " << rows << ", found " << resultNumber << '\n';
    return 1;
  }
  if (dumpValues) (*interpreter)->trace = dump;
  auto results = runSequences(**interpreter, sequences, chunk, last, resultNumber);
  if (failed(results)) return 1;
  if (!raw.empty()) return failed(writeRaw(*results));
  printResults(llvm::outs(), *results);
  return 0;
}
