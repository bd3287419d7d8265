//===- Options.cpp --------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Options.h"
#include <cerrno>
#include <charconv>
#include <cinttypes>
#include <cmath>
#include <cstdlib>
#include <sstream>

namespace lathe::tool {
namespace {

Result<uint64_t> parseNumber(const std::string &name, const std::string &text, uint64_t low, uint64_t high) {
  char *end = nullptr;
  errno = 0;
  uint64_t value = std::strtoull(text.c_str(), &end, 10);
  bool digits = !text.empty() && text[0] >= '0' && text[0] <= '9';
  if (!digits || *end || errno || value < low || value > high)
    return makeError(StatusCode::invalidArgument,
                     "option '%s': expected a number in %" PRIu64 "..%" PRIu64 ", found '%s'", name.c_str(), low, high,
                     text.c_str());
  return value;
}

} // namespace

Result<std::vector<uint64_t>> parseNumbers(const std::string &name, const std::string &text, uint64_t low,
                                           uint64_t high) {
  std::vector<uint64_t> values;
  std::stringstream list(text + ",");
  for (std::string item; std::getline(list, item, ',');) {
    LATHE_ASSIGN_OR_RETURN(uint64_t value, parseNumber(name, item, low, high));
    values.push_back(value);
  }
  return values;
}

void Options::add(const char *names, const char *meta, const char *helpLine,
                  std::function<Status(const std::string &, const std::string &)> set) {
  Spec spec{{}, meta, helpLine, std::move(set)};
  std::stringstream list(names);
  for (std::string name; std::getline(list, name, ',');)
    spec.names.push_back(name.substr(name.find_first_not_of(' ')));
  specs.push_back(std::move(spec));
}

void Options::flag(const char *names, const char *helpLine, bool &value) {
  add(names, "", helpLine, [&value](auto &, auto &) {
    value = true;
    return Status();
  });
}

void Options::text(const char *names, const char *meta, const char *helpLine, std::string &value) {
  add(names, meta, helpLine, [&value](auto &, const std::string &given) {
    value = given;
    return Status();
  });
}

void Options::text(const char *names, const char *meta, const char *helpLine, std::optional<std::string> &value) {
  add(names, meta, helpLine, [&value](auto &, const std::string &given) {
    value = given;
    return Status();
  });
}

void Options::texts(const char *names, const char *meta, const char *helpLine, std::vector<std::string> &values) {
  add(names, meta, helpLine, [&values](auto &, const std::string &given) {
    values.push_back(given);
    return Status();
  });
}

void Options::number(const char *names, const char *meta, const char *helpLine, uint64_t &value, uint64_t low,
                     uint64_t high) {
  add(names, meta, helpLine, [&value, low, high](const std::string &name, const std::string &given) {
    LATHE_ASSIGN_OR_RETURN(value, parseNumber(name, given, low, high));
    return Status();
  });
}

void Options::number(const char *names, const char *meta, const char *helpLine, std::optional<uint64_t> &value,
                     uint64_t low, uint64_t high) {
  add(names, meta, helpLine, [&value, low, high](const std::string &name, const std::string &given) {
    LATHE_ASSIGN_OR_RETURN(value, parseNumber(name, given, low, high));
    return Status();
  });
}

void Options::real(const char *names, const char *meta, const char *helpLine, std::optional<double> &value, double low,
                   double high) {
  add(names, meta, helpLine, [&value, low, high](const std::string &name, const std::string &given) {
    char *end = nullptr;
    double number = std::strtod(given.c_str(), &end);
    if (given.empty() || *end || !(number >= low && number <= high))
      return makeError(StatusCode::invalidArgument, "option '%s': expected a number in %g..%g, found '%s'",
                       name.c_str(), low, high, given.c_str());
    value = number;
    return Status();
  });
}

void Options::numbers(const char *names, const char *meta, const char *helpLine, std::vector<uint64_t> &values,
                      uint64_t low, uint64_t high) {
  add(names, meta, helpLine, [&values, low, high](const std::string &name, const std::string &given) {
    LATHE_ASSIGN_OR_RETURN(values, parseNumbers(name, given, low, high));
    return Status();
  });
}

void Options::amounts(const char *names, const char *meta, const char *helpLine,
                      std::vector<std::pair<int32_t, float>> &values, double low, double high) {
  add(names, meta, helpLine, [&values, low, high](const std::string &name, const std::string &given) {
    std::stringstream list(given + ",");
    for (std::string item; std::getline(list, item, ',');) {
      const size_t colon = item.find(':');
      if (colon == std::string::npos)
        return makeError(StatusCode::invalidArgument, "option '%s': expected a token id and its amount as 5:-2.5, found '%s'",
                         name.c_str(), item.c_str());
      int32_t id = 0;
      auto [end, error] = std::from_chars(item.data(), item.data() + colon, id);
      if (error != std::errc() || end != item.data() + colon || id < 0)
        return makeError(StatusCode::invalidArgument, "option '%s': expected a token id before the ':', found '%s'", name.c_str(), item.c_str());
      const char *text = item.c_str() + colon + 1;
      char *rest = nullptr;
      const double amount = std::strtod(text, &rest);
      if (!*text || *rest || !(amount >= low && amount <= high))
        return makeError(StatusCode::invalidArgument, "option '%s': expected amounts in %g..%g, found '%s'", name.c_str(), low, high, item.c_str());
      std::erase_if(values, [id](auto &one) { return one.first == id; });
      values.emplace_back(id, static_cast<float>(amount));
    }
    return Status();
  });
}

const Options::Spec *Options::find(const std::string &name) const {
  for (const Spec &spec : specs)
    for (const std::string &own : spec.names)
      if (own == name) return &spec;
  return nullptr;
}

Status Options::parse(const std::vector<std::string> &args, std::vector<std::string> &positional) {
  for (size_t i = 0; i < args.size(); ++i) {
    std::string arg = args[i];
    if (arg == "--") {
      positional.insert(positional.end(), args.begin() + static_cast<long>(i) + 1, args.end());
      return Status();
    }
    if (arg.size() < 2 || arg[0] != '-') {
      positional.push_back(arg);
      continue;
    }
    if (arg == "--help" || arg == "-h") {
      help = true;
      return Status();
    }
    std::optional<std::string> value;
    if (size_t equals = arg.find('='); arg.compare(0, 2, "--") == 0 && equals != std::string::npos) {
      value = arg.substr(equals + 1);
      arg.resize(equals);
    }
    const Spec *spec = find(arg);
    if (!spec)
      return makeError(StatusCode::invalidArgument, "unknown option '%s'; '--help' lists the options", arg.c_str());
    if (spec->meta.empty()) {
      if (value) return makeError(StatusCode::invalidArgument, "option '%s' takes no value", arg.c_str());
    } else if (!value) {
      if (++i == args.size())
        return makeError(StatusCode::invalidArgument, "option '%s': expected %s after it", arg.c_str(),
                         spec->meta.c_str());
      value = args[i];
    }
    LATHE_RETURN_IF_ERROR(spec->set(arg, value.value_or("")));
  }
  return Status();
}

std::string Options::helpText() const {
  std::string out = "usage: " + usage + "\n\n" + about + "\n";
  if (specs.empty() || !specs.front().names.empty()) out += "\nOptions:\n";
  constexpr size_t column = 26;
  for (const Spec &spec : specs) {
    if (spec.names.empty()) {
      out += "\n" + spec.help + ":\n";
      continue;
    }
    std::string line = "  ";
    for (size_t i = 0; i < spec.names.size(); ++i)
      line += (i ? ", " : "") + spec.names[i];
    if (!spec.meta.empty()) line += " " + spec.meta;
    line += line.size() + 1 < column ? std::string(column - line.size(), ' ') : "\n" + std::string(column, ' ');
    // A newline in the help text goes on in the column.
    for (char c : spec.help)
      line += c == '\n' ? "\n" + std::string(column, ' ') : std::string(1, c);
    out += line + "\n";
  }
  return out;
}

} // namespace lathe::tool
