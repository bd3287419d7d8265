//===- MakeToyArtifact.cpp - writes the toy model for tests in C ---------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "ToyArtifact.h"
#include <cstdio>

int main(int argc, char **argv) {
  lathe::test::ToyOptions options;
  options.words = true;
  lathe::Status status = lathe::test::writeToyArtifact(argc > 1 ? argv[1] : "toy.lathe", options);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.message().c_str());
  return status.ok() ? 0 : 1;
}
