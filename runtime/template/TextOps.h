//===- TextOps.h - what methods and filters share -----------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#pragma once
#include "Renderer.h"

namespace lathe::jinja {

/// std::string_view::find in linear time for any texts.
size_t findText(std::string_view hay, std::string_view needle, size_t from);
/// The last place of |needle|.
size_t findTextLast(std::string_view hay, std::string_view needle);
/// Replaces |count| times (-1: all); fails when the text gets too long.
bool replaceText(Renderer &r, std::string_view text, std::string_view from, std::string_view to, int64_t count,
                 std::string &out);
/// At all line ends that Python's splitlines knows.
std::vector<std::string_view> splitLines(std::string_view text, bool keepEnds);
bool isUpperText(std::string_view text);
bool isLowerText(std::string_view text);
/// Without HTML tags and comments, whitespace collapsed, the common entities resolved.
std::string stripTags(std::string_view text);

} // namespace lathe::jinja
