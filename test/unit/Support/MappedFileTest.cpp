#include "lathe/base/MappedFile.h"
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <unistd.h>

using namespace lathe;
namespace fs = std::filesystem;

namespace {
struct Scratch {
  fs::path dir;
  Scratch() {
    char name[] = "/tmp/lathe-test-XXXXXX";
    dir = mkdtemp(name);
  }
  ~Scratch() { fs::remove_all(dir); }
  std::string write(const std::string &name, const std::string &text) {
    std::ofstream(dir / name) << text;
    return (dir / name).string();
  }
};

TEST(MappedFile, ReadsWhatIsThere) {
  Scratch s;
  auto file = MappedFile::open(s.write("a", "hello"));
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(std::string(file->bytes().begin(), file->bytes().end()), "hello");
  EXPECT_TRUE(file->check().ok());
}

TEST(MappedFile, NamesAMissingFileAndADirectory) {
  Scratch s;
  EXPECT_NE(MappedFile::open("/nonexistent/x").status().message().find("cannot open '/nonexistent/x'"), std::string::npos);
  EXPECT_NE(MappedFile::open(s.dir.string()).status().message().find("is not a regular file"), std::string::npos);
}

TEST(MappedFile, ShrinkingIsAnErrorNotASignal) {
  Scratch s;
  std::string path = s.write("a", std::string(100000, 'x'));
  auto file = MappedFile::open(path);
  ASSERT_TRUE(file.ok());
  ASSERT_EQ(truncate(path.c_str(), 10), 0);
  volatile uint8_t byte = file->bytes()[90000];
  EXPECT_EQ(byte, 0);
  EXPECT_EQ(file->check().code(), StatusCode::dataLoss);
  EXPECT_NE(file->check().message().find("became shorter than 100000 bytes"), std::string::npos);
}

TEST(ResolveInside, KeepsToTheDirectory) {
  Scratch s;
  s.write("good", "x");
  fs::create_symlink("/etc/passwd", s.dir / "link");
  fs::create_symlink("good", s.dir / "inner");
  EXPECT_TRUE(resolveInside(s.dir.string(), "good").ok());
  EXPECT_TRUE(resolveInside(s.dir.string(), "inner").ok());
  auto message = [&](const char *name) { return resolveInside(s.dir.string(), name).status().message(); };
  EXPECT_NE(message("/etc/passwd").find("found an absolute one"), std::string::npos);
  EXPECT_NE(message("a/../good").find("'..' is not allowed"), std::string::npos);
  EXPECT_NE(message("link").find("outside the model's directory"), std::string::npos);
  EXPECT_NE(message("").find("expected a relative file name"), std::string::npos);
  EXPECT_NE(message("missing").find("cannot open"), std::string::npos);
}
} // namespace
