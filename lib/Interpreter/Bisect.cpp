//===- Bisect.cpp - the first op whose values differ ------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "lathe/Interpreter/Bisect.h"
#include "dialects/LLM/LLM.h"
#include "mlir/IR/Location.h"
#include "llvm/ADT/StringMap.h"
#include <cmath>

using namespace mlir;

namespace lathe::llm {
namespace {

/// Counts the values of a step under their keys.
struct Keys {
  llvm::StringMap<int> seen;

  /// "name op ordinal", or nothing for a value without a name of its own.
  std::optional<std::string> of(Operation *op, unsigned result) {
    auto named = dyn_cast<NameLoc>(op->getLoc());
    if (!named || isa<FusedOp>(op)) return std::nullopt;
    StringRef kind = isa<ColumnsOp>(op) ? LinearOp::getOperationName() : op->getName().getStringRef();
    std::string key = (named.getName().getValue() + " " + kind + " " + llvm::Twine(result)).str();
    return key + " " + std::to_string(seen[key]++);
  }
};

struct Kept {
  RowValues values;
  Location location;
};

/// Relative difference, and the place where it is worst.
Difference compare(const RowValues &a, const RowValues &b, Location first, Location second) {
  Difference d{"", "", first, second, 0, 0, 0, 0, 0};
  double squares = 0, differences = 0, worst = -1;
  for (size_t i = 0; i < a.values.size(); ++i) {
    double delta = std::fabs(a.values[i] - b.values[i]);
    squares += a.values[i] * a.values[i];
    differences += delta * delta;
    if (delta > worst || (std::isnan(delta) && !std::isnan(worst))) {
      worst = delta;
      d.row = i / a.cols, d.column = i % a.cols, d.expected = a.values[i], d.found = b.values[i];
    }
  }
  d.error = differences == 0 ? 0 : std::sqrt(differences / squares);
  return d;
}

} // namespace

FailureOr<BisectReport> bisect(ModuleOp first, ModuleOp second, const std::vector<std::vector<int64_t>> &sequences,
                               const BisectOptions &options) {
  auto reference = Interpreter::create(first, options.interpreter), other = Interpreter::create(second, options.interpreter);
  if (failed(reference) || failed(other)) return failure();
  BisectReport report;
  size_t longest = 0;
  for (auto &tokens : sequences) longest = std::max(longest, tokens.size());
  int64_t chunk = options.chunk ? options.chunk : std::max<int64_t>(1, longest);
  for (int64_t begin = 0; begin < int64_t(longest); begin += chunk) {
    StepBatch batch = chunkOf(sequences, begin, chunk);
    llvm::StringMap<Kept> kept;
    Keys firstKeys, secondKeys;
    (*reference)->trace = [&](Operation *op, unsigned result, const RowValues &values) {
      if (auto key = firstKeys.of(op, result)) kept.insert({*key, Kept{values, op->getLoc()}});
    };
    (*other)->trace = [&](Operation *op, unsigned result, const RowValues &values) {
      if (report.difference) return;
      auto key = secondKeys.of(op, result);
      auto found = key ? kept.find(*key) : kept.end();
      if (found == kept.end() || found->second.values.rows != values.rows || found->second.values.cols != values.cols) {
        ++report.unmatched;
        return;
      }
      ++report.compared;
      Difference d = compare(found->second.values, values, found->second.location, op->getLoc());
      report.worst = std::max(report.worst, d.error);
      if (d.error <= options.tolerance) return;
      d.name = cast<NameLoc>(op->getLoc()).getName().str();
      d.op = op->getName().getStringRef().str();
      report.difference = d;
    };
    if (failed((*reference)->step(batch)) || failed((*other)->step(batch))) return failure();
    if (report.difference) break;
  }
  return report;
}

} // namespace lathe::llm
