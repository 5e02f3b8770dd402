// What may be written for each field on each class of hardware, without any model.
#include "ops/resolve.h"

#include <algorithm>

#include "tests/support/op_testing.h"

namespace temper::ops {
namespace {

using op_testing::expect_error;

const char* const kMinimalNpu[][2] = {{"attn_implementation", "flash_attention_2"},
                                      {"moe_implementation", "fused_npu"},
                                      {"cross_entropy_loss_implementation", "chunk_loss"},
                                      {"rms_norm_implementation", "npu"},
                                      {"rotary_pos_emb_implementation", "npu"},
                                      {"swiglu_mlp_implementation", "eager"},
                                      {"load_balancing_loss_implementation", "eager"}};

OpsConfig minimal_npu() {
  OpsConfig config;
  for (const auto& [field, name] : kMinimalNpu) config.written[field_of(field)] = name;
  return config;
}

void check(const char* hardware, const std::string& field, const std::string& name,
           std::vector<std::string> packages = {}) {
  HardwareFacts facts = known_hardware(hardware);
  facts.packages = std::move(packages);
  OpsConfig config = facts.hardware == hardware::kNpu ? minimal_npu() : OpsConfig{};
  config.written[field] = name;
  check_ops_config(config, facts);
}

void expect_refused(const char* hardware, const std::string& field, const std::string& name,
                    const std::string& why, std::vector<std::string> packages = {}) {
  expect_error([&] { check(hardware, field, name, packages); },
               fmt::format("[model.ops_implementation] {}_implementation={} {}", field, name, why));
}

// Whether this build has kernels for GPUs.
bool has_gpu_rooms() {
  const std::vector<KernelInfo> known = op_infos().find("rms_norm")->kernels();
  return std::any_of(known.begin(), known.end(),
                     [](const auto& kernel) { return kernel.provider == "cuda"; });
}

// These names, of which a build without the rooms for GPUs has one.
std::string on_gpus(const char* names) { return has_gpu_rooms() ? names : "[eager]"; }
std::string norms_on_gpus() { return on_gpus("[cuda, eager, liger_kernel]"); }

TEST(Resolve, EagerIsAcceptedForEveryFieldOnEveryDevice) {
  for (const std::string& hardware : known_hardware_names())
    for (const std::string& field : all_fields())
      EXPECT_NO_THROW(check(hardware.c_str(), field, "eager")) << field;
}

TEST(Resolve, TheMinimalNpuBlockPasses) {
  EXPECT_NO_THROW(check_ops_config(minimal_npu(), known_hardware("ascend-910b")));
}

TEST(Resolve, OnAnNpuMissingFieldsAreNamedAtOnceWithABlockToPaste) {
  OpsConfig config = minimal_npu();
  config.written.erase("moe");
  config.written.erase("rms_norm");
  // Every field that must be there; no name without a kernel.
  const std::string block =
      "model:\n  ops_implementation:\n    attn_implementation: eager\n"
      "    cross_entropy_loss_implementation: eager\n    load_balancing_loss_implementation: eager\n"
      "    moe_implementation: eager\n"
      "    rms_norm_implementation: eager\n    rotary_pos_emb_implementation: eager\n"
      "    swiglu_mlp_implementation: eager\n";
  expect_error([&] { check_ops_config(config, known_hardware("ascend-910b")); },
               "[model.ops_implementation] on Ascend NPU every field must be written; missing are "
               "[moe_implementation, rms_norm_implementation]. For example:\n" +
                   block);
  // Both spellings of a field count.
  OpsConfig spelled;
  for (const auto& [field, name] : kMinimalNpu) spelled.written[field] = name;
  EXPECT_NO_THROW(check_ops_config(spelled, known_hardware("ascend-910b")));
  // Elsewhere every field has a default.
  EXPECT_NO_THROW(check_ops_config({}, known_hardware("cuda-sm90")));
  EXPECT_NO_THROW(check_ops_config({}, known_hardware("cpu-avx2")));
}

TEST(Resolve, NoNameIsOfferedWithoutAKernel) {
  const auto kernels_of = [](const std::string& field) {
    for (const auto& [name, op] : op_infos().entries())
      if (op.field == field) return op.kernels();
    return std::vector<KernelInfo>();
  };
  for (const std::string& hardware : known_hardware_names()) {
    HardwareFacts facts = known_hardware(hardware);
    facts.packages = {"triton"};
    const auto& must = hardware_table(facts.hardware).must_be_written;
    const std::string block = suggested_block(facts);
    for (const std::string& field : all_fields()) {
      for (const std::string& name : possible_names({field, facts})) {
        const std::string provider = resolve_name({field, facts}, name).provider;
        const std::vector<KernelInfo> kernels = kernels_of(field);
        EXPECT_TRUE(name == kEager || std::any_of(kernels.begin(), kernels.end(),
                                                  [&](const KernelInfo& kernel) {
                                                    return kernel.provider == provider &&
                                                           kernel.hardware == facts.hardware;
                                                  }))
            << hardware << " " << field << "=" << name;
      }
      const bool must_be_written = std::find(must.begin(), must.end(), field) != must.end();
      const size_t at = block.find("    " + field + "_implementation: ");
      EXPECT_TRUE(has_op(field) || (at != std::string::npos) == must_be_written) << hardware << " " << field;
    }
  }
  for (const char* field : {"causal_conv1d", "chunk_gated_delta_rule", "rms_norm_gated"})
    EXPECT_TRUE(has_op(field)) << field;
}

// A block to paste for a family does not have what its table disables.
TEST(Resolve, ASuggestedBlockIsThatOfTheFamily) {
  const auto resolve = [](const char* hardware, const char* family, const char* field, const char* name) {
    const HardwareFacts facts = known_hardware(hardware);
    return resolve_name({field, facts, family}, name);
  };
  for (const char* field : {"rms_norm", "rotary_pos_emb"}) {
    EXPECT_EQ(resolve("ascend-910b", "qwen3", field, "npu").provider, "npu");
    expect_error(
        [&] { resolve("ascend-910b", "deepseek_v3", field, "npu"); },
        fmt::format("[model.ops_implementation] {}_implementation=npu is explicitly disabled for "
                    "deepseek_v3: its results may depend on the batch, this family's must not. Set it to "
                    "one of [eager]",
                    field));
  }
  const HardwareFacts gpu = known_hardware("cuda-sm90");
  const std::string line = "    rotary_pos_emb_implementation: ";
  EXPECT_NE(suggested_block(gpu).find(line + (has_gpu_rooms() ? "cuda\n" : "eager\n")), std::string::npos)
      << suggested_block(gpu);
  EXPECT_EQ(suggested_block(gpu, "qwen3"), suggested_block(gpu));
  EXPECT_NE(suggested_block(gpu, "wan").find(line + "eager\n"), std::string::npos)
      << suggested_block(gpu, "wan");
}

TEST(Resolve, OnAnNpuNamesOutsideTheTableAreRefused) {
  const std::string not_here = "is not supported on Ascend NPU. Set it to one of ";
  expect_refused("ascend-910b", "rms_norm", "liger_kernel", not_here + "[eager]");
  expect_refused("ascend-910b", "rotary_pos_emb", "triton", not_here + "[eager]");
  expect_refused("ascend-910b", "swiglu_mlp", "npu", not_here + "[eager]");
  expect_refused("ascend-910b", "cross_entropy_loss", "liger_kernel", not_here + "[eager]");
  expect_refused("ascend-910b", "moe", "fused_triton", not_here + "[eager]");
  expect_refused("ascend-910b", "load_balancing_loss", "npu", not_here + "[eager]");
  expect_refused("ascend-910b", "load_balancing_loss", "npu", not_here + "[eager]", {"triton"});
  EXPECT_NO_THROW(check("ascend-910b", "load_balancing_loss", "triton", {"triton"}));
}

TEST(Resolve, NpuNamesNeedAnNpu) {
  const std::string why = "requires Ascend NPU but none is available. Set it to one of ";
  expect_refused("cuda-sm90", "rms_norm", "npu", why + norms_on_gpus());
  expect_refused("cpu-avx512", "rotary_pos_emb", "npu", why + "[eager, simd]");
  expect_refused("cpu-avx512", "moe", "fused_npu", why + "[eager, onednn]");
  expect_refused("cpu-avx512", "swiglu_mlp", "npu", why + "[eager, simd]");
  expect_refused("cpu-avx512", "attn", "npu", why + "[eager, flash_attention_2, onednn, sdpa]");
  expect_refused("cuda-sm90", "rms_norm", "simd",
                 "runs on CPU only, this is NVIDIA GPU. Set it to one of " + norms_on_gpus());
  expect_refused("cuda-sm80", "moe", "fused_npu", why + on_gpus("[cuda, eager, fused_triton]"));
}

TEST(Resolve, TritonMeansWhatItsFieldSays) {
  for (const auto& [hardware, possible] :
       {std::pair<const char*, std::string>("cpu-avx2", "[eager]"),
        std::pair<const char*, std::string>("cuda-sm90", on_gpus("[cuda, eager]")),
        std::pair<const char*, std::string>("ascend-910b", "[eager]")}) {
    try {
      check(hardware, "load_balancing_loss", "triton");
      ADD_FAILURE() << hardware;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what())
                    .find(std::string(
                              "needs the package 'triton', but this version has no kernel for it. Set it to "
                              "one of ") +
                          possible),
                std::string::npos)
          << error.what();
    }
  }
  EXPECT_NO_THROW(check("cuda-sm90", "load_balancing_loss", "triton", {"triton"}));
}

