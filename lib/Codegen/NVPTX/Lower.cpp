//===- Lower.cpp - MLIR to PTX in this process --------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// No gpu dialect and no libdevice: kernels are llvm.func with nvvm.kernel, math ops become LLVM intrinsics that NVPTX has
// instructions for, and nothing is contracted, so PTX carries the rounding of every operation as written.
//===----------------------------------------------------------------------===//
#include "NVPTX/Lower.h"
#include "Common/Jobs.h"
#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/NVVMToLLVM/NVVMToLLVM.h"
#include "mlir/Conversion/ReconcileUnrealizedCasts/ReconcileUnrealizedCasts.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVMPass.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/NVVM/NVVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include <algorithm>
#include <optional>

namespace lathe::codegen::nvptx {
using namespace mlir;

/// The instructions of inline PTX: of each statement, without labels, predicates and declarations, its first word.
static SmallVector<StringRef> instructionsOf(StringRef text) {
  SmallVector<StringRef> names, statements;
  text.split(statements, ';');
  for (StringRef s : statements) {
    for (bool more = true; more;) {
      s = s.ltrim("{} \t\n");
      size_t label = s.find(':');
      more = label != StringRef::npos && llvm::all_of(s.take_front(label), [](char c) { return llvm::isAlnum(c) || c == '_'; });
      if (more) s = s.drop_front(label + 1);
    }
    if (s.consume_front("@")) s = s.drop_until(llvm::isSpace).ltrim();
    StringRef word = s.take_until(llvm::isSpace);
    if (!word.empty() && !word.starts_with(".reg") && !word.starts_with("//")) names.push_back(word);
  }
  return names;
}

/// Every op that names an NVIDIA instruction must be in the table, and the chip must have it.
static LogicalResult checkCapabilities(ModuleOp module, const Chip &chip) {
  WalkResult result = module.walk([&](Operation *op) -> WalkResult {
    SmallVector<StringRef> names{op->getName().getStringRef()};
    if (auto call = dyn_cast<LLVM::CallIntrinsicOp>(op)) names = {call.getIntrin()};
    auto inlined = dyn_cast<LLVM::InlineAsmOp>(op);
    if (inlined) names = instructionsOf(inlined.getAsmString());
    for (StringRef name : names) {
      if (!inlined && !name.contains("nvvm.")) continue;
      std::optional<Feature> needed = inlined ? requiredFeature(("nvvm." + name).str()) : requiredFeature(name);
      if (!needed) return op->emitError() << "'" << name << "' is not in the capability table";
      if (*needed != Feature(0) && !chip.has(*needed))
        return op->emitError() << "'" << name << "' needs " << featureName(*needed) << ", which " << chip.name << " lacks";
    }
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}

static LogicalResult lowerToLLVM(ModuleOp m) {
  PassManager pm(m.getContext());
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  pm.addPass(createSCFToControlFlowPass());
  pm.addPass(createConvertMathToLLVMPass());
  pm.addPass(createConvertVectorToLLVMPass());
  pm.addPass(createArithToLLVMConversionPass());
  pm.addPass(createConvertControlFlowToLLVMPass());
  pm.addPass(createConvertNVVMToLLVMPass());
  pm.addPass(createReconcileUnrealizedCastsPass());
  return pm.run(m);
}

static void optimize(llvm::Module &m, llvm::TargetMachine &tm) {
  llvm::LoopAnalysisManager lam;
  llvm::FunctionAnalysisManager fam;
  llvm::CGSCCAnalysisManager cam;
  llvm::ModuleAnalysisManager mam;
  llvm::PipelineTuningOptions tuning;
  tuning.LoopVectorization = tuning.SLPVectorization = false;
  tuning.LoopUnrolling = false; // the emitter decides
  llvm::PassBuilder pb(&tm, tuning);
  pb.registerModuleAnalyses(mam);
  pb.registerCGSCCAnalyses(cam);
  pb.registerFunctionAnalyses(fam);
  pb.registerLoopAnalyses(lam);
  pb.crossRegisterProxies(lam, fam, cam, mam);
  pb.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O3).run(m, mam);
}

/// The version of PTX that |m| needs on |chip|: mma.sync of 8-bit floats came with 8.4, later than what else such chips are used for.
static int versionFor(const llvm::Module &m, const Chip &chip) {
  bool floats8 = llvm::any_of(m, [](const llvm::Function &f) { return f.getName().starts_with("llvm.nvvm.mma.") && f.getName().contains("e4m3"); });
  return floats8 ? std::max(chip.ptxVersion, 84) : chip.ptxVersion;
}

Result<std::string> lowerToPtx(ModuleOp module, const Chip &chip, llvm::function_ref<Status(llvm::Module &)> link) {
  static const bool initialized = [] {
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
    return true;
  }();
  (void)initialized;
  std::string complaints;
  ScopedDiagnosticHandler handler(module.getContext(), [&](Diagnostic &d) {
    if (d.getSeverity() != DiagnosticSeverity::Error) return success();
    llvm::raw_string_ostream os(complaints);
    if (!complaints.empty()) os << "; ";
    os << d.getLocation() << ": " << d;
    return success();
  });
  auto fail = [&](StatusCode code, const char *what) {
    return makeError(code, "cannot make PTX for %s: %s: %s", chip.name, what, complaints.c_str());
  };
  if (failed(checkCapabilities(module, chip))) return fail(StatusCode::unsupported, "capability check");
  if (failed(lowerToLLVM(module))) return fail(StatusCode::internal, "lowering failed");
  registerBuiltinDialectTranslation(*module.getContext());
  registerLLVMDialectTranslation(*module.getContext());
  registerNVVMDialectTranslation(*module.getContext());
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> m = translateModuleToLLVMIR(module, context, "lathe");
  if (!m) return fail(StatusCode::internal, "translation failed");

  llvm::Triple triple("nvptx64-nvidia-cuda");
  std::string error;
  const llvm::Target *t = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!t) return fail(StatusCode::internal, error.c_str());
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  auto machine = [&](int version) {
    return std::unique_ptr<llvm::TargetMachine>(t->createTargetMachine(triple, chip.name, "+ptx" + std::to_string(version), options, std::nullopt, std::nullopt, llvm::CodeGenOptLevel::Aggressive));
  };
  std::unique_ptr<llvm::TargetMachine> tm = machine(chip.ptxVersion);
  m->setTargetTriple(triple);
  m->setDataLayout(tm->createDataLayout());
  if (link) LATHE_RETURN_IF_ERROR(link(*m));
  if (int version = versionFor(*m, chip); version != chip.ptxVersion) tm = machine(version);
  optimize(*m, *tm);
  llvm::SmallString<0> out;
  llvm::raw_svector_ostream os(out);
  llvm::legacy::PassManager pm;
  if (tm->addPassesToEmitFile(pm, os, nullptr, llvm::CodeGenFileType::AssemblyFile)) return fail(StatusCode::internal, "no PTX writer");
  pm.run(*m);
  return std::string(out);
}

/// 10 * major + minor of a module's text.
static int versionOf(llvm::StringRef ptx) {
  int major = 0, minor = 0;
  llvm::StringRef rest = ptx.substr(ptx.find(".version")).drop_front(8).ltrim();
  rest.consumeInteger(10, major);
  rest.consume_front(".");
  rest.consumeInteger(10, minor);
  return 10 * major + minor;
}

/// The text behind version, target and address size, which all modules share.
static llvm::StringRef bodyOf(llvm::StringRef ptx) {
  size_t at = ptx.find(".address_size");
  return at == llvm::StringRef::npos ? ptx : ptx.substr(ptx.find('\n', at) + 1);
}

/// |ptx| with the layers of its kernel in a comment that holds for the whole body: the emulator reports it with errors.
static std::string withLayers(llvm::StringRef ptx, llvm::StringRef layers) {
  size_t entry = ptx.find(".entry "), body = ptx.find("\n{\n", entry == llvm::StringRef::npos ? 0 : entry);
  if (layers.empty() || entry == llvm::StringRef::npos || body == llvm::StringRef::npos) return ptx.str();
  std::string name = layers.str();
  std::replace_if(name.begin(), name.end(), [](unsigned char c) { return c < ' '; }, '?'); // names come from the model's file
  return (ptx.take_front(body + 3) + "\t// lathe.layer: " + name + "\n" + ptx.drop_front(body + 3)).str();
}

Result<std::string> buildPtx(ArrayRef<PtxJob> jobs, const Chip &chip, unsigned threads) {
  LATHE_ASSIGN_OR_RETURN(auto texts, runJobs(jobs.size(), threads, chip.name,
                                             {[&](size_t i) -> llvm::StringRef { return jobs[i].symbol; },
                                              [&](size_t i, ModuleOp module) { return jobs[i].emit(module, jobs[i].symbol, chip); },
                                              [&](ModuleOp module) { return lowerToPtx(module, chip); }}));
  int version = chip.ptxVersion;
  for (const std::string &text : texts) version = std::max(version, versionOf(text));
  std::string all = ".version " + std::to_string(version / 10) + "." + std::to_string(version % 10) + "\n.target " +
                    chip.name + "\n.address_size 64\n";
  for (auto [text, job] : llvm::zip(texts, jobs)) all += withLayers(bodyOf(text), job.layers);
  return all;
}

} // namespace lathe::codegen::nvptx
