//===- TestDevice.h - "--device NAME" of the test programs -----------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/device/Device.h"
#include <cstdio>
#include <cstdlib>
#include <string>

namespace lathe::runtime {

/// Of "emulator:CHIP": whose code to run; empty: the first of the file.
inline std::string testChip;

/// Of "emulator..+megakernel" and "cuda+megakernel".
inline DevicePlan testPlan = DevicePlan::graph;
inline std::string testDevice; ///< the name without it

inline std::unique_ptr<Device> namedDevice(std::string name) {
  const std::string suffix = "+megakernel";
  testPlan = DevicePlan::graph;
  if (name != "cpu" && name.ends_with(suffix)) name.resize(name.size() - suffix.size()), testPlan = DevicePlan::megakernel;
  testDevice = name;
  if (name == "cpu") return makeCpuDevice();
  if (name.rfind("emulator", 0) == 0 && (name.size() == 8 || name[8] == ':')) {
    testChip = name.size() > 9 ? name.substr(9) : "";
    return makeEmulatorDevice(testPlan);
  }
  if (name == "cuda") {
    auto device = makeCudaDevice(testPlan);
    if (device.ok()) return *std::move(device);
    std::fprintf(stderr, "error: %s\n", device.status().message().c_str());
    std::exit(2);
  }
  std::fprintf(stderr, "error: unknown device '%s'\n", name.c_str());
  std::exit(2);
}

/// Takes "--device NAME" off the front of the arguments.
inline std::unique_ptr<Device> takeDevice(int &argc, char **&argv) {
  std::string name = "cpu";
  if (argc > 2 && std::string(argv[1]) == "--device") {
    name = argv[2];
    argv[2] = argv[0];
    argc -= 2, argv += 2;
  }
  return namedDevice(name);
}

/// Options to load an artifact for |device|; |variant|: of the CPU's code.
inline LoadOptions loadFor(const Device &device, const std::string &variant = {}) {
  LoadOptions o;
  o.gpu = device.gpuCode() == "any" && !testChip.empty() ? testChip : device.gpuCode();
  if (o.gpu.empty()) o.variant = variant;
  return o;
}

} // namespace lathe::runtime
