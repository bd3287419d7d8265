//===- ONNXNumbersTest.cpp - formats, places and ranges -------------------===//
// Part of Lathe. Licensed under Apache-2.0 WITH LLVM-exception; see LICENSE.
//===----------------------------------------------------------------------===//
#include "lathe/ONNX/Numbers.h"
#include "llvm/ADT/APFloat.h"
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

using namespace lathe;
using onnx::DataType;

namespace {

struct Small {
  DataType type;
  const llvm::fltSemantics &semantics;
};
const Small smallFormats[] = {{DataType::float16, llvm::APFloat::IEEEhalf()},          {DataType::bfloat16, llvm::APFloat::BFloat()},
                              {DataType::float8e4m3fn, llvm::APFloat::Float8E4M3FN()}, {DataType::float8e4m3fnuz, llvm::APFloat::Float8E4M3FNUZ()},
                              {DataType::float8e5m2, llvm::APFloat::Float8E5M2()},     {DataType::float8e5m2fnuz, llvm::APFloat::Float8E5M2FNUZ()},
                              {DataType::float4e2m1, llvm::APFloat::Float4E2M1FN()}};

/// All codes of |type|, in memory's form.
std::vector<uint8_t> allCodes(DataType type) {
  int bits = onnx::dataTypeBits(type);
  std::vector<uint8_t> out;
  for (int code = 0; code < 1 << bits; ++code) {
    out.push_back(static_cast<uint8_t>(code));
    if (bits == 16) out.push_back(static_cast<uint8_t>(code >> 8));
  }
  return out;
}

/// What |codes|, all of a float |type|, stand for.
std::vector<double> numbersOf(DataType type, const std::vector<uint8_t> &codes) {
  std::vector<double> f;
  std::vector<int64_t> i;
  onnx::load(type, codes, size_t(1) << onnx::dataTypeBits(type), f, i);
  EXPECT_TRUE(i.empty());
  return f;
}

/// The elements that ONNX's Slice takes, by walking over them.
std::vector<int64_t> walked(int64_t start, int64_t end, int64_t step, int64_t size) {
  std::vector<int64_t> out;
  if (size == 0) return out;
  int64_t at = start < 0 ? start + size : start, stop = end < 0 ? end + size : end;
  if (step > 0)
    for (at = std::max<int64_t>(at, 0); at < stop && at < size; at += step)
      out.push_back(at);
  else
    for (at = std::clamp<int64_t>(at, 0, size - 1); at > stop && at >= 0; at += step)
      out.push_back(at);
  return out;
}

} // namespace

TEST(ONNXNumbers, EveryCodeOfASmallFloatIsItsOwnNumber) {
  for (const Small &format : smallFormats) {
    std::vector<uint8_t> codes = allCodes(format.type);
    std::vector<double> f = numbersOf(format.type, codes);
    std::vector<uint8_t> back = onnx::stored(format.type, f, {});
    ASSERT_EQ(back.size(), codes.size());
    size_t each = codes.size() / f.size();
    for (size_t k = 0; k < f.size(); ++k) {
      if (std::isnan(f[k])) continue; // one code stands for all
      for (size_t b = 0; b < each; ++b)
        ASSERT_EQ(back[k * each + b], codes[k * each + b]) << onnx::dataTypeName(format.type) << " code " << k;
      EXPECT_EQ(onnx::castTo(format.type, f[k], false), f[k]);
    }
  }
}

TEST(ONNXNumbers, NumbersBetweenTwoOfASmallFloatAreRoundedAsLLVMDoes) {
  for (const Small &format : smallFormats) {
    std::vector<double> f = numbersOf(format.type, allCodes(format.type));
    std::erase_if(f, [](double x) { return !std::isfinite(x); });
    std::sort(f.begin(), f.end());
    for (size_t k = 0; k + 1 < f.size(); ++k)
      for (double share : {0.25, 0.5, 0.75}) {
        auto x = static_cast<float>(f[k] + share * (f[k + 1] - f[k])); // exact in float
        llvm::APFloat rounded(x);
        bool lossy;
        rounded.convert(format.semantics, llvm::APFloat::rmNearestTiesToEven, &lossy);
        ASSERT_EQ(onnx::castTo(format.type, x, true), rounded.convertToDouble()) << onnx::dataTypeName(format.type) << " of " << x;
      }
  }
}