TEST(Resolve, TheMoeGatesKeepTheirHardware) {
  const std::string gpu = "requires NVIDIA GPU but none is available. Set it to one of [eager, onednn]";
  for (const char* name : {"fused_triton", "fused_quack", "fused"})
    expect_refused("cpu-avx2", "moe", name, gpu);
  EXPECT_NO_THROW(check("cuda-sm90", "moe", "fused_quack"));
  expect_refused("cuda-sm80", "moe", "fused_quack",
                 "needs compute capability 9.0, NVIDIA A100 has 8.0. Set it to one of " +
                     on_gpus("[cuda, eager, fused_triton]"));
  testing::internal::CaptureStderr();
  check("cuda-sm90", "moe", "fused");
  EXPECT_NE(testing::internal::GetCapturedStderr().find(
                "moe_implementation=fused is deprecated; write fused_triton"),
            std::string::npos);
}

TEST(Resolve, AliasesBecomeKernelsOfTheHardware) {
  const auto provider = [](const char* hardware, const char* field, const char* name) {
    const HardwareFacts facts = known_hardware(hardware);
    return resolve_name({field, facts}, name).provider;
  };
  EXPECT_EQ(provider("cpu-avx2", "attn", "flash_attention_2"), "onednn");
  EXPECT_EQ(provider("cuda-sm90", "attn", "flash_attention_2"), "cudnn");
  EXPECT_EQ(provider("cuda-sm90", "attn", "flash_attention_3"), "cudnn");
  EXPECT_EQ(provider("cuda-sm90", "rms_norm", "liger_kernel"), "cuda");
  EXPECT_EQ(provider("cpu-avx2", "cross_entropy_loss", "chunk_loss"), "onednn");
  EXPECT_THROW(provider("cuda-sm80", "attn", "flash_attention_3"), Error);
}

