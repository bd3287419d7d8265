//===- Compiler.cpp - starting the compiler, and the cache --------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Commands.h"
#include "lathe/artifact/Hash.h"
#include "lathe/base/MappedFile.h"
#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <filesystem>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lathe::tool {
namespace {

bool isDirectory(const std::string &path) {
  struct stat info{};
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

std::vector<char *> argumentVector(std::vector<std::string> &storage) {
  std::vector<char *> argv;
  for (std::string &s : storage)
    argv.push_back(s.data());
  argv.push_back(nullptr);
  return argv;
}

Status makeDirectories(const std::string &path) {
  for (size_t at = 1; at <= path.size(); ++at) {
    if (at != path.size() && path[at] != '/') continue;
    std::string part = path.substr(0, at);
    if (mkdir(part.c_str(), 0777) != 0 && errno != EEXIST)
      return makeError(StatusCode::internal, "cannot create '%s': %s", part.c_str(), std::strerror(errno));
  }
  return Status();
}

std::string cacheDirectory() {
  if (const char *own = std::getenv("LATHE_CACHE_DIR"); own && *own) return own;
  if (const char *xdg = std::getenv("XDG_CACHE_HOME"); xdg && *xdg) return std::string(xdg) + "/lathe";
  if (const char *home = std::getenv("HOME"); home && *home) return std::string(home) + "/.cache/lathe";
  return "/tmp/lathe-cache-" + std::to_string(getuid());
}

Status hashFile(const std::string &path, artifact::Hasher &hasher) {
  LATHE_ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
  constexpr size_t piece = 64 << 20;
  for (size_t at = 0; at < file.fileSize(); at += piece) {
    size_t n = std::min(piece, file.fileSize() - at);
    hasher.update(file.bytes().subspan(at, n));
    file.drop(at, n);
  }
  return file.check();
}

/// The end of |path| from its last dot, in small letters.
std::string extensionOf(const std::string &path) {
  size_t dot = path.rfind('.'), slash = path.rfind('/');
  if (dot == std::string::npos || (slash != std::string::npos && dot < slash)) return "";
  std::string extension = path.substr(dot);
  for (char &c : extension)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return extension;
}

/// Adds every regular file of |directory| that |wanted| takes, in the order of their names.
template <typename Wanted, typename Add> Status addFiles(const std::string &directory, Wanted wanted, Add add) {
  std::vector<std::string> names;
  DIR *dir = opendir(directory.c_str());
  if (!dir) return makeError(StatusCode::notFound, "cannot open '%s': %s", directory.c_str(), std::strerror(errno));
  while (dirent *entry = readdir(dir)) {
    struct stat info{};
    if (entry->d_name[0] != '.' && wanted(entry->d_name) && stat((directory + "/" + entry->d_name).c_str(), &info) == 0 && S_ISREG(info.st_mode))
      names.push_back(entry->d_name);
  }
  closedir(dir);
  std::sort(names.begin(), names.end());
  for (const std::string &name : names)
    LATHE_RETURN_IF_ERROR(add(name));
  return Status();
}

/// A name for the content of a model: its file, or every regular file of its directory with its name. Of an .onnx file, which has weights and texts
/// beside it, also the texts and the files that have its name in theirs. Other files beside it may be weights too, but a directory of downloads is not
/// read at every start: their names, sizes and times stand for them. The texts around a directory named onnx count as well.
Result<std::string> contentName(const std::string &model) {
  artifact::Hasher hasher;
  auto addText = [&](const std::string &text) {
    hasher.update({reinterpret_cast<const uint8_t *>(text.c_str()), text.size() + 1});
  };
  addText("format " + std::to_string(artifact::formatVersion) + " lathe " LATHE_VERSION);
  // Another compiler makes another artifact: its size and time stand for its content.
  struct stat compiler{};
  if (stat(compilerPath().c_str(), &compiler) == 0)
    addText(std::to_string(compiler.st_size) + " " + std::to_string(compiler.st_mtime));
  auto addAll = [&](const std::string &directory, auto wanted) {
    return addFiles(directory, wanted, [&](const std::string &name) {
      addText(name);
      return hashFile(directory + "/" + name, hasher);
    });
  };
  auto text = [](const std::string &name) { return extensionOf(name) == ".json" || extensionOf(name) == ".jinja"; };
  const bool directory = isDirectory(model);
  std::string home = directory ? model : model.substr(0, model.rfind('/') + 1) + ".";
  if (!directory) LATHE_RETURN_IF_ERROR(hashFile(model, hasher));
  if (directory) LATHE_RETURN_IF_ERROR(addAll(model, [](const std::string &) { return true; }));
  if (!directory && extensionOf(model) != ".onnx") return artifact::toHex(hasher.digest());
  namespace fs = std::filesystem;
  std::string stem = fs::path(model).stem().string();
  auto named = [&](const std::string &name) { return text(name) || (name.starts_with(stem) && extensionOf(name) != ".onnx" && extensionOf(name) != ".lathe"); };
  auto other = [&](const std::string &name) {
    for (const char *known : {".onnx", ".lathe", ".gguf", ".log", ".txt", ".md", ".py"})
      if (extensionOf(name) == known) return false;
    return !named(name);
  };
  if (!directory) {
    LATHE_RETURN_IF_ERROR(addAll(home, named));
    LATHE_RETURN_IF_ERROR(addFiles(home, other, [&](const std::string &name) {
      struct stat info{};
      if (stat((home + "/" + name).c_str(), &info) == 0) addText(name + " " + std::to_string(info.st_size) + " " + std::to_string(info.st_mtim.tv_sec) + " " + std::to_string(info.st_mtim.tv_nsec));
      return Status();
    }));
  }
  // By the words of the path, as the compiler goes up: what a link leads to has nothing above it that is the model's.
  std::error_code error;
  fs::path around = (fs::absolute(home, error) / ".").lexically_normal().parent_path();
  if (!error && around.filename() == "onnx") LATHE_RETURN_IF_ERROR(addAll(around.parent_path().string(), text));
  return artifact::toHex(hasher.digest());
}

} // namespace

std::string compilerPath() {
  if (const char *own = std::getenv("LATHE_COMPILER"); own && *own) return own;
  char self[PATH_MAX];
  ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
  std::string path(self, n > 0 ? static_cast<size_t>(n) : 0);
  return path.substr(0, path.rfind('/') + 1) + "../libexec/lathe-compiler";
}

Result<int> compilerCommand(const std::string &command, const Args &args) {
  std::string path = compilerPath();
  std::vector<std::string> all = {path, command};
  all.insert(all.end(), args.begin(), args.end());
  execv(path.c_str(), argumentVector(all).data());
  return makeError(errno == ENOENT ? StatusCode::notFound : StatusCode::internal,
                   "cannot start the compiler '%s': %s%s", path.c_str(), std::strerror(errno),
                   errno == ENOENT ? "; this installation has the runtime only" : "");
}

bool isModelSource(const std::string &path) {
  if (isDirectory(path)) return true;
  std::string extension = extensionOf(path);
  return extension == ".gguf" || extension == ".onnx";
}

Status withCompileHint(Status status, const std::string &path) {
  std::string extension = extensionOf(path);
  bool noArtifact = status.message().find("not a Lathe artifact") != std::string::npos;
  if (!noArtifact || (extension != ".onnx" && extension != ".safetensors")) return status;
  std::string model = extension == ".onnx" ? path : "DIRECTORY";
  return Status(status.code(), status.message() + "; a model is compiled first: 'lathe compile " + model + " -o FILE.lathe'");
}

Result<std::string> cachedArtifact(const std::string &model) {
  LATHE_ASSIGN_OR_RETURN(std::string name, contentName(model));
  std::string directory = cacheDirectory(), file = directory + "/" + name + ".lathe";
  if (access(file.c_str(), R_OK) == 0) return file;
  LATHE_RETURN_IF_ERROR(makeDirectories(directory));
  std::fprintf(stderr, "compiling '%s' into '%s'\n", model.c_str(), file.c_str());
  std::string compiler = compilerPath();
  std::vector<std::string> all = {compiler, "compile", model, "-o", file};
  pid_t child = fork();
  if (child == 0) {
    dup2(2, 1); // our own output stays clean
    execv(compiler.c_str(), argumentVector(all).data());
    std::fprintf(stderr, "lathe: error: cannot start the compiler '%s': %s\n", compiler.c_str(), std::strerror(errno));
    _exit(127);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    return makeError(StatusCode::failedPrecondition, "compiling '%s' failed", model.c_str());
  return file;
}

} // namespace lathe::tool
