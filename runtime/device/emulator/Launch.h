//===- Launch.h - grids, clusters and blocks ---------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/device/emulator/Machine.h"

namespace lathe::emulator {

/// Checks sizes against the program and the limits of the hardware; fills in a cluster that the program demands.
Status checkLaunch(const Program &program, LaunchConfig &config);

/// Runs all blocks of |launch|, whose configuration checkLaunch() has accepted.
Result<Counts> runLaunch(Launch &launch);

} // namespace lathe::emulator
