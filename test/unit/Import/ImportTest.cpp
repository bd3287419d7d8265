// Every family, from its files to logits on the reference interpreter, against test/fixtures/import/make_models.py.
#include "lathe/import/Import.h"
#include "dialects/LLM/LLM.h"
#include "dialects/ONNX/ONNX.h"
#include "lathe/Interpreter/Interpreter.h"
#include "lathe/import/Verify.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

using namespace lathe;
namespace fs = std::filesystem;

namespace {

const char *const folder = LATHE_SOURCE_DIR "/test/fixtures/import/models/";

/// Largest difference of the interpreter's logits, in units of the largest logit.
double difference(const std::string &model, const nlohmann::json &expected) {
  mlir::MLIRContext context;
  ImportOptions options;
  options.maxSequence = expected["max_sequence"].get<int64_t>();
  auto module = importModel(context, model, options);
  if (!module.ok()) {
    ADD_FAILURE() << module.status().message();
    return INFINITY;
  }
  (*module)->walk([](llm::KVGroupOp group) {
    group.setKey(llm::KVFormat::f32);
    group.setValue(llm::KVFormat::f32);
  });
  llm::InterpreterOptions interpreterOptions;
  interpreterOptions.float64 = true;
  auto interpreter = llm::Interpreter::create(**module, interpreterOptions);
  if (mlir::failed(interpreter)) return INFINITY;
  std::vector<std::vector<int64_t>> tokens = {expected["tokens"].get<std::vector<int64_t>>()};
  double worst = 0, largest = 0;
  for (int64_t chunk : {0, 2}) { // all at once, and with a history in the cache
    (*interpreter)->reset();
    auto rows = llm::runSequences(**interpreter, tokens, chunk);
    if (mlir::failed(rows)) return INFINITY;
    const llm::RowValues &got = rows->front();
    for (int64_t r = 0; r < got.rows; ++r)
      for (int64_t c = 0; c < got.cols; ++c) {
        double value = expected["logits"][r][c].get<double>();
        largest = std::max(largest, std::abs(value));
        double off = std::abs(got.values[static_cast<size_t>(r * got.cols + c)] - value);
        worst = off <= worst ? worst : off; // a NaN stays
      }
  }
  testing::Test::RecordProperty("difference", std::to_string(worst / largest));
  return worst / largest;
}

class EveryModel : public testing::TestWithParam<std::string> {};

TEST_P(EveryModel, HasTheLogitsOfTheReference) {
  std::ifstream file(folder + GetParam() + ".json");
  nlohmann::json expected = nlohmann::json::parse(file, nullptr, false);
  ASSERT_FALSE(expected.is_discarded());
  // Constants (frequencies, epsilon, scales) are float32 in the IR.
  EXPECT_LT(difference(folder + GetParam(), expected), 2e-6);
  std::string gguf = folder + GetParam() + ".gguf";
  if (fs::exists(gguf)) {
    EXPECT_LT(difference(gguf, expected), 2e-6);
  }
}

std::vector<std::string> names() {
  std::vector<std::string> out;
  for (const fs::directory_entry &entry : fs::directory_iterator(folder))
    if (entry.is_directory()) out.push_back(entry.path().filename().string());
  std::sort(out.begin(), out.end());
  return out;
}
INSTANTIATE_TEST_SUITE_P(Import, EveryModel, testing::ValuesIn(names()), [](const auto &info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(Import, Gemma3WithAVisionTower) {
  // The fixture as part of a larger checkpoint: longer names, one tensor of the tower, a nested configuration.
  char name[] = "/tmp/lathe-test-XXXXXX";
  fs::path dir = mkdtemp(name);
  auto read = [](const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  nlohmann::json config;
  config["model_type"] = "gemma3";
  config["text_config"] = nlohmann::json::parse(read(folder + std::string("gemma3/config.json")), nullptr, false);
  std::ofstream(dir / "config.json") << config;
  std::string bytes = read(folder + std::string("gemma3/model.safetensors"));
  uint64_t length;
  std::memcpy(&length, bytes.data(), 8);
  auto header = nlohmann::json::parse(bytes.substr(8, length), nullptr, false), longer = nlohmann::json::object();
  for (auto &[key, value] : header.items())
    longer[key.rfind("model.", 0) == 0 ? "language_model." + key : key] = value;
  longer["vision_tower.post_layernorm.weight"] = {{"dtype", "F32"}, {"shape", {0}}, {"data_offsets", {0, 0}}};
  std::string text = longer.dump();
  uint64_t newLength = text.size();
  std::ofstream(dir / "model.safetensors", std::ios::binary)
      << std::string(reinterpret_cast<const char *>(&newLength), 8) << text << bytes.substr(8 + length);
  auto expected = nlohmann::json::parse(read(folder + std::string("gemma3.json")), nullptr, false);
  EXPECT_LT(difference(dir.string(), expected), 2e-6);
  fs::remove_all(dir);
}

TEST(Import, NamesWhatIsMissing) {
  mlir::MLIRContext context;
  EXPECT_EQ(importModel(context, "/nonexistent/model.gguf", {}).status().message(),
            "cannot open '/nonexistent/model.gguf': No such file or directory");
  char name[] = "/tmp/lathe-test-XXXXXX";
  fs::path dir = mkdtemp(name);
  EXPECT_NE(importModel(context, dir.string(), {}).status().message().find("or an .onnx file; found none of them"),
            std::string::npos);
  std::ofstream(dir / "model.safetensors") << "";
  EXPECT_NE(importModel(context, dir.string(), {}).status().message().find("/config.json': No such file"),
            std::string::npos);
  std::ofstream(dir / "config.json") << "{";
  EXPECT_NE(importModel(context, dir.string(), {}).status().message().find("config.json: not valid JSON at byte"),
            std::string::npos);
  fs::remove_all(dir);
}

TEST(Import, SaysWhereWhatItMadeIsWrong) {
  mlir::MLIRContext context;
  context.loadDialect<onnx::ONNXDialect, mlir::func::FuncDialect>();
  mlir::ParserConfig config(&context, /*verifyAfterParse=*/false);
  auto module = mlir::parseSourceString<mlir::ModuleOp>(R"(
    func.func @main(%a: tensor<1x2x3x4xf32>) -> tensor<1x2x3x4xf32> {
      %0 = onnx.op "Attention"(%a, %a, %a) {version = 23 : i64, attrs = {is_causal = 2 : i64}} : (tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>, tensor<1x2x3x4xf32>) -> tensor<1x2x3x4xf32> loc("layers.3/attention")
      return %0 : tensor<1x2x3x4xf32>
    })", config);
  ASSERT_TRUE(module);
  Status status = verifyImported(*module);
  EXPECT_EQ(status.code(), StatusCode::invalidArgument);
  EXPECT_EQ(status.message(), "what was imported does not verify: 'layers.3/attention': 'onnx.op' op 'Attention': attribute 'is_causal': expected 0 or 1, found 2");
}

} // namespace
