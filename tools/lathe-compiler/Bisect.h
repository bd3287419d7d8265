//===- Bisect.h - lathe bisect ---------------------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once

/// True when the command line asked for `bisect`.
bool bisectWanted();
/// Prints --help; 0.
int bisectHelp();
/// 0: no difference, 3: one was named, 1: an error.
int runBisect();
