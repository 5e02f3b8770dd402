#include "exchange/adapters.h"

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "checkpoints/adapter_folder.h"
#include "exchange/fingerprint.h"

namespace temper::exchange {

AdapterNote note_of(const layers::Adapter& adapter, const std::string& name) {
  const WeightTable& table = adapter.parameters().table();
  AdapterNote note{name,
                   checkpoints::adapter_config_json(adapter.config(), adapter.plan(), ""),
                   {},
                   fingerprint_of(table)};
  for (const WeightSpec& spec : table.specs())
    for (const WeightSource& source : spec.sources) note.tensors.push_back(source.name);
  return note;
}

namespace {

LoraPlan plan_of(const WeightTable& base, const checkpoints::AdapterConfig& config,
                 const std::vector<std::string>& tensors, const std::string& where) {
  checkpoints::check_apart(config, base, where);
  LoraPlan plan = plan_lora_of(base, config.lora, tensors, where);
  checkpoints::check_named(config, plan, where);
  check_products(base, plan, where);
  return plan;
}

}  // namespace

NotedFolder note_of(const checkpoints::ModelFolder& folder, const WeightTable& base,
                    const std::string& name) {
  const std::string path = join_path(folder.path(), checkpoints::kAdapterConfig);
  const checkpoints::AdapterConfig config = checkpoints::read_adapter_config(folder.path());
  WeightTable table = lora_table(base, plan_of(base, config, folder.names(), folder.path()));
  checkpoints::check_weights(folder, table);
  AdapterNote note{name, Json::parse_file(path), folder.names(), fingerprint_of(table)};
  return {std::move(note), std::move(table)};
}

Json to_json(const AdapterNote& note) {
  return Json::Object{{"name", note.name},
                      {"config", note.config},
                      {"tensors", Json::Array(note.tensors.begin(), note.tensors.end())},
                      {"fingerprint", note.fingerprint}};
}

AdapterNote adapter_note(const Json& json) {
  AdapterNote note{json.at("name").as_string(), json.at("config"), {}, json.at("fingerprint").as_string()};
  for (const Json& tensor : json.at("tensors").as_array()) note.tensors.push_back(tensor.as_string());
  return note;
}

std::unique_ptr<layers::Adapter> make_adapter(const layers::ParameterStore& base, const AdapterNote& note) {
  const std::string where = fmt::format("adapter {}", note.name);
  const checkpoints::AdapterConfig config = checkpoints::parse_adapter_config(note.config, where);
  const LoraPlan plan = plan_of(base.table(), config, note.tensors, where);
  auto adapter = std::make_unique<layers::Adapter>(plan, config.lora, base);
  if (const std::string own = fingerprint_of(adapter->parameters().table()); own != note.fingerprint)
    fail(
        "[weights] adapter '{}' has other names, shapes or dtypes where it comes from (fingerprint {}, here "
        "{}); "
        "use the same program on both sides",
        note.name, note.fingerprint, own);
  return adapter;
}

bool is_alike(const layers::Adapter& a, const layers::Adapter& b) {
  const auto same = [](const LoraTarget& one, const LoraTarget& other) {
    return one.module == other.module && one.rank == other.rank && one.scale == other.scale;
  };
  const auto &first = a.plan().targets, &second = b.plan().targets;
  return fingerprint_of(a.parameters().table()) == fingerprint_of(b.parameters().table()) &&
         std::equal(first.begin(), first.end(), second.begin(), second.end(), same);
}

}  // namespace temper::exchange
