//===- MappedFile.cpp -----------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "lathe/base/MappedFile.h"
#include <atomic>
#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <mutex>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace lathe {
namespace {

// The handler may only touch lock-free state, so mappings live in a fixed table.
constexpr int maxMappings = 1024;
constexpr size_t pageSize = 4096;
struct Mapping {
  std::atomic<uintptr_t> begin{0};
  std::atomic<uintptr_t> end{0};
  std::atomic<bool> damaged{false};
};
Mapping table[maxMappings];
std::mutex tableMutex;
struct sigaction previousAction;

void onBusError(int signal, siginfo_t *info, void *context) {
  auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (Mapping &mapping : table) {
    if (address < mapping.begin.load(std::memory_order_acquire) || address >= mapping.end.load()) continue;
    void *page = reinterpret_cast<void *>(address & ~(pageSize - 1));
    int saved = errno;
    void *got = mmap(page, pageSize, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    errno = saved;
    if (got == MAP_FAILED) break;
    mapping.damaged.store(true, std::memory_order_release);
    return; // the faulting read is repeated and sees zeros
  }
  // Not ours: hand on to whoever was there before, or die as without a handler.
  if (previousAction.sa_flags & SA_SIGINFO) {
    previousAction.sa_sigaction(signal, info, context);
  } else {
    sigaction(SIGBUS, &previousAction, nullptr);
  }
}

void installHandler() {
  struct sigaction action {};
  action.sa_sigaction = onBusError;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, &previousAction);
}

int reserveSlot(uintptr_t begin, uintptr_t end) {
  std::lock_guard lock(tableMutex);
  static bool installed = (installHandler(), true);
  (void)installed;
  for (int i = 0; i < maxMappings; ++i) {
    if (table[i].end.load() != 0) continue;
    table[i].damaged = false;
    table[i].begin = begin;
    table[i].end = end;
    return i;
  }
  return -1;
}

} // namespace

MappedFile::~MappedFile() {
  if (slot >= 0) {
    std::lock_guard lock(tableMutex);
    table[slot].begin = 0;
    table[slot].end = 0;
  }
  if (base && size) munmap(const_cast<uint8_t *>(base), size);
}

MappedFile::MappedFile(MappedFile &&other) noexcept { *this = std::move(other); }

MappedFile &MappedFile::operator=(MappedFile &&other) noexcept {
  std::swap(name, other.name);
  std::swap(base, other.base);
  std::swap(size, other.size);
  std::swap(slot, other.slot);
  return *this;
}

Result<MappedFile> MappedFile::open(const std::string &path) {
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    return makeError(errno == ENOENT ? StatusCode::notFound : StatusCode::invalidArgument, "cannot open '%s': %s",
                     path.c_str(), std::strerror(errno));
  struct stat info {};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(fd);
    return makeError(StatusCode::invalidArgument, "'%s' is not a regular file", path.c_str());
  }
  MappedFile file;
  file.name = path;
  file.size = static_cast<size_t>(info.st_size);
  if (file.size) {
    void *got = mmap(nullptr, file.size, PROT_READ, MAP_SHARED, fd, 0);
    if (got == MAP_FAILED) {
      int error = errno;
      ::close(fd);
      file.size = 0;
      return makeError(StatusCode::internal, "cannot map '%s': %s", path.c_str(), std::strerror(error));
    }
    file.base = static_cast<const uint8_t *>(got);
    auto begin = reinterpret_cast<uintptr_t>(got);
    file.slot = reserveSlot(begin, begin + file.size);
    if (file.slot < 0) {
      ::close(fd);
      return makeError(StatusCode::resourceExhausted, "more than %d files are mapped", maxMappings);
    }
  }
  ::close(fd);
  return file;
}

Status MappedFile::check() const {
  if (slot >= 0 && table[slot].damaged.load(std::memory_order_acquire))
    return makeError(StatusCode::dataLoss, "'%s' became shorter than %zu bytes while it was read", name.c_str(), size);
  return Status();
}

void MappedFile::drop(size_t offset, size_t bytes) const {
  if (!base || offset >= size) return;
  size_t begin = (offset + pageSize - 1) & ~(pageSize - 1);
  size_t end = std::min(size, offset + bytes) & ~(pageSize - 1);
  if (begin < end) madvise(const_cast<uint8_t *>(base) + begin, end - begin, MADV_DONTNEED);
}

Result<std::string> resolveInside(const std::string &directory, const std::string &name) {
  auto refuse = [&](const char *why) {
    return makeError(StatusCode::invalidArgument, "file name '%s': %s", name.c_str(), why);
  };
  if (name.empty() || name.find('\0') != std::string::npos) return refuse("expected a relative file name");
  if (name[0] == '/') return refuse("expected a relative file name, found an absolute one");
  for (size_t begin = 0; begin <= name.size();) {
    size_t end = std::min(name.find('/', begin), name.size());
    if (name.compare(begin, end - begin, "..") == 0) return refuse("'..' is not allowed");
    begin = end + 1;
  }
  char root[PATH_MAX], real[PATH_MAX];
  if (!realpath(directory.c_str(), root))
    return makeError(StatusCode::notFound, "cannot open '%s': %s", directory.c_str(), std::strerror(errno));
  std::string joined = directory + "/" + name;
  if (!realpath(joined.c_str(), real))
    return makeError(StatusCode::notFound, "cannot open '%s': %s", joined.c_str(), std::strerror(errno));
  std::string prefix = std::string(root) == "/" ? "/" : std::string(root) + "/";
  if (std::string(real).compare(0, prefix.size(), prefix) != 0)
    return refuse("resolves to a file outside the model's directory; of a cache of links, make a copy with 'cp -rL'");
  struct stat info {};
  if (stat(real, &info) != 0 || !S_ISREG(info.st_mode)) return refuse("is not a regular file");
  return std::string(real);
}

} // namespace lathe
