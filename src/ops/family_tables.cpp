// What is known about families, also of those that are not built yet.
#include "ops/family_table.h"

namespace temper::ops {
namespace {

constexpr const char* kRotary = "rotary_pos_emb";

// Three positions of a token (time, height, width): the NPU's rotary kernel takes one. On a GPU `multimodal`
// is the kernel that takes three.
FamilyTable multimodal_rotary() {
  FamilyTable table;
  table.disabled = {{kRotary, "npu", "no kernel matching this backend's signature"}};
  table.added = {{kRotary, {"multimodal", "cuda"}, std::string(hardware::kGpu)}};
  return table;
}

// Row norms and rotary whose results do not depend on the batch, which those of an NPU do not promise.
FamilyTable deepseek_v3() {
  FamilyTable table;
  for (const char* field : {"rms_norm", kRotary}) {
    table.added.push_back({field, {"triton", "triton", "triton"}, std::string(hardware::kGpu)});
    table.disabled.push_back({field, "npu", "its results may depend on the batch, this family's must not"});
  }
  return table;
}

// A video transformer: rotary over three axes of complex numbers.
FamilyTable wan() {
  FamilyTable table;
  for (const char* name : {"liger_kernel", "cuda"})
    table.disabled.push_back({kRotary, name, "it rotates halves, this family rotates pairs over three axes"});
  table.added = {{kRotary, {"triton", "triton", "triton"}, std::string(hardware::kGpu)},
                 {kRotary, {"npu", "npu"}, std::string(hardware::kNpu)}};
  return table;
}

}  // namespace

Registry<FamilyTable>& family_tables() {
  static Registry<FamilyTable> tables = [] {
    Registry<FamilyTable> known;
    known.add("qwen3_vl", {});
    for (const char* family : {"qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text", "qwen2_5_omni"})
      known.add(family, multimodal_rotary());
    known.add("deepseek_v3", deepseek_v3());
    known.add("wan", wan());
    return known;
  }();
  return tables;
}

const FamilyTable& family_table(std::string_view model_type) {
  static const FamilyTable kNothing;
  const FamilyTable* table = family_tables().find(model_type);
  return table == nullptr ? kNothing : *table;
}

const FamilyTable::Disabled* FamilyTable::find_disabled(std::string_view field, std::string_view name) const {
  for (const Disabled& entry : disabled)
    if (entry.field == field && entry.name == name) return &entry;
  return nullptr;
}

}  // namespace temper::ops
