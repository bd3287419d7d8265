//===- lathe-tokenize.cpp - a tokenizer on standard input -----------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// lathe-tokenize MODEL [--add-special] [--parse-special] [--decode] [--time] [--raw | --hex]
// lathe-tokenize MODEL --info | --spec FILE
//
// MODEL: a GGUF file or a directory with tokenizer.json. Standard input holds texts, each followed by
// a zero byte, or with --hex one a line in hexadecimal digits, or with --raw one text in all; standard
// output gets a line of ids for each, or with --decode the hexadecimal digits of the text that the ids
// stand for. --spec writes the encoded TokenizerSpec.
//===----------------------------------------------------------------------===//
#include "../../../runtime/tokenizer/Tokenizer.h"
#include "lathe/import/GGUF.h"
#include "lathe/import/Tokenizer.h"
#include <chrono>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <iterator>
#include <sys/stat.h>

using namespace lathe;

static Result<ImportedTokenizer> import(const std::string &path) {
  struct stat info;
  if (stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) return importTokenizerDirectory(path);
  LATHE_ASSIGN_OR_RETURN(gguf::File file, gguf::File::open(path));
  return importTokenizer(file);
}

int main(int argc, char **argv) {
  bool addSpecial = false, parseSpecial = false, decode = false, time = false, raw = false, hex = false, info = false;
  std::string path, specPath;
  for (int i = 1; i < argc; ++i) {
    std::string_view arg = argv[i];
    if (arg == "--add-special")
      addSpecial = true;
    else if (arg == "--parse-special")
      parseSpecial = true;
    else if (arg == "--decode")
      decode = true;
    else if (arg == "--time")
      time = true;
    else if (arg == "--raw")
      raw = true;
    else if (arg == "--hex")
      hex = true;
    else if (arg == "--spec" && i + 1 < argc)
      specPath = argv[++i];
    else if (arg == "--info")
      info = true;
    else
      path = arg;
  }
  auto now = [] { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); };
  auto fail = [](const Status &status) {
    std::fprintf(stderr, "lathe-tokenize: %s\n", status.message().c_str());
    return 1;
  };
  double start = now();
  auto imported = import(path);
  if (!imported.ok()) return fail(imported.status());
  double read = now();
  std::string encoded = imported->spec.encode();
  if (!specPath.empty()) {
    std::FILE *file = std::fopen(specPath.c_str(), "wb");
    if (!file || std::fwrite(encoded.data(), 1, encoded.size(), file) != encoded.size()) return 1;
    return std::fclose(file);
  }
  auto decoded = TokenizerSpec::decode({reinterpret_cast<const uint8_t *>(encoded.data()), encoded.size()});
  if (!decoded.ok()) return fail(decoded.status());
  double recoded = now();
  auto tokenizer = Tokenizer::create(std::move(*decoded));
  if (!tokenizer.ok()) return fail(tokenizer.status());
  if (time)
    std::fprintf(stderr, "import %.3f s, encode and decode %.3f s (%zu bytes), create %.3f s\n", read - start,
                 recoded - read, encoded.size(), now() - recoded);
  if (info) {
    const TokenizerSpec &spec = tokenizer->spec();
    std::printf("pieces %zu merges %zu added %zu bos %d eos %d eot %d unk %d pad %d prefix", spec.pieces.size(),
                spec.merges.size(), spec.added.size(), spec.bos, spec.eos, spec.eot, spec.unknown, spec.pad);
    for (uint32_t id : spec.prefix)
      std::printf(" %u", id);
    std::printf(" suffix");
    for (uint32_t id : spec.suffix)
      std::printf(" %u", id);
    std::printf(" end");
    for (uint32_t id : spec.endOfGeneration)
      std::printf(" %u", id);
    std::printf("\n");
    for (const std::string &warning : imported->warnings)
      std::printf("warning: %s\n", warning.c_str());
    return 0;
  }

  std::string input((std::istreambuf_iterator<char>(std::cin)), {});
  std::vector<std::string> texts;
  if (raw) {
    texts.push_back(input);
  } else {
    for (size_t at = 0; at < input.size();) {
      size_t end = input.find(hex ? '\n' : '\0', at);
      if (end == std::string::npos) end = input.size();
      texts.push_back(input.substr(at, end - at));
      at = end + 1;
    }
    if (hex)
      for (std::string &text : texts) {
        std::string bytes;
        for (size_t i = 0; i + 1 < text.size(); i += 2)
          bytes += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
        text = bytes;
      }
  }
  std::string out;
  start = now();
  for (const std::string &text : texts) {
    std::vector<int32_t> ids = tokenizer->encode(text, {addSpecial, parseSpecial});
    if (decode) {
      std::string back = tokenizer->decode(ids);
      for (unsigned char c : back) {
        char digits[3];
        std::snprintf(digits, sizeof digits, "%02x", c);
        out += digits;
      }
    } else {
      for (int32_t id : ids)
        out += std::to_string(id) + ' ';
    }
    out += '\n';
  }
  if (time) std::fprintf(stderr, "encode %.3f s\n", now() - start);
  std::fwrite(out.data(), 1, out.size(), stdout);
  return 0;
}
