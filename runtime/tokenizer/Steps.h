//===- Steps.h - normalizers and splits ---------------------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/artifact/TokenizerSpec.h"
#include "lathe/base/Pattern.h"
#include <string>
#include <string_view>
#include <vector>

namespace lathe::tokenizer {

/// Applies the normalizers of a spec to one segment of text. Immutable after init().
class NormalizerChain {
public:
  /// Errors: those of Pattern::compile; invalidArgument (a damaged characters map).
  Status init(const std::vector<TokenizerSpec::Normalizer> &steps);
  bool empty() const { return chain.empty(); }
  std::string apply(std::string text) const;

private:
  struct Step {
    const TokenizerSpec::Normalizer *spec;
    Pattern pattern;
  };
  std::vector<Step> chain;
};

/// Cuts a segment into words. Immutable after init().
class Splitter {
public:
  struct Piece {
    size_t first, last;
  };
  Status init(const std::vector<TokenizerSpec::Split> &steps);
  /// Words of |text| as ranges of |text|, which some steps rewrite. |isFirst|: the segment starts the
  /// whole input.
  void apply(std::string &text, bool isFirst, std::vector<Piece> &out) const;

private:
  struct Step {
    const TokenizerSpec::Split *spec;
    Pattern pattern;
  };
  std::vector<Step> chain;
};

} // namespace lathe::tokenizer
