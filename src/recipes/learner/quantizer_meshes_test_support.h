#pragma once
#include <gtest/gtest.h>

#include <map>

#include "calibration/calibration.h"
#include "parallel/mesh_groups.h"
#include "parallel/model_parts.h"
#include "quant/groups.h"
#include "recipes/setup/quantizer_state.h"
#include "tests/support/packed_rows.h"
#include "tests/support/tiny_model.h"

// A model with quantizers that ranks divide, for tests; where these are a multiple of the mesh's, in stages.
namespace temper::recipes::quantizer_meshes_test {

using collectives::Group;
using quantizers::QuantizeOptions;

// Experts, heads and widths that eight ranks divide.
inline Json mixture() {
  Json config = tiny_config("qwen3_moe");
  for (const auto& [key, value] :
       std::initializer_list<std::pair<const char*, int64_t>>{{"num_experts", 8},
                                                              {"num_attention_heads", 8},
                                                              {"num_key_value_heads", 2},
                                                              {"moe_intermediate_size", 64},
                                                              {"head_dim", 16}})
    config.set(key, value);
  return config;
}

// Ranges with two ends, of rows, blocks and whole matrices: each end is the farthest of the ranks'.
inline QuantizeOptions asymmetric() {
  using quantizers::QuantizerKind, quantizers::Sharing;
  const QuantizerKind rows{"int8", Sharing::kRow, 0, false, "", false},
      blocks{"int4", Sharing::kBlock, 16, false, "", false},
      whole{"int8", Sharing::kTensor, 0, false, "", false};
  return {"",
          {{"layers.*.attention.qkv", rows, whole},
           {"layers.*.attention.output", whole, whole},
           {"layers.*.mlp.experts.*", blocks, whole}}};
}

struct Ranked {
  Ranked(Group& ranks, const Mesh& mesh, const QuantizeOptions& options) : groups(ranks, mesh) {
    calibration.method = options.calibration;
    calibration.percentile = 98;
    models::BuildOptions build;
    build.dtype = DType::kF32;
    build.ops = ops::all_eager();
    build.purpose = models::Purpose::kTraining;
    build.quantize = options;
    build.ranks = parallel::with_parts(groups.model(), models::configure(mixture(), "tiny"));
    model = models::build_model(mixture(), "tiny", build);
    model->decoder.parameters().initialize(3, 0.1);
  }
  void calibrate(Group& ranks, const std::vector<data::PackedRow>& rows) {
    calibration::calibrate(model->decoder, rows, calibration, groups.data(), ranks);
  }

  parallel::MeshGroups groups;
  std::unique_ptr<models::Model> model;
  calibration::CalibrationOptions calibration = {};
};

inline std::vector<data::PackedRow> rows_of(const Ranked& ranked) {
  std::vector<data::PackedRow> rows;
  const Group& data = ranked.groups.data();
  for (uint32_t row = 0; row < 4; ++row)
    if (static_cast<int>(row) * data.size() / 4 == data.rank()) rows.push_back(test_row(row, {7, 5}));
  return rows;
}

using State = std::map<std::string, std::vector<float>>;
inline State state_of(const quantizers::Quantizers& quantizers) {
  State state;
  for (const quantizers::NamedScales& each : quantizers.state()) {
    const Tensor here = each.values.contiguous();
    state[each.name] = {here.values<float>().begin(), here.values<float>().end()};
  }
  return state;
}

}  // namespace temper::recipes::quantizer_meshes_test
