#include "tests/parity/golden_case.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/files.h"
#include "checkpoints/file_forms.h"
#include "device/cpu_features.h"
#include "layers/glue.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "tests/support/relative_error.h"

namespace temper::parity {

std::string goldens_folder() {
  const char* folder = std::getenv("TEMPER_GOLDENS");
  return folder != nullptr && *folder != 0 ? folder : TEMPER_SOURCE_DIR "/tests/goldens";
}

bool is_own_goldens() { return goldens_folder() == TEMPER_SOURCE_DIR "/tests/goldens"; }

std::vector<std::string> case_names() {
  std::vector<std::string> names;
  for (const std::string& name : list_directory(goldens_folder()))
    if (exists(join_path(join_path(goldens_folder(), name), "golden.safetensors"))) names.push_back(name);
  return names;
}

std::string model_type_of(const std::string& case_name) {
  const std::string folder = join_path(goldens_folder(), case_name);
  return Json::parse_file(join_path(folder, "config.json")).at("model_type").as_string();
}

bool is_built(const std::string& model_type) {
  const auto built = models::supported_model_types();
  return std::find(built.begin(), built.end(), model_type) != built.end();
}

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name << " with " << c.kernels << " kernels on " << c.device;
}

std::vector<Case> find_cases() {
  std::vector<Case> cases;
  for (const std::string& name : case_names())
    for (const char* device : {"cpu", "cuda"})
      for (const char* kernels : {"eager", "fast"}) cases.push_back({name, kernels, device});
  return cases;
}

std::string name_of(const testing::TestParamInfo<Case>& info) {
  std::string name = info.param.name + "_" + info.param.kernels;
  if (info.param.device != "cpu") name += "_" + info.param.device;
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return name;
}

std::vector<int32_t> ints(const Tensor& tensor) {
  const auto values = tensor.values<int64_t>();
  return {values.begin(), values.end()};
}