// What a family adds without a kernel of its own is another name of a registered one, where there is one.
TEST(Resolve, AFamilysNameMayMeanARegisteredKernel) {
  family_tables().add("renaming_family", {.added = {{"rotary_pos_emb", {"probed", "simd"}, "cpu"},
                                                    {"rotary_pos_emb", {"absent", "nowhere"}, "cpu"}}});
  const HardwareFacts facts = known_hardware("cpu-avx2");
  const NameQuery query{"rotary_pos_emb", facts, "renaming_family"};
  const ResolvedName probed = resolve_name(query, "probed"), absent = resolve_name(query, "absent");
  EXPECT_EQ(probed.provider, "simd");
  EXPECT_EQ(probed.added, nullptr);
  EXPECT_NE(absent.added, nullptr);
  EXPECT_EQ(possible_names(query), (std::vector<std::string>{"eager", "probed", "simd"}));
  EXPECT_THROW(resolve_name({"rotary_pos_emb", facts, "llama"}, "probed"), Error);
}

TEST(Resolve, FamiliesThatAreNotBuiltYetHaveTheirTables) {
  const auto resolve = [](const char* hardware, const char* family, const char* field, const char* name,
                          std::vector<std::string> packages = {}) {
    HardwareFacts facts = known_hardware(hardware);
    facts.packages = std::move(packages);
    return resolve_name({field, facts, family}, name);
  };
  for (const char* family : {"qwen2_vl", "qwen2_5_vl", "qwen2_5_omni"}) {
    expect_error(
        [&] { resolve("ascend-910b", family, "rotary_pos_emb", "npu"); },
        fmt::format("[model.ops_implementation] rotary_pos_emb_implementation=npu is explicitly disabled "
                    "for {}: no kernel matching this backend's signature. Set it to one of [eager]",
                    family));
    EXPECT_EQ(resolve("cuda-sm90", family, "rotary_pos_emb", "multimodal").provider, "cuda");
  }
  EXPECT_EQ(resolve("ascend-910b", "qwen3_vl", "rotary_pos_emb", "npu").provider, "npu");
  EXPECT_NE(resolve("cuda-sm90", "deepseek_v3", "rms_norm", "triton", {"triton"}).added, nullptr);
  expect_error(
      [&] { resolve("cuda-sm90", "llama", "rms_norm", "triton", {"triton"}); },
      "[model.ops_implementation] rms_norm_implementation=triton is not a registered backend for llama. "
      "Set it to one of " +
          norms_on_gpus());
  expect_error(
      [&] { resolve("cuda-sm90", "wan", "rotary_pos_emb", "liger_kernel", {"triton"}); },
      "[model.ops_implementation] rotary_pos_emb_implementation=liger_kernel is explicitly disabled for "
      "wan: it rotates halves, this family rotates pairs over three axes. Set it to one of [eager]");
  EXPECT_NE(resolve("ascend-910b", "wan", "rotary_pos_emb", "npu").added, nullptr);
}

TEST(Resolve, EveryRegisteredOpHasAnEntryInEveryTable) {
  EXPECT_NO_THROW(check_hardware_tables(hardware_tables(), op_infos()));
  Registry<OpInfo> ops = op_infos();
  ops.add("injected", {"injected", "injected_op", nullptr});
  expect_error([&] { check_hardware_tables(hardware_tables(), ops); },
               "allow-list missing entries for registered ops: [cpu: injected_op, gpu: injected_op, npu: "
               "injected_op]");
}

TEST(Resolve, AllEagerRunsEverywhere) {
  const OpsConfig config = all_eager({{"rms_norm", "simd"}});
  EXPECT_EQ(config.fallback, "eager");
  EXPECT_EQ(config.written.at("rms_norm"), "simd");
  for (const std::string& hardware : known_hardware_names())
    EXPECT_NO_THROW(check_ops_config(all_eager(), known_hardware(hardware)));
}

}  // namespace
}  // namespace temper::ops
