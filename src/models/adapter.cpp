#include "models/adapter.h"

#include <cstring>

#include "base/error.h"
#include "base/files.h"
#include "checkpoints/adapter_folder.h"
#include "checkpoints/stop_tokens.h"
#include "models/folder_config.h"

namespace temper::models {
namespace {

// PEFT writes the embedding's and the head's own weights in addition to their adapters: they must be the
// model's.
void check_unchanged(const LoraPlan& plan, const checkpoints::ModelFolder& files,
                     const layers::ParameterStore& base) {
  for (const LoraSaved& copy : plan.unchanged) {
    const WeightTable::Place place = base.table().find_target(copy.source);
    const layers::BoundWeight weight = base.bound(place.spec->name);
    if (weight.parameter().gathered_on_use)
      fail(
          "[{}] holds a copy of the model's {}, which cannot be compared with parallel.shard_level 3; use "
          "level 1 or 2",
          files.path(), copy.source);
    const Placement& placement = base.layout()[weight.id() % base.size()];
    const Tensor all = weight.value().on({}), given = files.tensor(copy.file).to(all.dtype());
    Shape expected = placement.whole();
    expected[0] = place.rows;
    if (given.shape() != expected)
      fail(
          "[{}] the adapter was trained on a model whose {} is {}, this one's is {}; name the adapter's own "
          "base model",
          files.path(), copy.source, to_string(given.shape()), to_string(expected));
    for (const Slice& slice : placement.own_rows(place.row, place.rows)) {
      const Tensor own = all.narrow(0, slice.own, slice.count).contiguous(),
                   theirs = placement.own_columns(given.narrow(0, slice.whole - place.row, slice.count))
                                .contiguous();
      if (std::memcmp(theirs.raw(), own.raw(), static_cast<size_t>(own.bytes())) != 0)
        fail("[{}] the adapter was trained on a model with another {}; name the adapter's own base model",
             files.path(), copy.source);
    }
  }
}

}  // namespace

std::unique_ptr<layers::Adapter> new_adapter(const Model& model, const LoraConfig& config, uint64_t seed,
                                             const std::string& where) {
  const layers::ParameterStore& base = model.decoder.parameters();
  auto adapter = std::make_unique<layers::Adapter>(plan_lora(base.table(), config, where), config, base);
  adapter->initialize(base, seed);
  return adapter;
}

namespace {

struct ReadAdapter {
  checkpoints::AdapterConfig written;
  checkpoints::ModelFolder files;
  LoraPlan plan;
};

// All but its numbers.
ReadAdapter read_adapter(const WeightTable& base, const std::string& folder) {
  ReadAdapter adapter{
      checkpoints::read_adapter_config(folder), checkpoints::ModelFolder::open_adapter(folder, base), {}};
  checkpoints::check_apart(adapter.written, base, folder);
  adapter.plan = plan_lora_of(base, adapter.written.lora, adapter.files.names(), folder);
  checkpoints::check_named(adapter.written, adapter.plan, folder);
  check_products(base, adapter.plan, folder);
  checkpoints::check_weights(adapter.files, lora_table(base, adapter.plan));
  return adapter;
}

}  // namespace

void check_adapter(const WeightTable& base, const std::string& folder) { read_adapter(base, folder); }

std::unique_ptr<layers::Adapter> load_adapter(const Model& model, const std::string& folder) {
  const layers::ParameterStore& base = model.decoder.parameters();
  const auto [written, files, plan] = read_adapter(base.table(), folder);
  checkpoints::check_agreement(written, plan, folder);
  check_unchanged(plan, files, base);
  auto adapter = std::make_unique<layers::Adapter>(plan, written.lora, base);
  layers::ParameterStore& parameters = adapter->parameters();
  checkpoints::load_rows(files, parameters.table(), parameters.layout(),
                         [&](const WeightSpec& spec, int64_t first, const Tensor& rows) {
                           parameters.set_rows(spec.name, first, rows);
                         });
  return adapter;
}

void save_adapter(const layers::Adapter& adapter, const std::string& folder, const std::string& base_model,
                  const std::function<Tensor(size_t)>& whole) {
  const layers::ParameterStore& parameters = adapter.parameters();
  checkpoints::save_adapter(
      folder, parameters.table(),
      [&](const WeightSpec& spec) {
        return whole ? whole(static_cast<size_t>(&spec - parameters.table().specs().data()))
                     : parameters.at(spec.name).value;
      },
      checkpoints::adapter_config_json(adapter.config(), adapter.plan(), base_model));
}

void merge_adapter(const std::string& adapter, const std::string& base, const std::string& output,
                   int64_t max_shard_bytes, checkpoints::MergedForm form) {
  const std::string where = join_path(base, "config.json");
  const Json config = config_of_folder(base);
  const layers::DecoderConfig architecture = configure(config, where);
  checkpoints::merge_adapter(adapter, base, config_in_files(config, architecture),
                             layers::decoder_weight_table(architecture), output, max_shard_bytes, form);
  checkpoints::add_stop_tokens(output, checkpoints::stop_tokens_of(adapter));
}

}  // namespace temper::models
