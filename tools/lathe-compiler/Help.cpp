//===- Help.cpp -----------------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "Help.h"
#include "../lathe/Options.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/raw_ostream.h"
#include <set>

namespace cl = llvm::cl;

bool helpWanted(int argc, char **argv, llvm::StringRef name) {
  if (argc < 3 || name != argv[1]) return false;
  for (int i = 2; i < argc && llvm::StringRef(argv[i]) != "--"; ++i)
    if (llvm::is_contained({"--help", "-help", "-h"}, llvm::StringRef(argv[i]))) return true;
  return false;
}

void printHelp(const char *usage, const char *about, const std::vector<HelpGroup> &groups, cl::SubCommand &command,
               cl::OptionCategory &category) {
  lathe::tool::Options help(usage, about);
  std::string value; // what the help's own parser would set, if it parsed
  bool flag = false;
  std::set<std::string> listed;
  auto list = [&](const cl::Option &o) {
    std::string name = (o.ArgStr.size() == 1 ? "-" : "--") + o.ArgStr.str();
    if (!listed.insert(name).second) return;
    if (o.ValueStr.empty())
      help.flag(name.c_str(), o.HelpStr.str().c_str(), flag);
    else
      help.text(name.c_str(), o.ValueStr.str().c_str(), o.HelpStr.str().c_str(), value);
  };
  for (const HelpGroup &group : groups) {
    help.heading(group.heading);
    for (const cl::Option &o : group.options)
      list(o);
  }
  std::vector<const cl::Option *> others;
  for (const auto &entry : cl::getRegisteredOptions(command)) {
    const cl::Option *o = entry.second;
    if (llvm::is_contained(o->Categories, &category) && !listed.count((o->ArgStr.size() == 1 ? "-" : "--") + o->ArgStr.str()))
      others.push_back(o);
  }
  if (!others.empty()) help.heading("Other options");
  for (const cl::Option *o : others)
    list(*o);
  llvm::outs() << help.helpText();
}
