// Tensors that are read from the files of a state, whoever wrote which elements of them.
#include <gtest/gtest.h>

#include "base/files.h"
#include "checkpoints/states/owned_tensors.h"
#include "tests/support/errors.h"

namespace temper::checkpoints {
namespace {

using Values = std::vector<float>;

// A file of a state: a tensor "w", and which elements of the whole it has ("": all).
struct File {
  std::string name;
  Tensor tensor;
  std::string elements = {};
};

class ReadPlaced : public testing::Test {
 protected:
  void write(const std::vector<File>& files) {
    StateWriter writer(folder_.path(), 1);
    for (const File& file : files)
      writer.add_tensors(
          file.name, {{"w", file.tensor.shape(), file.tensor.dtype()}}, [&](size_t) { return file.tensor; },
          file.elements.empty() ? Metadata{} : Metadata{{"w", file.elements}});
    writer.commit();
  }
  // A file whose header and data are these.
  void write_raw(const std::string& header, size_t data) {
    StateWriter writer(folder_.path(), 1);
    const uint64_t length = header.size();
    writer.add_file("optimizer.safetensors", std::string(reinterpret_cast<const char*>(&length), 8) + header +
                                                 std::string(data, '\0'));
    writer.commit();
  }
  // A whole tensor [2, 3].
  Values read_into(const Tensor& own) {
    const Placement whole({2, 3});
    read_placed(StateReader::open(folder_ / state_name(1)), "optimizer", {{"w", own, &whole}});
    const Tensor read = own.to(DType::kF32).contiguous();
    return {read.values<float>().begin(), read.values<float>().end()};
  }
  Values read() { return read_into(Tensor::zeros({2, 3}, DType::kF32)); }
  std::string refusal() {
    return error_of([&] { read(); });
  }
  TemporaryDirectory folder_;
};

Tensor numbers(const Values& values) { return Tensor::from(values); }

TEST_F(ReadPlaced, FilesOfItsStemTogether) {
  write({{"optimizer-00000.safetensors", numbers({1, 2, 5}), R"({"shape":[2,3],"runs":[[0,2],[4,1]]})"},
         {"optimizer-00007.safetensors", numbers({3, 4, 6}), R"({"shape":[2,3],"runs":[[2,2],[5,1]]})"},
         {"optimizer-.safetensors", numbers({9})},
         {"optimizer-a.safetensors", numbers({9})},
         {"optimizer_2.safetensors", numbers({9})},
         {"optimizers.safetensors", numbers({9})},
         {"optimizer.bin", numbers({9})},
         {"model.safetensors", numbers({9})}});
  EXPECT_EQ(read(), (Values{1, 2, 3, 4, 5, 6}));
}

TEST_F(ReadPlaced, IntoOtherDtypesAndViews) {
  write({{"optimizer.safetensors", numbers({1, 2, 3, 4, 5, 6}).reshape({2, 3})}});
  EXPECT_EQ(read_into(Tensor::zeros({2, 3}, DType::kBF16)), (Values{1, 2, 3, 4, 5, 6}));
  const Tensor turned = Tensor::zeros({3, 2}, DType::kF32);
  EXPECT_EQ(read_into(turned.transpose(0, 1)), (Values{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(turned.values<float>()[1], 4.f);
}

TEST_F(ReadPlaced, FilesThatDoNotFitTogether) {
  const Tensor three = numbers({1, 2, 3});
  const std::string first = R"({"shape":[2,3],"runs":[[0,3]]})", last = R"({"shape":[2,3],"runs":[[3,3]]})",
                    middle = R"({"shape":[2,3],"runs":[[2,3]]})";
  const std::string one = "optimizer-00000.safetensors", two = "optimizer-00001.safetensors";
  struct Case {
    std::vector<File> files;
    std::string said;
  };
  for (const Case& each : std::vector<Case>{
           {{{"model.safetensors", three}},
            "found no 'optimizer.safetensors', expected one of: model.safetensors"},
           {{{one, three, first}}, "no file has element 3 of 'w': the files of a rank are missing"},
           {{{one, three, last}}, "no file has element 0 of 'w': the files of a rank are missing"},
           {{{one, three, first}, {two, numbers({4, 5}), R"({"shape":[2,3],"runs":[[4,2]]})"}},
            "no file has element 3 of 'w'"},
           {{{one, three, first}, {two, three, middle}}, "two files have element 2 of 'w'"},
           {{{one, three, first}, {two, three.to(DType::kBF16), last}},
            "optimizer-00001.safetensors] 'w' is BF16, expected F32"},
           {{{one, three}}, "optimizer-00000.safetensors] 'w' is [3], expected [2, 3]"},
           {{{one, three, R"({"shape":[3,2],"runs":[[0,3]]})"}}, "'w' is [3, 2], expected [2, 3]"},
           {{{one, three, R"({"shape":[2,3],"runs":[[0,2]]})"}},
            "the elements of 'w': found 2 elements in its runs, expected the 3 of the tensor"},
           {{{one, three, "some"}}, "optimizer-00000.safetensors] the elements of 'w': "}}) {
    SCOPED_TRACE(each.said);
    write(each.files);
    expect_has(refusal(), each.said);
  }
}

TEST_F(ReadPlaced, OtherNamesDtypesAndDimensions) {
  write_raw(R"({"w":{"dtype":"F64","shape":[2,3],"data_offsets":[0,48]}})", 48);
  expect_has(refusal(), "optimizer.safetensors] 'w' is F64, expected a dtype that Temper has");
  write_raw(R"({"w":{"dtype":"F32","shape":[1,1,1,1,1,2,3],"data_offsets":[0,24]}})", 24);
  expect_has(refusal(), "optimizer.safetensors] 'w' has 7 dimensions, expected at most 6");
  write_raw(R"({"v":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})", 24);
  expect_has(refusal(), "has no tensor 'w'; the nearest name is 'v'");
}

}  // namespace
}  // namespace temper::checkpoints