void GoldenCase::SetUp() {
  folder_ = join_path(goldens_folder(), GetParam().name);
  const std::string type = model_type_of(GetParam().name);
  if (!is_built(type)) {
    if (!is_own_goldens()) GTEST_SKIP() << "model_type '" << type << "' is not built yet";
    FAIL() << "model_type '" << type << "' is not built";
  }
  golden_.emplace(join_path(folder_, "golden.safetensors"));
  try {
    facts_ = detect_hardware(GetParam().device);
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
}

std::unique_ptr<models::Model> GoldenCase::load(DType dtype) const {
  models::BuildOptions options;
  options.dtype = dtype;
  options.facts = facts_;
  if (GetParam().kernels == "eager") options.ops = ops::OpsConfig{.fallback = "eager"};
  return models::load_model(folder_, options);
}

layers::DecoderInput GoldenCase::input() const {
  const Tensor ids = golden("input_ids");
  const std::vector<int32_t> lengths(static_cast<size_t>(ids.dim(0)), static_cast<int32_t>(ids.dim(1)));
  return layers::make_input(ints(ids), lengths);
}

std::vector<int32_t> GoldenCase::targets(int64_t* count) const {
  const Tensor labels = golden("labels");
  const std::vector<int32_t> given = ints(labels);
  std::vector<int32_t> shifted(given.size(), ops::CrossEntropy::kIgnore);
  const auto width = static_cast<size_t>(labels.dim(1));
  *count = 0;
  for (size_t i = 0; i + 1 < given.size(); ++i)
    if ((i + 1) % width != 0 && given[i + 1] != ops::CrossEntropy::kIgnore) {
      shifted[i] = given[i + 1];
      ++*count;
    }
  return shifted;
}

std::shared_ptr<layers::RouterTrace> GoldenCase::routes(const models::Model& model) const {
  auto routers = model.decoder.watch_routers();
  if (routers == nullptr || model.decoder.parameters().dtype() == DType::kF32) return routers;
  Tape tape(false);
  layers::Decoder::Options options;
  options.routers = routers;
  load(DType::kF32)->decoder.forward(tape, input(), options);
  return routers;
}

std::vector<Tensor> GoldenCase::activations(const models::Model& model) const {
  Tape tape(false);
  std::vector<Tensor> found;
  layers::Decoder::Options options;
  options.hidden_states = &found;
  options.routers = routes(model);
  const Var last = model.decoder.forward(tape, input(), options);
  found.push_back(model.decoder.logits(tape, last).value);
  return found;
}

double GoldenCase::run_step(models::Model& model, bool checkpoint_layers, double* balance_loss) const {
  int64_t count = 0;
  const Tensor wanted = Tensor::from(targets(&count));
  // Before the forward pass: the fused loss adds the head's gradient while it runs.
  model.decoder.parameters().reset_gradients();
  Tape tape;
  layers::Decoder::Options options;
  options.checkpoint_layers = checkpoint_layers;
  const auto factor = static_cast<float>(model.decoder.config().balance_factor);
  options.routers = routes(model);
  const Var hidden = model.decoder.forward(tape, input(), options);
  const Var loss = model.decoder.loss(tape, hidden, wanted, {1.f / static_cast<float>(count)}).loss;
  if (factor == 0) {
    tape.backward(loss);
    return loss.value.item();
  }
  const float inverse_tokens = 1 / static_cast<float>(input().ids.numel());
  const Var balance = model.decoder.balance().loss(tape, *options.routers, 0, {factor, inverse_tokens, {}});
  if (balance_loss != nullptr) *balance_loss = balance.value.item() / factor;
  tape.backward(layers::add_losses(tape, {loss, balance}));
  return loss.value.item();
}

void GoldenCase::for_each_weight(
    const models::Model& model, const std::function<Tensor(size_t index)>& of,
    const std::function<void(const std::string& name, const Tensor& found)>& check) const {
  const auto& parameters = model.decoder.parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const WeightSpec& spec = parameters.spec(i);
    if (spec.buffer) continue;
    const Tensor whole = of(i);
    // As transformers has them in memory.
    const auto in_memory = [](std::string name) {
      const std::string old = ".block_sparse_moe.";
      const size_t at = name.find(old);
      return at == std::string::npos ? name : name.replace(at, old.size(), ".mlp.");
    };
    if (!spec.stacked.empty()) {
      check(in_memory(spec.stacked), whole.defined() ? whole.reshape(spec.stacked_shape) : whole);
      continue;
    }
    int64_t row = 0;
    for (const WeightSource& source : spec.sources) {
      check(in_memory(source.name),
            whole.defined() ? checkpoints::to_file(spec, whole.narrow(0, row, source.rows)) : whole);
      row += source.rows;
    }
  }
}

// The gradient of a sink is a sum over all tokens in which most cancels, and what comes with dy is rounded:
// without FMA it is measured by the gradients of the layer's queries, which come from the same scores.
double GoldenCase::least_scale(const std::string& name, const std::string& prefix) const {
  constexpr std::string_view kSinks = ".sinks";
  if (!name.ends_with(kSinks) || facts_.hardware != hardware::kCpu || has_cpu_feature("fma")) return 0;
  const Tensor queries = golden(prefix + name.substr(0, name.size() - kSinks.size()) + ".q_proj.weight");
  double largest = 0;
  for (const float value : queries.reshape({queries.numel()}).values<float>())
    largest = std::max(largest, std::fabs(double{value}));
  return largest;
}

void GoldenCase::expect_gradients(const models::Model& model, double tolerance,
                                  const std::string& prefix) const {
  const auto& parameters = model.decoder.parameters();
  for_each_weight(
      model, [&](size_t i) { return parameters[i].grad->grad(); },
      [&](const std::string& name, const Tensor& found) {
        EXPECT_LE(relative_error(found, golden(prefix + name), least_scale(name, prefix)), tolerance) << name;
      });
}

}  // namespace temper::parity
