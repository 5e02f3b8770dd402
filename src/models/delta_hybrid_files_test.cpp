// Folders of hybrids whose weights do not fit their config.json, or cannot be computed with: one error that
// names the tensor, what was found, what was expected and what to do.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/files.h"
#include "tests/support/errors.h"
#include "tests/support/tiny_model.h"

namespace temper::models {
namespace {

constexpr const char* kHybrids[] = {"qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"};
const std::string kDeltaNames = "model.layers.0.linear_attn.";

void expect_parts(const std::string& message, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) expect_has(message, part);
}

struct DeltaHybridFiles : testing::Test {
  // What loading a folder says whose config.json has another number of something.
  std::string error_with(const char* type, const char* key, int64_t value) {
    save_model(*tiny_model({.type = type}), folder / "model", "");
    const std::string path = join_path(folder / "model", "config.json");
    Json config = Json::parse_file(path);
    config.set(key, value);
    write_file(path, config.dump());
    return error_of([&] { load_model(folder / "model", {}); });
  }

  TemporaryDirectory folder;
};

TEST_F(DeltaHybridFiles, AConvolutionOfAnotherWidth) {
  for (const char* type : kHybrids)
    expect_parts(
        error_with(type, "linear_conv_kernel_dim", 3),
        {"/model] the weights do not fit the model", kDeltaNames + "conv1d.weight' is [40, 1, 4], expected",
         "[40, 1, 3]", "use the config.json that belongs to these weights"});
}

TEST_F(DeltaHybridFiles, OtherHeads) {
  for (const char* type : kHybrids) {
    expect_parts(error_with(type, "linear_num_value_heads", 6),
                 {"/model] the weights do not fit the model", kDeltaNames + "A_log' is [4], expected [6]",
                  kDeltaNames + "dt_bias' is [4], expected [6]",
                  kDeltaNames + "out_proj.weight' is [32, 24], expected [32, 36]",
                  "use the config.json that belongs to these weights"});
    expect_parts(
        error_with(type, "linear_num_value_heads", 3),
        {"config.json] linear_num_value_heads is 3, expected a multiple of linear_num_key_heads = 2"});
    expect_parts(error_with(type, "linear_value_head_dim", 5),
                 {kDeltaNames + "norm.weight' is [6], expected [5]"});
  }
}

// A gate is finite where its tensors are, or the forward pass says which token's is not.
TEST_F(DeltaHybridFiles, GatesThatAreNotFinite) {
  for (const char* type : kHybrids) {
    const auto model = tiny_model({.type = type});
    const auto set = [&](const char* name, float value) {
      model->decoder.parameters().value(name).values<float>()[2] = value;
    };
    const float inf = std::numeric_limits<float>::infinity();
    for (const auto& [name, file] :
         {std::pair{"layers.0.delta.a_log", "A_log"}, {"layers.0.delta.dt_bias", "dt_bias"}})
      for (const float value : {inf, std::nanf("")}) {
        const float before = model->decoder.parameters().value(name).values<float>()[2];
        set(name, value);
        save_model(*model, folder / "broken", "");
        expect_parts(error_of([&] { load_model(folder / "broken", {}); }),
                     {fmt::format("tensor '{}{}': found {} at [2], expected finite numbers", kDeltaNames,
                                  file, std::isnan(value) ? "nan" : "inf")});
        set(name, before);
      }
    set("layers.0.delta.a_log", 100);  // exp(100) is beyond float32
    Tape tape(false);
    const auto input = layers::make_input(std::vector<int32_t>{1, 2, 3}, std::vector<int32_t>{3});
    expect_parts(error_of([&] { model->decoder.forward(tape, input); }),
                 {"[chunk_gated_delta_rule] g of token 0, head 2 is -inf, needs a finite value of at most 0; "
                  "check A_log and dt_bias of the model, or train with a lower learning rate"});
  }
}

}  // namespace
}  // namespace temper::models
