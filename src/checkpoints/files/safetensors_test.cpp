#include "checkpoints/files/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "base/error.h"
#include "base/files.h"
#include "tests/support/errors.h"

namespace temper::checkpoints {
namespace {

// A file with this header and `data_bytes` bytes of data that count up from 0.
std::string file_with(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string file(reinterpret_cast<const char*>(&length), 8);
  file += header;
  for (size_t i = 0; i < data_bytes; ++i) file += static_cast<char>(i);
  return file;
}

class Safetensors : public testing::Test {
 protected:
  std::string write(const std::string& bytes) {
    write_file(path, bytes);
    return path;
  }
  // The error for a file with this header, "" when it opens.
  std::string refusal(const std::string& header, size_t data_bytes) {
    return refusal_of(file_with(header, data_bytes));
  }
  std::string refusal_of(const std::string& bytes) {
    const std::string message = error_of([&] { SafetensorsFile file(write(bytes)); });
    if (!message.empty()) {
      EXPECT_EQ(message.find("[" + path), 0u) << message;
    }
    return message;
  }

  TemporaryDirectory folder;
  std::string path = folder / "x.safetensors";
};

TEST_F(Safetensors, ReadsViewsOfTheFile) {
  const SafetensorsFile file(write(file_with(
      R"({"b":{"dtype":"U8","shape":[2,2],"data_offsets":[8,12]},"a":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
      R"("__metadata__":{"format":"pt"}}   )",
      12)));
  ASSERT_EQ(file.entries().size(), 2u);
  EXPECT_EQ(file.entries()[0].name, "a");
  EXPECT_EQ(file.metadata()[0].second, "pt");
  EXPECT_EQ(file.tensor("a").shape(), Shape{});
  EXPECT_EQ(file.tensor("a").data<int64_t>()[0], 0x0706050403020100);
  EXPECT_EQ(file.tensor("b").shape(), (Shape{2, 2}));
  EXPECT_EQ(file.tensor("b").data<uint8_t>()[3], 11);
  EXPECT_EQ(file.find("c"), nullptr);
}

TEST_F(Safetensors, TensorsOutliveTheFile) {
  Tensor tensor;
  {
    const SafetensorsFile file(
        write(file_with(R"({"abc":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", 4)));
    const SafetensorsFile copy = file;
    tensor = copy.tensor("abc");
    EXPECT_EQ(tensor.raw(), file.tensor("abc").raw());
  }
  EXPECT_EQ(tensor.data<uint8_t>()[3], 3);
}

TEST_F(Safetensors, CopiesMisalignedData) {
  const SafetensorsFile file(write(file_with(
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}})",
      9)));
  const Tensor b = file.tensor("b");
  EXPECT_EQ(reinterpret_cast<uintptr_t>(b.raw()) % 4, 0u);
  EXPECT_EQ(static_cast<uint8_t*>(b.raw())[7], 8);
}

TEST_F(Safetensors, AcceptsEmptyFilesAndTensors) {
  EXPECT_EQ(refusal("{}", 0), "");
  EXPECT_EQ(refusal(R"({"a":{"dtype":"F32","shape":[0,3],"data_offsets":[0,0]}})", 0), "");
  EXPECT_EQ(SafetensorsFile(path).tensor("a").shape(), (Shape{0, 3}));
}

TEST_F(Safetensors, RefusesBadLengths) {
  expect_has(refusal_of(""), "found 0 bytes");
  expect_has(refusal_of("1234567"), "found 7 bytes");
  expect_has(refusal_of(std::string("\x01\xE1\xF5\x05\0\0\0\0{}", 10)), "found a header of 100000001 bytes");
  expect_has(refusal_of(std::string(8, '\xFF') + "{}"), "found a header of 18446744073709551615 bytes");
  expect_has(refusal_of(std::string("\x03\0\0\0\0\0\0\0{}", 10)),
             "found 2 bytes after the header's length, expected 3");
  expect_has(refusal_of("version https://git-lfs.github.com/spec/v1\noid"), "Git LFS pointer");
}

