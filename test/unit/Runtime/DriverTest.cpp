//===- DriverTest.cpp - the driver from outside ---------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "ToyArtifact.h"
#include <csignal>
#include <cstdio>
#include <fstream>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <pty.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

using namespace lathe;
using namespace lathe::test;
using nlohmann::json;

namespace {

struct Output {
  int code = -1;
  std::string out, err;
};

/// Runs `lathe ARGUMENTS` through the shell.
Output lathe_(const std::string &arguments, const std::string &environment = "") {
  Output result;
  std::string command = environment + " '" LATHE_BINARY "' " + arguments + " 2>driver-test.err </dev/null";
  FILE *pipe = popen(command.c_str(), "r");
  char buffer[4096];
  for (size_t n; (n = fread(buffer, 1, sizeof buffer, pipe)) > 0;)
    result.out.append(buffer, n);
  int status = pclose(pipe);
  result.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  std::ifstream err("driver-test.err");
  result.err.assign(std::istreambuf_iterator<char>(err), {});
  return result;
}

class DriverTest : public testing::Test {
protected:
  static void SetUpTestSuite() {
    // Files of these tests are nobody else's.
    std::string folder = testing::TempDir() + "lathe-driver-XXXXXX";
    ASSERT_TRUE(mkdtemp(folder.data()) && chdir(folder.c_str()) == 0);
    ToyOptions toy;
    ASSERT_TRUE(writeToyArtifact("driver-ids.lathe", toy).ok());
    toy.words = true;
    ASSERT_TRUE(writeToyArtifact("driver-words.lathe", toy).ok());
    toy.seed = 2;
    ASSERT_TRUE(writeToyArtifact("driver-other.lathe", toy).ok());
    toy.maxSeq = 1 << 17; // an answer that is longer than anybody waits
    ASSERT_TRUE(writeToyArtifact("driver-long.lathe", toy).ok());
  }
};

void expectError(const std::string &arguments, int code, const std::string &message) {
  Output o = lathe_(arguments);
  EXPECT_EQ(o.code, code) << arguments;
  EXPECT_EQ(o.err, "lathe: error: " + message + "\n") << arguments;
  EXPECT_EQ(o.out, "") << arguments;
}

} // namespace

TEST_F(DriverTest, HelpAndVersion) {
  EXPECT_EQ(lathe_("--version").out, "lathe 0.1.0 (artifact format 0)\n");
  EXPECT_NE(lathe_("--help").out.find("lathe compile MODEL -o FILE.lathe"), std::string::npos);
  EXPECT_EQ(lathe_("").code, 2);
  for (const char *command : {"run", "bench", "eval", "inspect", "explain"}) {
    Output o = lathe_(std::string(command) + " --help");
    EXPECT_EQ(o.code, 0);
    EXPECT_EQ(o.out.find("usage: lathe " + std::string(command)), 0u);
  }
}

