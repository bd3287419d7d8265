//===- Cases.h - the ONNX project's backend tests on disk ----------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/ONNX/Hooks.h"
#include "lathe/base/Status.h"
#include <optional>
#include <string>
#include <vector>

namespace lathe::onnxtest {

/// Inputs and expected results of one test_data_set; an input that the model leaves out has no value.
struct DataSet {
  std::vector<onnx::HostTensor> inputs, outputs;
};

/// The tensor of a serialized TensorProto file, unpacked to a byte an element below 8 bits.
Result<onnx::HostTensor> readTensor(const std::string &path);
/// test_data_set_0, 1, .. of a case's directory.
Result<std::vector<DataSet>> readDataSets(const std::string &directory);

/// ok, or what differs: the first element that is further than atol + rtol * |expected| away (equal bits for integers).
Status compare(const onnx::HostTensor &expected, const onnx::HostTensor &found, double rtol, double atol);

} // namespace lathe::onnxtest
