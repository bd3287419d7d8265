//===- Writer.cpp ---------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "lathe/artifact/Writer.h"
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace lathe::artifact {
namespace {

constexpr size_t bufferBytes = 1 << 20;

std::string temporaryName(const std::string &path) {
  static std::atomic<unsigned> counter{0};
  return path + ".tmp-" + std::to_string(getpid()) + "-" + std::to_string(counter.fetch_add(1));
}

Status writeAt(int fd, const uint8_t *data, size_t bytes, uint64_t offset) {
  while (bytes) {
    ssize_t n = pwrite(fd, data, bytes, static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return makeError(StatusCode::internal, "%s", std::strerror(n < 0 ? errno : EIO));
    data += n;
    bytes -= static_cast<size_t>(n);
    offset += static_cast<uint64_t>(n);
  }
  return Status();
}

} // namespace

Result<ArtifactWriter> ArtifactWriter::create(const std::string &path) {
  ArtifactWriter writer;
  writer.path = path;
  size_t slash = path.rfind('/');
  writer.directory = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  struct stat info {};
  if (path.empty() || path.back() == '/' || (stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)))
    return makeError(StatusCode::invalidArgument, "cannot write '%s': it is a directory, expected a file name",
                     path.c_str());
  // A file without a name vanishes with the process, whatever kills it.
  writer.fd = ::open(writer.directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
  if (writer.fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL)) {
    writer.temporary = temporaryName(path);
    writer.fd = ::open(writer.temporary.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0666);
    if (writer.fd < 0) writer.temporary.clear();
  }
  if (writer.fd < 0)
    return makeError(errno == ENOENT ? StatusCode::notFound : StatusCode::invalidArgument, "cannot write '%s': %s",
                     path.c_str(), std::strerror(errno));
  writer.buffer.reserve(bufferBytes);
  writer.position = sectionAlignment; // the header is written last
  return writer;
}

ArtifactWriter::ArtifactWriter(ArtifactWriter &&other) noexcept { *this = std::move(other); }

ArtifactWriter &ArtifactWriter::operator=(ArtifactWriter &&other) noexcept {
  std::swap(path, other.path);
  std::swap(directory, other.directory);
  std::swap(temporary, other.temporary);
  std::swap(fd, other.fd);
  std::swap(position, other.position);
  std::swap(weightsBegun, other.weightsBegun);
  std::swap(sections, other.sections);
  std::swap(buffer, other.buffer);
  std::swap(hasher, other.hasher);
  return *this;
}

ArtifactWriter::~ArtifactWriter() { discard(); }

void ArtifactWriter::discard() {
  if (fd >= 0) ::close(fd);
  fd = -1;
  if (!temporary.empty()) ::unlink(temporary.c_str());
  temporary.clear();
}

Status ArtifactWriter::fail(const char *what) {
  int error = errno;
  discard();
  return makeError(error == ENOSPC || error == EDQUOT ? StatusCode::resourceExhausted : StatusCode::internal,
                   "cannot write '%s': %s: %s", path.c_str(), what, std::strerror(error));
}

Status ArtifactWriter::flush() {
  if (fd < 0) return makeError(StatusCode::failedPrecondition, "'%s' is no longer being written", path.c_str());
  if (buffer.empty()) return Status();
  Status status = writeAt(fd, buffer.data(), buffer.size(), position - buffer.size());
  if (!status.ok()) return fail("write");
  buffer.clear();
  return Status();
}

Status ArtifactWriter::write(std::span<const uint8_t> bytes) {
  if (fd < 0) return makeError(StatusCode::failedPrecondition, "'%s' is no longer being written", path.c_str());
  if (buffer.size() + bytes.size() > bufferBytes) LATHE_RETURN_IF_ERROR(flush());
  if (bytes.size() > bufferBytes) {
    if (!writeAt(fd, bytes.data(), bytes.size(), position).ok()) return fail("write");
  } else {
    buffer.insert(buffer.end(), bytes.begin(), bytes.end());
  }
  position += bytes.size();
  return Status();
}

Status ArtifactWriter::alignTo(uint64_t alignment) {
  LATHE_RETURN_IF_ERROR(flush());
  position = (position + alignment - 1) / alignment * alignment; // a hole reads as zeros
  return Status();
}

Status ArtifactWriter::addSection(SectionKind kind, Variant variant, std::span<const uint8_t> bytes) {
  if (weightsBegun || kind == SectionKind::weights)
    return makeError(StatusCode::failedPrecondition, "'%s': WEIGHTS is the last section", path.c_str());
  for (const Section &section : sections)
    if (section.kind == static_cast<uint32_t>(kind) && section.variant == static_cast<uint32_t>(variant))
      return makeError(StatusCode::failedPrecondition, "'%s': a section of kind %u and variant %u is there already",
                       path.c_str(), section.kind, section.variant);
  if (sections.size() + 1 >= maxSections)
    return makeError(StatusCode::resourceExhausted, "'%s': more than %u sections", path.c_str(), maxSections);
  LATHE_RETURN_IF_ERROR(alignTo(sectionAlignment));
  sections.push_back({static_cast<uint32_t>(kind), static_cast<uint32_t>(variant), position, bytes.size(),
                      hashBytes(bytes)});
  return write(bytes);
}

Status ArtifactWriter::beginWeights() {
  if (weightsBegun) return makeError(StatusCode::failedPrecondition, "'%s': WEIGHTS has begun", path.c_str());
  LATHE_RETURN_IF_ERROR(alignTo(sectionAlignment));
  weightsBegun = true;
  sections.push_back({static_cast<uint32_t>(SectionKind::weights), 0, position, 0, {}});
  return Status();
}

Status ArtifactWriter::append(std::span<const uint8_t> bytes) {
  if (!weightsBegun) return makeError(StatusCode::failedPrecondition, "'%s': WEIGHTS has not begun", path.c_str());
  hasher.update(bytes);
  return write(bytes);
}

Status ArtifactWriter::pad(uint64_t alignment) {
  static const uint8_t zeros[4096] = {};
  if (!alignment) return makeError(StatusCode::invalidArgument, "expected an alignment above 0");
  uint64_t rest = (alignment - weightBytes() % alignment) % alignment;
  while (rest) {
    uint64_t n = rest < sizeof zeros ? rest : sizeof zeros;
    LATHE_RETURN_IF_ERROR(append({zeros, n}));
    rest -= n;
  }
  return Status();
}

Status ArtifactWriter::finish() {
  LATHE_RETURN_IF_ERROR(flush());
  if (weightsBegun) {
    sections.back().bytes = position - sections.back().offset;
    sections.back().hash = hasher.digest();
  }
  Header header{};
  std::memcpy(header.magic, magic, sizeof magic);
  header.version = formatVersion;
  header.draft = formatDraft;
  header.sectionCount = static_cast<uint32_t>(sections.size());
  header.fileBytes = position;
  if (!sections.empty()) std::memcpy(header.sections, sections.data(), sections.size() * sizeof(Section));
  header.tableHash =
      hashBytes({reinterpret_cast<const uint8_t *>(header.sections), sections.size() * sizeof(Section)});
  if (!writeAt(fd, reinterpret_cast<const uint8_t *>(&header), sizeof header, 0).ok()) return fail("write");
  if (ftruncate(fd, static_cast<off_t>(position)) != 0) return fail("ftruncate");
  if (fsync(fd) != 0) return fail("fsync");
  if (temporary.empty()) {
    // linkat cannot replace a file: name it beside the target, then rename over it.
    std::string name = temporaryName(path), link = "/proc/self/fd/" + std::to_string(fd);
    if (linkat(AT_FDCWD, link.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) != 0) return fail("linkat");
    temporary = name;
  }
  if (rename(temporary.c_str(), path.c_str()) != 0) return fail("rename");
  temporary.clear();
  ::close(fd);
  fd = -1;
  // The rename is durable only with its directory; a file system that cannot sync one is no error.
  if (int dir = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); dir >= 0) {
    fsync(dir);
    ::close(dir);
  }
  return Status();
}

} // namespace lathe::artifact