TEST_F(Safetensors, RefusesBadHeaders) {
  expect_has(refusal("", 0), "does not start with '{'");
  expect_has(refusal(" {}", 0), "does not start with '{'");
  expect_has(refusal("[]", 0), "does not start with '{'");
  expect_has(refusal("{]", 0), "not valid JSON");
  expect_has(refusal("{} x", 0), "not valid JSON");
  expect_has(refusal(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{}})", 1),
             "'a' occurs twice");
  expect_has(refusal(R"({"__metadata__":[]})", 0), "__metadata__: found an array, expected an object");
  expect_has(refusal(R"({"__metadata__":{"format":1}})", 0), "__metadata__ 'format': found an integer");
  expect_has(refusal(R"({"a":1})", 0), "tensor 'a': found an integer, expected an object");
  expect_has(refusal(R"({"a":{"shape":[1],"data_offsets":[0,1]}})", 1), "tensor 'a': found no 'dtype'");
  expect_has(refusal(R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", 1), "tensor 'a': found no 'shape'");
  expect_has(refusal(R"({"a":{"dtype":"U8","shape":[1]}})", 1), "tensor 'a': found no 'data_offsets'");
  expect_has(refusal(R"({"a":{"dtype":8,"shape":[1],"data_offsets":[0,1]}})", 1), "dtype: found an integer");
  expect_has(refusal(R"({"a":{"dtype":"U9","shape":[1],"data_offsets":[0,1]}})", 1), "dtype: found 'U9'");
}

TEST_F(Safetensors, RefusesBadShapes) {
  const auto shape = [&](const std::string& text) {
    return refusal(R"({"a":{"dtype":"F32","shape":)" + text + R"(,"data_offsets":[0,8]}})", 8);
  };
  EXPECT_EQ(shape("[2]"), "");
  expect_has(shape("2"), "shape: found an integer");
  expect_has(shape("[-2]"), "shape: found -2");
  expect_has(shape("[2.0]"), "shape: found 2.0");
  expect_has(shape("[\"2\"]"), "shape: found \"2\"");
  expect_has(shape("[18446744073709551615]"), "shape: found 1.8446744073709552e+19");
  expect_has(shape("[9223372036854775807, 2]"), "expected fewer than 2^63 bits");
  expect_has(shape("[0, 4611686018427387904, 4611686018427387904]"), "expected fewer than 2^63 bits");
  expect_has(shape("[4294967296, 4294967296]"), "expected fewer than 2^63 bits");
  expect_has(shape("[3]"), "found 8 bytes, expected 12 for F32 [3]");
  expect_has(refusal(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}})", 2), "ends inside a byte");
}

TEST_F(Safetensors, RefusesBadOffsets) {
  const auto offsets = [&](const std::string& a, const std::string& b, size_t bytes) {
    return refusal(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":)" + a +
                       R"(},"b":{"dtype":"U8","shape":[3],"data_offsets":)" + b + "}}",
                   bytes);
  };
  EXPECT_EQ(offsets("[0,2]", "[2,5]", 5), "");
  EXPECT_EQ(offsets("[3,5]", "[0,3]", 5), "");
  expect_has(offsets("[0]", "[2,5]", 5), "tensor 'a': data_offsets: found [0], expected [begin, end]");
  expect_has(offsets("[2,0]", "[2,5]", 5), "data_offsets: found [2, 0]");
  expect_has(offsets("[-2,0]", "[2,5]", 5), "data_offsets: found -2");
  expect_has(offsets("[0,2]", "[2,6]", 6), "tensor 'b': data_offsets: found 4 bytes, expected 3");
  expect_has(offsets("[0,2]", "[3,6]", 6), "tensor 'b': found data from byte 3, expected from 2 (a hole");
  expect_has(offsets("[1,3]", "[3,6]", 6), "tensor 'a': found data from byte 1, expected from 0 (a hole");
  expect_has(offsets("[0,2]", "[1,4]", 4),
             "tensor 'b': found data from byte 1, expected from 2 (it overlaps");
  expect_has(offsets("[0,2]", "[2,5]", 4),
             "tensor 'b': found 4 bytes of data in the file, expected at least 5");
  expect_has(offsets("[0,2]", "[2,5]", 6), "found 6 bytes of data, expected the 5 of its tensors");
}

