//===- Unicode.h - characters as Python sees them -----------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Strings of the template engine are valid UTF-8. Positions and lengths that a template sees count
// code points.
//===----------------------------------------------------------------------===//
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lathe::jinja {

bool isValidUtf8(std::string_view text);
size_t countCodePoints(std::string_view text);
/// Reads the code point at |at| and moves |at| behind it. |text| is valid UTF-8, at < text.size().
char32_t decodeAt(std::string_view text, size_t &at);
void appendUtf8(std::string &out, char32_t c);
std::u32string decode(std::string_view text);
std::string encode(std::u32string_view text);
/// Byte offset of code point |index|; text.size() when there are not so many.
size_t byteOffset(std::string_view text, size_t index);

bool isSpace(char32_t c);
bool isPrintable(char32_t c);
bool isAlnum(char32_t c);
bool isAlpha(char32_t c);
bool isUpper(char32_t c);
bool isLower(char32_t c);
bool isTitle(char32_t c);
bool isDecimal(char32_t c);
bool isDigit(char32_t c);
bool isNumeric(char32_t c);
bool isIdentifierStart(char32_t c);
/// May follow the first character of an identifier.
bool isIdentifierPart(char32_t c);
inline bool isCased(char32_t c) { return isUpper(c) || isLower(c) || isTitle(c); }

std::string toUpper(std::string_view text);
std::string toLower(std::string_view text);
/// Python's str.casefold: equal for texts that differ in case only.
std::string foldCase(std::string_view text);
/// Python's str.title: the first cased letter of each run of cased letters.
std::string toTitle(std::string_view text);
std::string capitalize(std::string_view text);
std::string swapCase(std::string_view text);

enum StripSide { stripLeft = 1, stripRight = 2, stripBoth = 3 };
/// Without the characters of |chars| at the ends; whitespace when |chars| is null.
std::string_view strip(std::string_view text, StripSide side, const std::u32string *chars = nullptr);

} // namespace lathe::jinja
