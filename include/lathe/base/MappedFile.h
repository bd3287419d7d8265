//===- MappedFile.h - a read-only mapping that survives truncation -*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/base/Status.h"
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace lathe {

/// A regular file mapped read-only, whole. Move-only.
///
/// A file that another process shortens after it was mapped would kill a reader with SIGBUS. A
/// process-wide handler (installed by the first open) puts a zero page under the faulting address
/// instead and marks the mapping; readers call check() before they trust what they read.
/// Thread-safe for concurrent reads.
class MappedFile {
public:
  MappedFile() = default;
  ~MappedFile();
  MappedFile(MappedFile &&other) noexcept;
  MappedFile &operator=(MappedFile &&other) noexcept;

  /// Errors: notFound, invalidArgument (not a regular file), internal (mmap).
  static Result<MappedFile> open(const std::string &path);

  const std::string &path() const { return name; }
  std::span<const uint8_t> bytes() const { return {base, size}; }
  size_t fileSize() const { return size; }
  /// dataLoss when a page of the mapping was gone at the moment of a read.
  Status check() const;
  /// Tells the kernel that [offset, offset + bytes) will not be read again soon, so that streaming
  /// a large file does not count as resident memory.
  void drop(size_t offset, size_t bytes) const;

private:
  std::string name;
  const uint8_t *base = nullptr;
  size_t size = 0;
  int slot = -1; ///< index in the handler's table
};

/// Resolves |name|, found inside a model's index file, against |directory|: refuses absolute names
/// and "..", follows symbolic links and refuses what leaves |directory| or is not a regular file.
Result<std::string> resolveInside(const std::string &directory, const std::string &name);

} // namespace lathe
