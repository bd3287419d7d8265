//===- Main.cpp - the driver ----------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Links the runtime only; what needs the compiler starts libexec/lathe-compiler.
//===----------------------------------------------------------------------===//
#include "Commands.h"
#include "lathe/artifact/Format.h"
#include <cstdio>
#include <cstring>

using namespace lathe;
using namespace lathe::tool;

static const char helpText[] =
    "lathe compiles a large language model into one file and runs it.\n"
    "\n"
    "usage: lathe COMMAND [options]\n"
    "\n"
    "  lathe compile MODEL -o FILE.lathe   compile a GGUF file, an .onnx file or a HuggingFace directory\n"
    "  lathe run FILE.lathe -p TEXT        continue a text, or answer with --chat\n"
    "  lathe run FILE.lathe                talk with the model\n"
    "  lathe serve FILE.lathe...           answer OpenAI clients over HTTP\n"
    "  lathe load URL                      measure a server under load\n"
    "  lathe bench FILE.lathe              measure tokens per second\n"
    "  lathe eval FILE.lathe --text FILE   perplexity, or the distance to another artifact\n"
    "  lathe inspect FILE.lathe            what is in the file\n"
    "  lathe explain FILE.lathe            where the time goes, kernel by kernel\n"
    "  lathe simulate                      try scheduling policies on a simulated clock\n"
    "  lathe replay TRACE                  run a scheduler's trace again and compare\n"
    "  lathe bisect MODEL                  the first operation that differs between two phases\n"
    "\n"
    "'lathe COMMAND --help' lists the options of a command. 'lathe run MODEL' compiles a model into a cache first.\n"
    "An artifact holds native code: run only files that you would trust as a program.\n";

int main(int argc, char **argv) {
  std::string command = argc > 1 ? argv[1] : "";
  Args args(argv + (argc > 2 ? 2 : argc), argv + argc);
  if (command.empty() || command == "--help" || command == "-h" || command == "help") {
    std::fputs(helpText, command.empty() ? stderr : stdout);
    return command.empty() ? 2 : 0;
  }
  if (command == "--version") {
    std::printf("lathe %s (artifact format %u)\n", LATHE_VERSION, artifact::formatVersion);
    return 0;
  }
  Result<int> result = [&]() -> Result<int> {
    if (command == "run") return runCommand(args);
    if (command == "bench") return benchCommand(args);
    if (command == "eval") return evalCommand(args);
    if (command == "inspect") return inspectCommand(args);
    if (command == "explain") return explainCommand(args);
    if (command == "serve") return serveCommand(args);
    if (command == "load") return loadCommand(args);
    if (command == "simulate") return simulateCommand(args);
    if (command == "replay") return replayCommand(args);
    if (command == "compile" || command == "bisect") return compilerCommand(command, args);
    return makeError(StatusCode::invalidArgument,
                     "unknown command '%s', expected compile, run, serve, load, bench, eval, inspect, explain, simulate, "
                     "replay or bisect",
                     command.c_str());
  }();
  if (result.ok()) return *result;
  std::fflush(stdout);
  std::fprintf(stderr, "lathe: error: %s\n", result.status().message().c_str());
  return result.status().code() == StatusCode::invalidArgument ? 2 : 1;
}