TEST_F(DriverTest, WrongCommandLines) {
  expectError("serve", 2, "expected at least one artifact; see '--help'");
  expectError("serve a.lathe b.lathe --served-name a", 2,
              "option '--served-name': expected one for each of the 2 files, found 1");
  expectError("serve a.lathe b.lathe --trace t", 2, "option '--trace': expected one file with it, found 2");
  expectError("serve a.lathe --device tpu", 2, "option '--device': expected cpu, cuda or emulator, found 'tpu'");
  expectError("serve a.lathe --preemption no", 2, "option '--preemption': expected auto, recompute or save, found 'no'");
  expectError("serve a.lathe --pooling cls", 2, "option '--pooling': expected last or mean, found 'cls'");
  expectError("serve a.lathe --generation-config x", 2, "option '--generation-config': expected auto or none, found 'x'");
  expectError("serve a.lathe --port 70000", 2, "option '--port': expected a number in 0..65535, found '70000'");
  expectError("serve a.lathe --api-key-file nowhere", 1, "key file 'nowhere': cannot read it");
  expectError("load", 2, "expected the URL of a server; see '--help'");
  expectError("load ftp://x", 2, "expected a URL as http://127.0.0.1:8000, found 'ftp://x'");
  expectError("load http://127.0.0.1:1 --turns 2", 2, "option '--turns': expected '--chat' with it");
  expectError("load http://127.0.0.1:1 --slo fast", 2, "option '--slo': expected ttft:MS,tpot:MS,e2e:MS, found 'fast'");
  expectError("load http://127.0.0.1:1", 1, "no server answers at 127.0.0.1 port 1: Connection refused");
  expectError("bench driver-words.lathe --temp 1", 2, "option '--temp': expected with '--speculate' only, as plain answers are measured without sampling");
  expectError("fly", 2, "unknown command 'fly', expected compile, run, serve, load, bench, eval, inspect, explain, simulate, replay or bisect");
  expectError("run", 2, "expected an artifact; see '--help'");
  expectError("run a b -p x", 2, "expected only an artifact, found also 'b'");
  expectError("run a --wings", 2, "unknown option '--wings'; '--help' lists the options");
  expectError("run a -n", 2, "option '-n': expected N after it");
  expectError("run a -n -3", 2, "option '-n': expected a number in 0..4294967295, found '-3'");
  expectError("run a --temp=hot", 2, "option '--temp': expected a number in 0..100, found 'hot'");
  expectError("run a --logit-bias 5", 2, "option '--logit-bias': expected a token id and its amount as 5:-2.5, found '5'");
  expectError("run a --logit-bias 1:1,,2:1", 2, "option '--logit-bias': expected a token id and its amount as 5:-2.5, found ''");
  expectError("run a --logit-bias x:1", 2, "option '--logit-bias': expected a token id before the ':', found 'x:1'");
  expectError("run a --logit-bias=-1:1", 2, "option '--logit-bias': expected a token id before the ':', found '-1:1'");
  expectError("run a --logit-bias 9999999999:1", 2, "option '--logit-bias': expected a token id before the ':', found '9999999999:1'");
  expectError("run a --logit-bias 5:101", 2, "option '--logit-bias': expected amounts in -100..100, found '5:101'");
  expectError("run a --logit-bias 5:nan", 2, "option '--logit-bias': expected amounts in -100..100, found '5:nan'");
  expectError("run a --logit-bias 5:", 2, "option '--logit-bias': expected amounts in -100..100, found '5:'");
  for (const char *how : {"run driver-ids.lathe --prompt-ids 1", "run driver-ids.lathe --prompt-ids 1 --speculate ngram", "bench driver-ids.lathe --speculate ngram -p 4 -n 4"})
    expectError(std::string(how) + " --logit-bias 49:1,50:1", 2, "option '--logit-bias': expected token ids in 0..49, found 50");
  expectError("run a --chat=yes", 2, "option '--chat' takes no value");
  expectError("bench a --batch 1,,2", 2, "option '--batch': expected a number in 1..1024, found ''");
  expectError("run no-such.lathe -p x", 1, "cannot open 'no-such.lathe': No such file or directory");
  expectError("run driver-ids.lathe -p x", 1,
              "'driver-ids.lathe' has no tokenizer; give token ids with '--prompt-ids'");
  expectError("run driver-ids.lathe --prompt-ids 1,50", 2, "token 1: expected an id in 0..49, found 50");
  expectError("eval driver-words.lathe", 2, "expected '--text FILE'; see '--help'");
}

TEST_F(DriverTest, RunPrintsIdsOrTextOrJson) {
  Output ids = lathe_("run driver-ids.lathe --prompt-ids 1,2,3 -n 5 --threads 1");
  EXPECT_EQ(ids.code, 0) << ids.err;
  Output line = lathe_("run driver-ids.lathe --prompt-ids 1,2,3 -n 5 --threads 2 --variant avx2 --json");
  json parsed = json::parse(line.out, nullptr, false);
  ASSERT_TRUE(parsed.is_object()) << line.out;
  std::string joined;
  for (const json &id : parsed["ids"])
    joined += (joined.empty() ? "" : " ") + std::to_string(id.get<int>());
  EXPECT_EQ(ids.out, joined + "\n");
  EXPECT_EQ(parsed["ids"].size(), 5u);
  EXPECT_EQ(parsed["prompt_ids"], json({1, 2, 3}));
  EXPECT_EQ(parsed["finish_reason"], "length");
  for (const char *key : {"load_seconds", "prompt_tokens_per_second", "decode_tokens_per_second", "peak_memory_bytes"})
    EXPECT_TRUE(parsed["timings"][key].is_number()) << key;
  EXPECT_NE(ids.err.find("load "), std::string::npos);
  EXPECT_NE(ids.err.find(" | prompt 3 tokens, "), std::string::npos);
  EXPECT_NE(ids.err.find(" | generated 5 tokens, "), std::string::npos);
  EXPECT_EQ(ids.err.find("this machine reads"), std::string::npos);
  Output limits = lathe_("run driver-ids.lathe --prompt-ids 1,2,3 -n 5 --threads 1 --limits --json");
  EXPECT_NE(limits.err.find(" GB/s of weights | peak memory "), std::string::npos) << limits.err;
  EXPECT_NE(limits.err.find(" | this machine reads "), std::string::npos) << limits.err;
  EXPECT_GT(json::parse(limits.out)["timings"]["read_limit_bytes_per_second"], 1e8);

  Output text = lathe_("run driver-words.lathe -p 'say a' -n 8 --ignore-eos");
  json words = json::parse(lathe_("run driver-words.lathe -p 'say a' -n 8 --ignore-eos --json").out, nullptr, false);
  ASSERT_TRUE(words.is_object());
  EXPECT_EQ(text.out, words["text"].get<std::string>() + "\n");
  EXPECT_EQ(words["prompt_ids"], json({18, 0, 24, 26, 0}));
}

