//===- Link.cpp - objects to one shared object, with lld as a library -------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "X86/Compile.h"
#include "lld/Common/Driver.h"
#include "llvm/Support/raw_ostream.h"
#include <mutex>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

LLD_HAS_DRIVER(elf)

namespace lathe::codegen {

namespace {
/// An anonymous file that the linker opens by its /proc path: nothing is left on disk, whatever happens.
struct MemoryFile {
  int fd = -1;
  explicit MemoryFile(const char *name) : fd(memfd_create(name, 0)) {}
  MemoryFile(MemoryFile &&o) : fd(std::exchange(o.fd, -1)) {}
  ~MemoryFile() {
    if (fd >= 0) close(fd);
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd); }
  bool fill(llvm::StringRef bytes) {
    while (!bytes.empty()) {
      ssize_t n = write(fd, bytes.data(), bytes.size());
      if (n <= 0) return false;
      bytes = bytes.drop_front(size_t(n));
    }
    return true;
  }
};
} // namespace

Result<std::string> linkObjects(llvm::ArrayRef<std::string> objects, llvm::ArrayRef<const char *> libraries) {
  static std::mutex mutex; // lld keeps global state
  std::lock_guard<std::mutex> lock(mutex);
  static bool usable = true;
  if (!usable) return makeError(StatusCode::internal, "the linker failed earlier in this process and cannot run again");

  std::vector<MemoryFile> files;
  std::vector<std::string> paths;
  for (const std::string &o : objects) {
    MemoryFile f("lathe-object");
    if (f.fd < 0 || !f.fill(o))
      return makeError(StatusCode::resourceExhausted, "cannot hold an object of %zu bytes in memory", o.size());
    paths.push_back(f.path());
    files.push_back(std::move(f));
  }
  char directory[] = "/tmp/lathe-link-XXXXXX"; // lld replaces its output file, so that one needs a real name
  if (!mkdtemp(directory)) return makeError(StatusCode::resourceExhausted, "cannot make a temporary directory in /tmp");
  std::string out = std::string(directory) + "/code.so";
  std::vector<const char *> args{"ld.lld",
                                 "-shared",
                                 "-nostdlib",
                                 "--build-id=none",
                                 "--strip-all",
                                 "--hash-style=gnu",
                                 "-soname=lathe-code",
                                 "--threads=1",
                                 "-z",
                                 "defs",
                                 "-z",
                                 "now",
                                 "-z",
                                 "relro",
                                 "-z",
                                 "noexecstack",
                                 "-o",
                                 out.c_str()};
  for (const std::string &p : paths)
    args.push_back(p.c_str());
  std::vector<std::string> names;
  for (const char *library : libraries)
    names.push_back(std::string("-l:") + library);
  if (!libraries.empty()) args.insert(args.end(), {"--as-needed", "-L/lib/x86_64-linux-gnu", "-L/usr/lib/x86_64-linux-gnu", "-L/lib64", "-L/usr/lib64"});
  for (const std::string &name : names)
    args.push_back(name.c_str());
  std::string messages, bytes;
  llvm::raw_string_ostream os(messages);
  lld::Result r = lld::lldMain(args, os, os, {{lld::Gnu, &lld::elf::link}});
  usable = r.canRunAgain;
  if (r.retCode == 0) {
    if (FILE *f = fopen(out.c_str(), "rb")) {
      char buffer[65536];
      for (size_t n; (n = fread(buffer, 1, sizeof buffer, f)) > 0;)
        bytes.append(buffer, n);
      fclose(f);
    }
  }
  unlink(out.c_str());
  rmdir(directory);
  if (r.retCode != 0 || bytes.empty())
    return makeError(StatusCode::internal, "linking %zu objects failed: %s", objects.size(), messages.c_str());
  return bytes;
}

} // namespace lathe::codegen
