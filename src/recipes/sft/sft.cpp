#include "recipes/keys/recipe.h"

namespace temper::recipes {

void register_sft() {
  registry<Recipe>().add(
      "sft", {.learns_from = "examples",
              .answers = {{"lora", "write recipe: sft, and adapters: [{rank: 16}]"},
                          {"qlora", "write recipe: sft, adapters: [{rank: 16}], and model.base_dtype: nf4"},
                          {"peft", "write recipe: sft, and adapters: [{rank: 16}]"},
                          {"full", "write recipe: sft; without adapters all weights are trained"},
                          {"pt", "write recipe: sft, and data.loss: all"},
                          {"pretrain", "write recipe: sft, and data.loss: all"}}});
}

}  // namespace temper::recipes