TEST_F(DriverTest, BiasMovesLogits) {
  auto ids = [](const std::string &options) { return lathe_("run driver-ids.lathe --prompt-ids 1,2,3 -n 4 --ignore-eos " + options).out; };
  const std::string plain = ids("");
  const std::string first = plain.substr(0, plain.find(' '));
  ASSERT_NE(plain, "7 7 7 7\n");
  EXPECT_EQ(ids("--logit-bias 7:100"), "7 7 7 7\n");
  EXPECT_EQ(ids("--logit-bias 7:100 --speculate ngram"), "7 7 7 7\n");
  EXPECT_EQ(ids("--logit-bias 7:100 --temp 1 --seed 1"), "7 7 7 7\n");
  EXPECT_EQ(ids("--logit-bias 8:50,7:100 --logit-bias 9:60"), "7 7 7 7\n");
  EXPECT_EQ(ids("--logit-bias 8:50,7:100,7:-100"), "8 8 8 8\n"); // of one id the last counts
  const std::string without = ids("--logit-bias " + first + ":-100");
  EXPECT_EQ((" " + without).find(" " + first + " "), std::string::npos) << without;
}

TEST_F(DriverTest, SeedsRepeatAndAreReported) {
  auto run = [](const std::string &flags) {
    return json::parse(lathe_("run driver-ids.lathe --prompt-ids 1,2,3 -n 20 --temp 1 --json " + flags).out, nullptr, false);
  };
  json free = run("");
  ASSERT_TRUE(free.is_object());
  EXPECT_EQ(run("--seed " + std::to_string(free["seed"].get<uint64_t>()) + " --threads 3")["ids"], free["ids"]);
  EXPECT_NE(run("--seed 1")["ids"], run("--seed 2")["ids"]);
}

TEST_F(DriverTest, ContextAndStops) {
  json full = json::parse(lathe_("run driver-ids.lathe --prompt-ids 1,2,3 --ctx 10 --json").out, nullptr, false);
  EXPECT_EQ(full["finish_reason"], "length");
  EXPECT_EQ(full["ids"].size(), 8u);
  expectError("run driver-ids.lathe --prompt-ids 1,2,3 --ctx 2", 2, "the prompt has 3 tokens, the context holds 2");
  expectError("run driver-ids.lathe --prompt-ids 1 --ctx 257", 2,
              "expected a context of at most 256 tokens, found 257; compile with '--max-seq 257'");
}

TEST_F(DriverTest, BenchGivesOneLineARow) {
  Output o = lathe_("bench driver-ids.lathe -p 8 -n 4 --depth 3 --batch 1,4 -r 2 --json");
  ASSERT_EQ(o.code, 0) << o.err;
  std::stringstream lines(o.out);
  int rows = 0;
  for (std::string text; std::getline(lines, text); ++rows) {
    json row = json::parse(text, nullptr, false);
    ASSERT_TRUE(row.is_object()) << text;
    EXPECT_EQ(row["prompt"], 8);
    EXPECT_EQ(row["new"], 4);
    EXPECT_EQ(row["depth"], 3);
    EXPECT_EQ(row["batch"], rows ? 4 : 1);
    EXPECT_GT(row["prompt_tokens_per_second"].get<double>(), 0);
    EXPECT_GT(row["decode_tokens_per_second"].get<double>(), 0);
  }
  EXPECT_EQ(rows, 2);
}

