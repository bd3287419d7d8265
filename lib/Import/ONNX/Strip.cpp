//===- Strip.cpp - a model's protobuf without its weights ------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//
// Walks the wire format of the messages that can hold a TensorProto and notes where raw_data lies.
// https://protobuf.dev/programming-guides/encoding
//===----------------------------------------------------------------------===//
#include "Internal.h"
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

namespace lathe::onnxfile {
namespace {

namespace io = google::protobuf::io;

enum Kind { modelKind, graphKind, nodeKind, attributeKind, functionKind, sparseKind, trainingKind, tensorKind, other };

/// What kind of message field |number| of a |kind| holds.
Kind childKind(Kind kind, int number) {
  switch (kind) {
  case modelKind:
    return number == 7 ? graphKind : number == 25 ? functionKind : number == 20 ? trainingKind : other;
  case graphKind:
    return number == 1 ? nodeKind : number == 5 ? tensorKind : number == 15 ? sparseKind : other;
  case nodeKind:
    return number == 5 ? attributeKind : other;
  case attributeKind:
    if (number == 5 || number == 10) return tensorKind;
    if (number == 6 || number == 11) return graphKind;
    return number == 22 || number == 23 ? sparseKind : other;
  case functionKind:
    return number == 7 ? nodeKind : number == 11 ? attributeKind : other;
  case sparseKind:
    return number == 1 || number == 2 ? tensorKind : other;
  case trainingKind:
    return number == 1 || number == 2 ? graphKind : other;
  default:
    return other;
  }
}

constexpr int rawDataField = 9;
/// Protobuf's own limit for nested messages.
constexpr int maxDepth = 100;

class Stripper {
public:
  explicit Stripper(std::span<const uint8_t> bytes) : data(bytes) {}
  Status message(Kind kind, size_t begin, size_t end, std::string &out, int depth);

private:
  Status damaged(size_t at) const {
    return makeError(StatusCode::invalidArgument, "not an ONNX model: damaged at byte %zu", at);
  }
  /// Reads a varint at |at|; false when there is none before |end|.
  bool varint(size_t &at, size_t end, uint64_t &value) const {
    value = 0;
    for (int shift = 0; shift < 64 && at < end; shift += 7) {
      uint8_t byte = data[at++];
      value |= uint64_t(byte & 127) << shift;
      if (byte < 128) return true;
    }
    return false;
  }
  static void putVarint(std::string &out, uint64_t value) {
    uint8_t buffer[10];
    uint8_t *end = io::CodedOutputStream::WriteVarint64ToArray(value, buffer);
    out.append(reinterpret_cast<const char *>(buffer), static_cast<size_t>(end - buffer));
  }
  std::span<const uint8_t> data;
};

Status Stripper::message(Kind kind, size_t begin, size_t end, std::string &out, int depth) {
  if (depth > maxDepth)
    return makeError(StatusCode::invalidArgument, "graphs are nested deeper than %d messages", maxDepth);
  for (size_t at = begin; at < end;) {
    size_t start = at;
    uint64_t tag = 0, value = 0;
    if (!varint(at, end, tag) || tag >> 3 == 0 || tag >> 3 > 0x1fffffff) return damaged(start);
    int number = static_cast<int>(tag >> 3);
    bool keep = true;
    switch (tag & 7) {
    case 0:
      if (!varint(at, end, value)) return damaged(start);
      // The two fields are ours: a file cannot bring them along.
      keep = kind != tensorKind || (number != rawOffsetField && number != rawLengthField);
      break;
    case 1:
    case 5: {
      size_t size = (tag & 7) == 1 ? 8 : 4;
      if (end - at < size) return damaged(start);
      at += size;
      break;
    }
    case 2: {
      if (!varint(at, end, value) || value > end - at) return damaged(start);
      size_t body = at;
      at += value;
      if (kind == tensorKind && number == rawDataField) {
        putVarint(out, rawOffsetField << 3);
        putVarint(out, body);
        putVarint(out, rawLengthField << 3);
        putVarint(out, value);
        keep = false;
      } else if (Kind child = childKind(kind, number); child != other) {
        std::string inner;
        LATHE_RETURN_IF_ERROR(message(child, body, at, inner, depth + 1));
        putVarint(out, tag);
        putVarint(out, inner.size());
        out += inner;
        keep = false;
      }
      break;
    }
    default: // groups: the schema has none
      return damaged(start);
    }
    if (keep) out.append(reinterpret_cast<const char *>(data.data()) + start, at - start);
  }
  return Status();
}

} // namespace

Result<std::string> stripWeights(std::span<const uint8_t> bytes) {
  std::string out;
  LATHE_RETURN_IF_ERROR(Stripper(bytes).message(modelKind, 0, bytes.size(), out, 0));
  return out;
}

} // namespace lathe::onnxfile
