//===- WeightExpressions.cpp ------------------------------------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "WeightExpressions.h"
#include "lathe/weights/Synthetic.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace lathe {

Result<std::shared_ptr<const MappedFile>> FileCache::open(const std::string &path) {
  auto &file = files[path];
  if (!file) {
    LATHE_ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::open(path));
    file = std::make_shared<const MappedFile>(std::move(mapped));
  }
  return file;
}

Result<WeightRows> weightRows(Attribute expression, FileCache &files) {
  using R = Result<WeightRows>;
  return llvm::TypeSwitch<Attribute, R>(expression)
      .Case<llm::FileAttr>([&](llm::FileAttr a) -> R {
        LATHE_ASSIGN_OR_RETURN(auto file, files.open(a.getPath().str()));
        return WeightRows::fromFile(file, a.getName().str(), a.getOffset(), llm::storageType(a.getStorage()),
                                    {a.getShape().data(), a.getShape().size()});
      })
      .Case<llm::NBitsAttr>([&](llm::NBitsAttr a) -> R {
        LATHE_ASSIGN_OR_RETURN(NBitsMatrix matrix, llm::nbitsMatrix(a, [&](const std::string &path) { return files.open(path); }));
        return WeightRows::fromQuantized(std::make_shared<NBitsMatrix>(std::move(matrix)));
      })
      .Case<llm::QDQAttr>([&](llm::QDQAttr a) -> R {
        LATHE_ASSIGN_OR_RETURN(QDQMatrix matrix, llm::qdqMatrix(a, [&](const std::string &path) { return files.open(path); }));
        return WeightRows::fromQuantized(std::make_shared<QDQMatrix>(std::move(matrix)));
      })
      .Case<llm::ScaledAttr>([&](llm::ScaledAttr a) -> R {
        LATHE_ASSIGN_OR_RETURN(ScaledMatrix matrix, llm::scaledMatrix(a, [&](const std::string &path) { return files.open(path); }));
        return WeightRows::fromQuantized(std::make_shared<ScaledMatrix>(std::move(matrix)));
      })
      .Case<DenseElementsAttr>([&](DenseElementsAttr a) -> R {
        std::vector<float> values;
        for (APFloat v : a.getValues<APFloat>())
          values.push_back(v.convertToFloat());
        auto shape = a.getType().getShape();
        return WeightRows::fromValues(values, {shape.data(), shape.size()});
      })
      .Case<llm::ConcatAttr>([&](llm::ConcatAttr a) -> R {
        std::vector<WeightRows> parts;
        for (Attribute part : a.getParts()) {
          LATHE_ASSIGN_OR_RETURN(auto rows, weightRows(part, files));
          parts.push_back(std::move(rows));
        }
        return WeightRows::concat(parts);
      })
      .Case<llm::InterleaveAttr>([&](llm::InterleaveAttr a) -> R {
        LATHE_ASSIGN_OR_RETURN(auto first, weightRows(a.getFirst(), files));
        LATHE_ASSIGN_OR_RETURN(auto second, weightRows(a.getSecond(), files));
        return WeightRows::interleave(first, second, a.getBlock());
      })
      .Case<llm::UnropeAttr>([&](llm::UnropeAttr a) -> R {
        LATHE_ASSIGN_OR_RETURN(auto rows, weightRows(a.getSource(), files));
        return rows.unrope(a.getHeads());
      })
      .Case<llm::SliceAttr>([&](llm::SliceAttr a) -> R {
        LATHE_ASSIGN_OR_RETURN(auto rows, weightRows(a.getSource(), files));
        return rows.slice(a.getBegin(), a.getEnd());
      })
      .Case<llm::ColumnsAttr>([&](llm::ColumnsAttr a) -> R {
        LATHE_ASSIGN_OR_RETURN(auto rows, weightRows(a.getSource(), files));
        return rows.columnsOf(a.getBegin(), a.getEnd());
      })
      .Case<llm::TransposeAttr>([&](llm::TransposeAttr a) -> R {
        LATHE_ASSIGN_OR_RETURN(auto rows, weightRows(a.getSource(), files));
        return rows.transpose();
      })
      .Case<llm::AddOneAttr>([&](llm::AddOneAttr a) -> R {
        LATHE_ASSIGN_OR_RETURN(auto rows, weightRows(a.getSource(), files));
        return rows.addOne();
      })
      .Case<llm::RoundAttr>([&](llm::RoundAttr a) -> R {
        LATHE_ASSIGN_OR_RETURN(auto rows, weightRows(a.getSource(), files));
        return rows.round(llm::storageType(a.getStorage()));
      })
      .Case<llm::SyntheticAttr>([&](llm::SyntheticAttr a) -> R {
        int64_t rows = a.getShape()[0], columns = a.getShape().size() == 2 ? a.getShape()[1] : 0;
        std::vector<float> values(rows * std::max<int64_t>(columns, 1));
        syntheticRows(a.getSeed(), columns, 0, rows, values.data());
        LATHE_ASSIGN_OR_RETURN(auto made, WeightRows::fromValues(values, {a.getShape().data(), a.getShape().size()}));
        if (a.getStorage() == llm::Storage::f32) return made;
        return made.round(llm::storageType(a.getStorage()));
      })
      .Default([](Attribute a) -> R {
        std::string text;
        llvm::raw_string_ostream(text) << a;
        return makeError(StatusCode::unsupported, "unsupported weight expression %s", text.substr(0, 200).c_str());
      });
}

} // namespace lathe
