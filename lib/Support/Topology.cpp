//===- Topology.cpp -------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "lathe/base/Topology.h"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sched.h>
#include <set>
#include <sstream>

namespace lathe {
namespace {

std::string readAll(const std::string &path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

unsigned quotaOf(long long quota, long long period) {
  if (quota <= 0 || period <= 0) return 0;
  return static_cast<unsigned>(std::min<long long>((quota + period - 1) / period, 1 << 16));
}

} // namespace

unsigned cpuQuota(const std::string &groupList, const std::string &mount) {
  unsigned best = 0;
  auto take = [&](unsigned q) {
    if (q && (!best || q < best)) best = q;
  };
  std::stringstream groups(groupList);
  for (std::string line; std::getline(groups, line);) {
    size_t first = line.find(':'), second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    std::string controllers = line.substr(first + 1, second - first - 1), path = line.substr(second + 1);
    bool v2 = controllers.empty();
    if (!v2 && ("," + controllers + ",").find(",cpu,") == std::string::npos) continue;
    std::string root = v2 ? mount : mount + "/" + controllers;
    while (true) {
      if (v2) {
        take(parseCpuMax(readAll(root + path + "/cpu.max")));
      } else {
        take(quotaOf(std::atoll(readAll(root + path + "/cpu.cfs_quota_us").c_str()),
                     std::atoll(readAll(root + path + "/cpu.cfs_period_us").c_str())));
      }
      size_t slash = path.rfind('/');
      if (path.empty() || path == "/" || slash == std::string::npos) break;
      path.resize(slash);
    }
  }
  return best;
}

unsigned parseCpuMax(const std::string &text) {
  long long quota = 0, period = 0;
  if (std::sscanf(text.c_str(), "%lld %lld", &quota, &period) != 2) return 0; // "max 100000" too
  return quotaOf(quota, period);
}

unsigned Topology::usableCpus() const {
  unsigned n = static_cast<unsigned>(cpus.size());
  return std::max(1u, quota ? std::min(quota, n) : n);
}

unsigned Topology::defaultThreads() const { return std::max(1u, std::min(cores, usableCpus())); }

Topology Topology::detect() {
  Topology t;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) CPU_SET(0, &set);
  std::set<std::string> seen;
  std::vector<int> siblings;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &set)) continue;
    std::string list = readAll("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list");
    if (list.empty()) list = "cpu" + std::to_string(cpu);
    (seen.insert(list).second ? t.cpus : siblings).push_back(cpu);
  }
  t.cores = std::max<unsigned>(1, static_cast<unsigned>(t.cpus.size()));
  t.cpus.insert(t.cpus.end(), siblings.begin(), siblings.end());
  t.quota = cpuQuota(readAll("/proc/self/cgroup"), "/sys/fs/cgroup");
  return t;
}

} // namespace lathe
