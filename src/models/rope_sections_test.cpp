// The sections of multimodal rotary, as configurations have them.
#include "models/config_test_support.h"

namespace temper::models {
namespace {

// Heads of 16, of which families of the gated delta rule rotate a half.
std::string rope(const std::string& keys, const char* key = "rope_parameters") {
  return fmt::format(R"({{"head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2,
                         "moe_intermediate_size": 8, "rope_theta": null, "{}": {{"rope_theta": 100.0, {}}}}})",
                     key, keys);
}

struct Sections {
  Json pairs, interleaved;
};
Sections found(const char* type, const std::string& changes) {
  const Json all = described(type, changes);
  // Of the last layer: those of the delta rule have none.
  const auto last = [&](const char* key) {
    const Json* value = all.find(key);
    if (value == nullptr) return Json();
    return value->is_array() && value->as_array().size() == 2 ? value->as_array().back() : *value;
  };
  return {last("mrope_section"), last("mrope_interleaved")};
}

TEST(RopeSections, AreReadInBlocksOrInterleavedByFamily) {
  const Json eight = Json::Array{2, 3, 3}, four = Json::Array{2, 1, 1};
  for (const char* type : {"qwen2_vl_text", "qwen2_5_vl_text"})
    for (const auto& [key, name] : {std::pair{"rope_scaling", "type"}, {"rope_parameters", "rope_type"}})
      for (const char* kind : {"mrope", "default"}) {
        const Sections sections =
            found(type, rope(fmt::format(R"("{}": "{}", "mrope_section": [2, 3, 3])", name, kind), key));
        EXPECT_EQ(sections.pairs, eight) << type << kind;
        EXPECT_EQ(sections.interleaved, Json(false)) << type << kind;
      }
  for (const char* type : {"qwen3_vl_text", "qwen3_vl_moe_text"})
    for (const char* stated : {"", R"(, "mrope_interleaved": true)"}) {
      const Sections sections =
          found(type, rope(fmt::format(R"("rope_type": "default", "mrope_section": [2, 3, 3]{})", stated)));
      EXPECT_EQ(sections.pairs, eight) << type;
      EXPECT_EQ(sections.interleaved, Json(true)) << type;
    }
  for (const char* type : {"qwen3_5_text", "qwen3_5_moe_text"}) {
    const Sections sections = found(type, rope(R"("partial_rotary_factor": 0.5, "mrope_interleaved": true,
                            "mrope_section": [2, 1, 1])"));
    EXPECT_EQ(sections.pairs, four) << type;
    EXPECT_EQ(sections.interleaved, Json(true)) << type;
  }
}

// Qwen3-VL and Qwen3.5 have them where the file does not say, for the heads that they are published with.
TEST(RopeSections, OfTheFamilyWhereTheFileHasNone) {
  EXPECT_EQ(found("qwen3_vl_text", R"({"head_dim": 128})").pairs, Json(Json::Array{24, 20, 20}));
  EXPECT_EQ(found("qwen3_5_text", R"({"head_dim": 256})").pairs, Json(Json::Array{11, 11, 10}));
  EXPECT_EQ(found("qwen3_vl_text", R"({"head_dim": 64})").pairs, Json());
  EXPECT_EQ(found("qwen2_5_vl_text", R"({"head_dim": 128})").pairs, Json());
  EXPECT_EQ(found("qwen3", R"({"head_dim": 128})").pairs, Json());
}

TEST(RopeSections, MistakesAreOneError) {
  const auto refused = [](const char* type, const std::string& keys, const std::string& expected) {
    EXPECT_EQ(refusal(type, rope(keys)), "[config.json] rope_parameters " + expected);
  };
  const std::string numbers =
      ", expected three whole numbers of 0 or more: the pairs of a head that time, height and width turn";
  for (const char* type : {"qwen2_5_vl_text", "qwen3_vl_text"}) {
    refused(
        type, R"("mrope_section": [2, 3, 4])",
        "mrope_section is [2, 3, 4], whose sum is 9, expected 8: half of what is rotated of a head of 16");
    refused(type, R"("mrope_section": [12, -2, -2])", "mrope_section is [12, -2, -2]" + numbers);
    refused(type, R"("mrope_section": [4, 4])", "mrope_section is [4, 4]" + numbers);
    refused(type, R"("mrope_section": [2.5, 2.5, 3])", "mrope_section is [2.5, 2.5, 3]" + numbers);
    refused(type, R"("mrope_section": "2,3,3")", "mrope_section is \"2,3,3\"" + numbers);
  }
  refused("qwen3_5_text", R"("partial_rotary_factor": 0.5, "mrope_section": [2, 3, 3])",
          "mrope_section is [2, 3, 3], whose sum is 8, expected 4: half of what is rotated of a head of 16");
  refused("qwen3_vl_text", R"("mrope_interleaved": false, "mrope_section": [2, 3, 3])",
          "mrope_interleaved is false, expected true: this family has its sections interleaved");
  refused("qwen2_vl_text", R"("mrope_interleaved": true, "mrope_section": [2, 3, 3])",
          "mrope_interleaved is true, expected false: this family has its sections in blocks");
}

// The tables of families are those of the published model_type, whose text is another one's.
TEST(RopeSections, AnNpuIsRefusedForFamiliesWithThreePositions) {
  Json config = with("qwen2_5_vl_text", rope(R"("type": "mrope", "mrope_section": [2, 3, 3])"));
  for (const char* type : {"qwen2_5_vl_text", "qwen2_5_vl"}) {
    config.set("model_type", type);
    BuildOptions options;
    options.facts = known_hardware("ascend-910b");
    options.ops = ops::all_eager({{"rotary_pos_emb", "npu"}});
    EXPECT_EQ(
        error_of([&] { bind_kernels(config, "config.json", options); }),
        fmt::format("[model.ops_implementation] rotary_pos_emb_implementation=npu is explicitly disabled "
                    "for {}: no kernel matching this backend's signature. Set it to one of [eager]",
                    type));
  }
}

}  // namespace
}  // namespace temper::models
