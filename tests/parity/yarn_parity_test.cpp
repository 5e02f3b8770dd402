// YaRN of latent attention at positions far apart, against transformers (tools/oracles/make_yarn_goldens.py).
#include <gtest/gtest.h>

#include "base/files.h"
#include "tests/parity/golden_case.h"
#include "tests/support/relative_error.h"

namespace temper::parity {
namespace {

TEST(YarnParity, OfLatentAttentionAtLatePositions) {
  const std::string cases = TEMPER_SOURCE_DIR "/tests/goldens/yarn";
  const std::vector<std::string> expected{"all_dim_alone", "equal", "mscale_alone", "unequal"};
  ASSERT_EQ(list_directory(cases), expected);
  for (const std::string& name : expected)
    for (const bool eager : {true, false}) {
      const std::string folder = join_path(cases, name);
      const checkpoints::SafetensorsFile golden(join_path(folder, "positions.safetensors"));
      models::BuildOptions options;
      options.dtype = DType::kF32;
      if (eager) options.ops = ops::OpsConfig{.fallback = "eager"};
      const auto model = models::load_model(folder, options);
      const std::vector<int32_t> ids = ints(golden.tensor("input_ids"));
      layers::DecoderInput input = layers::make_input(ids, std::vector{static_cast<int32_t>(ids.size())});
      input.positions = Tensor::from(ints(golden.tensor("position_ids"))).reshape({1, -1});
      Tape tape(false);
      const Tensor found = model->decoder.logits(tape, model->decoder.forward(tape, input)).value;
      EXPECT_LE(relative_error(found, golden.tensor("logits")), 2e-5) << name << (eager ? ", eager" : "");
    }
}

}  // namespace
}  // namespace temper::parity