TEST_F(Safetensors, RefusesUnsupportedTensorsOnlyWhenRead) {
  const SafetensorsFile file(write(file_with(
      R"({"a":{"dtype":"F64","shape":[1],"data_offsets":[0,8]},"b":{"dtype":"F8_E5M2","shape":[1],"data_offsets":[8,9]},)"
      R"("c":{"dtype":"U8","shape":[1,1,1,1,1,1,1],"data_offsets":[9,10]},"d":{"dtype":"F4","shape":[2],"data_offsets":[10,11]}})",
      11)));
  const auto error = [&](std::string_view name) {
    try {
      file.tensor(name);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  expect_has(error("a"), "tensor 'a': found dtype F64, expected F32, BF16, F16, F8_E4M3, I32, I64, I8 or U8");
  expect_has(error("b"), "tensor 'b': found dtype F8_E5M2");
  expect_has(error("c"), "tensor 'c': found 7 dimensions, expected at most 6");
  expect_has(error("d"), "found dtype F4");
  expect_has(error("aa"), "the nearest name is 'a'");
}

TEST_F(Safetensors, WritesWhatItReads) {
  std::vector<float> numbers(6);
  std::iota(numbers.begin(), numbers.end(), 0.f);
  const Tensor a = Tensor::from(std::span<const float>(numbers), {2, 3});
  const Tensor b = a.transpose(0, 1).to(DType::kBF16);
  const std::vector<TensorInfo> infos = {{"z", {2, 3}, DType::kF32},
                                         {"na\"me é", {3, 2}, DType::kBF16},
                                         {"empty", {0, 4}, DType::kI32},
                                         {"one", {}, DType::kU8},
                                         {"codes", {3}, DType::kF8E4M3}};
  SafetensorsWriter writer(path, infos);
  writer.add(a);
  writer.add(b.transpose(0, 1).transpose(0, 1));
  writer.add(Tensor::empty({0, 4}, DType::kI32));
  writer.add(Tensor::zeros({}, DType::kU8));
  writer.add(Tensor::from(std::vector<Float8E4M3>(3, Float8E4M3(-448))));
  const FileDigest digest = writer.close();
  EXPECT_EQ(digest.size, file_size(path));
  EXPECT_EQ(digest.size, safetensors_bytes(infos));
  EXPECT_EQ(digest.hash, hash_file(path));

  const SafetensorsFile file(path);
  ASSERT_EQ(file.entries().size(), 5u);
  EXPECT_EQ(file.entries()[0].name, "z");
  uint64_t length = 0;
  std::memcpy(&length, read_file(path).data(), 8);
  EXPECT_EQ(length % 8, 0u);
  EXPECT_EQ(file.tensor("z").values<float>()[5], 5.f);
  EXPECT_EQ(static_cast<float>(file.tensor("na\"me é").values<BFloat16>()[1]), 3.f);
  EXPECT_EQ(file.tensor("one").numel(), 1);
  EXPECT_EQ(file.find("codes")->dtype, "F8_E4M3");
  EXPECT_EQ(static_cast<float>(file.tensor("codes").values<Float8E4M3>()[2]), -448.f);
}

TEST_F(Safetensors, WriterRefusesWhatWasNotDeclared) {
  EXPECT_THROW(SafetensorsWriter(path, {{"a", {1}, DType::kF32}, {"a", {1}, DType::kF32}}), Error);
  EXPECT_THROW(SafetensorsWriter(path, {{"__metadata__", {1}, DType::kF32}}), Error);
  EXPECT_THROW(SafetensorsWriter(path, {{"\xFF", {1}, DType::kF32}}), Error);
  SafetensorsWriter writer(path, {{"a", {2}, DType::kF32}});
  EXPECT_THROW(writer.add(Tensor::zeros({2}, DType::kBF16)), Error);
  SafetensorsWriter unfinished(path, {{"a", {2}, DType::kF32}});
  EXPECT_THROW(unfinished.close(), Error);
}

TEST_F(Safetensors, OpensAHundredThousandTensorsQuickly) {
  std::string header = "{";
  for (int i = 0; i < 100'000; ++i)
    header += (i > 0 ? ",\"" : "\"") + std::to_string(i) + R"(":{"dtype":"U8","shape":[1],"data_offsets":[)" +
              std::to_string(i) + "," + std::to_string(i + 1) + "]}";
  const SafetensorsFile file(write(file_with(header + "}", 100'000)));
  int64_t sum = 0;
  for (const TensorEntry& entry : file.entries()) sum += file.tensor(entry.name).data<uint8_t>()[0];
  EXPECT_EQ(sum, 390 * (255 * 128) + 159 * 80);
  EXPECT_THROW(file.tensor("layer.7.weight"), Error);
}

}  // namespace
}  // namespace temper::checkpoints
