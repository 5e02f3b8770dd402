// `temper ops`: what is chosen, why, and for hardware that is not here.
#include "tests/cli/cli_fixture.h"

namespace temper {
namespace {

TEST_F(Cli, OpsExplainsAModelsKernels) {
  const Outcome text = run("ops " + folder() + "/model");
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_NE(text.out.find("flash_attention_2 = onednn"), std::string::npos) << text.out;
  const Outcome outcome = run("ops " + folder() + "/model --json --dtype bfloat16");
  const Json report = Json::parse(outcome.out, "report");
  EXPECT_EQ(report.at("hardware").as_string(), "cpu");
  for (const Json& choice : report.at("choices").as_array()) {
    // The plain way to sample is the CPU's own, and that of the log-probabilities of what was sampled.
    const std::string op = choice.at("op").as_string();
    const bool plain = op == "sample" || op == "token_log_probs";
    EXPECT_EQ(choice.at("kernel").as_string() == "eager", plain) << choice.dump();
    EXPECT_EQ(choice.at("why").as_string(), "default");
    // A build without kernels for GPUs has no other way to sample.
    EXPECT_TRUE(plain || !choice.at("others").as_array().empty());
  }
}

TEST_F(Cli, OpsAnswersForOtherHardware) {
  const Outcome gpu = run("ops --hardware cuda-sm90 --json");
  EXPECT_EQ(Json::parse(gpu.out, "report").at("device").as_string(), "NVIDIA H100");
  const Outcome npu = run("ops --hardware ascend-910b");
  EXPECT_EQ(npu.code, 0) << npu.err;
  EXPECT_NE(npu.out.find("on Ascend NPU every field must be written"), std::string::npos) << npu.out;
  const Outcome block = run("ops --hardware ascend-910b --suggest");
  EXPECT_NE(block.out.find("    moe_implementation: eager\n"), std::string::npos) << block.out;
  expect_refused("ops --hardware tpu", 2, "'tpu' is not known; use one of [ascend-910b, cpu-amx");
}

// What a run says of its kernels, without and with the whole table.
TEST_F(Cli, OpsOfARunSayWhatTheRunSays) {
  const std::string out = folder() + "/ops_run", options = " --output " + out;
  const Outcome asked = run("ops " + yaml() + options);
  ASSERT_EQ(asked.code, 0) << asked.err;
  const Outcome dry = run("train " + yaml() + options + " --dry-run -v"),
                quiet = run("train " + yaml() + options);
  const std::string table = asked.out.substr(asked.out.find("kernels:"));
  EXPECT_NE(dry.err.find(table), std::string::npos) << table << "\n" << dry.err;
  // One line, of ops that the run computes with.
  const size_t at = quiet.err.find("kernels: "), end = quiet.err.find('\n', at);
  ASSERT_NE(at, std::string::npos) << quiet.err;
  const std::string line = quiet.err.substr(at, end - at);
  EXPECT_NE(line.find("linear"), std::string::npos) << line;
  for (const char* unused : {"lora_linear", "dropout", "paged_attention", "sample", "token_log_probs"}) {
    EXPECT_EQ(line.find(unused), std::string::npos) << line;
    EXPECT_EQ(table.find(unused), std::string::npos) << table;
  }
  EXPECT_EQ(quiet.err.find("rms_norm_implementation"), std::string::npos) << quiet.err;
  const std::string lora = " --adapters '[{rank: 4, dropout: 0.1}]' --eval.exact_match 1";
  const Outcome more = run("ops " + yaml() + lora);
  for (const char* used : {"lora_linear_", "dropout_", "paged_attention_", "sample_"})
    EXPECT_NE(more.out.find(used), std::string::npos) << more.out;
  const Json report = Json::parse(run("ops " + yaml() + " --hardware cpu-avx512 --json").out, "report");
  EXPECT_EQ(report.at("hardware").as_string(), "cpu");
}

// Experts with adapters are computed where an adapter may target experts; "all-linear" leaves them out.
TEST_F(Cli, OpsOfAMixtureNameAdaptersOfExpertsWhereThereAreSome) {
  const std::string model = folder() + "/moe_ops";
  Json config = Json::parse_file(folder() + "/model/config.json");
  for (const auto& [key, value] :
       std::initializer_list<std::pair<const char*, Json>>{{"model_type", "qwen3_moe"},
                                                           {"num_experts", 4},
                                                           {"num_experts_per_tok", 2},
                                                           {"moe_intermediate_size", 16}})
    config.set(key, value);
  make_directories(model + "_config");
  write_file(model + "_config/config.json", config.dump());
  for (const char* file : {"tokenizer.json", "tokenizer_config.json"})
    write_file(model + "_config/" + file, read_file(folder() + "/model/" + file));
  ASSERT_EQ(run("init " + model + "_config " + model).code, 0);
  const std::string command = "ops " + yaml() + " --model.path " + model;
  const auto names = [&](const std::string& options) {
    const Outcome asked = run(command + options);
    EXPECT_EQ(asked.code, 0) << asked.err;
    EXPECT_NE(asked.out.find("moe_implementation"), std::string::npos) << asked.out;
    return asked.out.find("lora_moe_implementation") != std::string::npos;
  };
  EXPECT_FALSE(names(""));
  EXPECT_FALSE(names(" --adapters '[{rank: 4}]'"));
  EXPECT_FALSE(names(" --adapters '[{rank: 4, target_modules: [all-linear]}]'"));
  EXPECT_TRUE(names(" --adapters '[{rank: 4, target_modules: [up_proj, gate_proj, down_proj]}]'"));
  EXPECT_TRUE(names(" --adapters '[{rank: 4, target_parameters: [experts.down_proj]}]'"));
  const Outcome forced = run("train " + yaml() + " --model.path " + model + " --output " + model +
                             "_run --train.steps 1 --train.router.force_balance true");
  EXPECT_EQ(forced.code, 0) << forced.err;
  EXPECT_NE(forced.err.find("[train.router.force_balance] tokens take experts in turn"), std::string::npos)
      << forced.err;
  expect_refused("train " + yaml() + " --output " + model + "_dense --train.router.float32 true", 2,
                 "[train.router] is set, but the model has no routers; leave it out");
}

TEST_F(Cli, OpsOfARunFailAsTheRunDoes) {
  const std::string wrong = yaml() + " --model.ops_implementation.attn_implementation magic";
  const Outcome asked = run("ops " + wrong), trained = run("train " + wrong + " --output " + folder() + "/x");
  EXPECT_EQ(asked.code, 2);
  EXPECT_EQ(asked.err, trained.err);
  for (const std::string& options : std::vector<std::string>{" --device nothing", " --train.steps x",
                                                             " --model.path " + folder() + "/none"}) {
    const Outcome ops = run("ops " + yaml() + options), train = run("train " + yaml() + options);
    EXPECT_EQ(ops.code, train.code) << options;
    EXPECT_EQ(ops.err, train.err) << options;
  }
  const Outcome npu = run("ops " + yaml() + " --hardware ascend-910b");
  EXPECT_EQ(npu.code, 2);
  EXPECT_NE(npu.err.find("every field must be written"), std::string::npos) << npu.err;
  expect_refused("ops " + yaml() + " --verify", 2, "[--verify] does not ask about a run");
  expect_refused("ops " + yaml() + " --hardware cpu-avx2 --hardware cpu-amx", 2, "--hardware is given twice");
  expect_refused("ops " + folder() + "/model --bogus x", 2, "unknown flag '--bogus'");
}

TEST_F(Cli, AFieldThatTheModelDoesNotReadIsReported) {
  const std::string none = "this model does not use the op";
  const std::string out = folder() + "/unread",
                    fields = " --model.ops_implementation.rms_norm_gated_implementation eager";
  const Outcome outcome = run("train " + yaml() + fields + " --train.steps 2 --output " + out);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("written; " + none), std::string::npos) << outcome.err;
  std::map<std::string, std::string> why;
  const Json kernels = Json::parse_file(out + "/kernels.json");
  for (const Json& choice : kernels.at("choices").as_array())
    why[choice.at("field").as_string()] = choice.at("why").as_string();
  EXPECT_EQ(why.at("rms_norm_gated_implementation"), "written; " + none);
  expect_refused("train " + yaml() + " --model.ops_implementation.load_balancing_loss_implementation triton",
                 2, "needs the package 'triton', but this version has no kernel for it");
}

TEST_F(Cli, ASuggestedBlockIsAConfiguration) {
  const Outcome block = run("ops --hardware cpu-avx512 --suggest");
  const std::string text = read_file(yaml()), model = "model:\n";
  std::string keys = block.out.substr(block.out.find(model) + model.size());
  write_file(folder() + "/suggested.yaml", text.substr(0, text.find(model) + model.size()) + keys +
                                               text.substr(text.find(model) + model.size()));
  const Outcome outcome = run("train " + folder() + "/suggested.yaml --dry-run -v");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("onednn   written"), std::string::npos) << outcome.err;
}

