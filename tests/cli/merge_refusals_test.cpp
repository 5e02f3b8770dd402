// Merged models hold numbers, or there is none.
#include <cmath>

#include "checkpoints/files/safetensors.h"
#include "tests/cli/cli_fixture.h"

namespace temper {
namespace {

using checkpoints::SafetensorsFile, checkpoints::SafetensorsWriter;

constexpr const char* kModule = "model.layers.0.self_attn.q_proj";

class MergeRefusals : public Cli {
 protected:
  static Tensor filled(const Shape& shape, float value) {
    const Tensor tensor = Tensor::empty(shape, DType::kF32);
    std::fill_n(tensor.data<float>(), tensor.numel(), value);
    return tensor;
  }

  // An adapter of rank 1 for one module of the model, whose matrices have these values.
  static std::string adapter_of(float a, float b) {
    const SafetensorsFile base(folder() + "/model/model.safetensors");
    const auto entry = std::find_if(base.entries().begin(), base.entries().end(), [](const auto& each) {
      return each.name == std::string(kModule) + ".weight";
    });
    const std::string path = folder() + "/refused_adapter", name = std::string("base_model.model.") + kModule;
    make_directories(path);
    write_file(
        path + "/adapter_config.json",
        R"({"peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": ["layers.0.self_attn.q_proj"],)"
        R"("base_model_name_or_path": ")" +
            folder() + "/model\"}");
    SafetensorsWriter writer(path + "/adapter_model.safetensors",
                             {{name + ".lora_A.weight", {1, entry->shape[1]}, DType::kF32},
                              {name + ".lora_B.weight", {entry->shape[0], 1}, DType::kF32}});
    writer.add(filled({1, entry->shape[1]}, a));
    writer.add(filled({entry->shape[0], 1}, b));
    writer.close();
    return path;
  }

  // The error says where and what, and neither the folder nor a part of it is there.
  static void expect_nothing_merged(const std::string& adapter, const std::string& tensor,
                                    const std::string& value) {
    const std::string parent = folder() + "/merged_refused";
    make_directories(parent);
    expect_refused("merge " + adapter + " " + parent + "/out", 2,
                   "] tensor '" + tensor + "': found " + value + " at [0, 0], expected finite numbers");
    EXPECT_EQ(list_directory(parent), std::vector<std::string>());
  }
};

TEST_F(MergeRefusals, SumsThatAreTooLarge) {
  const std::string weight = std::string(kModule) + ".weight";
  expect_nothing_merged(adapter_of(1e30f, 1e30f), weight, "inf");
  expect_refused(
      "merge " + adapter_of(1e30f, 1e30f) + " " + folder() + "/out", 2,
      "with the adapter in it the weight is larger than float32 can hold: use the adapter unmerged");
  EXPECT_EQ(run("merge " + adapter_of(1e15f, 1e15f) + " " + folder() + "/large").code, 0);
}

TEST_F(MergeRefusals, AdaptersThatHoldNoNumbers) {
  const std::string name = std::string("base_model.model.") + kModule;
  expect_nothing_merged(adapter_of(NAN, 1), name + ".lora_A.weight", "nan");
  expect_nothing_merged(adapter_of(1, -INFINITY), name + ".lora_B.weight", "-inf");
}

}  // namespace
}  // namespace temper
