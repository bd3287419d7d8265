//===- Loader.cpp ---------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "runtime/artifact/Loader.h"
#include "lathe/artifact/Graph.h"
#include "lathe/artifact/ProgramCodec.h"
#include "runtime/artifact/CpuFeatures.h"
#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstring>
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

namespace lathe::runtime {
using artifact::SectionKind;
using artifact::Variant;

namespace {

/// A descriptor of anonymous memory that holds |bytes|, for dlopen.
Result<int> memoryFile(std::span<const uint8_t> bytes) {
  int fd = memfd_create("lathe-code", MFD_CLOEXEC);
  if (fd < 0) return makeError(StatusCode::internal, "memfd_create: %s", std::strerror(errno));
  for (size_t done = 0; done < bytes.size();) {
    ssize_t n = ::write(fd, bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      Status status = makeError(StatusCode::resourceExhausted, "cannot copy %zu bytes of code to memory: %s",
                                bytes.size(), std::strerror(errno));
      ::close(fd);
      return status;
    }
    done += static_cast<size_t>(n);
  }
  return fd;
}

} // namespace

LoadedArtifact::~LoadedArtifact() {
  if (library) dlclose(library);
  if (codeFile >= 0) ::close(codeFile);
  if (synthetic) munmap(synthetic, weightBytes.size());
}

Result<std::shared_ptr<LoadedArtifact>> LoadedArtifact::load(const std::string &path, const LoadOptions &options) {
  auto begin = std::chrono::steady_clock::now();
  std::shared_ptr<LoadedArtifact> loaded(new LoadedArtifact());
  LATHE_ASSIGN_OR_RETURN(loaded->file, MappedFile::open(path));
  auto inFile = [&](Status status) { return std::move(status).at("'" + path + "'"); };

  auto view = artifact::ArtifactView::parse(loaded->file.bytes());
  if (!view.ok()) return inFile(view.status());
  loaded->sections = *std::move(view);
  Variant gpu = Variant::none; // the GPU whose program was asked for
  if (!options.gpu.empty()) {
    std::string there;
    size_t best = std::string::npos; // place in the list of what was asked for
    for (const artifact::Section &s : loaded->sections.sections()) {
      auto variant = static_cast<Variant>(s.variant);
      if (s.kind != static_cast<uint32_t>(SectionKind::program) || !artifact::isGpu(variant)) continue;
      there += (there.empty() ? "" : ", ") + std::string(artifact::toString(variant));
      size_t place = options.gpu == "any" ? 0 : ("," + options.gpu + ",").find("," + std::string(artifact::toString(variant)) + ",");
      if (place < best) best = place, gpu = variant;
    }
    if (gpu == Variant::none)
      return inFile(makeError(StatusCode::notFound, "the artifact has no code for %s, it has: %s; compile with '--target x86,sm_80'",
                              options.gpu == "any" ? "a GPU" : options.gpu.c_str(), there.empty() ? "none" : there.c_str()));
  }
  auto programBytes = loaded->sections.find(SectionKind::program, gpu);
  if (!programBytes)
    return inFile(Status(StatusCode::dataLoss, loaded->sections.sections().empty() || gpu != Variant::none
                                                   ? "section 'program' is missing"
                                                   : "section 'program' is missing: the artifact has no code for x86-64"));
  auto program = decodeProgram(*programBytes);
  if (!program.ok()) return inFile(program.status());
  loaded->code = *std::move(program);
  loaded->weightBytes = loaded->sections.weights();
  if (Status s = validateProgram(loaded->code, loaded->weightBytes.size()); !s.ok()) return inFile(std::move(s));
  if (auto graphBytes = loaded->sections.find(SectionKind::graph)) {
    auto graph = decodeGraphSection(*graphBytes, loaded->weightBytes.size(), loaded->code.vocabulary);
    if (!graph.ok()) return inFile(graph.status());
    const Program &p = loaded->code;
    if ((gpu == Variant::none && (p.kernels.size() != 1 || p.kernels[0] != "lathe_graph")) || !p.launches.empty() || p.syntheticWeightBytes || p.kvGroups.size() != 1 || p.kvGroups[0].kind != 0)
      return inFile(Status(StatusCode::dataLoss, "graph: expected a program of the function 'lathe_graph' alone, with one KV group of full attention"));
    loaded->general = std::make_unique<GraphSection>(*std::move(graph));
  }
  if (Status s = loaded->file.check(); !s.ok()) return s;
  if (loaded->code.syntheticWeightBytes) LATHE_RETURN_IF_ERROR(loaded->makeSyntheticWeights());
  loaded->chosen = gpu;
  if (gpu == Variant::none || loaded->general) { // a GPU's graph has code for the host
    if (Status s = loaded->enterCode(options.variant); !s.ok()) return inFile(std::move(s));
    if (Status fits = loaded->checkGraph(); !fits.ok()) return inFile(std::move(fits));
  }
  loaded->seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return loaded;
}

/// Enters the code of the best variant; with a GPU chosen, what its graph has the host do.
Status LoadedArtifact::enterCode(const std::string &wanted) {
  bool host = artifact::isGpu(chosen);
  std::vector<Variant> present;
  for (const artifact::Section &s : sections.sections())
    if (auto v = static_cast<Variant>(s.variant); s.kind == static_cast<uint32_t>(SectionKind::code) && !artifact::isGpu(v)) present.push_back(v);
  if (host) present = {Variant::avx2}; // what it is made for
  LATHE_ASSIGN_OR_RETURN(Variant best, chooseVariant(present, CpuFeatures::detect(), host ? "" : wanted));
  if (!host) chosen = best;
  auto bytes = sections.find(SectionKind::code, chosen);
  if (!bytes) return makeError(StatusCode::dataLoss, "section 'code' for %s is missing", artifact::toString(chosen));
  // glibc's loader trusts program headers; refuse at least what is not ELF for this machine.
  static const uint8_t ident[] = {0x7f, 'E', 'L', 'F', 2, 1, 1};
  if (bytes->size() < 64 || std::memcmp(bytes->data(), ident, sizeof ident) != 0 || (*bytes)[16] != 3 ||
      (*bytes)[18] != 62)
    return makeError(StatusCode::dataLoss, "code section '%s' is not an x86-64 shared object",
                     artifact::toString(chosen));
  // dlopen takes a name that it has seen for the library that it has, so the descriptor stays open, and its number taken,
  // for as long as the library is loaded.
  LATHE_ASSIGN_OR_RETURN(codeFile, memoryFile(*bytes));
  std::string name = "/proc/self/fd/" + std::to_string(codeFile);
  library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  const char *error = library ? nullptr : dlerror();
  if (!library)
    return makeError(StatusCode::dataLoss, "cannot load code '%s': %s", artifact::toString(chosen),
                     error ? error : "unknown error");
  const std::vector<std::string> entry{"lathe_graph"};
  functions.reserve(code.kernels.size());
  for (const std::string &kernel : host ? entry : code.kernels) {
    void *symbol = dlsym(library, kernel.c_str());
    if (!symbol)
      return makeError(StatusCode::dataLoss, "kernel '%s' is missing in code '%s'", kernel.c_str(),
                       artifact::toString(chosen));
    functions.push_back(reinterpret_cast<LatheKernelFn>(symbol));
  }
  return Status();
}

/// The section may name no tensors but those that the function reads and writes.
Status LoadedArtifact::checkGraph() const {
  if (!general) return Status();
  const auto *words = static_cast<const int64_t *>(dlsym(library, graphInterfaceSymbol));
  if (!words)
    return makeError(StatusCode::dataLoss, "'%s' is missing in code '%s'; compile the model again", graphInterfaceSymbol, artifact::toString(chosen));
  return checkGraphInterface(*general, {words + 1, static_cast<size_t>(*words)});
}

Status LoadedArtifact::makeSyntheticWeights() {
  size_t bytes = (code.syntheticWeightBytes + 7) & ~size_t(7);
  void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    return makeError(StatusCode::resourceExhausted, "cannot allocate %" PRIu64 " bytes of synthetic weights",
                     code.syntheticWeightBytes);
  synthetic = memory;
  weightBytes = {static_cast<const uint8_t *>(memory), bytes};
  // splitmix64; per 16-bit word sign and top exponent bits are fixed so that it reads as a float16 of 0.004 to 0.06.
  auto *words = static_cast<uint64_t *>(memory);
  uint64_t state = code.syntheticSeed;
  for (size_t i = 0; i < bytes / 8; ++i) {
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    words[i] = ((z ^ (z >> 31)) & 0x0fff0fff0fff0fffu) | 0x1c001c001c001c00u;
  }
  return Status();
}

} // namespace lathe::runtime
