//===- WeightReader.cpp - values of weight expressions ----------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "WeightReader.h"
#include "Kernels.h"
#include "lathe/weights/Storage.h"
#include "lathe/weights/Synthetic.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace lathe::interp {

WeightReader::Shape WeightReader::shapeOf(Attribute expression) {
  // The verifier of llm.param has accepted the expression.
  auto type = llm::inferExpression(expression, [&] { return emitError(UnknownLoc::get(expression.getContext())); });
  if (failed(type)) return {0, 0};
  return {type->shape[0], type->shape.size() == 2 ? type->shape[1] : 1};
}

Status WeightReader::readFile(llm::FileAttr file, int64_t begin, int64_t count, float *out) {
  std::string name = file.getName().str(), path = file.getPath().str();
  if (!directory.empty() && path[0] != '/') path = directory + "/" + path;
  const MappedFile *mapped = nullptr;
  {
    std::lock_guard lock(mutex);
    auto found = files.find(path);
    if (found == files.end()) {
      LATHE_ASSIGN_OR_RETURN(MappedFile opened, MappedFile::open(path));
      found = files.emplace(path, std::move(opened)).first;
    }
    mapped = &found->second;
  }
  Shape shape = shapeOf(file);
  StorageType storage = llm::storageType(file.getStorage());
  int64_t stride = rowBytes(storage, shape.cols), bytes = stride * shape.rows, size = mapped->fileSize();
  if (file.getOffset() < 0 || file.getOffset() > size || bytes > size - file.getOffset())
    return makeError(StatusCode::invalidArgument, "tensor '%s': expected %lld bytes at offset %lld of '%s', file ends at %lld",
                     name.c_str(), (long long)bytes, (long long)file.getOffset(), path.c_str(), (long long)size);
  for (int64_t i = 0; i < count; ++i)
    dequantizeRow(storage, mapped->bytes().data() + file.getOffset() + (begin + i) * stride,
                  std::span<float>(out + i * shape.cols, shape.cols));
  return mapped->check();
}

Status WeightReader::readQuantized(Attribute a, int64_t begin, int64_t count, float *out) {
  QuantizedMatrix *matrix = nullptr;
  {
    std::lock_guard lock(mutex);
    auto &known = quantized[a];
    if (!known) {
      auto open = [&](std::string path) -> Result<std::shared_ptr<const MappedFile>> {
        if (!directory.empty() && path[0] != '/') path = directory + "/" + path;
        LATHE_ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
        return std::make_shared<const MappedFile>(std::move(file));
      };
      std::unique_ptr<QuantizedMatrix> made;
      if (auto nbits = dyn_cast<llm::NBitsAttr>(a)) {
        LATHE_ASSIGN_OR_RETURN(NBitsMatrix opened, llm::nbitsMatrix(nbits, open));
        made = std::make_unique<NBitsMatrix>(std::move(opened));
      } else if (auto scaled = dyn_cast<llm::ScaledAttr>(a)) {
        LATHE_ASSIGN_OR_RETURN(ScaledMatrix opened, llm::scaledMatrix(scaled, open));
        made = std::make_unique<ScaledMatrix>(std::move(opened));
      } else {
        LATHE_ASSIGN_OR_RETURN(QDQMatrix opened, llm::qdqMatrix(cast<llm::QDQAttr>(a), open));
        made = std::make_unique<QDQMatrix>(std::move(opened));
      }
      LATHE_RETURN_IF_ERROR(made->check());
      known = std::move(made);
    }
    matrix = known.get();
  }
  StorageType storage = matrix->storage();
  std::vector<uint8_t> stored(rowBytes(storage, matrix->columns));
  for (int64_t i = 0; i < count; ++i) {
    LATHE_RETURN_IF_ERROR(matrix->makeRow(begin + i, stored.data()));
    dequantizeRow(storage, stored.data(), std::span<float>(out + i * matrix->columns, matrix->columns));
  }
  return Status();
}

Status WeightReader::readInterleave(llm::InterleaveAttr a, int64_t begin, int64_t count, float *out) {
  Shape part = shapeOf(a.getFirst());
  for (int64_t i = begin; i < begin + count; ++i, out += part.cols) {
    int64_t block = i / a.getBlock(), row = block / 2 * a.getBlock() + i % a.getBlock();
    if (row >= part.rows)
      std::fill(out, out + part.cols, 0.0f);
    else
      LATHE_RETURN_IF_ERROR(read(block % 2 ? a.getSecond() : a.getFirst(), row, 1, out));
  }
  return Status();
}

Status WeightReader::readTranspose(llm::TransposeAttr a, int64_t begin, int64_t count, float *out) {
  Shape source = shapeOf(a.getSource());
  // A source row crosses all result rows: take columns begin .. begin + count of each.
  std::vector<float> row(source.cols);
  for (int64_t k = 0; k < source.rows; ++k) {
    LATHE_RETURN_IF_ERROR(read(a.getSource(), k, 1, row.data()));
    for (int64_t i = 0; i < count; ++i) out[i * source.rows + k] = row[begin + i];
  }
  return Status();
}

