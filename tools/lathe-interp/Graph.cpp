//===- Graph.cpp ------------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Graph.h"
#include "lathe/Interpreter/ONNXInterpreter.h"
#include "lathe/ONNX/Inputs.h"
#include "lathe/ONNX/Numbers.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include <cstring>
#include <map>

using namespace mlir;
using lathe::llm::RowValues;
using lathe::onnx::DataType;
using lathe::onnx::HostTensor;
using lathe::onnx::StepInput;

/// Of one cache, so that a graph's sizes cannot ask for all memory.
static constexpr int64_t mostCacheElements = int64_t(1) << 28;

/// [1, values] or, of rank 1, [values].
static HostTensor inputOf(DataType type, int64_t rank, const std::vector<int64_t> &values) {
  HostTensor out;
  out.type = type;
  if (rank == 2) out.shape.push_back(1);
  out.shape.push_back(static_cast<int64_t>(values.size()));
  out.data = lathe::onnx::stored(type, std::vector<double>(values.begin(), values.end()), values);
  return out;
}

static FailureOr<RowValues> runSequence(ModuleOp module, func::FuncOp main, const std::vector<int64_t> &tokens, int64_t chunk, bool last) {
  std::map<std::string, HostTensor> caches; // by the name of the result
  RowValues out;
  auto all = static_cast<int64_t>(tokens.size());
  for (int64_t done = 0; done < all;) {
    int64_t n = chunk > 0 ? std::min(chunk, all - done) : all;
    std::vector<HostTensor> inputs;
    for (auto [k, argument] : llvm::enumerate(main.getArguments())) {
      auto type = dyn_cast<RankedTensorType>(argument.getType());
      std::string name = lathe::onnx::inputName(main, k);
      if (!type) return main.emitError() << "input '" << name << "': expected a tensor of known rank, found " << argument.getType();
      DataType element = lathe::onnx::dataType(type.getElementType());
      std::vector<int64_t> values;
      switch (lathe::onnx::stepInput(name, type)) {
      case StepInput::tokens: values.assign(tokens.begin() + done, tokens.begin() + done + n); break;
      case StepInput::positions:
        for (int64_t t = 0; t < n; ++t)
          values.push_back(done + t);
        break;
      case StepInput::mask: values.assign(static_cast<size_t>(done + n), 1); break;
      case StepInput::writeIndex: values = {done}; break;
      case StepInput::lengths: values = {done + n}; break;
      case StepInput::past: {
        HostTensor &cache = caches[lathe::onnx::presentName(name)];
        if (done == 0) {
          // Empty, or with room for all tokens where a step writes into it.
          bool buffer = lathe::onnx::isScattered(argument);
          size_t batch = type.getRank() == 5; // behind keys and values in one tensor
          cache.type = element;
          int64_t count = 1; // of elements; most + 1: more than that
          for (auto [d, size] : llvm::enumerate(type.getShape())) {
            cache.shape.push_back(!ShapedType::isDynamic(size) ? size : d == batch ? 1 : buffer ? all : 0);
            int64_t n = cache.shape.back();
            count = n && count > mostCacheElements / n ? mostCacheElements + 1 : count * n;
          }
          if (!buffer && count) return main.emitError() << "input '" << name << "': expected a cache that can be empty, found " << type;
          if (count > mostCacheElements)
            return main.emitError() << "input '" << name << "': expected a cache of at most " << mostCacheElements << " elements, found " << type << " for " << all << " tokens";
          cache.data.assign(static_cast<size_t>(count) * lathe::onnx::dataTypeBits(element) / 8, 0);
        }
        inputs.push_back(cache);
        continue;
      }
      case StepInput::other: return main.emitError() << "input '" << name << "': expected input_ids, positions, a mask or a past";
      }
      inputs.push_back(inputOf(element, type.getRank(), values));
    }
    auto results = lathe::interp::runONNX(module, inputs);
    if (!results.ok()) return main.emitError() << results.status().message();
    for (auto [k, result] : llvm::enumerate(*results)) {
      std::string name = lathe::onnx::resultName(main, k);
      if (name != "logits") {
        caches[name] = std::move(result);
        continue;
      }
      if (result.type != DataType::float32 || result.shape.size() != 3) return main.emitError() << "expected logits as float32 [1, tokens, vocabulary]";
      out.cols = result.shape[2];
      for (int64_t i = 0, e = result.elements(); i < e; ++i) {
        float value;
        std::memcpy(&value, result.data.data() + i * 4, 4);
        out.values.push_back(value);
      }
      out.rows += result.shape[1];
    }
    done += n;
  }
  if (last && out.rows > 1) {
    out.values.erase(out.values.begin(), out.values.end() - out.cols);
    out.rows = 1;
  }
  return out;
}

FailureOr<std::vector<RowValues>> runGraph(ModuleOp module, const std::vector<std::vector<int64_t>> &sequences, int64_t chunk, bool last) {
  auto main = module.lookupSymbol<func::FuncOp>("main");
  lathe::onnx::fixChoices(main);
  std::vector<RowValues> out;
  for (const std::vector<int64_t> &tokens : sequences) {
    auto rows = runSequence(module, main, tokens, chunk, last);
    if (failed(rows)) return failure();
    out.push_back(std::move(*rows));
  }
  return out;
}
