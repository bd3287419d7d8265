//===- ToyArtifact.cpp ----------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "ToyArtifact.h"
#include "lathe/artifact/ProgramCodec.h"
#include "lathe/artifact/TokenizerSpec.h"
#include <cstring>
#include <fstream>
#include <utility>

namespace lathe::test {
using artifact::SectionKind;
using artifact::Variant;

namespace {
constexpr uint64_t paramsBytes = 64, weightFloats = 2 * toyVocabulary * toyWidth;
ToyParams paramsOf(const ToyOptions &o) {
  ToyParams params;
  for (int g = 0; g < 2; ++g) {
    params.page[g] = static_cast<int32_t>(o.pages[g]);
    params.blockBytes[g] = static_cast<int32_t>(o.pages[g] * toyWidth * 4);
  }
  params.window[1] = static_cast<int32_t>(o.window);
  return params;
}
} // namespace

std::vector<float> toyWeights(const ToyOptions &options) {
  std::vector<float> weights(weightFloats);
  uint32_t state = options.seed;
  for (float &w : weights) {
    state = state * 1664525u + 1013904223u;
    w = static_cast<float>(static_cast<int32_t>(state >> 8) - (1 << 23)) / static_cast<float>(1 << 23);
  }
  return weights;
}

Program toyProgram(const ToyOptions &o) {
  Program p;
  uint64_t rowBytes = uint64_t(o.maxRows) * toyStride * 4;
  uint64_t x = 0, y = rowBytes, hidden = 2 * rowBytes, logits = 3 * rowBytes;
  uint64_t words = paramsBytes, head = words + toyVocabulary * toyWidth * 4;
  p.maxRows = o.maxRows;
  p.maxOutRows = o.maxOutRows;
  p.maxSeq = o.maxSeq;
  p.vocabulary = toyVocabulary;
  p.hiddenSize = toyWidth;
  uint64_t embedding = logits + uint64_t(o.maxOutRows) * 64 * 4;
  p.arenaBytes = embedding + uint64_t(o.maxOutRows) * toyStride * 4;
  p.embeddingOffset = embedding;
  p.embeddingStride = toyStride;
  p.scratchBytes = toyWidth * 4;
  p.logitsOffset = logits;
  p.logitsStride = 64;
  p.hiddenOffset = hidden;
  p.hiddenStride = toyStride;
  ToyParams params = paramsOf(o);
  p.kvGroups = {{0, 0, o.pages[0], 1, static_cast<uint64_t>(params.blockBytes[0])},
                {1, o.window, o.pages[1], 1, static_cast<uint64_t>(params.blockBytes[1])}};
  for (uint32_t g = 0; g < 2; ++g)
    p.kvPlanes.push_back({g, 1, 0, 0, 16 * toyWidth * 4, 1, 0, toyWidth * 4});
  p.kernels = {"toy_embed", "toy_append", "toy_attend", "toy_head", "toy_norm", "toy_largest", "toy_feature"};
  p.names = {"token_embd", "blk.0.append", "blk.0.attn", "blk.1.append", "blk.1.attn", "output_norm", "output", "output.largest"};
  auto launch = [&](uint32_t kernel, uint32_t name, ItemKind kind, uint64_t items, ShareKind share,
                    std::vector<Arg> args) {
    Launch l;
    l.kernel = kernel;
    l.name = name;
    l.itemKind = kind;
    l.items = items;
    l.shareKind = share;
    l.firstArg = static_cast<uint32_t>(p.args.size());
    l.argCount = static_cast<uint32_t>(args.size());
    l.weightBytes = 100;
    l.macsPerRow = 10;
    l.bytesPerRow = 64;
    p.args.insert(p.args.end(), args.begin(), args.end());
    p.launches.push_back(l);
  };
  Arg argParams{ArgKind::weight, 0, 0};
  auto groupIndex = [&](uint32_t g) { return Arg{ArgKind::weight, 0, 48 + uint64_t(g)}; };
  auto arena = [](uint64_t offset) { return Arg{ArgKind::arena, 0, offset}; };
  auto kv = [](uint32_t g) { return Arg{ArgKind::kv, g, 0}; };
  using S = ShareKind;
  launch(0, 0, ItemKind::perRow, 1, S::contiguous, {arena(x), {ArgKind::weight, 0, words}});
  launch(1, 1, ItemKind::perRow, 1, S::contiguous, {arena(x), kv(0), argParams, groupIndex(0)});
  launch(2, 2, ItemKind::perRow, 1, S::interleaved, {arena(x), kv(0), argParams, groupIndex(0), arena(y)});
  launch(1, 3, ItemKind::perRow, 1, S::interleaved, {arena(y), kv(1), argParams, groupIndex(1)});
  launch(2, 4, ItemKind::perRow, 1, S::contiguous, {arena(y), kv(1), argParams, groupIndex(1), arena(hidden)});
  launch(3, 6, ItemKind::fixed, (toyVocabulary + toyTile - 1) / toyTile, S::contiguous,
         {arena(hidden), {ArgKind::weight, 0, head}, arena(logits)});
  launch(4, 5, ItemKind::perOutRow, 1, S::contiguous, {arena(hidden), arena(embedding)});
  p.entries = {{"step", {{1, 0, 5}, {o.maxRows, 0, 5}}}, {"head", {{o.maxOutRows, 5, 1}}}, {"embed", {{o.maxOutRows, 6, 1}}}};
  if (o.choices) { // over logits of its own, so that one entry cannot read what the other left
    p.choicesOffset = p.arenaBytes, p.choicesStride = 16;
    uint64_t own = p.choicesOffset + uint64_t(o.maxOutRows) * 16 * 4;
    p.arenaBytes = own + uint64_t(o.maxOutRows) * 64 * 4;
    p.entries.push_back({"head_choices", {{o.maxOutRows, static_cast<uint32_t>(p.launches.size()), 2}}});
    launch(3, 6, ItemKind::fixed, (toyVocabulary + toyTile - 1) / toyTile, S::contiguous, {arena(hidden), {ArgKind::weight, 0, head}, arena(own)});
    launch(5, 7, ItemKind::perOutRow, 1, S::contiguous, {arena(own), arena(p.choicesOffset)});
  }
  if (o.draft) {
    p.entries.push_back({"draft", p.entries[0].buckets});
    p.entries.push_back({"draft_head", p.entries[1].buckets});
    p.draftMaxSeq = p.maxSeq, p.draftLogitsOffset = p.logitsOffset, p.draftLogitsStride = p.logitsStride;
  }
  if (o.layer) {
    auto place = [&](uint64_t bytes) { return std::exchange(p.arenaBytes, p.arenaBytes + bytes); };
    p.draftMethod = DraftMethod::eagle2;
    p.draftMaxSeq = p.maxSeq, p.draftLogitsStride = p.logitsStride;
    p.draftInputSize = p.draftInputStride = 2 * toyWidth;
    p.draftInputOffset = place(rowBytes);
    p.draftOwnOffset = place(rowBytes);
    p.draftLogitsOffset = place(uint64_t(o.maxOutRows) * 64 * 4);
    p.kvGroups.push_back({0, 0, 16, 1, 64, 1});
    auto first = static_cast<uint32_t>(p.launches.size());
    launch(6, 6, ItemKind::perRow, 1, S::contiguous, {arena(p.draftInputOffset), {ArgKind::weight, 0, words}, arena(p.draftOwnOffset)});
    launch(3, 6, ItemKind::fixed, (toyVocabulary + toyTile - 1) / toyTile, S::contiguous, {arena(p.draftOwnOffset), {ArgKind::weight, 0, head}, arena(p.draftLogitsOffset)});
    p.entries.push_back({"draft", {{o.maxRows, first, 1}}});
    p.entries.push_back({"draft_head", {{o.maxOutRows, first + 1, 1}}});
  }
  if (o.heads) {
    auto place = [&](uint64_t bytes) { return std::exchange(p.arenaBytes, p.arenaBytes + bytes); };
    p.draftMethod = DraftMethod::medusa;
    p.draftMaxSeq = p.maxSeq, p.draftLogitsStride = p.logitsStride;
    p.draftInputSize = toyWidth, p.draftInputStride = toyStride;
    p.draftInputOffset = place(rowBytes);
    Entry heads{"draft_head", {{o.maxOutRows, static_cast<uint32_t>(p.launches.size()), o.heads}}};
    for (uint32_t h = 0; h < o.heads; ++h) {
      uint64_t at = place(uint64_t(o.maxOutRows) * 64 * 4);
      if (h)
        p.draftMoreLogits.push_back(at);
      else
        p.draftLogitsOffset = at;
      launch(3, 6, ItemKind::fixed, (toyVocabulary + toyTile - 1) / toyTile, S::contiguous, {arena(p.draftInputOffset), {ArgKind::weight, 0, head}, arena(at)});
    }
    p.entries.push_back({"draft", {{o.maxRows, 0, 0}}});
    p.entries.push_back(std::move(heads));
  }
  return p;
}

static std::string toyTokenizer() {
  TokenizerSpec spec;
  spec.byteLevel = true;
  for (char c = 'a'; c <= 'z'; ++c)
    spec.pieces.push_back(std::string(1, c));
  for (char c : std::string_view(" \n.,?!:\xc3\xa9"))
    spec.pieces.push_back(std::string(1, c));
  for (char c = '0'; c <= '9'; ++c)
    spec.pieces.push_back(std::string(1, c));
  for (const char *piece : {"<", "|", ">", "<|end|>", "<|user|>"})
    spec.pieces.push_back(piece);
  spec.types.assign(spec.pieces.size(), TokenizerSpec::PieceType::normal);
  for (uint32_t id : {toyEnd, toyUser}) {
    spec.types[id] = TokenizerSpec::PieceType::control;
    spec.added.push_back({id, spec.pieces[id], true, false, false, false, false});
  }
  spec.eos = toyEnd;
  return spec.encode();
}

std::vector<uint8_t> toyCode() {
  std::ifstream in(TOY_KERNELS, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

Status addToySections(artifact::ArtifactWriter &writer, const ToyOptions &options, const Program &program) {
  LATHE_RETURN_IF_ERROR(writer.addSection(SectionKind::metadata, "{\"name\": \"toy\"}"));
  LATHE_RETURN_IF_ERROR(writer.addSection(SectionKind::program, Variant::none, encodeProgram(program)));
  std::vector<uint8_t> code = toyCode();
  for (Variant v : {Variant::avx2, Variant::avx512vnni})
    LATHE_RETURN_IF_ERROR(writer.addSection(SectionKind::code, v, code));
  if (options.words) {
    std::string words = toyTokenizer();
    LATHE_RETURN_IF_ERROR(writer.addSection(SectionKind::tokenizer, words));
    std::string chat = options.chatTemplate;
    if (chat.empty()) chat = "{% for m in messages %}<|user|>{{ m.role }}: {{ m.content }}<|end|>{% endfor %}"
             "{% if add_generation_prompt %}<|user|>{% endif %}";
    LATHE_RETURN_IF_ERROR(writer.addSection(SectionKind::chatTemplate, chat));
    LATHE_RETURN_IF_ERROR(writer.addSection(SectionKind::generation, "{\"eos_token_id\": [48], \"top_k\": 5}"));
  }
  LATHE_RETURN_IF_ERROR(writer.beginWeights());
  uint8_t head[paramsBytes] = {};
  ToyParams params = paramsOf(options);
  std::memcpy(head, &params, sizeof params);
  head[48] = 0;
  head[49] = 1;
  LATHE_RETURN_IF_ERROR(writer.append(head));
  std::vector<float> weights = toyWeights(options);
  return writer.append({reinterpret_cast<const uint8_t *>(weights.data()), weights.size() * 4});
}

Status writeToyArtifact(const std::string &path, const ToyOptions &options) {
  LATHE_ASSIGN_OR_RETURN(auto writer, artifact::ArtifactWriter::create(path));
  LATHE_RETURN_IF_ERROR(addToySections(writer, options, toyProgram(options)));
  return writer.finish();
}

GraphSection toyGraphSection() {
  GraphSection g;
  g.inputs = {{GraphRole::tokens, GraphType::i64, 8, {-1, -1}, "input_ids"},
              {GraphRole::mask, GraphType::i32, 4, {1, -1}, "attention_mask"},
              {GraphRole::past, GraphType::f32, 4, {1, 2, -1, 4}, "past.0", 2, 1},
              {GraphRole::weight, GraphType::f32, 4, {toyVocabulary, 8}, "embedding", 0, 0, 0},
              {GraphRole::weight, GraphType::i32, 4, {1}, "mode", 0, 0, toyVocabulary * 32}};
  g.outputs = {{GraphRole::logits, GraphType::f32, 4, {-1, -1, toyVocabulary}, "logits"}, {GraphRole::present, GraphType::f32, 4, {1, 2, -1, 4}, "present.0", 2}};
  g.checks = {"node 'embed': a bad token", "node 'mask': expected ones"};
  return g;
}

Status writeToyGraph(const std::string &path, ToyGraphMode mode, const GraphSection &section, const std::vector<uint8_t> &code, Variant variant) {
  Program p;
  p.maxRows = p.maxOutRows = 8;
  p.maxSeq = 64;
  p.vocabulary = p.logitsStride = toyVocabulary;
  p.hiddenSize = 1;
  p.hiddenStride = 16;
  p.hiddenOffset = (uint64_t(p.maxRows) * toyVocabulary * 4 + 63) / 64 * 64;
  p.arenaBytes = p.hiddenOffset + uint64_t(p.maxRows) * p.hiddenStride * 4;
  p.kernels = {"lathe_graph"};
  p.entries = {{"step", {{p.maxRows, 0, 0}}}, {"head", {{p.maxRows, 0, 0}}}};
  p.kvGroups = {{0, 0, 16, 1, 16 * 32}};
  bool gpu = artifact::isGpu(variant);
  if (gpu) p.kernels = {"lathe_graph_kernel_0"}, p.blocks = {{128, 0}};
  LATHE_ASSIGN_OR_RETURN(auto writer, artifact::ArtifactWriter::create(path));
  LATHE_RETURN_IF_ERROR(writer.addSection(SectionKind::program, gpu ? variant : Variant::none, encodeProgram(p)));
  LATHE_RETURN_IF_ERROR(writer.addSection(SectionKind::graph, encodeGraphSection(section)));
  if (!code.empty()) LATHE_RETURN_IF_ERROR(writer.addSection(SectionKind::code, variant, code));
  LATHE_RETURN_IF_ERROR(writer.beginWeights());
  std::vector<float> weights = toyWeights({});
  LATHE_RETURN_IF_ERROR(writer.append({reinterpret_cast<const uint8_t *>(weights.data()), toyVocabulary * 32}));
  uint8_t word[4];
  std::memcpy(word, &mode, 4);
  LATHE_RETURN_IF_ERROR(writer.append(word));
  return writer.finish();
}

std::vector<std::vector<float>> toyGraphLogits(const std::vector<int32_t> &tokens) {
  std::vector<float> embedding = toyWeights({}), state(8);
  std::vector<std::vector<float>> rows;
  for (int32_t token : tokens) {
    auto &row = rows.emplace_back();
    for (int k = 0; k < 8; ++k)
      state[k] = state[k] * 0.75f + embedding[token * 8 + k];
    for (int v = 0; v < toyVocabulary; ++v) {
      float sum = 0;
      for (int k = 0; k < 8; ++k)
        sum = sum + embedding[v * 8 + k] * state[k];
      row.push_back(sum);
    }
  }
  return rows;
}

std::vector<float> toyOwn(const ToyOptions &options, int32_t token, const std::vector<float> &input) {
  std::vector<float> weights = toyWeights(options), own(toyWidth);
  for (size_t d = 0; d < own.size(); ++d) own[d] = 0.5f * (input[d] + input[toyWidth + d]) + weights[static_cast<size_t>(token) * toyWidth + d];
  return own;
}

std::vector<std::vector<float>> toyHidden(const ToyOptions &options, const std::vector<int32_t> &tokens) {
  std::vector<float> embedding = toyWeights(options);
  size_t n = tokens.size();
  std::vector<std::vector<float>> x(n, std::vector<float>(toyWidth));
  for (size_t i = 0; i < n; ++i)
    for (int d = 0; d < toyWidth; ++d)
      x[i][d] = embedding[tokens[i] * toyWidth + d] * (1.0f + 0.01f * static_cast<float>(i));
  for (size_t window : {size_t(0), size_t(options.window)}) {
    auto y = x;
    for (size_t i = 0; i < n; ++i) {
      std::vector<float> sum(toyWidth, 0);
      for (size_t j = window && i + 1 > window ? i + 1 - window : 0; j <= i; ++j)
        for (int d = 0; d < toyWidth; ++d)
          sum[d] = sum[d] * 0.75f + x[j][d];
      for (int d = 0; d < toyWidth; ++d)
        y[i][d] = x[i][d] + sum[(d + 1) % toyWidth];
    }
    x = y;
  }
  return x;
}

std::vector<std::vector<float>> toyLogits(const ToyOptions &options, const std::vector<int32_t> &tokens) {
  std::vector<float> weights = toyWeights(options);
  const float *head = weights.data() + toyVocabulary * toyWidth;
  std::vector<std::vector<float>> x = toyHidden(options, tokens), result(x.size());
  for (size_t i = 0; i < x.size(); ++i)
    for (int v = 0; v < toyVocabulary; ++v) {
      float sum = 0;
      for (int d = 0; d < toyWidth; ++d)
        sum = sum + head[v * toyWidth + d] * x[i][d];
      result[i].push_back(sum);
    }
  return result;
}

std::vector<std::vector<float>> toyEmbeddings(const ToyOptions &options, const std::vector<int32_t> &tokens) {
  std::vector<std::vector<float>> x = toyHidden(options, tokens);
  for (auto &row : x) {
    float sum = 0;
    for (float v : row)
      sum = sum + v * v;
    for (float &v : row)
      v = v / (1.0f + sum);
  }
  return x;
}

} // namespace lathe::test