TEST_F(Cli, AMeasuredPreferenceDoesNotChangeARunThatGoesOn) {
  const std::string out = folder() + "/preferred", cache = folder() + "/cache";
  ::setenv("XDG_CACHE_HOME", cache.c_str(), 1);
  ASSERT_EQ(run("train " + yaml() + " --train.steps 2 --output " + out).code, 0);
  const std::string before = read_file(out + "/kernels.json");
  const Outcome measured = run("ops --remember --op swiglu");
  ASSERT_EQ(measured.code, 0) << measured.err;
  EXPECT_NE(measured.out.find("swiglu "), std::string::npos) << measured.out;
  EXPECT_EQ(measured.out.find("rms_norm "), std::string::npos) << measured.out;
  // As if another kernel had been faster; measuring another op leaves that.
  const std::string file = cache + "/temper/kernels.json";
  Json devices = Json::parse_file(file);
  for (auto& [device, fields] : devices.as_object()) fields = Json::Object{{"rms_norm", "eager"}};
  write_file(file, devices.dump());
  ASSERT_EQ(run("ops --remember --op swiglu").code, 0);
  expect_refused("ops --bench --op linaer", 2,
                 "[--op] 'linaer' is no op whose kernels can be tried; there are ");
  expect_refused("ops --op linear", 2, "[--op] belongs to --verify, --bench or --remember; add one of them");
  const Outcome report = run("ops");
  EXPECT_NE(report.out.find("eager    the fastest measured on this machine"), std::string::npos)
      << report.out;
  EXPECT_EQ(run("train " + yaml() + " --train.steps 3 --output " + out).code, 0);
  const auto kernel_of = [](const std::string& json) {
    const Json kernels = Json::parse(json, "kernels");
    for (const Json& choice : kernels.at("choices").as_array())
      if (choice.at("field").as_string() == "rms_norm_implementation") return choice.at("kernel").as_string();
    return std::string();
  };
  EXPECT_EQ(kernel_of(read_file(out + "/kernels.json")), kernel_of(before));
  EXPECT_EQ(run("train " + yaml() + " --train.steps 2 --output " + out + "2").code, 0);
  EXPECT_EQ(kernel_of(read_file(out + "2/kernels.json")), "eager");
  ::unsetenv("XDG_CACHE_HOME");
}

