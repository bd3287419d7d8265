//===- PreTokenizers.cpp - patterns by name -------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// A GGUF file names how its text is split (tokenizer.ggml.pre); the patterns are those of the models'
// own tokenizer.json.
//===----------------------------------------------------------------------===//
#include "lathe/import/Tokenizer.h"
#include <algorithm>
#include <map>

namespace lathe {
namespace {

#define CONTRACTION "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED "[^\\r\\n\\p{L}\\p{N}]?"
constexpr const char *gpt2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
constexpr const char *llama3 =
    CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES;
constexpr const char *qwen2 =
    CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES;
constexpr const char *gpt4o = CASED UPPER "*" LOWER "+" CONTRACTION "?|" CASED UPPER "+" LOWER "*" CONTRACTION
                                          "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES;
constexpr const char *deepseek3 =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
    "?[\\p{P}\\p{S}]+[\\r\\n]*|" SPACES;
constexpr const char *deepseekLetters =
    "\\s?[A-Za-z\\u00b5\\u00c0-\\u00d6\\u00d8-\\u00f6\\u00f8-\\u01ba\\u01bc-\\u01bf\\u01c4-\\u0293\\u0295-\\u02af"
    "\\u0370-\\u0373\\u0376\\u0377\\u037b-\\u037d\\u037f\\u0386\\u0388-\\u038a\\u038c\\u038e-\\u03a1\\u03a3-"
    "\\u03f5\\u03f7-\\u0481\\u048a-\\u052f\\u0531-\\u0556\\u10a0-\\u10c5\\u13a0-\\u13f5\\u13f8-\\u13fd\\u1c90-"
    "\\u1cba\\u1cbd-\\u1cbf\\u1d00-\\u1d2b\\u1d6b-\\u1d77\\u1d79-\\u1d9a\\u1e00-\\u1f15\\u1f18-\\u1f1d\\u1f20-"
    "\\u1f45\\u1f48-\\u1f4d\\u1f50-\\u1f57\\u1f59\\u1f5b\\u1f5d\\u1f5f-\\u1f7d\\u1f80-\\u1fb4\\u1fb6-\\u1fbc"
    "\\u1fbe\\u1fc2-\\u1fc4\\u1fc6-\\u1fcc\\u1fd0-\\u1fd3\\u1fd6-\\u1fdb\\u1fe0-\\u1fec\\u1ff2-\\u1ff4\\u1ff6-"
    "\\u1ffc\\u2102\\u2107\\u210a-\\u2113\\u2115\\u2119-\\u211d\\u2124\\u2126\\u2128\\u212a-\\u212d\\u212f-"
    "\\u2134\\u2139\\u213c-\\u213f\\u2145-\\u2149\\u214e\\u2183\\u2184\\u2c00-\\u2c7b\\u2c7e-\\u2ce4\\u2ceb-"
    "\\u2cee\\u2cf2\\u2cf3\\ua640-\\ua66d\\ua680-\\ua69b\\ua722-\\ua76f\\ua771-\\ua787\\ua78b-\\ua78e\\uab70-"
    "\\uabbf\\ufb00-\\ufb06\\ufb13-\\ufb17\\uff21-\\uff3a\\uff41-\\uff5a\\x{10400}-\\x{1044f}\\x{104b0}-"
    "\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}\\x{1e900}-"
    "\\x{1e943}]+";
constexpr const char *bloom = " ?[^(\\s|.,!?\\u2026\\u3002\\uff0c\\u3001\\u0964\\u06d4\\u060c)]+";
constexpr const char *cjkAndKana = "[\\u4e00-\\u9fa5\\u3040-\\u309f\\u30a0-\\u30ff]+";
constexpr const char *cjkAndHangul = "[\\u4e00-\\u9fa5\\u0800-\\u4e00\\uac00-\\ud7ff]+";

using Map = std::map<std::string_view, NamedPreTokenizer>;

Map makeMap() {
  Map map;
  auto add = [&](std::initializer_list<const char *> names, NamedPreTokenizer value) {
    for (const char *name : names)
      map[name] = value;
  };
  add({"default", ""}, {{"[\\p{P}\\$\\+<=>\\^~\\|]+", gpt2, "\\p{N}+", "[0-9][0-9][0-9]"}});
  add({"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"},
      {{llama3}, true, true});
  add({"dbrx", "smaug-bpe"}, {{llama3}});
  add({"chatglm-bpe"}, {{llama3}});
  add({"glm4", "glm5"}, {{llama3}, true});
  add({"jais-2"},
      {{CONTRACTION
        "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| "
        "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s{512}(?!\\S)|\\s{256}(?!\\S)|\\s{128}(?!\\S)|\\s{64}(?!"
        "\\S)|\\s{32}(?!\\S)|\\s{16}(?!\\S)|\\s{8}(?!\\S)|\\s{4}(?!\\S)|\\s{1,2}(?!\\S)|\\s{1}"}});
  add({"deepseek-llm"},
      {{"[\\r\\n]", deepseekLetters, "\\s?[!-/:-~\\uff01-\\uff0f\\uff1a-\\uff5e\\u2018-\\u201f\\u3000-\\u3002]+",
        "\\s+$", cjkAndHangul, "\\p{N}+"}});
  add({"deepseek-coder"}, {{"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", cjkAndHangul, "\\p{N}"}});
  add({"deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"}, {{"\\p{N}{1,3}", cjkAndKana, deepseek3}});
  add({"youtu"}, {{"[\\uac00-\\ud7a3\\u3131-\\u318e]+|["
                   "\\uff01\\u2026\\u201c\\u201d\\u2018\\u2019\\u2014\\uff1a\\uff1b\\uff0c\\u3001-\\u303f\\ufe30-"
                   "\\ufe4f]+|[\\u3105-\\u312f]+|[\\u4e00-\\u9fa5\\u3040-\\u309f\\u30a0-\\u30ff]+",
                   CASED UPPER "*" LOWER "+" CONTRACTION "?|" CASED UPPER "+" LOWER "*" CONTRACTION
                               "?|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES},
                  true});
  add({"falcon"}, {{"[\\p{P}\\$\\+<=>\\^~\\|`]+", gpt2, "[0-9][0-9][0-9]"}});
  add({"starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"},
      {{"\\p{N}", gpt2}});
  add({"gpt-2", "phi-2", "jina-es", "jina-de", "gigachat", "jina-v2-es", "jina-v2-de", "a.x-4.0", "mellum",
       "modern-bert", "jina-v1-en", "jina-v2-code", "roberta-bpe", "mpt", "olmo", "jais", "trillion", "granite-docling",
       "exaone4"},
      {{gpt2}});
  add({"stablelm2", "qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "hunyuan", "solar-open", "grok-2"},
      {{qwen2}});
  add({"qwen35"},
      {{CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" SPACES}});
  add({"poro-chat", "bloom", "gpt3-finnish"}, {{bloom}});
  add({"viking"}, {{bloom, "\\p{N}"}});
  add({"tekken"},
      {{CASED UPPER "*" LOWER "+|" CASED UPPER "+" LOWER "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES},
       true,
       true});
  add({"chameleon"}, {{"<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", "([\\t\\n]|    |  )", "\\p{N}",
                       "[\\p{P}!-/:-@\\[-`{-~]", gpt2},
                      false,
                      true});
  add({"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"}, {{gpt4o}});
  add({"granite-embed-multi-97m"}, {{gpt4o}, true});
  add({"tiny_aya", "cohere2moe"}, {{"\\d{1,3}(?=(?:\\d{3})*\\b)", gpt4o}});
  add({"superbpe"}, {{"\\p{N}+", "(?=(\\d{3})+(?!\\d))"}});
  add({"bailingmoe", "bailingmoe2", "llada-moe"}, {{"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| "
                                                    "?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"}});
  add({"seed-coder"}, {{CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|" SPACES}});
  add({"ufakzeka"}, {{"[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES}});
  add({"laguna"}, {{"[^\\n]+|[\\n]+", qwen2}});
  add({"exaone-moe"}, {{CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}| "
                                    "?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"}});
  add({"minicpm5"}, {{"\\p{N}{1,3}", CONTRACTION "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}+| "
                                                 "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES},
                     true});
  // Digits in groups of three from the right.
  add({"afmoe"}, {{"\\p{N}{1,2}(?=(?:\\p{N}{3})*(?!\\p{N}))|\\p{N}{3}",
                   "[\\u4e00-\\u9fff\\u3400-\\u4dbf\\uf900-\\ufaff\\u3040-\\u309f\\u30a0-\\u30ff\\uff65-\\uff9f\\u2f00-"
                   "\\u2fdf\\u0e40-\\u0e7f\\u0e80-\\u0eff\\u1780-\\u17ff"
                   "\\u1000-\\u109f\\uaa60-\\uaa7f\\ua9e0-\\ua9ff\\uac00-\\ud7af\\u1100-\\u11ff]+",
                   deepseek3}});
  return map;
}

const Map &preTokenizers() {
  static const Map map = makeMap();
  return map;
}

} // namespace

const NamedPreTokenizer *findPreTokenizer(std::string_view name) {
  auto it = preTokenizers().find(name);
  return it == preTokenizers().end() ? nullptr : &it->second;
}

std::string preTokenizerNames() {
  std::string out;
  for (const auto &[name, value] : preTokenizers()) {
    if (name.empty()) continue;
    if (!out.empty()) out += ", ";
    out += name;
  }
  return out;
}

} // namespace lathe
