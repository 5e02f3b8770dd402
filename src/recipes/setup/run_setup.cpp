#include "recipes/setup/run_setup.h"

#include "backends/plugin/plugin.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/parts/rooms.h"
#include "base/threads/pinning.h"
#include "base/threads/threads.h"
#include "checkpoints/hf_folder.h"
#include "checkpoints/weights_sample.h"
#include "collectives/device_group.h"
#include "models/folder_config.h"
#include "models/read_quantizers.h"
#include "ops/resolve.h"
#include "recipes/keys/recipe.h"
#include "recipes/plans/mesh.h"
#include "recipes/plans/pipeline_checks.h"
#include "recipes/plans/quantizer_report.h"
#include "recipes/plans/run_kernels.h"
#include "recipes/setup/origin.h"

namespace temper::recipes {
namespace {

Json read_model_config(const std::string& folder) {
  if (!is_directory(folder)) fail("[model.path] '{}' {}", folder, checkpoints::no_model_folder(folder));
  return models::config_of_folder(folder);
}

RunConfig prepared(RunConfig config) {
  backends::load_plugins(config.plugins);
  if (config.train.threads.number > 0) set_num_threads(static_cast<int>(config.train.threads.number));
  return config;
}

// Of several ranks each has a GPU of its machine to itself.
RunConfig with_own_gpu(RunConfig config, const collectives::Group& group) {
  if (group.is_alone() || !config.device.starts_with("cuda")) return config;
  if (config.device != "cuda")
    fail("[device] is {}, but each of {} ranks has a GPU of its own; write cuda", config.device,
         group.size());
  const auto [place, ranks] = group.on_machine();
  const auto* detector = detectors().find("cuda");
  const int gpus = detector == nullptr ? 0 : detector->count();
  if (ranks > gpus)
    fail_resources("[device] {} ranks are on this machine, which has {} GPUs; start as many ranks as GPUs",
                   ranks, gpus);
  config.device = fmt::format("cuda:{}", place);
  return config;
}

// Of the whole model, or of what this rank holds.
int64_t elements_of(const layers::ParameterStore& parameters, bool own) {
  int64_t elements = 0;
  for (size_t i = 0; i < parameters.size(); ++i)
    elements += (own ? parameters.layout()[i].own() : parameters.layout()[i].whole()).numel();
  return elements;
}

// Of the device, once the configuration's kernels are known to make sense on it.
HardwareFacts checked_facts(const RunConfig& config, const std::string& hardware) {
  if (!hardware.empty()) {
    const HardwareFacts facts = known_hardware(hardware);
    ops::check_ops_config(config.model.ops_implementation.to_ops(), facts);
    return facts;
  }
  HardwareFacts facts = detect_hardware(config.device);
  if (facts.device.type == DeviceType::kCpu && has_nvidia_gpu())
    log_info(fmt::format("device: the processor; this machine has an NVIDIA GPU, which {}",
                         is_built("device", "cuda")
                             ? "--device cuda uses"
                             : "this build cannot use" + why_left_out("device", "cuda")));
  // What drives a GPU starts threads of its own, which would inherit the core.
  const bool free = config.train.threads.pin == Pinning::kAuto && facts.device.type != DeviceType::kCpu;
  pin_threads(free ? Pinning::kOff : config.train.threads.pin);
  ops::check_ops_config(config.model.ops_implementation.to_ops(), facts);
  if (config.memory_limit_mib > 0) pool(facts.device).set_limit(config.memory_limit_mib << 20);
  return facts;
}

}  // namespace

RunSetup::RunSetup(const RunConfig& given, const std::string& hardware, collectives::Group& group)
    : config(prepared(with_own_gpu(given, group))),
      facts(checked_facts(config, hardware)),
      phases(std::make_unique<Phases>(facts.device)),
      mesh(mesh_of(config, group.size())),
      on_devices_(collectives::device_group(group, facts.device)),
      ranks(on_devices_ ? *on_devices_ : group),
      kept_errors(std::make_unique<collectives::KeptErrors>(ranks)),
      model_config(read_model_config(config.model.path)),
      architecture(models::configure(model_config, join_path(config.model.path, "config.json"),
                                     models::Purpose::kTraining)),
      text(rollout::TextFiles::load(config.model.path, architecture.vocab_size, config.data.chat_template)) {
  ranks.set_checks(config.parallel.check);
  check_mesh(mesh, architecture, config);
  groups.emplace(ranks, mesh);
  if (config.data.max_length > architecture.max_positions)
    fail("[data.max_length] is {}, but the model's max_position_embeddings is {}; set it to {} or less",
         config.data.max_length, architecture.max_positions, architecture.max_positions);
}

int64_t RunSetup::peak_memory() const {
  return facts.device.type == DeviceType::kCpu ? peak_resident_bytes() : phases->peak_held();
}

void RunSetup::load_weights(ops::Preferences preferred, bool verbose, Rounding rounding) {
  models::BuildOptions build = build_options(config, facts, preferred);
  build.ranks = model_ranks(*groups, architecture, config, facts.device);
  model = rounding == Rounding::kAsTheFolderSays ? models::load_as_quantized(config.model.path, build)
                                                 : models::load_model(config.model.path, build);
  others = std::make_unique<OtherModels>(config, facts, *groups, model_config, std::move(preferred));
  if (!config.adapters.empty()) origin.base = checkpoints::sample_of_weights(config.model.path);
  origin.meaning = origin_of(*this);
  log_info(fmt::format("model: {} with {:.1f} M parameters in {}", model_config.at("model_type").as_string(),
                       static_cast<double>(elements_of(model->decoder.parameters(), false)) / 1e6,
                       config.model.kept_in()));
  if (!ranks.is_alone()) {
    const int64_t whole = elements_of(model->decoder.parameters(), false),
                  own = elements_of(model->decoder.parameters(), true);
    log_info(fmt::format("ranks: {} ({}); this one holds {:.1f} M of {:.1f} M parameters{}", ranks.size(),
                         config.parallel.pipeline > 1
                             ? fmt::format("pipeline {}, {}", config.parallel.pipeline, to_string(mesh))
                             : to_string(mesh),
                         static_cast<double>(own) / 1e6, static_cast<double>(whole) / 1e6,
                         mesh.tensor == 1 ? ""
                         : mesh.sequence  ? "; tokens are divided between layers (sequence parallel)"
                                          : "; all tensor ranks have all tokens between layers"));
  }
  if (config.train.router.options.balanced)
    log_warning(
        "[train.router.force_balance] tokens take experts in turn, whatever the routers say: measure the "
        "speed "
        "of such a run, but do not use what it learns");
  if (const quantizers::QuantizerPlan& plan = model->decoder.quantizers().plan();
      !plan.empty() && rounding == Rounding::kOfTheRun) {
    log_info("quantizers: " + describe_rules(plan));
    if (const std::string why = why_not_exported(plan, model->decoder.parameters().table()); !why.empty())
      log_warning(fmt::format("[quantize] 'temper export' cannot write what this run trains: {}", why));
    for (const std::string& key : quantize_keys_without_effect(config.quantize, model->decoder.quantizers()))
      log_warning(key);
  }
  log_info(describe_kernels(config, model->decoder.ops(), facts, verbose));
}

}  // namespace temper::recipes
