//===- Commands.h - the commands of the driver --------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "Options.h"
#include "runtime/engine/Engine.h"
#include "runtime/speculation/Types.h"
#include <atomic>
#include <memory>
#include <string>
#include <vector>

namespace lathe::tool {

using Args = std::vector<std::string>;

// Each takes the arguments after its name and returns the exit code, or an error for main to print.
Result<int> runCommand(const Args &args);
Result<int> benchCommand(const Args &args);
Result<int> evalCommand(const Args &args);
Result<int> inspectCommand(const Args &args);
Result<int> explainCommand(const Args &args);
Result<int> serveCommand(const Args &args);
Result<int> loadCommand(const Args &args);
Result<int> simulateCommand(const Args &args);
Result<int> replayCommand(const Args &args);
/// Replaces this process by libexec/lathe-compiler.
Result<int> compilerCommand(const std::string &command, const Args &args);

/// Options that several commands share.
struct EngineFlags {
  uint64_t threads = 0, context = 0;
  std::string variant, device, plan;
  bool pin = false;
  std::optional<uint64_t> memory;
  /// |contextHelp|: what --ctx means to this command, with its default.
  void declare(Options &options, const char *contextHelp = "tokens the context holds (default: what the model was compiled for)");
  runtime::EngineOptions engineOptions() const;
};

/// The device of `--device`. Errors: no such device, or it cannot be used here.
Result<std::unique_ptr<runtime::Device>> openDevice(const EngineFlags &flags);
/// Loads |path| for |device|. A GGUF file, an .onnx file or a model directory is compiled first, into a cache by content.
Result<std::shared_ptr<runtime::LoadedArtifact>> openModel(const std::string &path, const EngineFlags &flags, const runtime::Device &device);
/// The compiled form of a model file or directory, from the cache or compiled now.
Result<std::string> cachedArtifact(const std::string &model);
/// True for what openModel compiles first.
bool isModelSource(const std::string &path);
/// |status| with what to do when |path| is no artifact but a model by its name.
Status withCompileHint(Status status, const std::string &path);
/// Path of libexec/lathe-compiler beside this program.
std::string compilerPath();

/// The value of '--speculate'.
Result<runtime::Speculation> speculationOption(const std::string &value);

/// Peak resident memory of this process so far, in bytes.
uint64_t peakMemory();
/// Runs |options| over |args|; prints --help and returns false when asked for.
Result<bool> parseOptions(Options &options, const Args &args, Args &positional);
/// The one positional argument; an error that says what is expected otherwise.
Result<std::string> onePositional(const Args &positional, const char *what);

/// A line on standard error that says how far long work is and is written over; nothing where that is no terminal.
class Progress {
public:
  ~Progress() { clear(); }
  /// Shows "|what| |done| of |all|".
  void show(const char *what, uint64_t done, uint64_t all);
  /// Takes the line away, before a line on standard output.
  void clear();

private:
  bool shown = false;
};

/// Set by Ctrl-C while an answer is generated (see InterruptGuard).
extern std::atomic<bool> interrupted;
/// While it lives, Ctrl-C sets |interrupted| instead of ending the process.
class InterruptGuard {
public:
  InterruptGuard();
  ~InterruptGuard();
};

} // namespace lathe::tool
