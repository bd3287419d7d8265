//===- Phases.cpp - the pass pipeline, phase by phase ------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Speculate.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/ToolOutputFile.h"

using namespace mlir;

namespace lathe {

static constexpr const char *phaseNames[] = {"import", "raise", "configure", "fuse", "kernels", "plan", "package"};

const char *phaseName(Phase phase) { return phaseNames[int(phase)]; }

Result<Phase> parsePhase(const std::string &name) {
  for (int i = 0; i < 7; ++i)
    if (name == phaseNames[i]) return Phase(i);
  return makeError(StatusCode::invalidArgument, "unknown phase '%s', expected import, raise, configure, fuse, kernels, plan or package", name.c_str());
}

/// The passes of one phase as a pipeline string: what --dump-phases and lathe-opt can repeat.
static std::string pipelineOf(Phase phase, const CompileOptions &o) {
  auto enabled = [&](const char *pass) { return llvm::find(o.disabled, pass) == o.disabled.end(); };
  std::string text;
  auto add = [&](const std::string &pass) { text += (text.empty() ? "" : ",") + pass; };
  switch (phase) {
  case Phase::import:
  case Phase::package:
    break;
  case Phase::raise:
    add("onnx-raise{max-seq=" + std::to_string(o.maxSeq) + " remarks=" + (o.remarks ? "true" : "false") + "}");
    break;
  case Phase::configure:
    if (auto draft = parseSpeculate(o.speculate); draft.ok() && !draft->method.empty()) add(draft->pass());
    if (o.quantize != "none") {
      // int4z-g32 is int4-g32 with a minimum per group.
      bool asymmetric = StringRef(o.quantize).starts_with("int4z");
      std::string type = asymmetric ? "int4" + o.quantize.substr(5) : o.quantize;
      std::string skip = llvm::join(o.quantizeSkip, ",");
      add("llm-quantize{type=" + type + (asymmetric ? " asymmetric=true" : "") + (skip.empty() ? "" : " skip=" + skip) + "}");
    }
    add("func.func(llm-set-activations{format=" + o.activations + "})");
    add("llm-set-kv{key=" + o.kv + " value=" + o.kv + "}");
    add("llm-page-kv{page=" + std::to_string(o.page) + "}");
    add("func.func(cse)"); // one llm.angles a step
    break;
  case Phase::fuse:
    if (enabled("llm-merge-linears")) add("llm-merge-linears");
    // Rotation before the norms: a head norm belongs to its rotation.
    for (const char *pass : {"llm-fuse-glu", "llm-fuse-activate", "llm-fuse-residual", "llm-fuse-rope-append", "llm-fuse-attention-quantize",
                             "llm-fuse-norm"})
      if (enabled(pass)) add("func.func(" + std::string(pass) + ")");
    // Last: it gives the step a second result.
    if (enabled("llm-fuse-head")) add(o.gpu ? "func.func(llm-fuse-head{epilogue=false})" : "func.func(llm-fuse-head)");
    break;
  case Phase::kernels:
    add("llm-to-kernel");
    break;
  case Phase::plan:
    add("kernel-to-plan{max-rows=" + std::to_string(o.maxRows) + " max-seq=" + std::to_string(o.maxSeq) + (o.gpu ? " gpu=true}" : "}"));
    add("plan-verify");
    break;
  }
  return "builtin.module(" + text + ")";
}

std::vector<std::string> fusionPasses() {
  // The pipeline itself is the list.
  std::string text = pipelineOf(Phase::fuse, {});
  std::vector<std::string> names;
  for (StringRef rest = text;;) {
    rest = rest.substr(rest.find("llm-"));
    if (rest.empty()) return names;
    StringRef name = rest.take_while([](char c) { return c == '-' || llvm::isAlnum(c); });
    names.push_back(name.str());
    rest = rest.drop_front(name.size());
  }
}

CompileOptions gpuOptions(const CompileOptions &options) {
  CompileOptions o = options;
  o.gpu = true;
  if (o.activations == "auto") o.activations = "bf16";
  return o;
}

static Status dump(ModuleOp module, Phase phase, const std::string &directory, bool gpu) {
  if (directory.empty()) return Status();
  if (auto error = llvm::sys::fs::create_directories(directory))
    return makeError(StatusCode::invalidArgument, "cannot create '%s': %s", directory.c_str(), error.message().c_str());
  std::string path = directory + "/" + phaseName(phase) + (gpu ? ".gpu.mlir" : ".mlir");
  std::error_code error;
  llvm::raw_fd_ostream os(path, error);
  if (error) return makeError(StatusCode::invalidArgument, "cannot write '%s': %s", path.c_str(), error.message().c_str());
  OpPrintingFlags flags;
  module.print(os, flags.enableDebugInfo(true, false).useLocalScope());
  return Status();
}

Status runPhases(ModuleOp module, Phase from, Phase to, const CompileOptions &options) {
  if (from == Phase::import) LATHE_RETURN_IF_ERROR(dump(module, from, options.dumpDirectory, options.gpu));
  for (int p = int(from) + 1; p <= int(to) && p <= int(Phase::plan); ++p) {
    Phase phase = Phase(p);
    std::string text = pipelineOf(phase, options), error;
    llvm::raw_string_ostream errors(error);
    auto manager = parsePassPipeline(text, errors);
    if (failed(manager)) return makeError(StatusCode::internal, "pipeline '%s': %s", text.c_str(), error.c_str());
    PassManager pm(module.getContext());
    static_cast<OpPassManager &>(pm) = std::move(*manager);
    if (failed(pm.run(module))) return makeError(StatusCode::invalidArgument, "phase '%s' failed", phaseName(phase));
    LATHE_RETURN_IF_ERROR(dump(module, phase, options.dumpDirectory, options.gpu));
  }
  return Status();
}

} // namespace lathe
