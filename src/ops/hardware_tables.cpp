// The tables of the hardware that Temper knows itself.
#include "ops/hardware_table.h"

namespace temper::ops {
namespace {

HardwareTable cpu_table() {
  HardwareTable table;
  table.label = "CPU";
  table.fields = {
      {"attn", {{{"onednn", "onednn"}, {"flash_attention_2", "onednn"}, {"sdpa", "onednn"}}}},
      {"decode_attention", {{{"onednn", "onednn"}}}},
      {"sample", {}},
      {"moe", {}},
      {"cross_entropy_loss", {{{"onednn", "onednn"}, {"chunk_loss", "onednn"}}}},
      {"rms_norm", {{{"simd", "simd"}}}},
      {"swiglu_mlp", {{{"simd", "simd"}}}},
      {"rotary_pos_emb", {{{"simd", "simd"}}}},
      {"load_balancing_loss", {{{"triton", "triton", "triton"}}}},
      {"rms_norm_gated", {}},
      {"causal_conv1d", {}},
      {"chunk_gated_delta_rule", {}},
      {"linear", {{{"onednn", "onednn"}}}},
      {"lora_linear", {{{"onednn", "onednn"}}}},
      {"dropout", {{{"simd", "simd"}}}},
      {"embedding", {{{"simd", "simd"}}}},
      {"adamw", {{{"simd", "simd"}}}},
      {"global_norm", {{{"simd", "simd"}}}},
  };
  return table;
}

HardwareTable gpu_table() {
  const FieldNames fused{{{"cuda", "cuda"}, {"liger_kernel", "cuda"}}};
  const FieldNames linear_attention{{{"cuda", "cuda"}, {"fla", "cuda"}}};
  const FieldNames plain{{{"cuda", "cuda"}}};
  HardwareTable table;
  table.label = "NVIDIA GPU";
  table.fields = {
      {"attn",
       {{{"hopper", "hopper", "", 90},
         {"cudnn", "cudnn"},
         {"flash_attention_2", "cudnn"},
         {"flash_attention_3", "cudnn", "", 90},
         {"sdpa", "cudnn"},
         {"cudnn_nondeterministic", "cudnn_nondeterministic"},
         {"cuda", "cuda"}}}},
      {"decode_attention", plain},
      {"sample", plain},
      {"moe",
       {{{"cuda", "cuda"},
         {"fused_triton", "cuda"},
         {"fused_quack", "cuda", "", 90},
         {"fused", "cuda", "", 0, "fused_triton or fused_quack"}}}},
      {"cross_entropy_loss",
       {{{"cublaslt", "cublaslt"}, {"chunk_loss", "cublaslt"}, {"liger_kernel", "cublaslt"}}}},
      {"rms_norm", fused},
      {"swiglu_mlp", fused},
      {"rotary_pos_emb", fused},
      {"load_balancing_loss", {{{"cuda", "cuda"}, {"triton", "triton", "triton"}}}},
      {"rms_norm_gated", linear_attention},
      {"causal_conv1d", linear_attention},
      {"chunk_gated_delta_rule", linear_attention},
      {"linear", {{{"cublaslt", "cublaslt"}}}},
      {"lora_linear", {{{"hopper", "hopper", "", 90}, {"cublaslt", "cublaslt"}}}},
      {"dropout", plain},
      {"embedding", plain},
      {"adamw", plain},
      {"global_norm", plain},
  };
  return table;
}

HardwareTable npu_table() {
  HardwareTable table;
  table.label = "Ascend NPU";
  table.own_names = {"npu", "fused_npu"};
  table.strict = true;
  table.fields = {
      {"attn", {{{"flash_attention_2", "npu"}}, true}},
      {"decode_attention", {}},
      {"sample", {}},
      {"moe", {{{"fused_npu", "npu"}}}},
      {"cross_entropy_loss", {{{"chunk_loss", "npu"}, {"npu", "npu"}}}},
      {"rms_norm", {{{"npu", "npu"}}}},
      {"swiglu_mlp", {}},
      {"rotary_pos_emb", {{{"npu", "npu"}}}},
      {"load_balancing_loss", {{{"triton", "triton", "triton"}}}},
      {"rms_norm_gated", {}},
      {"causal_conv1d", {}},
      {"chunk_gated_delta_rule", {}},
      {"linear", {}},
      {"lora_linear", {}},
      {"dropout", {}},
      {"embedding", {}},
      {"adamw", {}},
      {"global_norm", {}},
  };
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
