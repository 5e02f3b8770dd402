// The tables of the hardware that Temper knows itself.
#include "ops/hardware_table.h"

namespace temper::ops {
namespace {

HardwareTable cpu_table() {
  HardwareTable table;
  table.label = "CPU";
  return table;
}

HardwareTable gpu_table() {
  HardwareTable table;
  table.label = "NVIDIA GPU";
  return table;
}

HardwareTable npu_table() {
  HardwareTable table;
  table.label = "Ascend NPU";
  table.own_names = {"npu", "fused_npu"};
  table.strict = true;
  table.must_be_written = {
      "attn", "moe", "cross_entropy_loss", "rms_norm", "swiglu_mlp", "rotary_pos_emb", "load_balancing_loss"};
  table.suggested = {{"attn", "flash_attention_2"},
                     {"moe", "fused_npu"},
                     {"cross_entropy_loss", "chunk_loss"},
                     {"rms_norm", "npu"},
                     {"swiglu_mlp", "eager"},
                     {"rotary_pos_emb", "npu"},
                     {"load_balancing_loss", "eager"}};
  return table;
}

}  // namespace

Registry<HardwareTable>& hardware_tables() {
  static Registry<HardwareTable> tables = [] {
    Registry<HardwareTable> known;
    known.add(hardware::kCpu, cpu_table());
    known.add(hardware::kGpu, gpu_table());
    known.add(hardware::kNpu, npu_table());
    return known;
  }();
  return tables;
}

}  // namespace temper::ops
