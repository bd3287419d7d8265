//===- Topology.h - the processors this process may use -----------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include <string>
#include <vector>

namespace lathe {

struct Topology {
  std::vector<int> cpus; ///< logical CPUs of the affinity mask, one of each core first
  unsigned cores = 1;    ///< distinct cores among them
  unsigned quota = 0;    ///< CPUs' worth of time the control group allows, rounded up; 0: no limit
  /// Threads that can really run at once: what the compiler uses.
  unsigned usableCpus() const;
  /// Threads for a step by default: one per core, within the quota.
  unsigned defaultThreads() const;
  static Topology detect();
};

/// The tightest limit of CPU time on the way from the process's control group to the root, in CPUs, rounded up; 0: none.
/// |groups|: the text of /proc/self/cgroup, of version 1 or 2; |mount|: where the groups' files are, /sys/fs/cgroup.
unsigned cpuQuota(const std::string &groups, const std::string &mount);

/// CPUs of a cgroup v2 "cpu.max" text ("max 100000", "150000 100000"), rounded up; 0 for no limit or nonsense.
unsigned parseCpuMax(const std::string &text);

} // namespace lathe
