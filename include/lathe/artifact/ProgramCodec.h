//===- ProgramCodec.h - Program to bytes and back -----------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// The PROGRAM section. Specification: docs/artifact-format.md, "PROGRAM".
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/artifact/Program.h"
#include "lathe/base/Status.h"
#include <cstdint>
#include <span>
#include <vector>

namespace lathe {

/// Serialises |program| as it is; call validateProgram first.
std::vector<uint8_t> encodeProgram(const Program &program);

/// The inverse of encodeProgram, for bytes that nobody vouches for. Checks the form only (lengths,
/// enums); errors (dataLoss) name the byte offset. No count is trusted beyond the bytes that follow it.
Result<Program> decodeProgram(std::span<const uint8_t> bytes);

/// Checks every index, offset, count and size of |program|: argument offsets against the arena, the
/// |weightBytes| of the WEIGHTS section (or the synthetic ones) and the KV groups; ranges of launches and arguments; result buffers;
/// entries and buckets; products that must not overflow. A program that passes can be laid out
/// and dealt to threads without further checks. Errors: dataLoss, naming launch or argument.
Status validateProgram(const Program &program, uint64_t weightBytes);

} // namespace lathe