Status WeightReader::readColumns(llm::ColumnsAttr a, int64_t begin, int64_t count, float *out) {
  Shape source = shapeOf(a.getSource());
  int64_t width = a.getEnd() - a.getBegin();
  std::vector<float> row(source.cols);
  for (int64_t i = 0; i < count; ++i, out += width) {
    LATHE_RETURN_IF_ERROR(read(a.getSource(), begin + i, 1, row.data()));
    std::copy_n(row.begin() + a.getBegin(), width, out);
  }
  return Status();
}

/// Rounds |rows| rows to what they are worth in |storage|.
static Status round(StorageType storage, int64_t rows, int64_t cols, float *values) {
  std::vector<uint8_t> bytes(rowBytes(storage, cols));
  for (int64_t i = 0; i < rows; ++i, values += cols) {
    LATHE_RETURN_IF_ERROR(encodeRow(storage, std::span<const float>(values, cols), bytes.data()));
    dequantizeRow(storage, bytes.data(), std::span<float>(values, cols));
  }
  return Status();
}

Status WeightReader::read(Attribute expression, int64_t begin, int64_t count, float *out) {
  if (count == 0) return Status();
  return llvm::TypeSwitch<Attribute, Status>(expression)
      .Case<llm::FileAttr>([&](llm::FileAttr a) { return readFile(a, begin, count, out); })
      .Case<llm::NBitsAttr, llm::QDQAttr, llm::ScaledAttr>([&](Attribute a) { return readQuantized(a, begin, count, out); })
      .Case<llm::InterleaveAttr>([&](llm::InterleaveAttr a) { return readInterleave(a, begin, count, out); })
      .Case<llm::TransposeAttr>([&](llm::TransposeAttr a) { return readTranspose(a, begin, count, out); })
      .Case<llm::ColumnsAttr>([&](llm::ColumnsAttr a) { return readColumns(a, begin, count, out); })
      .Case<llm::SliceAttr>([&](llm::SliceAttr a) { return read(a.getSource(), a.getBegin() + begin, count, out); })
      .Case<DenseElementsAttr>([&](DenseElementsAttr a) {
        auto values = a.getValues<float>();
        int64_t cols = shapeOf(a).cols;
        for (int64_t i = 0; i < count * cols; ++i) out[i] = values[begin * cols + i];
        return Status();
      })
      .Case<llm::ConcatAttr>([&](llm::ConcatAttr a) {
        for (Attribute part : a.getParts()) {
          Shape shape = shapeOf(part);
          if (begin < shape.rows) {
            int64_t some = std::min(count, shape.rows - begin);
            LATHE_RETURN_IF_ERROR(read(part, begin, some, out));
            out += some * shape.cols;
            count -= some;
            begin += some;
          }
          begin -= shape.rows;
          if (count == 0) break;
        }
        return Status();
      })
      .Case<llm::UnropeAttr>([&](llm::UnropeAttr a) {
        Shape shape = shapeOf(a);
        int64_t size = shape.rows / a.getHeads();
        for (int64_t r = begin; r < begin + count; ++r, out += shape.cols) {
          int64_t i = r % size, from = r - i + (i < size / 2 ? 2 * i : 2 * (i - size / 2) + 1);
          LATHE_RETURN_IF_ERROR(read(a.getSource(), from, 1, out));
        }
        return Status();
      })
      .Case<llm::AddOneAttr>([&](llm::AddOneAttr a) {
        LATHE_RETURN_IF_ERROR(read(a.getSource(), begin, count, out));
        int64_t values = count * shapeOf(a).cols;
        for (int64_t i = 0; i < values; ++i) out[i] += 1.0f;
        return Status();
      })
      .Case<llm::RoundAttr>([&](llm::RoundAttr a) {
        LATHE_RETURN_IF_ERROR(read(a.getSource(), begin, count, out));
        return round(llm::storageType(a.getStorage()), count, shapeOf(a).cols, out);
      })
      .Case<llm::SyntheticAttr>([&](llm::SyntheticAttr a) {
        int64_t cols = shapeOf(a).cols;
        syntheticRows(a.getSeed(), a.getShape().size() == 2 ? cols : 0, begin, count, out);
        return round(llm::storageType(a.getStorage()), count, cols, out);
      })
      .Default([](Attribute) { return Status(StatusCode::internal, "not a weight expression"); });
}

Result<const float *> WeightReader::whole(llm::ParamOp param, int threads) {
  Attribute expression = param.getValue();
  auto found = kept.find(expression);
  if (found != kept.end()) return found->second.data();
  Shape shape = shapeOf(expression);
  int64_t bytes = shape.rows * shape.cols * int64_t(sizeof(float));
  if (bytes > cacheLeft) return nullptr;
  std::vector<float> values(shape.rows * shape.cols);
  Status first;
  std::mutex statusMutex;
  parallelFor(shape.rows, threads, shape.rows * shape.cols, [&](int64_t begin, int64_t end) {
    Status status = read(expression, begin, end - begin, values.data() + begin * shape.cols);
    std::lock_guard lock(statusMutex);
    if (!status.ok()) first = std::move(status);
  });
  LATHE_RETURN_IF_ERROR(std::move(first));
  cacheLeft -= bytes;
  return (kept[expression] = std::move(values)).data();
}

} // namespace lathe::interp
