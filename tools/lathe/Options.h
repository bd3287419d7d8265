//===- Options.h - command lines of the driver --------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/base/Status.h"
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lathe::tool {

/// The options of one command: declared once, parsed, and printed by --help in the same order.
class Options {
public:
  Options(std::string usage, std::string about) : usage(std::move(usage)), about(std::move(about)) {}

  /// A flag without a value. |names| is "-n" or "-n, --long".
  void flag(const char *names, const char *help, bool &value);
  void text(const char *names, const char *meta, const char *help, std::string &value);
  void text(const char *names, const char *meta, const char *help, std::optional<std::string> &value);
  /// May be given several times.
  void texts(const char *names, const char *meta, const char *help, std::vector<std::string> &values);
  void number(const char *names, const char *meta, const char *help, uint64_t &value, uint64_t low, uint64_t high);
  void number(const char *names, const char *meta, const char *help, std::optional<uint64_t> &value, uint64_t low,
              uint64_t high);
  void real(const char *names, const char *meta, const char *help, std::optional<double> &value, double low,
            double high);
  /// "1,4,16"
  void numbers(const char *names, const char *meta, const char *help, std::vector<uint64_t> &values, uint64_t low,
               uint64_t high);
  /// "5:-2.5,7:100", also given several times: token ids and an amount in |low|..|high| for each; of one id the last counts.
  void amounts(const char *names, const char *meta, const char *help, std::vector<std::pair<int32_t, float>> &values,
               double low, double high);
  /// A line between groups of options in --help.
  void heading(const char *text) { specs.push_back({{}, "", text, nullptr}); }

  /// Takes "--name value", "--name=value", "-n value"; "--" ends options. What is no option goes to |positional|.
  /// Errors: invalidArgument naming the option, what it takes and what was found.
  Status parse(const std::vector<std::string> &args, std::vector<std::string> &positional);
  bool helpAsked() const { return help; }
  std::string helpText() const;

private:
  struct Spec {
    std::vector<std::string> names;
    std::string meta, help;
    std::function<Status(const std::string &name, const std::string &value)> set; ///< meta empty: called with ""
  };
  void add(const char *names, const char *meta, const char *help,
           std::function<Status(const std::string &, const std::string &)> set);
  const Spec *find(const std::string &name) const;

  std::string usage, about;
  std::vector<Spec> specs;
  bool help = false;
};

/// Numbers of a list "1,4,16", each in low..high.
Result<std::vector<uint64_t>> parseNumbers(const std::string &name, const std::string &text, uint64_t low,
                                           uint64_t high);

} // namespace lathe::tool
