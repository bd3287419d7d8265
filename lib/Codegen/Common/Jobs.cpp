//===- Jobs.cpp -------------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Common/Jobs.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include <atomic>
#include <optional>
#include <thread>

namespace lathe::codegen {
using namespace mlir;

static Result<std::string> runJob(MLIRContext &context, size_t job, const char *target, const JobSteps &steps) {
  OwningOpRef<ModuleOp> module = ModuleOp::create(UnknownLoc::get(&context));
  std::string symbol = steps.symbol(job).str(), complaints;
  {
    ScopedDiagnosticHandler handler(&context, [&](Diagnostic &d) {
      llvm::raw_string_ostream os(complaints);
      os << (complaints.empty() ? "" : "; ") << d;
      return success();
    });
    if (failed(steps.emit(job, *module)))
      return makeError(StatusCode::unsupported, "kernel '%s' for %s: %s", symbol.c_str(), target, complaints.c_str());
  }
  Result<std::string> lowered = steps.lower(*module);
  if (!lowered.ok()) return lowered.status().at("kernel '" + symbol + "'");
  return lowered;
}

Result<std::vector<std::string>> runJobs(size_t count, unsigned threads, const char *target, const JobSteps &steps) {
  if (threads == 0) threads = std::max(1u, std::thread::hardware_concurrency());
  threads = unsigned(std::min<size_t>(threads, std::max<size_t>(1, count)));
  std::vector<std::optional<Result<std::string>>> results(count);
  std::atomic<size_t> next{0};
  auto work = [&] {
    MLIRContext context(MLIRContext::Threading::DISABLED);
    for (size_t i; (i = next++) < count;) results[i].emplace(runJob(context, i, target, steps));
  };
  std::vector<std::thread> team;
  for (unsigned i = 1; i < threads; ++i) team.emplace_back(work);
  work();
  for (std::thread &t : team) t.join();
  std::vector<std::string> all;
  for (auto &r : results) {
    if (!r->ok()) return r->status();
    all.push_back(std::move(**r));
  }
  return all;
}

} // namespace lathe::codegen