TEST(ONNXNumbers, PackedElementsKeepTheirSign) {
  const uint8_t bytes[] = {0x7f, 0x98};
  EXPECT_EQ(onnx::unpacked(DataType::int4, bytes, 4), (std::vector<uint8_t>{0xff, 7, 0xf8, 0xf9}));
  EXPECT_EQ(onnx::unpacked(DataType::uint4, bytes, 3), (std::vector<uint8_t>{15, 7, 8}));
  EXPECT_EQ(onnx::unpacked(DataType::float4e2m1, bytes, 3), (std::vector<uint8_t>{15, 7, 8}));
  EXPECT_EQ(onnx::unpacked(DataType::int2, bytes, 5), (std::vector<uint8_t>{0xff, 0xff, 0xff, 1, 0}));
  EXPECT_EQ(onnx::unpacked(DataType::uint2, bytes, 5), (std::vector<uint8_t>{3, 3, 3, 1, 0}));
  std::vector<double> f;
  std::vector<int64_t> i;
  onnx::load(DataType::int4, onnx::unpacked(DataType::int4, bytes, 4), 4, f, i);
  EXPECT_EQ(i, (std::vector<int64_t>{-1, 7, -8, -7}));
  onnx::load(DataType::float4e2m1, onnx::unpacked(DataType::float4e2m1, bytes, 2), 2, f, i);
  EXPECT_EQ(f, (std::vector<double>{-6, 6}));
}

TEST(ONNXNumbers, IntegersWrapToTheirType) {
  EXPECT_EQ(onnx::wrapTo(DataType::int8, 200), -56);
  EXPECT_EQ(onnx::wrapTo(DataType::uint8, -1), 255);
  EXPECT_EQ(onnx::wrapTo(DataType::int4, 8), -8);
  EXPECT_EQ(onnx::wrapTo(DataType::uint2, 7), 3);
  EXPECT_EQ(onnx::wrapTo(DataType::boolean, 256), 1);
  EXPECT_EQ(onnx::wrapTo(DataType::uint32, -1), 4294967295);
}

TEST(ONNXNumbers, SlicesTakeWhatWalkingOverTheAxisTakes) {
  const int64_t far[] = {INT64_MIN, INT64_MAX, -7, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 7};
  for (int64_t size = 0; size <= 5; ++size)
    for (int64_t start : far)
      for (int64_t end : far)
        for (int64_t step : {1, 2, 3, 9, -1, -2, -3, -9}) {
          onnx::AxisRange range = onnx::rangeOf(start, end, step, size);
          std::vector<int64_t> taken;
          for (int64_t k = 0; k < range.count; ++k)
            taken.push_back(range.begin + k * range.step);
          ASSERT_EQ(taken, walked(start, end, step, size)) << start << ":" << end << ":" << step << " of " << size;
        }
  EXPECT_EQ(onnx::rangeOf(4, INT64_MIN, INT64_MIN, 5).count, 1);
  EXPECT_EQ(onnx::rangeOf(0, 5, INT64_MAX, 5).count, 1);
  onnx::AxisRange crossed = onnx::shapeRange(3, 1, 4);
  EXPECT_EQ(crossed.begin, 3);
  EXPECT_EQ(crossed.end, 3);
}

TEST(ONNXNumbers, BroadcastTensorsRepeatAxesOfOneElement) {
  EXPECT_EQ(*onnx::broadcastShape({3, 1}, {2, 1, 4}), (llvm::SmallVector<int64_t, 4>{2, 3, 4}));
  EXPECT_EQ(*onnx::broadcastShape({0}, {1}), (llvm::SmallVector<int64_t, 4>{0}));
  EXPECT_TRUE(failed(onnx::broadcastShape({3}, {2})));
  const int64_t shape[] = {3, 1};
  EXPECT_EQ(onnx::broadcastStrides(shape, 3), (llvm::SmallVector<int64_t, 4>{0, 1, 0}));
  int64_t visits = 0;
  onnx::forEach({2, 3, 4}, [&](const std::vector<int64_t> &index) {
    EXPECT_EQ(onnx::placeOf({2, 3, 4}, index), visits++);
    EXPECT_EQ(onnx::broadcastPlace(shape, index), index[1]);
  });
  EXPECT_EQ(visits, 24);
  onnx::forEach({2, 0}, [&](const std::vector<int64_t> &) { ++visits; });
  EXPECT_EQ(visits, 24);
}
