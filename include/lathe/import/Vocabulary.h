//===- Vocabulary.h - whether two models speak the same tokens -----*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/artifact/TokenizerSpec.h"

namespace lathe {

/// ok when both tokenizers give every id the same text and meaning, so that |draft|'s tokens can stand for |model|'s. How text becomes tokens may
/// differ. Error: invalidArgument with the first difference.
Status compareVocabularies(const TokenizerSpec &model, const TokenizerSpec &draft);

} // namespace lathe
