//===- lathe-import.cpp - prints a model as it is imported -----------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// For tests and pass developers: `lathe-import MODEL | lathe-opt ...`.
//===----------------------------------------------------------------------===//
#include "lathe/import/Import.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/ToolOutputFile.h"
#include "llvm/Support/raw_ostream.h"

int main(int argc, char **argv) {
  llvm::cl::OptionCategory category("lathe-import");
  llvm::cl::opt<std::string> path(llvm::cl::Positional, llvm::cl::Required, llvm::cl::desc("<GGUF file, .onnx file, or directory of HuggingFace or ONNX files>"),
                                  llvm::cl::cat(category));
  llvm::cl::opt<std::string> output("o", llvm::cl::desc("output file"), llvm::cl::init("-"), llvm::cl::cat(category));
  llvm::cl::opt<int64_t> maxSequence("max-seq", llvm::cl::desc("positions to make the module for (0: the model's own)"),
                                     llvm::cl::init(0), llvm::cl::cat(category));
  llvm::cl::opt<bool> locations("locations", llvm::cl::desc("print tensor and layer names as locations"),
                                llvm::cl::cat(category));
  llvm::cl::HideUnrelatedOptions(category);
  llvm::cl::ParseCommandLineOptions(argc, argv, "prints a model as a module of the llm dialect; an ONNX model as one of the onnx dialect\n");
  mlir::MLIRContext context;
  lathe::ImportOptions options;
  options.maxSequence = maxSequence;
  auto module = lathe::importModel(context, path, options);
  if (!module.ok()) {
    llvm::errs() << "error: " << module.status().message() << "\n";
    return 1;
  }
  std::error_code error;
  llvm::ToolOutputFile file(output, error, llvm::sys::fs::OF_Text);
  if (error) {
    llvm::errs() << "error: cannot write '" << output << "': " << error.message() << "\n";
    return 1;
  }
  mlir::OpPrintingFlags flags;
  if (locations) flags.enableDebugInfo(true);
  (*module)->print(file.os(), flags);
  file.os() << "\n";
  file.keep();
  return 0;
}
