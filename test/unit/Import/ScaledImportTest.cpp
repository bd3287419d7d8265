// Checkpoints of F8_E4M3 with scales, made from the fixture of llama: the logits of a float32 checkpoint of the same numbers, and what is refused.
#include "dialects/LLM/LLM.h"
#include "lathe/Interpreter/Interpreter.h"
#include "lathe/import/Import.h"
#include "lathe/import/Safetensors.h"
#include "lathe/weights/Half.h"
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

using namespace lathe;
namespace fs = std::filesystem;

namespace {

const char *const folder = LATHE_SOURCE_DIR "/test/fixtures/import/models/";

/// Tensors that are added one by one, and the file of them.
struct Tensors {
  nlohmann::json header = nlohmann::json::object();
  std::string data;
  void add(const std::string &name, const char *dtype, const std::vector<uint64_t> &shape, const std::string &bytes) {
    header[name] = {{"dtype", dtype}, {"shape", shape}, {"data_offsets", {data.size(), data.size() + bytes.size()}}};
    data += bytes;
  }
  void addFloats(const std::string &name, const std::vector<uint64_t> &shape, const std::vector<float> &values) {
    add(name, "F32", shape, {reinterpret_cast<const char *>(values.data()), values.size() * 4});
  }
  void write(const fs::path &path) const {
    std::string text = header.dump();
    uint64_t length = text.size();
    std::ofstream(path, std::ios::binary) << std::string(reinterpret_cast<const char *>(&length), 8) << text << data;
  }
};

/// Where a matrix's scales go, and in which form.
struct Form {
  std::string suffix = "_scale"; ///< "" : none
  bool perRow = true, bf16 = true;
  std::vector<uint64_t> shape{}; ///< instead of the one that fits
};

struct Checkpoint {
  fs::path dir;
  Tensors scaled, plain; ///< the same numbers
  explicit Checkpoint(const std::string &model, const std::function<Form(const std::string &)> &form, bool vectors = false) {
    char name[] = "/tmp/lathe-test-XXXXXX";
    dir = mkdtemp(name);
    for (const char *part : {"scaled", "plain"}) {
      fs::create_directories(dir / part);
      fs::copy_file(folder + model + "/config.json", dir / part / "config.json");
    }
    auto source = safetensors::Model::openDirectory(folder + model);
    EXPECT_TRUE(source.ok());
    for (const safetensors::TensorInfo &info : source->tensors()) {
      StorageType type = info.dtype == safetensors::DType::f32 ? StorageType::f32 : StorageType::f16;
      std::vector<float> values(info.elements());
      dequantizeRow(type, source->tensorBytes(info).data(), values);
      bool matrix = info.shape.size() == 2 && info.name.find("embed") == std::string::npos;
      if (!matrix && !(vectors && info.shape.size() == 1)) {
        scaled.addFloats(info.name, info.shape, values);
        plain.addFloats(info.name, info.shape, values);
        continue;
      }
      Form f = form(info.name);
      size_t columns = info.shape.back(), rows = values.size() / columns;
      std::vector<float> scales(f.perRow ? rows : 1);
      std::string codes;
      for (size_t i = 0; i < values.size(); ++i) {
        float &scale = scales[f.perRow ? i / columns : 0];
        if (scale == 0) scale = bfloatToFloat(floatToBfloat(0.01f * static_cast<float>(1 + i / columns % 5)));
        uint8_t code = floatToE4m3(values[i] / scale);
        codes += static_cast<char>(code);
        values[i] = e4m3ToFloat(code) * scale;
      }
      scaled.add(info.name, "F8_E4M3", info.shape, codes);
      plain.addFloats(info.name, info.shape, values);
      std::string bytes;
      for (float scale : scales) {
        uint16_t half = floatToBfloat(scale);
        f.bf16 ? bytes.append(reinterpret_cast<const char *>(&half), 2) : bytes.append(reinterpret_cast<const char *>(&scale), 4);
      }
      std::vector<uint64_t> shape = !f.shape.empty() ? f.shape : f.perRow ? std::vector<uint64_t>{rows, 1} : std::vector<uint64_t>{};
      if (!f.suffix.empty()) scaled.add(info.name + f.suffix, f.bf16 ? "BF16" : "F32", shape, bytes);
    }
  }
  ~Checkpoint() { fs::remove_all(dir); }
  void write() const {
    scaled.write(dir / "scaled/model.safetensors");
    plain.write(dir / "plain/model.safetensors");
  }
  std::string importError() const {
    write();
    mlir::MLIRContext context;
    return importModel(context, (dir / "scaled").string(), {}).status().message();
  }
};

std::vector<double> logits(const fs::path &model, int64_t &matrices) {
  mlir::MLIRContext context;
  auto module = importModel(context, model.string(), {});
  if (!module.ok()) {
    ADD_FAILURE() << module.status().message();
    return {};
  }
  matrices = 0;
  (*module)->walk([&](llm::ParamOp param) { matrices += llm::storageOf(param.getType()) == llm::Storage::e4m3; });
  auto interpreter = llm::Interpreter::create(**module, {});
  if (mlir::failed(interpreter)) return {};
  auto rows = llm::runSequences(**interpreter, {{1, 5, 9, 2, 30}});
  return mlir::failed(rows) ? std::vector<double>() : rows->front().values;
}

TEST(ScaledImport, HasTheLogitsOfTheSameNumbersInFloat32) {
  int next = 0;
  Checkpoint c("llama", [&](const std::string &) {
    ++next;
    return Form{next % 3 ? "_scale" : "_scale_inv", next % 2 == 0, next % 4 < 2};
  });
  c.scaled.add("model.layers.0.self_attn.q_proj.input_scale", "F32", {}, std::string(4, 0)); // about activations, which are rounded as the compiler is told
  c.write();
  int64_t matrices = 0, none = 0;
  std::vector<double> got = logits(c.dir / "scaled", matrices), want = logits(c.dir / "plain", none);
  EXPECT_EQ(matrices, 15); // of two layers, and the head
  EXPECT_EQ(none, 0);
  ASSERT_EQ(got.size(), 5u * 37);
  EXPECT_EQ(got, want);
}

TEST(ScaledImport, SlicesMergedMatrices) {
  Checkpoint c("phi3-short", [](const std::string &) { return Form(); });
  c.write();
  int64_t matrices = 0, none = 0;
  std::vector<double> got = logits(c.dir / "scaled", matrices), want = logits(c.dir / "plain", none);
  EXPECT_EQ(matrices, 8); // q, k and v, gate and up are parts
  ASSERT_FALSE(got.empty());
  EXPECT_EQ(got, want);
}

TEST(ScaledImport, SaysWhatIsNotSupported) {
  auto error = [](const Form &form, const std::string &model = "llama", bool vectors = false) { return Checkpoint(model, [&](const std::string &) { return form; }, vectors).importError(); };
  auto contains = [](const std::string &text, const std::string &part) { EXPECT_NE(text.find(part), std::string::npos) << text; };
  contains(error({"", true, true}), "' of type F8_E4M3: expected its scales in 'model.layers.0.self_attn.q_proj.weight_scale', the model has none");
  Checkpoint blocks("llama", [](const std::string &name) { return name == "lm_head.weight" ? Form{"_scale_inv", true, false, {37, 1}} : Form(); });
  blocks.scaled.header["lm_head.weight_scale_inv"]["shape"] = {1, 37};
  contains(blocks.importError(), "tensor 'lm_head.weight' of type F8_E4M3: scales of shape [1, 37] in 'lm_head.weight_scale_inv' are not supported, only one for a matrix or one for each row is");
  contains(error({"_zero", true, true}), "expected its scales in");
  Checkpoint more("llama", [](const std::string &) { return Form(); });
  more.scaled.add("lm_head.weight_zero_point", "F32", {1}, std::string(4, 0));
  contains(more.importError(), "tensor 'lm_head.weight_zero_point' has no part in a model of family llama");
  Checkpoint integers("llama", [](const std::string &) { return Form{"_scale", true, false}; });
  integers.scaled.header["lm_head.weight_scale"]["dtype"] = "I32";
  contains(integers.importError(), "tensor 'lm_head.weight_scale': type 'I32' is not supported, only F32, F16, BF16 are");
  contains(error({}, "gpt2"), "a matrix of type e4m3 that is stored transposed is not supported, only f32, f16, bf16 are");
  contains(error({"_scale", false, true}, "llama", true), "are not supported, only one for a matrix or one for each row is");
}

} // namespace
