//===- LineEditor.h - a line from the terminal --------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include <optional>
#include <string>
#include <vector>

namespace lathe::tool {

/// Reads lines with the arrow keys, Home, End, Ctrl-A/E/K/U/W and a history of this session. When the
/// input or output is no terminal, lines are read as they are.
class LineEditor {
public:
  /// nullopt at the end of the input (Ctrl-D on an empty line). Ctrl-C gives an empty line.
  std::optional<std::string> read(const std::string &prompt);

private:
  std::optional<std::string> edit(const std::string &prompt);
  std::vector<std::string> history;
};

} // namespace lathe::tool
