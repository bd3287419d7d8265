//===- lathe-onnx-test.cpp - runs the ONNX project's backend tests -----------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Every case is a directory with model.onnx and test_data_set_N/{input,output}_M.pb. Each runs in a process of its own, on the
// interpreter, on compiled code, or both, or as code for sm_80 on the emulator. Prints a line a case: name, "pass", "fail" or "unsupported", and the reason; the status is 1 if
// a case fails.
//===----------------------------------------------------------------------===//
#include "Cases.h"
#include "CompiledGraph.h"
#include "lathe/Codegen/General.h"
#include "lathe/Interpreter/ONNXInterpreter.h"
#include "lathe/import/ONNXModule.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/MLIRContext.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/Path.h"
#include <map>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace mlir;
using namespace lathe;
using namespace lathe::onnxtest;

static llvm::cl::list<std::string> paths(llvm::cl::Positional, llvm::cl::OneOrMore, llvm::cl::desc("<directory of cases, or cases>"));
static llvm::cl::opt<std::string> on("on", llvm::cl::desc("interpreter, compiled, both or emulator"), llvm::cl::init("both"));
static llvm::cl::opt<unsigned> jobs("jobs", llvm::cl::desc("cases at the same time"), llvm::cl::init(2));
static llvm::cl::opt<unsigned> limit("limit", llvm::cl::desc("seconds of processor time that a case may take"), llvm::cl::init(120));
static llvm::cl::opt<unsigned> patience("wait", llvm::cl::desc("seconds that a case may take in all (default: 20 times the limit)"), llvm::cl::init(0));
static llvm::cl::opt<bool> quiet("quiet", llvm::cl::desc("print failures and the summary only"));
static llvm::cl::opt<unsigned> every("every", llvm::cl::desc("run one of so many cases"), llvm::cl::init(1));

namespace {

/// "pass", "unsupported: why" or "fail: why".
std::string runCase(MLIRContext &context, const std::string &directory) {
  auto module = importONNX(context, directory + "/model.onnx");
  if (!module.ok()) {
    // A file that the standard's own tests hold is valid: what we cannot read we do not support.
    std::string text = module.status().message();
    if (size_t at = text.find("model.onnx: "); at != std::string::npos) text = text.substr(at + 12);
    return "unsupported: " + text;
  }
  auto sets = readDataSets(directory);
  if (!sets.ok()) return "unsupported: " + sets.status().message();
  auto check = [&](const char *what, const auto &run) -> std::string {
    for (size_t s = 0; s < sets->size(); ++s) {
      auto outputs = run((*sets)[s].inputs);
      std::string where = std::string(what) + (sets->size() > 1 ? ", data set " + std::to_string(s) : "");
      if (!outputs.ok()) return (outputs.status().code() == StatusCode::unsupported ? "unsupported: " : "fail: ") + where + ": " + outputs.status().message();
      if (outputs->size() != (*sets)[s].outputs.size()) return "fail: " + where + ": another number of results";
      for (size_t i = 0; i < outputs->size(); ++i)
        if (Status same = compare((*sets)[s].outputs[i], (*outputs)[i], 1e-3, 1e-7); !same.ok())
          return "fail: " + where + ": result " + std::to_string(i) + ", " + same.message();
    }
    return "pass";
  };
  if (on == "emulator") {
    auto graph = CompiledGraph::compile(**module, artifact::Variant::sm_80);
    if (!graph.ok()) return (graph.status().code() == StatusCode::unsupported ? "unsupported: " : "fail: compiler: ") + graph.status().message();
    return check("emulator", [&](const std::vector<onnx::HostTensor> &inputs) { return graph->run(inputs); });
  }
  if (on != "compiled") {
    std::string result = check("interpreter", [&](const std::vector<onnx::HostTensor> &inputs) { return interp::runONNX(**module, inputs); });
    if (result != "pass" || on == "interpreter") return result;
  }
  auto graph = CompiledGraph::compile(**module);
  if (!graph.ok()) return (graph.status().code() == StatusCode::unsupported ? "unsupported: " : "fail: compiler: ") + graph.status().message();
  return check("compiled", [&](const std::vector<onnx::HostTensor> &inputs) { return graph->run(inputs); });
}

struct Child {
  std::string name;
  int fd;
};

} // namespace

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  llvm::cl::ParseCommandLineOptions(argc, argv, "runs the ONNX project's backend tests\n");
  std::vector<std::string> cases;
  for (const std::string &path : paths) {
    if (llvm::sys::fs::exists(path + "/model.onnx")) {
      cases.push_back(path);
      continue;
    }
    std::error_code error;
    for (llvm::sys::fs::directory_iterator it(path, error), end; it != end && !error; it.increment(error))
      if (llvm::sys::fs::exists(it->path() + "/model.onnx")) cases.push_back(it->path());
  }
  llvm::sort(cases);
  if (cases.empty()) {
    llvm::errs() << "error: no directory with a model.onnx in the given paths\n";
    return 1;
  }
  DialectRegistry registry;
  codegen::registerGeneralDialects(registry);
  registry.insert<onnx::ONNXDialect, LLVM::LLVMDialect, vector::VectorDialect>();
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  context.loadAllAvailableDialects();

  std::map<pid_t, Child> running;
  std::map<std::string, std::string> results;
  auto reap = [&] {
    int status = 0;
    pid_t pid = wait(&status);
    auto child = running.find(pid);
    if (child == running.end()) return;
    std::string text;
    char buffer[4096];
    for (ssize_t n; (n = read(child->second.fd, buffer, sizeof buffer)) > 0;)
      text.append(buffer, size_t(n));
    close(child->second.fd);
    if (WIFSIGNALED(status)) text = std::string("fail: ended by signal ") + strsignal(WTERMSIG(status));
    else if (text.empty()) text = "fail: ended without a result";
    for (char &c : text)
      if (c == '\n') c = ' ';
    results[child->second.name] = text;
    running.erase(child);
  };
  for (size_t i = 0; i < cases.size(); i += every) {
    while (running.size() >= std::max(1u, unsigned(jobs)))
      reap();
    int fds[2];
    if (pipe(fds) != 0) return 1;
    pid_t pid = fork();
    if (pid == 0) {
      close(fds[0]);
      rlimit seconds{limit, rlim_t(limit) + 1}; // equal ones would end it by SIGKILL, which says nothing
      setrlimit(RLIMIT_CPU, &seconds); // its own time: a machine may be busy
      alarm(patience ? patience : 20 * limit); // a case that waits for ever uses none
      std::string text = runCase(context, cases[i]);
      if (text.size() > 3000) text.resize(3000);
      bool written = write(fds[1], text.data(), text.size()) == ssize_t(text.size());
      _exit(written ? 0 : 1);
    }
    close(fds[1]);
    if (pid < 0) return 1;
    running[pid] = {llvm::sys::path::filename(cases[i]).str(), fds[0]};
  }
  while (!running.empty())
    reap();
  size_t passed = 0, failed = 0, unsupported = 0;
  for (const auto &[name, text] : results) {
    bool pass = text == "pass", fail = text.starts_with("fail");
    (pass ? passed : fail ? failed : unsupported)++;
    if (!quiet || fail) llvm::outs() << name << "\t" << text << "\n";
  }
  llvm::outs() << passed << " passed, " << failed << " failed, " << unsupported << " unsupported\n";
  return failed != 0;
}
