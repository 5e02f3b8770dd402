#include "recipes/plans/mesh.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/numbers.h"
#include "base/text.h"
#include "layers/context_division.h"
#include "recipes/plans/mesh_proposals.h"
#include "recipes/plans/pipeline_checks.h"
#include "recipes/plans/quantizer_checks.h"

namespace temper::recipes {
namespace {

constexpr int kAuto = 0;

int degree(std::string_view key, const std::string& text) {
  if (text == "auto") return kAuto;
  const auto value = parse_integer_of<int>(text);
  if (value.value_or(0) < 1)
    fail("[parallel.{}] is '{}'; expected a number of ranks, at least 1, or auto", key, text);
  return *value;
}

int ranks_of_stage(const ParallelConfig& config, int ranks) {
  check_schedule_keys(config);
  if (ranks % config.pipeline != 0)
    fail("[parallel.pipeline] is {}, but the number of ranks is {}, which it does not divide; set it to {}",
         config.pipeline, ranks, divisors_text(ranks));
  return static_cast<int>(ranks / config.pipeline);
}

// As the configuration names them; 0: it does not.
int context_heads_of(const ParallelConfig& config, int context) {
  if (!config.context_heads) return 0;
  const int64_t heads = *config.context_heads;
  if (context == 1)
    fail(
        "[parallel.context_heads] is about ranks that divide the tokens of rows, and parallel.context is 1; "
        "leave it out");
  if (config.context_method == ContextMethod::kHeads || config.context_method == ContextMethod::kKeys)
    fail(
        "[parallel.context_heads] is {}, but parallel.context_method is {}, which says it already; leave "
        "one of them out",
        heads, name_of(config.context_method));
  if (context % heads != 0)
    fail("[parallel.context_heads] is {}, but parallel.context is {}, which it does not divide; set it to {}",
         heads, context, divisors_text(context));
  return static_cast<int>(heads);
}

// "a, b and c": of all axes but the first.
std::string other_axes() {
  std::string text;
  for (size_t i = 1; i < kMeshAxes.size(); ++i)
    text += fmt::format("{}{}", i == 1 ? "" : i + 1 < kMeshAxes.size() ? ", " : " and ", kMeshAxes[i].name);
  return text;
}

Mesh with_degrees(const ParallelConfig& config, int ranks) {
  std::array<int, kMeshAxes.size()> degrees{};
  int known = 1, autos = 0;
  for (size_t i = 0; i < degrees.size(); ++i) {
    degrees[i] = degree(kMeshAxes[i].name, config.degrees[i]);
    known *= std::max(degrees[i], 1);
    autos += degrees[i] == kAuto ? 1 : 0;
  }
  // What is left goes to another axis where that wants it; two that both want it are a contradiction.
  if (degrees.front() == kAuto && autos > 1) {
    degrees.front() = 1;
    --autos;
  }
  if (autos > 1) fail("[parallel] several of {} are auto; write numbers for all but one", other_axes());
  const int left = ranks % known == 0 ? ranks / known : 1;
  Mesh mesh;
  for (size_t i = 0; i < degrees.size(); ++i)
    mesh.*kMeshAxes[i].degree = degrees[i] == kAuto ? left : degrees[i];
  return mesh;
}

// With what the degrees that are known make together.
[[noreturn]] void refuse_degrees(const RunConfig& run, int ranks) {
  const std::string of_stage =
      run.parallel.pipeline > 1 ? fmt::format(" in each of {} stages", run.parallel.pipeline) : "";
  std::vector<std::string> said;
  int known = 1;
  for (size_t i = 0; i < kMeshAxes.size(); ++i) {
    const std::string& given = run.parallel.degrees[i];
    known *= std::max(degree(kMeshAxes[i].name, given), 1);
    if (kMeshAxes[i].has_own_rows || given != "1")
      said.push_back(fmt::format("{} {}", kMeshAxes[i].name, given));
  }
  const std::string possible = proposed_meshes(run, ranks * static_cast<int>(run.parallel.pipeline));
  fail("[parallel] {} make {} ranks, but there {}{}; {}", join(said, " and "), known,
       ranks == 1 ? "is 1" : fmt::format("are {}", ranks), of_stage,
       possible.empty() ? "no mesh of this number of ranks fits the model and the memory"
                        : "possible are " + possible);
}

[[noreturn]] void refuse_stages(const std::string& reason, const Mesh& mesh,
                                const layers::DecoderConfig& model, const RunConfig& config) {
  const int ranks = mesh.size() * static_cast<int>(config.parallel.pipeline);
  const std::string possible = proposed_meshes(config, ranks, &model);
  fail("{}; {}", reason,
       possible.empty() ? "no division between this number of ranks fits the model and the memory"
                        : "possible are " + possible);
}

// An Error where weights cannot be divided so.
void check_divided(const layers::DecoderConfig& model, const Mesh& mesh, const RunConfig& config) {
  Layout(layers::decoder_weight_table(model), mesh);  // says what cannot be divided
  if (!config.train.master_weights && config.model.dtype != DType::kF32)
    fail(
        "[train.master_weights] is false, which needs parallel.tensor 1 and parallel.expert 1: leave it "
        "out, or set them to 1");
}

// Of a model that all ranks have without stages.
RunConfig without_stages(RunConfig config) {
  config.parallel.pipeline = config.parallel.pipeline_chunks = 1;
  config.parallel.pipeline_schedule = PipelineSchedule::kAuto;
  return config;
}

}  // namespace

Mesh mesh_of(const RunConfig& run, int all_ranks) {
  const ParallelConfig& config = run.parallel;
  const int ranks = ranks_of_stage(config, all_ranks);
  Mesh mesh = with_degrees(config, ranks);
  if (mesh.size() != ranks) refuse_degrees(run, ranks);
  if (config.sequence.has_value() && mesh.tensor == 1)
    fail(
        "[parallel.sequence] is {}, but it is about tokens between ranks that divide layers, and "
        "parallel.tensor "
        "is 1; leave it out",
        *config.sequence);
  if (config.shard_level > 3) fail("[parallel.shard_level] is {}; expected 1, 2 or 3", config.shard_level);
  if (config.shard_level > 1 && mesh.shard * mesh.context * mesh.expert == 1)
    fail(
        "[parallel.shard_level] is {}, but no ranks share weights or states: set parallel.shard above 1, or "
        "leave "
        "it out",
        config.shard_level);
  if (config.context_method != ContextMethod::kAuto && mesh.context == 1)
    fail(
        "[parallel.context_method] is about tokens of rows that ranks divide, and parallel.context is 1; "
        "leave "
        "it out");
  mesh.context_method = config.context_method;
  mesh.context_heads = context_heads_of(config, mesh.context);
  mesh.sequence = config.sequence.value_or(true);
  mesh.shard_level = static_cast<int>(config.shard_level);
  return mesh;
}

void check_mesh(const Mesh& mesh, const layers::DecoderConfig& model, const RunConfig& config) {
  const bool mixture = std::any_of(model.blocks.begin(), model.blocks.end(), [](const layers::Block& block) {
    return block.channel->routing() != nullptr;
  });
  if (mesh.expert > 1 && !mixture)
    fail("[parallel.expert] is {}, but the model has no experts; leave it out", mesh.expert);
  if (mixture && mesh.tensor > 1 && !mesh.sequence)
    fail(
        "[parallel.sequence] is false, but the routers of a mixture on several tensor ranks need it; leave "
        "it out");
  if (const std::string reason = too_few_layers(model, config.parallel); !reason.empty())
    refuse_stages(reason, mesh, model, config);
  check_pipeline(config);
  check_quantized(mesh, model, config);
  if (mesh.tensor * mesh.expert > 1) check_divided(model, mesh, config);
  if (mesh.context > 1) layers::context_heads_of(model, mesh);  // says what cannot be divided
}

Mesh answering_mesh(const Mesh& stage, const layers::DecoderConfig& model, const RunConfig& config) {
  const auto stages = static_cast<int>(config.parallel.pipeline);
  const auto with_tensor = [&](int tensor) {
    return Mesh{.replicate = stage.size() * stages / (tensor * stage.expert),
                .tensor = tensor,
                .expert = stage.expert};
  };
  try {
    check_mesh(with_tensor(stage.tensor * stages), model, without_stages(config));
    return with_tensor(stage.tensor * stages);
  } catch (const Error&) {
    return with_tensor(stage.tensor);  // as training divides the layers
  }
}

std::optional<Mesh> rollout_mesh(const std::optional<RolloutDegrees>& degrees, const Mesh& training,
                                 const layers::DecoderConfig& model, const RunConfig& config) {
  constexpr const char* kKey = "grpo.engine.parallel";
  const auto stages = static_cast<int>(config.parallel.pipeline);
  if (!degrees) return stages == 1 ? std::nullopt : std::optional(answering_mesh(training, model, config));
  const int together = degrees->tensor * degrees->expert, ranks = training.size() * stages;
  if (ranks % together != 0)
    fail(
        "[{}] tensor {} and expert {} are {} ranks, which {} cannot be divided into; set degrees whose "
        "product divides the number of ranks",
        kKey, degrees->tensor, degrees->expert, together, ranks);
  const Mesh mesh{.replicate = ranks / together, .tensor = degrees->tensor, .expert = degrees->expert};
  const bool whole =
      stages == 1 && (training.shard * training.context * training.expert == 1 || training.shard_level < 3);
  if (whole && mesh.tensor == training.tensor && mesh.expert == training.expert)
    fail(
        "[{}] is tensor {} and expert {}, which is how training divides the model: rollouts use its weights "
        "without a copy; leave it out",
        kKey, degrees->tensor, degrees->expert);
  try {
    check_mesh(mesh, model, without_stages(config));
  } catch (const Error& error) {
    fail("[{}] {}", kKey, error.what());
  }
  return mesh;
}

}  // namespace temper::recipes
