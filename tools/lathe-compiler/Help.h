//===- Help.h - --help of compile and bisect -----------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "llvm/Support/CommandLine.h"
#include <functional>
#include <vector>

/// Options that --help lists under one heading, in this order.
struct HelpGroup {
  const char *heading;
  std::vector<std::reference_wrapper<const llvm::cl::Option>> options;
};

/// True when |argv| asks the command |name| for its help: LLVM's own has another layout than that of the commands of `lathe`, and sorts
/// the options by name.
bool helpWanted(int argc, char **argv, llvm::StringRef name);

/// Prints usage, |about| and the options as the commands of `lathe` do. Options of |command| in |category| that no group has
/// come last, as "Other options".
void printHelp(const char *usage, const char *about, const std::vector<HelpGroup> &groups, llvm::cl::SubCommand &command,
               llvm::cl::OptionCategory &category);
