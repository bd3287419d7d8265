//===- lathe-compiler.cpp - the commands of lathe that need the compiler -----===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// `lathe compile ...` starts this program from libexec, so that running an artifact never loads LLVM.
//===----------------------------------------------------------------------===//
#include "Bisect.h"
#include "Help.h"
#include "lathe/Driver/Compile.h"
#include "lathe/base/Topology.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/raw_ostream.h"
#include <sys/resource.h>

using namespace lathe;
namespace cl = llvm::cl;

namespace {

cl::OptionCategory category("lathe compile");
cl::SubCommand compileCommand("compile", "compile a model to one file");


cl::opt<std::string> model(cl::Positional, cl::desc("MODEL"), cl::sub(compileCommand), cl::cat(category));
cl::opt<std::string> output("o", cl::value_desc("FILE"), cl::desc("artifact to write (default: MODEL's name with .lathe)"), cl::sub(compileCommand), cl::cat(category));
cl::opt<std::string> target("target", cl::init("x86"), cl::value_desc("T,..."), cl::desc("code to put in: x86, every variant (default); native, the best one of this machine; avx2,\navx512vnni, avx512bf16, amx; NVIDIA GPUs: sm_80, sm_89, sm_90a, sm_100a, sm_120a"), cl::sub(compileCommand), cl::cat(category));
cl::opt<std::string> quantize("quantize", cl::init("none"), cl::value_desc("TYPE"), cl::desc("round weights to nearest: none (default), int8, int4-g32, int4-g64, int4-g128, int4z-g32,\nint4z-g64, int4z-g128 (z: with a zero point), e4m3"), cl::sub(compileCommand), cl::cat(category));
cl::list<std::string> quantizeSkip("quantize-skip", cl::value_desc("REGEX"), cl::desc("with --quantize: weights of such names, as --compile-to=import prints them, stay as they\nare; may be given several times"), cl::sub(compileCommand), cl::cat(category));
cl::opt<std::string> kv("kv", cl::init("f16"), cl::value_desc("TYPE"), cl::desc("KV cache format: f32, f16 (default), bf16, int8, e4m3 (x86, and GPUs from sm_89)"), cl::sub(compileCommand), cl::cat(category));
cl::opt<std::string> activations("activations", cl::init("auto"), cl::value_desc("TYPE"), cl::desc("how activations enter matmuls: auto (default), int8, int8z, e4m3, bf16, f32"), cl::sub(compileCommand), cl::cat(category));
cl::opt<int64_t> page("page", cl::init(32), cl::value_desc("N"), cl::desc("tokens per KV page: a multiple of 16 up to 1024 (default 32)"), cl::sub(compileCommand), cl::cat(category));
cl::opt<int64_t> maxSeq("max-seq", cl::init(0), cl::value_desc("N"), cl::desc("longest sequence (default: the model's own)"), cl::sub(compileCommand), cl::cat(category));
cl::opt<int64_t> maxRows("max-rows", cl::init(512), cl::value_desc("N"), cl::desc("token rows of one step (default 512)"), cl::sub(compileCommand), cl::cat(category));
cl::opt<bool> megakernel("megakernel", cl::desc("also a kernel that does all of a step of few rows, for '--device-plan megakernel'\nat run time; sm_90a then multiplies without wgmma"), cl::sub(compileCommand), cl::cat(category));
cl::opt<std::string> weights("weights", cl::init("file"), cl::value_desc("W"), cl::desc("file (default), or synthetic:SEED: store no weights; the runtime makes them up from the\nseed, to measure speed"), cl::sub(compileCommand), cl::cat(category));
cl::opt<std::string> speculate("speculate", cl::value_desc("M"), cl::desc("put a draft program in, for '--speculate draft' or 'auto' at run time (default: none):\ndraft:MODEL (a smaller model of the same vocabulary), layerskip:LAYERS (the first so many\nlayers), medusa, eagle, eagle2, eagle3; lookups (ngram, suffix, suffix-tree) need none"), cl::sub(compileCommand), cl::cat(category));
cl::opt<std::string> speculateWeights("speculate-weights", cl::value_desc("DIR"), cl::desc("with '--speculate medusa' and 'eagle...': the directory of the checkpoint"), cl::sub(compileCommand), cl::cat(category));
cl::opt<int> threads("threads", cl::init(0), cl::value_desc("N"), cl::desc("threads for compiling (default: all cores that the affinity mask and the control group allow)"), cl::sub(compileCommand), cl::cat(category));
cl::list<std::string> disable("disable", cl::CommaSeparated, cl::value_desc("PASS,..."), cl::desc("fusion passes to leave out, e.g. llm-fuse-glu (an unknown name lists them)"), cl::sub(compileCommand), cl::cat(category));
cl::opt<std::string> compileTo("compile-to", cl::init("package"), cl::value_desc("PHASE"), cl::desc("stop after import, raise, configure, fuse, kernels or plan and print the module\n(default: package, which writes the file)"), cl::sub(compileCommand), cl::cat(category));
cl::opt<std::string> compileFrom("compile-from", cl::init(""), cl::value_desc("PHASE"), cl::desc("MODEL is a .mlir module at the end of this phase"), cl::sub(compileCommand), cl::cat(category));
cl::opt<std::string> dumpPhases("dump-phases", cl::value_desc("DIR"), cl::desc("write the module after every phase to DIR"), cl::sub(compileCommand), cl::cat(category));
cl::opt<std::string> tokenizer("tokenizer", cl::value_desc("PATH"), cl::desc("take tokenizer and chat template from here instead of the model: a directory with a\ntokenizer.json, that file, or a GGUF file"), cl::sub(compileCommand), cl::cat(category));
cl::opt<bool> json("json", cl::desc("print the figures as one line of JSON"), cl::sub(compileCommand), cl::cat(category));
cl::opt<bool> remarks("remarks", cl::desc("say what each layer of an ONNX graph was recognised as"), cl::sub(compileCommand), cl::cat(category));
cl::opt<bool> quiet("quiet", cl::desc("no progress"), cl::sub(compileCommand), cl::cat(category));

int compileHelp() {
  printHelp("lathe compile MODEL [options]",
            "Compiles a model to one file, which 'lathe run' and 'lathe serve' take. MODEL is a GGUF file, an .onnx file, a directory of\n"
            "HuggingFace or ONNX files (safetensors first), or a .mlir module. The defaults suit any x86-64 processor from AVX2 on.\n"
            "\n"
            "  lathe compile model.gguf -o model.lathe\n"
            "  lathe compile path/to/Qwen3-0.6B -o qwen3.lathe --quantize int8 --target native",
            {{"The file", {output, target, maxSeq, maxRows, page, tokenizer}},
             {"Numbers", {quantize, quantizeSkip, kv, activations}},
             {"Speculation", {speculate, speculateWeights}},
             {"GPUs", {megakernel}},
             {"Output", {json, remarks, quiet}},
             {"Machine", {threads}},
             {"For developers", {compileTo, compileFrom, dumpPhases, disable, weights}}},
            compileCommand, category);
  return 0;
}

int report(const Status &status) {
  llvm::errs() << "error: " << status.message() << "\n";
  return 1;
}

int runCompile() {
  if (model.empty()) return report(makeError(StatusCode::invalidArgument, "expected a model; see '--help'"));
  CompileRequest request;
  request.model = model;
  request.output = output;
  request.tokenizer = tokenizer;
  request.target = target;
  CompileOptions &o = request.options;
  o.activations = activations, o.kv = kv, o.quantize = quantize, o.page = page, o.maxSeq = maxSeq, o.maxRows = maxRows, o.weights = weights, o.speculate = speculate, o.speculateWeights = speculateWeights;
  o.threads = threads > 0 ? threads : int(Topology::detect().usableCpus());
  o.quantizeSkip.assign(quantizeSkip.begin(), quantizeSkip.end());
  o.disabled.assign(disable.begin(), disable.end());
  o.dumpDirectory = dumpPhases;
  o.remarks = remarks;
  o.megakernel = megakernel;
  auto to = parsePhase(compileTo);
  if (!to.ok()) return report(to.status());
  request.to = *to;
  // Inside, 0 is "the model's own"; who types it expects something else.
  if (maxSeq.getNumOccurrences() && maxSeq == 0) return report(makeError(StatusCode::invalidArgument, "--max-seq: expected 1 .. 16777216, found 0"));
  if (!compileFrom.empty()) {
    auto from = parsePhase(compileFrom);
    if (!from.ok()) return report(from.status());
    request.from = *from;
  }
  // Linking gives every option its default again (lld does so to all of the process), so what is asked afterwards is kept.
  const bool silent = quiet, figures = json;
  bool live = !silent && llvm::sys::Process::StandardErrIsDisplayed();
  request.progress = [&](llvm::StringRef what, uint64_t done, uint64_t all) {
    if (silent) return;
    if (all && !live) return;
    llvm::errs() << (live ? "\r\033[K" : "") << "lathe: " << what;
    if (all) llvm::errs() << llvm::formatv(" {0}%", done * 100 / all);
    if (!live) llvm::errs() << "\n";
    if (live && all && done == all) llvm::errs() << "\n";
  };
  auto result = compileModel(request);
  if (!result.ok()) {
    if (live) llvm::errs() << "\r\033[K";
    return report(result.status());
  }
  for (const std::string &warning : result->warnings)
    llvm::errs() << (live ? "\r\033[K" : "") << "warning: " << warning << "\n";
  if (request.to != Phase::package) {
    llvm::outs() << result->text;
    return 0;
  }
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  double peakMB = usage.ru_maxrss / 1024.0;
  if (figures) {
    llvm::outs() << llvm::json::Value(llvm::json::Object{{"output", result->output}, {"seconds", result->seconds}, {"threads", o.threads}, {"code_seconds", result->package.codeSeconds}, {"pack_seconds", result->package.packSeconds},
                                                         {"peak_rss_mb", peakMB}, {"kernels", result->package.kernels}, {"code_bytes", int64_t(result->package.codeBytes)},
                                                         {"weight_bytes", int64_t(result->package.weightBytes)}, {"file_bytes", int64_t(result->package.fileBytes)}})
                 << "\n";
  } else {
    llvm::errs() << (live ? "\r\033[K" : "")
                 << llvm::formatv("lathe: wrote {0}: {1:F1} MB ({2:F1} MB of weights, {3} kernels, {4:F0} KB of code) in {5:F1} s (code {6:F1} s, packing {7:F1} s, {9} threads), peak memory {8:F0} MB\n",
                                  result->output, result->package.fileBytes / 1e6, result->package.weightBytes / 1e6, result->package.kernels, result->package.codeBytes / 1e3,
                                  result->seconds, result->package.codeSeconds, result->package.packSeconds, peakMB, o.threads);
    for (const MegakernelReport &m : result->package.megakernels)
      llvm::errs() << llvm::formatv("lathe: megakernel for {0}: {1} launches of a step in {2}\n", m.chip, m.launches, m.pieces);
  }
  return 0;
}

} // namespace

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  if (helpWanted(argc, argv, "compile")) return compileHelp();
  if (helpWanted(argc, argv, "bisect")) return bisectHelp();
  cl::ParseCommandLineOptions(argc, argv, "The compiler behind 'lathe compile' and 'lathe bisect'.\n");
  if (compileCommand) return runCompile();
  if (bisectWanted()) return runBisect();
  llvm::errs() << "error: expected a command: compile or bisect\n";
  return 2;
}
