//===- Common.h - shared by the tokenizer importers ---------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "lathe/import/Tokenizer.h"
#include <unordered_map>

namespace lathe::tokenizerimport {

/// Undoes the alphabet that byte-level vocabularies are written in (one printable character for
/// each byte). False when |text| has a character that is not in it.
bool fromByteAlphabet(std::string_view text, std::string &out);
/// The byte of "<0xAB>", or -1.
int byteOfName(std::string_view text);
using PieceIds = std::unordered_map<std::string_view, uint32_t>;

/// Finishes what the file did not say: eot and the list of tokens that end a generation, by their
/// usual texts; drops ids that do not exist.
void completeSpecialTokens(ImportedTokenizer &tokenizer);

} // namespace lathe::tokenizerimport