TEST_F(DriverTest, EvalScoresTheSecondHalfOfWindows) {
  std::string content;
  for (int i = 0; i < 200; ++i)
    content += static_cast<char>('a' + i * i % 26);
  std::ofstream("driver-test.txt") << content;
  json self = json::parse(
      lathe_("eval driver-words.lathe --text driver-test.txt --ctx 32 --against driver-words.lathe --json").out,
      nullptr, false);
  ASSERT_TRUE(self.is_object());
  EXPECT_EQ(self["tokens"], 6 * 15);
  EXPECT_NEAR(self["mean_kld"].get<double>(), 0, 1e-12);
  EXPECT_EQ(self["top1_agreement"], 1.0);
  // The perplexity, computed directly.
  double loss = 0;
  for (int w = 0; w < 6; ++w) {
    std::vector<int32_t> window;
    for (int i = 0; i < 32; ++i)
      window.push_back(content[static_cast<size_t>(w * 32 + i)] - 'a');
    auto logits = toyLogits({.words = true}, window);
    for (size_t i = 16; i < 31; ++i) {
      double sum = 0;
      for (float x : logits[i])
        sum += std::exp(static_cast<double>(x));
      loss += std::log(sum) - static_cast<double>(logits[i][static_cast<size_t>(window[i + 1])]);
    }
  }
  EXPECT_NEAR(self["perplexity"].get<double>() / std::exp(loss / 90), 1, 1e-6);
  json other = json::parse(
      lathe_("eval driver-words.lathe --text driver-test.txt --ctx 32 --against driver-other.lathe --json").out,
      nullptr, false);
  EXPECT_GT(other["mean_kld"].get<double>(), 0.01);
  EXPECT_GE(other["kld_p99"].get<double>(), other["mean_kld"].get<double>());
  EXPECT_LT(other["top1_agreement"].get<double>(), 1);
  expectError("eval driver-words.lathe --text driver-test.txt --ctx 250", 2,
              "'driver-test.txt' has 200 tokens, expected at least 250");
}

TEST_F(DriverTest, InspectAndExplain) {
  Output o = lathe_("inspect driver-words.lathe --verify --json");
  json d = json::parse(o.out, nullptr, false);
  ASSERT_TRUE(d.is_object()) << o.err;
  EXPECT_EQ(d["program"]["vocabulary"], 50);
  EXPECT_EQ(d["metadata"]["name"], "toy");
  EXPECT_EQ(d["verified"], true);
  EXPECT_NE(lathe_("inspect driver-words.lathe").out.find("memory: weights "), std::string::npos);
  std::fstream file("driver-ids.lathe", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-1, std::ios::end).put('\x55');
  file.close();
  EXPECT_NE(lathe_("inspect driver-ids.lathe --verify").err.find("section 'weights' (3264 bytes"), std::string::npos);
  Output e = lathe_("explain driver-words.lathe --rows 3 -r 2 --each --json");
  std::stringstream lines(e.out);
  std::vector<json> rows;
  for (std::string text; std::getline(lines, text);)
    rows.push_back(json::parse(text, nullptr, false));
  ASSERT_EQ(rows.size(), 8u) << e.err; // six launches, their sum, and when speculation pays
  const json even = rows.back()["break_even"];
  ASSERT_EQ(even.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(even[i]["drafts"], (2 << i) - 1);
    EXPECT_GT(even[i]["step_factor"].get<double>(), 0);
    EXPECT_DOUBLE_EQ(even[i]["accepted_needed"].get<double>(), even[i]["step_factor"].get<double>() - 1);
  }
  rows.pop_back();
  EXPECT_EQ(rows[2]["launch"], "blk.0.attn");
  EXPECT_EQ(rows[2]["bytes"], 100 + 3 * 64);
  EXPECT_EQ(rows.back()["launch"], "total");
  EXPECT_GT(rows.back()["predicted_seconds"].get<double>(), 0);
}

