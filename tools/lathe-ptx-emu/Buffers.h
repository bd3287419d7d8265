//===- Buffers.h - kernel arguments from the command line --------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/device/emulator/Emulator.h"
#include <string>
#include <string_view>
#include <vector>

namespace lathe::tools {

/// An argument of the kernel: a buffer's address, or a scalar.
struct KernelArgument {
  std::string text; ///< as given
  bool isBuffer = false;
  std::string type;             ///< f32, f16, bf16, e4m3, i32, u8, ...
  uint64_t count = 0;           ///< elements of a buffer
  std::vector<uint8_t> bytes;   ///< the scalar, or the buffer's contents
  uint64_t address = 0;         ///< of the buffer on the device
};

/// "buf:TYPE:COUNT[:seed=N | :zero | :fill=V | :iota | :file=PATH | :uninit]" or "TYPE:VALUE".
Result<KernelArgument> parseArgument(std::string_view text);

/// Element |index| as text and as a number.
std::string elementText(const KernelArgument &argument, uint64_t index);
double elementValue(const KernelArgument &argument, uint64_t index);

Result<std::vector<uint8_t>> readFile(const std::string &path);
Status writeFile(const std::string &path, const std::vector<uint8_t> &bytes);

} // namespace lathe::tools
