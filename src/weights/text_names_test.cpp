#include "weights/text_names.h"

#include <gtest/gtest.h>

#include "weights/weight_table.h"

namespace temper {
namespace {

TEST(TextNames, EachWayIsReadAndWrittenBack) {
  const std::string norm = "model.language_model.layers.3.input_layernorm.weight", head = "lm_head.weight";
  for (const auto& [in_file, head_in_file] :
       {std::pair{"model.language_model.layers.3.input_layernorm.weight", "lm_head.weight"},
        {"language_model.model.layers.3.input_layernorm.weight", "language_model.lm_head.weight"},
        {"model.layers.3.input_layernorm.weight", "lm_head.weight"}}) {
    EXPECT_EQ(name_in_table(in_file), norm);
    EXPECT_EQ(name_in_table(head_in_file), head);
    ASSERT_TRUE(text_names_of(in_file).has_value()) << in_file;
    EXPECT_EQ(name_in_files(norm, *text_names_of(in_file)), in_file);
    EXPECT_EQ(name_in_files(head, *text_names_of(in_file)), head_in_file);
  }
}

TEST(TextNames, TowersAndOthersKeepTheirs) {
  for (const char* name :
       {"visual.blocks.0.attn.qkv.weight", "model.visual.merger.norm.bias", "vision_tower.patch_conv.weight",
        "model.vision_tower.encoder.layers.0.layer_norm1.weight", "multi_modal_projector.linear_1.weight",
        "model.multi_modal_projector.norm.weight"}) {
    EXPECT_TRUE(is_of_tower(name)) << name;
    EXPECT_EQ(name_in_table(name), name);
    EXPECT_FALSE(text_names_of(name).has_value()) << name;
  }
  for (const char* name :
       {"mtp.layers.0.input_layernorm.weight", "score.weight", "layers.0.mlp.down.weight"}) {
    EXPECT_FALSE(is_of_tower(name)) << name;
    EXPECT_EQ(name_in_table(name), name);
    EXPECT_EQ(name_in_files(name, {"language_model.model.", "language_model.lm_head."}), name);
  }
}

TEST(TextNames, ATableOfTextAloneChangesNone) {
  WeightTable table;
  EXPECT_EQ(table.own_name("language_model.model.norm.weight"), "language_model.model.norm.weight");
  EXPECT_EQ(table.name_in_files("model.language_model.norm.weight"), "model.language_model.norm.weight");
  table.set_text_names(published_text_names("gemma3"));
  EXPECT_EQ(table.own_name("model.norm.weight"), "model.language_model.norm.weight");
  EXPECT_EQ(table.name_in_files("model.language_model.norm.weight"), "language_model.model.norm.weight");
  EXPECT_FALSE(published_text_names("llama").has_value());
}

}  // namespace
}  // namespace temper