TEST_F(DriverTest, CompilesIntoTheCacheOnce) {
  // A script stands for the compiler: it copies the toy artifact to where it is told.
  std::ofstream("driver-compiler.sh") << "#!/bin/sh\ntest \"$1\" = compile && test \"$3\" = -o || exit 1\n"
                                         "echo compiled $2\ncp driver-words.lathe \"$4\"\n";
  chmod("driver-compiler.sh", 0755);
  std::ofstream("driver-model.gguf") << "GGUF";
  std::system("rm -rf driver-cache");
  std::string environment = "LATHE_CACHE_DIR=driver-cache/deep LATHE_COMPILER=./driver-compiler.sh";
  Output first = lathe_("run driver-model.gguf -p 'say a' -n 4", environment);
  EXPECT_EQ(first.code, 0) << first.err;
  EXPECT_NE(first.err.find("compiled driver-model.gguf"), std::string::npos);
  Output second = lathe_("run driver-model.gguf -p 'say a' -n 4", environment);
  EXPECT_EQ(second.out, first.out);
  EXPECT_EQ(second.err.find("compiled"), std::string::npos);
  std::ofstream("driver-model.gguf") << "GGUF2";
  EXPECT_NE(lathe_("run driver-model.gguf -p 'say a' -n 4", environment).err.find("compiled"), std::string::npos);
  // An .onnx file has weights and texts beside it, which are part of what is compiled; other models in its directory are not.
  std::system("rm -rf driver-hub && mkdir -p driver-hub/onnx");
  std::ofstream("driver-hub/onnx/Model.ONNX") << "graph";
  std::string run = "run driver-hub/onnx/Model.ONNX -p 'say a' -n 4";
  auto compiles = [&] { return lathe_(run, environment).err.find("compiled driver-hub/onnx/Model.ONNX") != std::string::npos; };
  EXPECT_TRUE(compiles());
  EXPECT_FALSE(compiles());
  for (const char *part : {"driver-hub/onnx/Model.ONNX_data", "driver-hub/config.json"}) {
    std::ofstream(part) << "more";
    EXPECT_TRUE(compiles()) << part;
    EXPECT_FALSE(compiles()) << part;
  }
  std::ofstream("driver-hub/onnx/other.onnx") << "more";
  EXPECT_FALSE(compiles());
  std::ofstream("driver-compiler.sh") << "#!/bin/sh\nexit 3\n";
  std::ofstream("driver-model.gguf") << "GGUF3";
  Output failed = lathe_("run driver-model.gguf -p 'say a' -n 4", environment);
  EXPECT_EQ(failed.code, 1);
  EXPECT_NE(failed.err.find("lathe: error: compiling 'driver-model.gguf' failed"), std::string::npos);
  Output none = lathe_("compile x", "LATHE_COMPILER=./no-such-compiler");
  EXPECT_EQ(none.code, 1);
  EXPECT_EQ(none.err, "lathe: error: cannot start the compiler './no-such-compiler': No such file or directory; this "
                      "installation has the runtime only\n");
}

