//===- Compile.cpp - MLIR to x86 objects ------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "X86/Compile.h"
#include "Common/Jobs.h"
#include "lathe/base/Tiles.h"
#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/FuncToLLVM/ConvertFuncToLLVMPass.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/ReconcileUnrealizedCasts/ReconcileUnrealizedCasts.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVMPass.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Host.h"
#include "llvm/Transforms/Utils/Cloning.h"
#include <optional>

namespace lathe::codegen {
using namespace mlir;
using artifact::Variant;

// Explicit features on the plain x86-64 baseline: a variant means the same code on every build machine.
static const char avx2Features[] =
    "+cx16,+sahf,+mmx,+sse3,+ssse3,+sse4.1,+sse4.2,+popcnt,+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+lzcnt,+movbe,+xsave,+prfchw";
static const char avx512Features[] = ",+avx512f,+avx512cd,+avx512bw,+avx512dq,+avx512vl,+avx512vnni";

static std::string features(X86Target t) {
  std::string s = avx2Features;
  if (t.has512()) s += avx512Features;
  if (t.hasBf16()) s += ",+avx512bf16";
  if (t.hasTiles()) s += ",+amx-tile,+amx-int8";
  return s;
}

const char *variantName(Variant v) {
  switch (v) {
  case Variant::none:
    return "none";
  case Variant::avx2:
    return "avx2";
  case Variant::avx512vnni:
    return "avx512vnni";
  case Variant::avx512bf16:
    return "avx512bf16";
  case Variant::amx:
    return "amx";
  default:
    break;
  }
  return "unknown";
}

Variant emittedVariant(Variant v, KernelUse use) {
  if (v == Variant::amx && !use.dots) v = Variant::avx512bf16;
  return v == Variant::avx512bf16 && !use.bf16 ? Variant::avx512vnni : v;
}

bool hostSupports(X86Target target) {
  static const llvm::StringMap<bool> host = llvm::sys::getHostCPUFeatures();
  if (target.variant == Variant::none) return false;
  SmallVector<StringRef> wanted;
  std::string text = features(target);
  StringRef(text).split(wanted, ',');
  for (StringRef f : wanted)
    if (!host.lookup(f.drop_front())) return false;
  return !target.hasTiles() || allowTiles();
}

Variant hostVariant() {
  for (Variant v : {Variant::amx, Variant::avx512bf16, Variant::avx512vnni, Variant::avx2})
    if (hostSupports({v})) return v;
  return Variant::none;
}

static LogicalResult lowerToLLVM(ModuleOp m) {
  PassManager pm(m.getContext());
  pm.enableVerifier(true);
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  pm.addPass(createSCFToControlFlowPass());
  pm.addPass(createConvertMathToLLVMPass());
  pm.addPass(createConvertVectorToLLVMPass());
  pm.addPass(createArithToLLVMConversionPass());
  pm.addPass(createConvertControlFlowToLLVMPass());
  pm.addPass(createConvertFuncToLLVMPass());
  pm.addPass(createReconcileUnrealizedCastsPass());
  return pm.run(m);
}

static void optimize(llvm::Module &m, llvm::TargetMachine &tm, bool loops) {
  llvm::LoopAnalysisManager lam;
  llvm::FunctionAnalysisManager fam;
  llvm::CGSCCAnalysisManager cam;
  llvm::ModuleAnalysisManager mam;
  llvm::PipelineTuningOptions tuning;
  tuning.LoopVectorization = loops; // kernels are vector code already,
  tuning.SLPVectorization = false;
  tuning.LoopUnrolling = loops; // and the emitter decides
  llvm::PassBuilder pb(&tm, tuning);
  pb.registerModuleAnalyses(mam);
  pb.registerCGSCCAnalyses(cam);
  pb.registerFunctionAnalyses(fam);
  pb.registerLoopAnalyses(lam);
  pb.crossRegisterProxies(lam, fam, cam, mam);
  pb.buildPerModuleDefaultPipeline(loops ? llvm::OptimizationLevel::O2 : llvm::OptimizationLevel::O3).run(m, mam);
}

Result<std::string> compileObject(ModuleOp module, X86Target target, const ObjectOptions &object) {
  if (target.variant == Variant::none)
    return makeError(StatusCode::invalidArgument, "expected an x86 code variant to compile for, found 'none'");
  static const bool initialized = [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    LLVMInitializeX86AsmParser(); // of inline assembly
    return true;
  }();
  (void)initialized;

  // Everything the passes complain about becomes the message of the error.
  std::string complaints;
  ScopedDiagnosticHandler handler(module.getContext(), [&](Diagnostic &d) {
    if (d.getSeverity() != DiagnosticSeverity::Error) return success();
    llvm::raw_string_ostream os(complaints);
    if (!complaints.empty()) os << "; ";
    os << d;
    return success();
  });
  auto fail = [&](const char *what) {
    return makeError(StatusCode::internal, "cannot compile kernels for %s: %s: %s", variantName(target.variant), what,
                     complaints.c_str());
  };
  if (failed(lowerToLLVM(module))) return fail("lowering failed");
  registerBuiltinDialectTranslation(*module.getContext());
  registerLLVMDialectTranslation(*module.getContext());
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> m = translateModuleToLLVMIR(module, context, "lathe");
  if (!m) return fail("translation failed");

  llvm::Triple triple("x86_64-unknown-linux-gnu");
  std::string error, feats = features(target);
  const llvm::Target *t = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!t) return fail(error.c_str());
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  std::unique_ptr<llvm::TargetMachine> tm(t->createTargetMachine(triple, "x86-64", feats, options, llvm::Reloc::PIC_,
                                                                 std::nullopt, llvm::CodeGenOptLevel::Aggressive));
  m->setTargetTriple(triple);
  m->setDataLayout(tm->createDataLayout());
  for (llvm::Function &f : *m) {
    if (f.isDeclaration()) continue;
    f.addFnAttr("target-cpu", "x86-64");
    f.addFnAttr("tune-cpu", target.has512() ? "znver4" : "znver3");
    f.addFnAttr("target-features", feats);
    f.addFnAttr("no-builtins"); // no memset or memcpy calls out of loops: the code needs no libc
    f.addFnAttr("prefer-vector-width", target.has512() ? "512" : "256");
    f.addFnAttr("min-legal-vector-width", target.has512() ? "512" : "256");
    f.addFnAttr(llvm::Attribute::NoUnwind);
  }
  optimize(*m, *tm, object.loops);
  auto emit = [&](llvm::Module &from, llvm::CodeGenFileType type, std::string &out) {
    llvm::SmallVector<char, 0> buffer;
    llvm::raw_svector_ostream os(buffer);
    llvm::legacy::PassManager pm;
    if (tm->addPassesToEmitFile(pm, os, nullptr, type)) return false;
    pm.run(from);
    out.assign(buffer.begin(), buffer.end());
    return true;
  };
  if (object.assembly) {
    std::unique_ptr<llvm::Module> copy = llvm::CloneModule(*m);
    if (!emit(*copy, llvm::CodeGenFileType::AssemblyFile, *object.assembly)) return fail("no assembly writer");
  }
  std::string bytes;
  if (!emit(*m, llvm::CodeGenFileType::ObjectFile, bytes)) return fail("no object writer");
  return bytes;
}

