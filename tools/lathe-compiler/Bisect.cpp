//===- Bisect.cpp - lathe bisect --------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Runs two modules on the reference interpreter and names the first op whose values differ: two .mlir files, or the
// phases configure and fuse of one model.
//===----------------------------------------------------------------------===//
#include "Bisect.h"
#include "Help.h"
#include "lathe/Driver/Compile.h"
#include "lathe/InitAll.h"
#include "lathe/Interpreter/Bisect.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/JSON.h"

using namespace lathe;
using namespace mlir;
namespace cl = llvm::cl;

namespace {

cl::OptionCategory category("lathe bisect");
cl::SubCommand command("bisect", "name the first op whose values differ between two modules, or between phases of a model");
cl::list<std::string> inputs(cl::Positional, cl::desc("FIRST.mlir SECOND.mlir, or one MODEL"), cl::sub(command), cl::cat(category));
cl::list<std::string> tokenLists("tokens", cl::value_desc("1,2,..."), cl::desc("token ids of a sequence; may be given several times (default: 1,2,3,4,5,6,7,8)"), cl::sub(command), cl::cat(category));
cl::opt<double> tolerance("tolerance", cl::init(1e-4), cl::value_desc("X"), cl::desc("largest relative difference that counts as equal (default 1e-4)"), cl::sub(command), cl::cat(category));
cl::opt<bool> float64("float64", cl::desc("compute in float64 (default: float32)"), cl::sub(command), cl::cat(category));
cl::opt<int64_t> chunk("chunk", cl::value_desc("N"), cl::desc("at most so many tokens of a sequence a step (default: all)"), cl::sub(command), cl::cat(category));
cl::opt<std::string> activations("activations", cl::init("auto"), cl::value_desc("TYPE"), cl::desc("as for 'lathe compile' (default: auto)"), cl::sub(command), cl::cat(category));
cl::opt<std::string> kv("kv", cl::init("f16"), cl::value_desc("TYPE"), cl::desc("as for 'lathe compile' (default: f16)"), cl::sub(command), cl::cat(category));
cl::opt<std::string> quantize("quantize", cl::init("none"), cl::value_desc("TYPE"), cl::desc("as for 'lathe compile' (default: none)"), cl::sub(command), cl::cat(category));
cl::opt<bool> json("json", cl::desc("one line of JSON: compared, unmatched, worst and, where there is one, difference"), cl::sub(command), cl::cat(category));

int fail(const llvm::Twine &message) {
  llvm::errs() << "error: " << message << "\n";
  return 1;
}

FailureOr<std::vector<int64_t>> parseTokens(llvm::StringRef list) {
  std::vector<int64_t> tokens;
  for (llvm::StringRef item : llvm::split(list, ',')) {
    int64_t token;
    if (item.getAsInteger(10, token) || token < 0) {
      fail("--tokens: expected a list of token ids, found '" + item + "'");
      return failure();
    }
    tokens.push_back(token);
  }
  return tokens;
}

/// The module of |model| at the end of |phase|, as text.
Result<std::string> phaseText(const std::string &model, Phase phase) {
  CompileRequest request;
  request.model = model;
  request.to = phase;
  request.options.activations = activations;
  request.options.kv = kv;
  request.options.quantize = quantize;
  request.progress = [](llvm::StringRef, uint64_t, uint64_t) {};
  LATHE_ASSIGN_OR_RETURN(CompileResult result, compileModel(request));
  return std::move(result.text);
}

OwningOpRef<ModuleOp> parse(MLIRContext &context, size_t index) {
  if (inputs.size() == 2) return parseSourceFile<ModuleOp>(inputs[index], &context);
  auto text = phaseText(inputs[0], index ? Phase::fuse : Phase::configure);
  if (text.ok()) return parseSourceString<ModuleOp>(*text, &context);
  fail(text.status().message());
  return nullptr;
}

void print(const llm::BisectReport &report) {
  const auto &d = report.difference;
  if (json) {
    llvm::json::Object object{{"compared", report.compared}, {"unmatched", report.unmatched}, {"worst", report.worst}};
    if (d)
      object["difference"] = llvm::json::Object{{"name", d->name}, {"op", d->op}, {"error", d->error}, {"row", d->row}, {"column", d->column}, {"expected", d->expected}, {"found", d->found}};
    llvm::outs() << llvm::json::Value(std::move(object)) << "\n";
    return;
  }
  if (d)
    llvm::outs() << d->op << " '" << d->name << "' differs: relative error " << llvm::format("%.3g", d->error) << ", worst at row " << d->row << ", column " << d->column
                 << ": expected " << llvm::format("%.9g", d->expected) << ", found " << llvm::format("%.9g", d->found) << "\n";
  else
    llvm::outs() << "no difference\n";
  llvm::outs() << report.compared << " values compared, " << report.unmatched << " without a counterpart, largest relative error " << llvm::format("%.3g", report.worst) << "\n";
}

} // namespace

bool bisectWanted() { return bool(command); }

int bisectHelp() {
  printHelp("lathe bisect MODEL [options]\n       lathe bisect FIRST.mlir SECOND.mlir [options]",
            "Names the first operation, and the layer it is in, whose values differ between two forms of a model: as imported and with its\n"
            "numbers set, against after fusion (the phases configure and fuse), or two modules that '--compile-to' and '--dump-phases' of\n"
            "'lathe compile' wrote. Both are run by the reference interpreter on the same tokens. Exit code 0: no difference, 3: there is one.\n"
            "\n"
            "  lathe bisect model.gguf --tokens 1,2,3\n"
            "  lathe bisect phases/configure.mlir phases/fuse.mlir",
            {{"What to compare on", {tokenLists, tolerance, float64, chunk}},
             {"How MODEL is compiled", {quantize, kv, activations}},
             {"Output", {json}}},
            command, category);
  return 0;
}

int runBisect() {
  if (inputs.empty()) return fail("expected a model or two modules; see '--help'");
  if (inputs.size() > 2) return fail("expected two modules or one model, found " + llvm::Twine(inputs.size()) + " files");
  std::vector<std::vector<int64_t>> sequences;
  for (const std::string &list : tokenLists) {
    auto tokens = parseTokens(list);
    if (failed(tokens)) return 1;
    sequences.push_back(std::move(*tokens));
  }
  if (sequences.empty()) sequences.push_back({1, 2, 3, 4, 5, 6, 7, 8});
  DialectRegistry registry;
  registerAllDialects(registry);
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  OwningOpRef<ModuleOp> first = parse(context, 0);
  if (!first) return 1;
  OwningOpRef<ModuleOp> second = parse(context, 1);
  if (!second) return 1;
  llm::BisectOptions options;
  options.interpreter.float64 = float64;
  options.tolerance = tolerance;
  options.chunk = chunk;
  auto report = llm::bisect(*first, *second, sequences, options);
  if (failed(report)) return 1;
  print(*report);
  return report->difference ? 3 : 0;
}
