//===- Compile.cpp - `lathe compile` as a function ---------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "lathe/Driver/Compile.h"
#include "General.h"
#include "ModelText.h"
#include "NVPTX/Capabilities.h"
#include "Speculate.h"
#include "X86/Compile.h"
#include "lathe/InitAll.h"
#include "lathe/import/Import.h"
#include "lathe/import/ONNXModule.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Regex.h"
#include <chrono>

using namespace mlir;

namespace lathe {

Result<std::vector<artifact::Variant>> parseTarget(const std::string &target) {
  using artifact::Variant;
  std::vector<Variant> variants;
  auto add = [&](Variant v) {
    if (!llvm::is_contained(variants, v)) variants.push_back(v);
  };
  const Variant x86[] = {Variant::avx2, Variant::avx512vnni, Variant::avx512bf16, Variant::amx};
  SmallVector<StringRef> parts;
  StringRef(target).split(parts, ',');
  for (StringRef part : parts) {
    if (part == "x86") {
      for (Variant v : x86) add(v);
      continue;
    }
    if (part == "native") {
      Variant best = codegen::hostVariant();
      if (best == Variant::none) return makeError(StatusCode::failedPrecondition, "target 'native': this machine has no AVX2, which Lathe needs");
      add(best);
      continue;
    }
    Variant found = Variant::none;
    for (Variant v : x86)
      if (part == codegen::variantName(v)) found = v;
    if (const codegen::nvptx::Chip *chip = codegen::nvptx::findChip(part)) found = chip->variant;
    if (found == Variant::none)
      return makeError(StatusCode::invalidArgument, "unknown target '%s', expected x86, native, avx2, avx512vnni, avx512bf16, amx, sm_80, sm_89, sm_90a, sm_100a or sm_120a", part.str().c_str());
    add(found);
  }
  return variants;
}

Result<std::optional<uint64_t>> syntheticSeed(const CompileOptions &options) {
  StringRef text = options.weights;
  if (text == "file") return std::optional<uint64_t>();
  uint64_t seed = 0;
  if (!text.consume_front("synthetic:") || text.getAsInteger(10, seed))
    return makeError(StatusCode::invalidArgument, "--weights '%s': expected file or synthetic:SEED, with a seed of 0 .. 18446744073709551615", options.weights.c_str());
  return std::optional<uint64_t>(seed);
}

static Status checkChoice(const char *option, const std::string &value, ArrayRef<std::string> choices) {
  if (llvm::is_contained(choices, value)) return Status();
  std::string all = llvm::join(choices, ", ");
  return makeError(StatusCode::invalidArgument, "%s '%s': expected one of %s", option, value.c_str(), all.c_str());
}

static Status checkOptions(const CompileOptions &o) {
  LATHE_RETURN_IF_ERROR(checkChoice("--activations", o.activations, {"auto", "int8", "int8z", "e4m3", "bf16", "f32"}));
  LATHE_RETURN_IF_ERROR(checkChoice("--kv", o.kv, {"f32", "f16", "bf16", "int8", "e4m3"}));
  LATHE_RETURN_IF_ERROR(checkChoice("--quantize", o.quantize, {"none", "int8", "int4-g32", "int4-g64", "int4-g128", "int4z-g32", "int4z-g64", "int4z-g128", "e4m3"}));
  for (const std::string &pattern : o.quantizeSkip) { // pass options have no quotes for the other characters of regular expressions
    std::string error;
    if (pattern.empty() || StringRef(pattern).find_if([](char c) { return !llvm::isAlnum(c) && !StringRef("._*+?^$|\\-").contains(c); }) != StringRef::npos ||
        !llvm::Regex(pattern).isValid(error))
      return makeError(StatusCode::invalidArgument, "--quantize-skip '%s': expected a regular expression without commas, spaces, quotes, brackets and braces%s%s", pattern.c_str(),
                       error.empty() ? "" : "; ", error.c_str());
  }
  if (!o.quantizeSkip.empty() && o.quantize == "none")
    return makeError(StatusCode::invalidArgument, "--quantize-skip '%s': expected together with --quantize", o.quantizeSkip[0].c_str());
  for (const std::string &pass : o.disabled)
    LATHE_RETURN_IF_ERROR(checkChoice("--disable", pass, fusionPasses()));
  LATHE_RETURN_IF_ERROR(syntheticSeed(o).status());
  LATHE_ASSIGN_OR_RETURN(SpeculateOption speculate, parseSpeculate(o.speculate));
  if (speculate.readsWeights() == o.speculateWeights.empty())
    return makeError(StatusCode::invalidArgument, "--speculate-weights: expected %s with --speculate '%s', found '%s'", o.speculateWeights.empty() ? "a directory of the draft's weights" : "none",
                     o.speculate.c_str(), o.speculateWeights.c_str());
  if (o.page < 16 || o.page > 1024 || o.page % 16) return makeError(StatusCode::invalidArgument, "--page: expected a multiple of 16 in 16 .. 1024, found %lld", (long long)o.page);
  if (o.maxRows < 1 || o.maxRows > 8192) return makeError(StatusCode::invalidArgument, "--max-rows: expected 1 .. 8192, found %lld", (long long)o.maxRows);
  if (o.maxSeq < 0 || o.maxSeq > (int64_t(1) << 24)) return makeError(StatusCode::invalidArgument, "--max-seq: expected 1 .. 16777216, found %lld", (long long)o.maxSeq);
  return Status();
}

static std::string defaultOutput(StringRef model) {
  while (model.size() > 1 && model.back() == '/')
    model = model.drop_back();
  SmallString<128> name(llvm::sys::path::filename(model));
  for (StringRef extension : {".gguf", ".mlir", ".onnx", ".safetensors"})
    if (StringRef(name).ends_with_insensitive(extension)) name.resize(name.size() - extension.size());
  return (name + ".lathe").str();
}

/// Whether |module| still is an ONNX graph.
static bool isGraph(ModuleOp module) { return module->hasAttr("onnx.model") && module.lookupSymbol("main"); }

/// The tokens of a language model that |module| is; 0: it does not say.
static int64_t vocabularyOf(ModuleOp module) {
  auto step = module.lookupSymbol<func::FuncOp>("step");
  auto logits = step && step.getNumResults() ? dyn_cast<RankedTensorType>(step.getResultTypes()[0]) : RankedTensorType();
  return logits && logits.getRank() && !logits.isDynamicDim(logits.getRank() - 1) ? logits.getShape().back() : 0;
}

/// What importing leaves to the driver: a word about what was not taken, and what the place that --tokenizer names says of a graph.
static Status afterImport(const CompileRequest &request, ModuleOp module) {
  const std::string &model = request.model;
  if (llvm::sys::fs::is_directory(model) && hasSafetensors(model))
    if (auto graph = findONNXFile(model); graph.status().code() != StatusCode::notFound)
      llvm::errs() << "lathe: note: '" << model << "' has safetensors and " << (graph.ok() ? llvm::sys::path::filename(*graph) : "ONNX files") << ": the safetensors are compiled; name the .onnx file for the other\n";
  if (!isGraph(module) || request.tokenizer.empty()) return Status();
  if (llvm::sys::fs::is_directory(request.tokenizer)) return addONNXConfigs(module, request.tokenizer);
  StringRef beside = llvm::sys::path::parent_path(request.tokenizer);
  return llvm::sys::path::filename(request.tokenizer) == "tokenizer.json" ? addONNXConfigs(module, beside.empty() ? "." : beside.str()) : Status();
}

Result<CompileResult> compileModel(const CompileRequest &request) {
  auto start = std::chrono::steady_clock::now();
  LATHE_RETURN_IF_ERROR(checkOptions(request.options));
  CompileOptions options = request.options;
  LATHE_ASSIGN_OR_RETURN(options.variants, parseTarget(request.target));
  for (artifact::Variant variant : options.variants)
    if (const codegen::nvptx::Chip *chip = codegen::nvptx::findChip(variant); chip && options.kv == "e4m3" && !chip->has(codegen::nvptx::Feature::fp8))
      return makeError(StatusCode::unsupported, "--kv 'e4m3': expected GPUs with 8-bit floats, sm_89 or later, found target '%s'", chip->name);
  if (options.megakernel && !llvm::any_of(options.variants, artifact::isGpu))
    return makeError(StatusCode::invalidArgument, "--megakernel: expected a GPU among the targets, found '%s'", request.target.c_str());
  auto progress = [&](StringRef what, uint64_t done = 0, uint64_t all = 0) {
    if (request.progress) request.progress(what, done, all);
  };

  DialectRegistry registry;
  registerAllDialects(registry);
  MLIRContext context(registry);
  context.loadAllAvailableDialects();
  static bool once = (registerAllPasses(), true);
  (void)once;

  ModelText text;
  OwningOpRef<ModuleOp> module;
  if (StringRef(request.model).ends_with(".mlir")) {
    progress("reading " + request.model);
    if (!llvm::sys::fs::exists(request.model)) return makeError(StatusCode::notFound, "cannot open '%s'", request.model.c_str());
    module = parseSourceFile<ModuleOp>(request.model, &context);
    if (!module) return makeError(StatusCode::invalidArgument, "'%s' is not a valid module", request.model.c_str());
  } else {
    if (request.from != Phase::import) return makeError(StatusCode::invalidArgument, "--compile-from needs a .mlir module, found '%s'", request.model.c_str());
    progress("importing " + request.model);
    ImportOptions importOptions;
    importOptions.maxSequence = options.maxSeq;
    LATHE_ASSIGN_OR_RETURN(module, importModel(context, request.model, importOptions));
    LATHE_RETURN_IF_ERROR(afterImport(request, *module));
  }
  Phase last = std::min(request.to, Phase::plan), from = request.from;
  if (from == Phase::import && last >= Phase::raise) {
    progress("raising");
    // MLIR drops what is no error; what was not recognised is what a user asks next.
    ScopedDiagnosticHandler handler(&context, [](Diagnostic &diagnostic) {
      StringRef kind = diagnostic.getSeverity() == DiagnosticSeverity::Remark ? "remark" : diagnostic.getSeverity() == DiagnosticSeverity::Warning ? "warning" : "";
      if (kind.empty()) return failure();
      llvm::errs() << "lathe: " << kind << ": " << diagnostic.str() << "\n";
      return success();
    });
    LATHE_RETURN_IF_ERROR(runPhases(*module, from, Phase::raise, options));
    from = Phase::raise;
    if (last > Phase::raise && request.to != Phase::package && isGraph(*module)) return makeError(StatusCode::unsupported, "'%s' is a graph that is not raised to a language model; the warning says why", request.model.c_str());
  }
  LATHE_RETURN_IF_ERROR(readModelText(request.model, request.tokenizer, *module, options, text));
  LATHE_ASSIGN_OR_RETURN(SpeculateOption speculate, parseSpeculate(options.speculate));
  if (options.megakernel && isGraph(*module))
    return makeError(StatusCode::unsupported, "--megakernel: expected a language model, found '%s', a graph that is not raised to one; the warning says why", request.model.c_str());
  if (!speculate.method.empty() && isGraph(*module))
    return makeError(StatusCode::unsupported, "--speculate '%s': '%s' is a graph that is not raised to a language model; the warning says why", options.speculate.c_str(),
                     request.model.c_str());
  if (!speculate.method.empty() && from >= Phase::configure)
    return makeError(StatusCode::invalidArgument, "--speculate '%s': expected a module of a phase before 'configure', which adds the draft program, found --compile-from=%s",
                     options.speculate.c_str(), phaseName(from));
  if (speculate.method == "draft" && from < Phase::configure && last >= Phase::configure) {
    progress("importing " + speculate.model);
    LATHE_RETURN_IF_ERROR(addDraftModel(*module, speculate, options, text));
  }
  if (speculate.readsWeights() && from < Phase::configure && last >= Phase::configure) {
    progress("reading " + options.speculateWeights);
    LATHE_RETURN_IF_ERROR(addDraftHeads(*module, speculate, options));
  }

  CompileResult result;
  if (!speculate.lookup.empty())
    result.warnings.push_back("--speculate " + speculate.lookup + ": drafts that are looked up need nothing in the artifact; say it when the model runs (lathe run --speculate " + speculate.lookup + ")");
  const std::string &tokenizerSource = request.tokenizer.empty() ? request.model : request.tokenizer;
  LATHE_RETURN_IF_ERROR(checkVocabulary(text, vocabularyOf(*module), tokenizerSource, result.warnings));
  if (request.to == Phase::package && isGraph(*module)) {
    result.warnings.push_back(generalWarning);
    result.output = request.output.empty() ? defaultOutput(request.model) : request.output;
    progress("generating general code");
    auto checkTokens = [&](int64_t vocabulary) { return checkVocabulary(text, vocabulary, tokenizerSource, result.warnings); };
    auto package = packageGeneralGraph(*module, text, options, result.output, checkTokens, result.warnings, [&](uint64_t done, uint64_t all) { progress("writing weights", done, all); });
    if (!package.ok())
      return makeError(package.status().code(), "'%s' is a graph that is not raised to a language model; the warning says why. As general code: %s", request.model.c_str(),
                       package.status().message().c_str());
    result.package = *package;
    llvm::append_range(result.warnings, result.package.complaints);
    result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return result;
  }

  progress("running passes");
  // GPUs have choices of their own and so a copy of the module; packed weights are shared.
  bool wantsGpu = llvm::any_of(options.variants, artifact::isGpu), wantsCpu = !llvm::all_of(options.variants, artifact::isGpu);
  OwningOpRef<ModuleOp> gpu;
  if (wantsGpu) {
    gpu = OwningOpRef<ModuleOp>(module->clone());
    LATHE_RETURN_IF_ERROR(runPhases(*gpu, from, last, gpuOptions(options)));
  }
  if (wantsCpu)
    LATHE_RETURN_IF_ERROR(runPhases(*module, from, last, options));
  else
    module = nullptr;
  if (request.to != Phase::package) {
    llvm::raw_string_ostream os(result.text);
    OpPrintingFlags flags;
    (module ? *module : *gpu)->print(os, flags.enableDebugInfo(true, false).useLocalScope());
    return result;
  }
  result.output = request.output.empty() ? defaultOutput(request.model) : request.output;
  progress("generating code");
  LATHE_ASSIGN_OR_RETURN(result.package, packageArtifact(module ? *module : ModuleOp(), gpu ? *gpu : ModuleOp(), text, options, result.output,
                                                         [&](uint64_t done, uint64_t all) { progress("packing weights", done, all); }));
  for (const std::string &chip : result.package.withoutMegakernels)
    result.warnings.push_back("--megakernel: " + chip + " has none: expected a bucket of at most 16 rows with two launches after each other that fit into one, found none");
  llvm::append_range(result.warnings, result.package.complaints);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

} // namespace lathe
