//===- TraceWriter.h - events and decisions as text ---------------*- C++ -*-===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// One line an event (upper-case letter) or decision (lower case), fields separated by one space; docs/engine.md has the
// grammar. Times are written as the 16 hexadecimal digits of their bits, so that a replay gets exactly the same
// numbers.
//===----------------------------------------------------------------------===//
#pragma once
#include "runtime/scheduler/Scheduler.h"
#include <bit>
#include <charconv>
#include <string>

namespace lathe::runtime {

class TraceWriter {
public:
  explicit TraceWriter(TraceSink *sink) : sink(sink) {
    if (sink) buffer.reserve(1 << 16);
  }
  explicit operator bool() const { return sink; }
  /// Starts a line.
  TraceWriter &line(char kind) {
    buffer += kind;
    return *this;
  }
  TraceWriter &number(uint64_t value) {
    char text[24] = {' '};
    auto end = std::to_chars(text + 1, text + sizeof text, value).ptr;
    buffer.append(text, static_cast<size_t>(end - text));
    return *this;
  }
  TraceWriter &integer(int64_t value) {
    char text[24] = {' '};
    auto end = std::to_chars(text + 1, text + sizeof text, value).ptr;
    buffer.append(text, static_cast<size_t>(end - text));
    return *this;
  }
  TraceWriter &real(double value) {
    char text[24] = {' '};
    auto end = std::to_chars(text + 1, text + sizeof text, std::bit_cast<uint64_t>(value), 16).ptr;
    buffer.append(text, static_cast<size_t>(end - text));
    return *this;
  }
  TraceWriter &word(std::string_view text) {
    buffer += ' ';
    buffer += text;
    return *this;
  }
  /// Bytes in hexadecimal after a '.', so that an empty one is a word too.
  TraceWriter &bytes(std::string_view text) {
    buffer += " .";
    for (unsigned char c : text) {
      buffer += "0123456789abcdef"[c >> 4];
      buffer += "0123456789abcdef"[c & 15];
    }
    return *this;
  }
  void end() {
    buffer += '\n';
    if (buffer.size() > (1 << 15)) flush();
  }
  void flush() {
    if (sink && !buffer.empty()) sink->write(buffer);
    buffer.clear();
  }
  void header(const Program &program, std::span<const uint32_t> blocks, const SchedulerOptions &options);
  void add(double now, const ScheduledRequest &request, Reason refusal);
  void plan(double now, const StepPlan &plan);
  void commit(double now, double seconds, std::span<const StepPiece> pieces, std::span<const PieceResult> results);
  void ends(std::span<const PlannedEnd> ends);

private:
  TraceSink *sink;
  std::string buffer;
};

} // namespace lathe::runtime
