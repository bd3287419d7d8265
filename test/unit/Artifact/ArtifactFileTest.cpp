//===- ArtifactFileTest.cpp - writer and reader --------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "lathe/artifact/Reader.h"
#include "lathe/artifact/Writer.h"
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <fstream>
#include <gtest/gtest.h>
#include <csignal>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace lathe;
using namespace lathe::artifact;

namespace {

class ArtifactFile : public testing::Test {
protected:
  void SetUp() override {
    char name[] = "artifact-XXXXXX";
    directory = mkdtemp(name);
    path = directory + "/a.lathe";
  }
  void TearDown() override {
    for (const std::string &name : entries()) unlink((directory + "/" + name).c_str());
    rmdir(directory.c_str());
  }
  std::vector<std::string> entries() const {
    std::vector<std::string> names;
    DIR *dir = opendir(directory.c_str());
    while (dirent *e = readdir(dir))
      if (e->d_name[0] != '.') names.push_back(e->d_name);
    closedir(dir);
    return names;
  }
  static std::vector<uint8_t> pattern(size_t bytes) {
    std::vector<uint8_t> data(bytes);
    for (size_t i = 0; i < bytes; ++i) data[i] = static_cast<uint8_t>(i * 31 + (i >> 8));
    return data;
  }
  void writeSample() {
    auto writer = ArtifactWriter::create(path);
    ASSERT_TRUE(writer.ok()) << writer.status().message();
    ASSERT_TRUE(writer->addSection(SectionKind::metadata, "{\"a\": 1}").ok());
    ASSERT_TRUE(writer->addSection(SectionKind::code, Variant::avx2, pattern(5000)).ok());
    ASSERT_TRUE(writer->addSection(SectionKind::code, Variant::avx512bf16, pattern(3)).ok());
    ASSERT_TRUE(writer->beginWeights().ok());
    ASSERT_TRUE(writer->append(pattern(100)).ok());
    ASSERT_TRUE(writer->pad(64).ok());
    ASSERT_EQ(writer->weightBytes(), 128u);
    ASSERT_TRUE(writer->append(pattern(3 << 20)).ok());
    Status status = writer->finish();
    ASSERT_TRUE(status.ok()) << status.message();
  }
  std::vector<uint8_t> contents() const {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  std::string directory, path;
};

void expectError(std::span<const uint8_t> bytes, StatusCode code, const char *text) {
  auto got = ArtifactView::parse(bytes);
  ASSERT_FALSE(got.ok()) << text;
  EXPECT_EQ(got.status().code(), code) << got.status().message();
  EXPECT_NE(got.status().message().find(text), std::string::npos) << got.status().message();
}

/// Changes the header and makes the table's hash right again, as a forger would.
std::vector<uint8_t> edited(std::vector<uint8_t> bytes, void (*change)(Header &)) {
  Header header;
  std::memcpy(&header, bytes.data(), sizeof header);
  change(header);
  header.tableHash = hashBytes({reinterpret_cast<uint8_t *>(header.sections),
                                std::min(header.sectionCount, maxSections) * sizeof(Section)});
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

} // namespace

TEST_F(ArtifactFile, RoundTrip) {
  writeSample();
  auto bytes = contents();
  auto view = ArtifactView::parse(bytes);
  ASSERT_TRUE(view.ok()) << view.status().message();
  EXPECT_EQ(view->text(SectionKind::metadata), "{\"a\": 1}");
  auto code = view->find(SectionKind::code, Variant::avx2);
  ASSERT_TRUE(code);
  EXPECT_EQ(std::vector<uint8_t>(code->begin(), code->end()), pattern(5000));
  EXPECT_FALSE(view->find(SectionKind::code, Variant::avx512vnni));
  EXPECT_EQ(view->text(SectionKind::chatTemplate), "");
  EXPECT_EQ(view->weights().size(), 128u + (3 << 20));
  EXPECT_EQ((view->weights().data() - bytes.data()) % sectionAlignment, 0);
  EXPECT_TRUE(view->verifyWeights().ok());
  EXPECT_EQ(entries(), std::vector<std::string>{"a.lathe"});
}

TEST_F(ArtifactFile, NothingAppearsBeforeFinish) {
  {
    std::ofstream(path) << "old";
    auto writer = ArtifactWriter::create(path);
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE(writer->addSection(SectionKind::metadata, "{}").ok());
    EXPECT_EQ(contents().size(), 3u);
  }
  EXPECT_EQ(contents().size(), 3u);
  EXPECT_EQ(entries(), std::vector<std::string>{"a.lathe"});
  writeSample(); // replaces
  EXPECT_GT(contents().size(), 4096u);
}

TEST_F(ArtifactFile, KilledWriterLeavesNothing) {
  pid_t child = fork();
  if (child == 0) {
    auto writer = ArtifactWriter::create(path);
    if (!writer.ok() || !writer->beginWeights().ok() || !writer->append(pattern(5 << 20)).ok()) _exit(1);
    raise(SIGKILL);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  int unnamed = open(directory.c_str(), O_TMPFILE | O_RDWR, 0600);
  if (unnamed >= 0) { // where a file need not have a name, nothing at all is left
    close(unnamed);
    EXPECT_EQ(entries(), std::vector<std::string>());
  }
  for (const std::string &name : entries()) EXPECT_NE(name, "a.lathe");
}

TEST_F(ArtifactFile, WriterErrors) {
  EXPECT_EQ(ArtifactWriter::create(directory + "/no/such").status().code(), StatusCode::notFound);
  EXPECT_NE(ArtifactWriter::create(directory).status().message().find("it is a directory, expected a file name"), std::string::npos);
  auto writer = ArtifactWriter::create(path);
  ASSERT_TRUE(writer.ok());
  EXPECT_NE(writer->append(pattern(1)).message().find("WEIGHTS has not begun"), std::string::npos);
  EXPECT_TRUE(writer->addSection(SectionKind::program, "x").ok());
  EXPECT_NE(writer->addSection(SectionKind::program, "x").message().find("a section of kind 2 and variant 0 is there already"), std::string::npos);
  EXPECT_TRUE(writer->beginWeights().ok());
  EXPECT_NE(writer->beginWeights().message().find("WEIGHTS has begun"), std::string::npos);
  EXPECT_NE(writer->addSection(SectionKind::metadata, "x").message().find("WEIGHTS is the last section"), std::string::npos);
  EXPECT_NE(writer->pad(0).message().find("expected an alignment above 0"), std::string::npos);
  EXPECT_TRUE(writer->finish().ok());
  EXPECT_NE(writer->finish().message().find("is no longer being written"), std::string::npos);
  EXPECT_NE(writer->append(pattern(1)).message().find("no longer being written"), std::string::npos);
}

TEST_F(ArtifactFile, FailedWriteLeavesNothing) {
  pid_t child = fork();
  if (child == 0) { // a file-size limit stands for the full disk
    signal(SIGXFSZ, SIG_IGN);
    rlimit limit{1 << 20, 1 << 20};
    setrlimit(RLIMIT_FSIZE, &limit);
    auto writer = ArtifactWriter::create(path);
    if (!writer.ok() || !writer->beginWeights().ok()) _exit(1);
    Status status = writer->append(pattern(5 << 20));
    _exit(status.message().find("write: File too large") != std::string::npos && !writer->finish().ok() ? 7 : 2);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 7);
  EXPECT_TRUE(entries().empty());
}

TEST_F(ArtifactFile, DamageIsFound) {
  writeSample();
  auto good = contents();
  std::vector<uint8_t> gguf = {'G', 'G', 'U', 'F', 3, 0, 0, 0, 0, 0, 0, 0};
  expectError(gguf, StatusCode::invalidArgument, "found a GGUF model; compile it with 'lathe compile");
  expectError({}, StatusCode::invalidArgument, "expected the file to begin with 'LATHE'");
  expectError(std::span(good).first(10), StatusCode::dataLoss, "expected a header of 2600 bytes, file ends at 10");
  expectError(std::span(good).first(2599), StatusCode::dataLoss, "expected a header of 2600 bytes");
  expectError(std::span(good).first(good.size() - 1), StatusCode::dataLoss, "the file is incomplete");

  auto bytes = edited(good, [](Header &h) { h.version = 9; });
  expectError(bytes, StatusCode::failedPrecondition,
              "this runtime reads artifact format 0 (draft 4), the file has format 9 (draft 4); compile the "
              "model again with this version of lathe");
  expectError(edited(good, [](Header &h) { h.draft = 1; }), StatusCode::failedPrecondition,
              "the file has format 0 (draft 1); compile the model again");
  expectError(edited(good, [](Header &h) { h.sectionCount = 65; }), StatusCode::dataLoss, "at most 64 sections");
  expectError(edited(good, [](Header &h) { h.sections[0].kind = 99; }), StatusCode::dataLoss,
              "section 0 (kind 99, variant 0): unknown kind");
  expectError(edited(good, [](Header &h) { h.sections[1].variant = 9; }), StatusCode::dataLoss, "unknown variant");
  expectError(edited(good, [](Header &h) { h.sections[1].offset += 8; }), StatusCode::dataLoss,
              "expected an offset that is a multiple of 4096");
  expectError(edited(good, [](Header &h) { h.sections[1].bytes = ~uint64_t(0); }), StatusCode::dataLoss,
              "file ends at");
  expectError(edited(good, [](Header &h) { h.sections[2].offset = h.sections[1].offset; }), StatusCode::dataLoss,
              "inside what ends at");
  expectError(edited(good, [](Header &h) { h.sections[2].variant = h.sections[1].variant; }), StatusCode::dataLoss,
              "sections 1 and 2 are both 'code'");
  expectError(edited(good,
                     [](Header &h) {
                       h.sections[0].kind = static_cast<uint32_t>(SectionKind::weights);
                     }),
              StatusCode::dataLoss, "WEIGHTS is not the last section");

  bytes = good;
  bytes[offsetof(Header, sections) + 3] ^= 1;
  expectError(bytes, StatusCode::dataLoss, "hash of the section table does not match");
  bytes = good;
  bytes[2 * 4096 + 17] ^= 1; // in the avx2 code
  expectError(bytes, StatusCode::dataLoss, "section 'code' (5000 bytes at offset 8192): expected hash ");
  bytes = good;
  bytes.back() ^= 1; // weights are checked on request only
  auto view = ArtifactView::parse(bytes);
  ASSERT_TRUE(view.ok());
  EXPECT_NE(view->verifyWeights().message().find("section 'weights'"), std::string::npos);
}