Result<std::vector<std::string>> compileKernels(ArrayRef<KernelJob> jobs, X86Target target, unsigned threads) {
  return runJobs(jobs.size(), threads, variantName(target.variant),
                 {[&](size_t i) -> StringRef { return jobs[i].symbol; },
                  [&](size_t i, ModuleOp module) { return jobs[i].emit(module, jobs[i].symbol, target); },
                  [&](ModuleOp module) { return compileObject(module, target); }});
}

Result<std::string> buildCode(ArrayRef<KernelJob> jobs, X86Target target, unsigned threads) {
  LATHE_ASSIGN_OR_RETURN(std::vector<std::string> objects, compileKernels(jobs, target, threads));
  return linkObjects(objects);
}

Result<std::string> VariantBuilder::build(Variant variant) {
  std::map<Variant, std::vector<size_t>> lacking;
  for (size_t i = 0; i < jobs.size(); ++i) {
    Variant emitted = emittedVariant(variant, jobs[i].use);
    std::vector<std::string> &have = objects[emitted];
    have.resize(jobs.size());
    if (have[i].empty()) lacking[emitted].push_back(i);
  }
  for (auto &[emitted, indices] : lacking) {
    std::vector<KernelJob> some;
    for (size_t i : indices)
      some.push_back(jobs[i]);
    LATHE_ASSIGN_OR_RETURN(std::vector<std::string> made, compileKernels(some, {emitted}, threads));
    for (size_t i = 0; i < indices.size(); ++i)
      objects[emitted][indices[i]] = std::move(made[i]);
  }
  std::vector<std::string> all;
  for (size_t i = 0; i < jobs.size(); ++i)
    all.push_back(objects[emittedVariant(variant, jobs[i].use)][i]);
  return linkObjects(all);
}

} // namespace lathe::codegen