TEST_F(Cli, ARunThatGoesOnElsewhereIsReported) {
  const std::string out = folder() + "/elsewhere", line = "results may differ in their last bits from now on";
  ASSERT_EQ(run("train " + yaml() + " --train.steps 1 --output " + out).code, 0);
  EXPECT_EQ(run("train " + yaml() + " --train.steps 2 --output " + out).err.find(line), std::string::npos);
  Json kernels = Json::parse_file(out + "/kernels.json");
  kernels.set("device", "another processor");
  Json::Array choices = kernels.at("choices").as_array();  // of an op that is gone, as well
  choices.emplace_back(
      Json::Object{{"field", "decode_attention_implementation"}, {"modules", "*"}, {"kernel", "onednn"}});
  kernels.set("choices", choices);
  write_file(out + "/kernels.json", kernels.dump());
  const Outcome moved = run("train " + yaml() + " --train.steps 3 --output " + out);
  EXPECT_EQ(moved.code, 0) << moved.err;
  EXPECT_NE(moved.err.find("the run was on \"another processor\" before and is on "), std::string::npos)
      << moved.err;
  EXPECT_NE(moved.err.find(line), std::string::npos) << moved.err;
  kernels.set("choices", Json::Array{Json(7)});
  write_file(out + "/kernels.json", kernels.dump());
  expect_refused(
      "train " + yaml() + " --train.steps 4 --output " + out, 2,
      "elsewhere/kernels.json] choices: key 'modules' is missing from an integer; the file is damaged");
}

TEST_F(Cli, OverridesAreReadAndStored) {
  const std::string out = folder() + "/overridden";
  write_file(folder() + "/overrides.yaml",
             read_file(yaml()) + "---\n");  // not a mapping: one document only
  expect_refused("train " + folder() + "/overrides.yaml", 2, "overrides.yaml");
  const std::string overrides =
      " --model.ops_implementation.overrides '{\"layers.0-0.*\": {rms_norm: eager}}' --train.steps 2";
  ASSERT_EQ(run("train " + yaml() + overrides + " --output " + out).code, 0);
  bool found = false;
  const Json kernels = Json::parse_file(out + "/kernels.json");
  for (const Json& choice : kernels.at("choices").as_array())
    found = found || (choice.at("modules").as_string() == "layers.0-0.*" &&
                      choice.at("kernel").as_string() == "eager");
  EXPECT_TRUE(found);
  // The resolved configuration holds them, and they may not change on the way.
  EXPECT_EQ(run("train " + out + "/config.yaml --train.steps 3").code, 0);
  expect_refused("train " + yaml() + " --train.steps 4 --output " + out, 2,
                 "model.ops_implementation.overrides");
  expect_refused(
      "train " + yaml() + " --model.ops_implementation.overrides '{\"layers.77.*\": {rms_norm: eager}}'", 2,
      "names no module");
}

}  // namespace
}  // namespace temper
