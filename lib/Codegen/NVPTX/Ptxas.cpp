//===- Ptxas.cpp - NVIDIA's assembler as a checker and for cubins -------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "NVPTX/Lower.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/Regex.h"
#include "llvm/Support/raw_ostream.h"
#include <cstdlib>

namespace lathe::codegen::nvptx {

std::string findPtxas() {
  if (const char *given = std::getenv("LATHE_PTXAS")) return given;
  auto found = llvm::sys::findProgramByName("ptxas");
  return found ? *found : "";
}

static std::string contents(llvm::StringRef path) {
  auto buffer = llvm::MemoryBuffer::getFile(path, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  return buffer ? (*buffer)->getBuffer().str() : "";
}

Result<PtxasReport> runPtxas(const std::string &ptxas, const std::string &ptx, const Chip &chip) {
  llvm::SmallString<64> source, object, log;
  llvm::scope_exit cleanUp([&] {
    for (auto &path : {source, object, log})
      if (!path.empty()) llvm::sys::fs::remove(path);
  });
  int fd = -1;
  if (llvm::sys::fs::createTemporaryFile("lathe", "ptx", fd, source) || llvm::sys::fs::createTemporaryFile("lathe", "cubin", object) ||
      llvm::sys::fs::createTemporaryFile("lathe", "log", log))
    return makeError(StatusCode::resourceExhausted, "cannot make temporary files for ptxas");
  {
    llvm::raw_fd_ostream os(fd, /*shouldClose=*/true);
    os << ptx;
  }
  std::string arch = std::string("-arch=") + chip.name;
  std::optional<llvm::StringRef> redirects[] = {std::nullopt, log.str(), log.str()};
  std::string error;
  int rc = llvm::sys::ExecuteAndWait(ptxas, {ptxas, "-v", arch, source, "-o", object}, std::nullopt, redirects, 0, 0, &error);
  std::string said = contents(log);
  if (rc < 0 || !error.empty()) return makeError(StatusCode::notFound, "cannot run '%s': %s", ptxas.c_str(), error.c_str());
  if (rc) return makeError(StatusCode::invalidArgument, "ptxas refuses the PTX for %s: %s", chip.name, said.c_str());
  PtxasReport report = readPtxasLog(std::move(said));
  report.cubin = contents(object);
  return report;
}

PtxasReport readPtxasLog(std::string log) {
  PtxasReport report;
  report.log = std::move(log);
  llvm::Regex function("Function properties for ([^ ]+)"), number("([0-9]+) bytes stack frame, ([0-9]+) bytes spill stores, ([0-9]+) bytes spill loads"),
      registers("Used ([0-9]+) registers");
  llvm::SmallVector<llvm::StringRef> lines, m;
  llvm::StringRef(report.log).split(lines, '\n');
  auto value = [](llvm::StringRef s) { return int(std::strtol(s.str().c_str(), nullptr, 10)); };
  std::string kernel = "?"; // the line before says it
  for (llvm::StringRef line : lines) {
    if (function.match(line, &m)) kernel = m[1].trim().str();
    if (number.match(line, &m)) {
      PtxasSpill spill{kernel, value(m[1]), value(m[2]) + value(m[3])};
      report.stackBytes += spill.stackBytes, report.spillBytes += spill.spillBytes;
      if (spill.stackBytes || spill.spillBytes) report.spills.push_back(std::move(spill));
    }
    if (registers.match(line, &m)) report.maxRegisters = std::max(report.maxRegisters, value(m[1]));
    if (line.contains("warning") || line.contains("(C75")) report.warnings.push_back(line.trim().str());
  }
  return report;
}

std::vector<std::string> complaints(const PtxasReport &report, const Chip &chip) {
  std::vector<std::string> lines;
  for (const PtxasSpill &s : report.spills)
    lines.push_back("kernel '" + s.kernel + "' for " + chip.name + ": expected its values in registers, found a stack of " + std::to_string(s.stackBytes) + " bytes a thread and " +
                    std::to_string(s.spillBytes) + " bytes of spills: it computes the same, but slower");
  for (const std::string &warning : report.warnings) lines.push_back(std::string(chip.name) + ": " + warning);
  return lines;
}

} // namespace lathe::codegen::nvptx