namespace {

/// A program on a terminal of its own.
class Terminal {
public:
  explicit Terminal(std::vector<std::string> args) {
    child = forkpty(&fd, nullptr, nullptr, nullptr);
    if (child == 0) {
      // Ctrl-C empties what is on its way to the screen, also what the program has written since it was told.
      termios mode{};
      if (tcgetattr(0, &mode) == 0) {
        mode.c_lflag |= NOFLSH;
        tcsetattr(0, TCSANOW, &mode);
      }
      std::vector<char *> argv;
      for (std::string &a : args)
        argv.push_back(a.data());
      argv.push_back(nullptr);
      execv(argv[0], argv.data());
      _exit(127);
    }
  }
  ~Terminal() {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    ::close(fd);
  }
  void type(const std::string &text) {
    if (write(fd, text.data(), text.size()) < 0) ADD_FAILURE();
  }
  /// Everything shown until |text| appears (a generous limit stands for a hang).
  std::string until(const std::string &text) {
    std::string part;
    pollfd wait{fd, POLLIN, 0};
    while (poll(&wait, 1, 60000) == 1) {
      char c;
      if (read(fd, &c, 1) != 1) break;
      part += c;
      if (part.size() >= text.size() && part.compare(part.size() - text.size(), text.size(), text) == 0) return part;
    }
    ADD_FAILURE() << "expected '" << text << "', the terminal shows: " << part;
    return part;
  }
  int exitCode() {
    char c;
    while (read(fd, &c, 1) == 1) {
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

private:
  int fd = -1;
  pid_t child = -1;
};

} // namespace

TEST_F(DriverTest, ChatOnATerminal) {
  Terminal t({LATHE_BINARY, "run", "driver-words.lathe", "-n", "6", "--threads", "1"});
  t.until("> ");
  t.type("helo\x1b[D\x1b[Dl\r"); // two to the left, then the missing letter
  t.until("hello");
  std::string first = t.until("generated ");
  EXPECT_NE(first.find(" tokens/s"), std::string::npos);
  t.until("> ");
  t.type("/nonsense\r");
  t.until("/clear        forget the conversation");
  t.until("> ");
  t.type("\x1b[A\x1b[A\r"); // the line before the last
  t.until("hello");
  std::string second = t.until("generated ");
  EXPECT_EQ(second.find("prompt 20 tokens"), std::string::npos); // what the sequence holds is not computed again
  t.until("> ");
  t.type("/clear\r");
  t.until("> ");
  t.type("/system be brief\r");
  t.until("> ");
  t.type("\x03"); // Ctrl-C at the prompt only drops the line
  t.until("> ");
  t.type("hello\r");
  t.until("generated ");
  t.until("> ");
  t.type("\x04");
  EXPECT_EQ(t.exitCode(), 0);
}

TEST_F(DriverTest, LongWorkSaysHowFarItIs) {
  Terminal explain({LATHE_BINARY, "explain", "driver-ids.lathe", "-r", "3", "--threads", "1"});
  explain.until("step 5 of 5 "); // two of them warm up
  explain.until("kernels from cache: pass 4 of 4 ");
  explain.until("\r\x1b[Kdriver-ids.lathe: 1 x 1 rows"); // the table begins where the counter was
  EXPECT_EQ(explain.exitCode(), 0);
  Terminal bench({LATHE_BINARY, "bench", "driver-ids.lathe", "-p", "4", "-n", "2", "-r", "2", "--batch", "1,3", "--threads", "1"});
  bench.until("batch 1: round 3 of 3 \r\x1b[K     4 ");
  bench.until("batch 3: round 3 of 3 \r\x1b[K     4 ");
  EXPECT_EQ(bench.exitCode(), 0);
  Output apart = lathe_("explain driver-ids.lathe -r 1 --threads 1"); // no terminal, no counter
  EXPECT_EQ(apart.code, 0);
  EXPECT_EQ(apart.err, "");
}

TEST_F(DriverTest, HelpSaysWhatTheContextIs) {
  auto said = [](const std::string &command, const std::string &help) {
    EXPECT_NE(lathe_(command + " --help").out.find("--ctx N                 " + help + "\n"), std::string::npos) << command;
  };
  said("run", "tokens the context holds (default: what the model was compiled for)");
  said("eval", "tokens of a window, of which the second half is scored (default 512)");
  said("explain", "tokens the context holds (default: what the step needs)");
  said("bench", "tokens the context holds (default: what the measurement needs)");
}

TEST_F(DriverTest, ChatRefusesABiasOfNoToken) {
  Terminal t({LATHE_BINARY, "run", "driver-words.lathe", "--threads", "1", "--logit-bias", "50:1"});
  t.until("lathe: error: option '--logit-bias': expected token ids in 0..49, found 50");
  EXPECT_EQ(t.exitCode(), 2);
}

TEST_F(DriverTest, ControlCStopsAnAnswer) {
  // The context has room for 131,072 tokens: minutes, if nothing stops the answer.
  auto stopped = [](Terminal &t) {
    t.type("\x03");
    t.until("generated ");
    int tokens = std::atoi(t.until(" ").c_str());
    EXPECT_GT(tokens, 0);
    EXPECT_LT(tokens, 100000);
  };
  Terminal chat({LATHE_BINARY, "run", "driver-long.lathe", "--ids", "--ignore-eos", "--threads", "1"});
  chat.until("> ");
  chat.type("hello\r");
  chat.until("hello");
  chat.until(" "); // behind its first token
  stopped(chat);
  chat.until("> ");
  chat.type("/help\r"); // the conversation goes on
  chat.until("Ctrl-C stops an answer.");
  chat.until("> ");
  chat.type("\x04");
  EXPECT_EQ(chat.exitCode(), 0);

  Terminal run({LATHE_BINARY, "run", "driver-long.lathe", "--prompt-ids", "1,2,3", "--ids", "--ignore-eos", "--threads", "1"});
  run.until(" ");
  stopped(run);
  EXPECT_EQ(run.exitCode(), 130);
}
