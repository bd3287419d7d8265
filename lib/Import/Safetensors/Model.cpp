//===- Model.cpp - the shards of a model ----------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "lathe/import/Json.h"
#include "lathe/import/Quote.h"
#include "lathe/import/Safetensors.h"
#include <map>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace lathe::safetensors {
namespace {
const char indexName[] = "model.safetensors.index.json";
const char singleName[] = "model.safetensors";
bool exists(const std::string &path) { return access(path.c_str(), F_OK) == 0; }
} // namespace

Status Model::add(const std::string &path) {
  LATHE_ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
  auto header = parseHeader(file.bytes());
  if (!header.ok()) return header.status().at(path);
  LATHE_RETURN_IF_ERROR(file.check());
  for (TensorInfo &info : *header) {
    info.file = static_cast<uint32_t>(mapped.size());
    auto [it, fresh] = index.emplace(info.name, table.size());
    if (!fresh)
      return Status(StatusCode::invalidArgument, path + ": tensor " + quoteName(info.name) + " is also in " +
                                                     quoteName(mapped[table[it->second].file]->path()));
    table.push_back(std::move(info));
  }
  mapped.push_back(std::make_unique<MappedFile>(std::move(file)));
  return Status();
}

Status Model::readIndex(const std::string &directory, const std::string &indexPath) {
  LATHE_ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(indexPath));
  auto bytes = file.bytes();
  auto parsed = parseJson({reinterpret_cast<const char *>(bytes.data()), bytes.size()});
  if (!parsed.ok()) return parsed.status().at(indexPath);
  auto fail = [&](const std::string &what) { return Status(StatusCode::invalidArgument, indexPath + ": " + what); };
  if (!parsed->is_object()) return fail("expected a JSON object");
  auto map = parsed->find("weight_map");
  if (map == parsed->end() || !map->is_object()) return fail("expected an object 'weight_map'");
  std::map<std::string, uint32_t> shards;
  for (auto &[name, shard] : map->items()) {
    if (!shard.is_string()) return fail("tensor " + quoteName(name) + ": expected a file name");
    auto shardName = shard.get<std::string>();
    if (shards.count(shardName)) continue;
    auto path = resolveInside(directory, shardName);
    if (!path.ok()) return path.status().at(indexPath);
    shards[shardName] = static_cast<uint32_t>(mapped.size());
    LATHE_RETURN_IF_ERROR(add(*path));
  }
  for (auto &[name, shard] : map->items()) {
    const TensorInfo *info = tensor(name);
    if (!info || info->file != shards[shard.get<std::string>()])
      return fail("tensor " + quoteName(name) + " is not in file " + quoteName(shard.get<std::string>()));
  }
  return Status();
}

Result<Model> Model::openFile(const std::string &path) {
  Model model;
  LATHE_RETURN_IF_ERROR(model.add(path));
  return model;
}

Result<Model> Model::openDirectory(const std::string &directory) {
  Model model;
  bool indexed = exists(directory + "/" + indexName);
  if (!indexed && !exists(directory + "/" + singleName)) {
    std::string text = quoteName(directory) + ": expected " + indexName + " or " + singleName;
    if (exists(directory + "/pytorch_model.bin") || exists(directory + "/pytorch_model.bin.index.json"))
      text += ", found pytorch_model.bin, which is not supported; convert it to safetensors";
    return Status(StatusCode::notFound, text);
  }
  LATHE_ASSIGN_OR_RETURN(std::string path, resolveInside(directory, indexed ? indexName : singleName));
  LATHE_RETURN_IF_ERROR(indexed ? model.readIndex(directory, path) : model.add(path));
  return model;
}

const TensorInfo *Model::tensor(std::string_view name) const {
  auto it = index.find(std::string(name));
  return it == index.end() ? nullptr : &table[it->second];
}

} // namespace lathe::safetensors
