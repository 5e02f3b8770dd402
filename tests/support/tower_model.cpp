#include "tests/support/tower_model.h"

#include <cstring>

#include "base/error.h"
#include "base/files.h"
#include "checkpoints/file_forms.h"
#include "checkpoints/files/safetensors.h"
#include "layers/glue.h"
#include "models/tower_reader.h"
#include "primitives/primitives.h"

namespace temper {
namespace {

constexpr std::string_view kScope = "visual.";

// Gemma's names begin with the tower's own, in files and in the table.
std::string scope_of(const layers::Tower& tower) {
  WeightTable table;
  layers::TowerWeights scope(table, "", "");
  tower.declare(scope);
  return table.specs()[0].name.starts_with("vision_tower.") ? "" : std::string(kScope);
}

WeightTable table_of(const layers::Tower& tower) {
  WeightTable table;
  layers::TowerWeights scope(table, scope_of(tower), scope_of(tower));
  tower.declare(scope);
  return table;
}

ops::BoundOps bind(const layers::Tower& tower, const ops::OpsConfig& config, DType dtype) {
  ops::Binder binder(config, detect_hardware("cpu"));
  layers::OpScope scope(binder, scope_of(tower), dtype);
  tower.name_ops(layers::TowerOps(scope));
  return binder.finish();
}

std::shared_ptr<const layers::Tower> describe(const std::string& folder) {
  const std::string file = join_path(folder, "config.json");
  auto tower = models::read_tower(Json::parse_file(file), file);
  invariant(tower != nullptr, "there is a tower");
  return tower;
}

}  // namespace

Tensor rows_together(const std::vector<Tensor>& parts) {
  int64_t rows = 0;
  for (const Tensor& part : parts) rows += part.dim(0);
  const Tensor whole = Tensor::empty({rows, parts.front().dim(1)}, DType::kF32);
  rows = 0;
  for (const Tensor& part : parts) {
    whole.narrow(0, rows, part.dim(0)).copy_from(part);
    rows += part.dim(0);
  }
  return whole;
}

TowerModel::TowerModel(const std::string& folder, const ops::OpsConfig& ops, DType dtype)
    : TowerModel(describe(folder), ops, dtype) {}

TowerModel::TowerModel(std::shared_ptr<const layers::Tower> description, const ops::OpsConfig& ops,
                       DType dtype)
    : description_(std::move(description)),
      store_(table_of(*description_), dtype, Device{}),
      ops_(bind(*description_, ops, dtype)),
      rope_(1, Device{}),
      tower_(description_->bind({store_, ops_, rope_, routers_, scope_of(*description_)})) {}

void TowerModel::load(const std::string& file) {
  const checkpoints::SafetensorsFile weights(file);
  for (const WeightSpec& spec : store_.table().specs()) {
    int64_t first = 0;
    for (const WeightSource& source : spec.sources) {
      const std::string name = weights.find(source.name) != nullptr ? source.name : "model." + source.name;
      const Tensor rows = weights.tensor(name);
      Shape shape = spec.shape;
      const Tensor own = checkpoints::from_file(spec, rows);
      invariant(own.dim(0) == source.rows && own.numel() / source.rows == shape.numel() / shape[0], name);
      store_.set_rows(spec.name, first, own);
      first += source.rows;
    }
  }
}

void TowerModel::backward(Tape& tape, const layers::SeenRows& seen,
                          const std::function<Tensor(const std::string& what)>& seed) const {
  for (size_t i = 0; i < seen.deepstack.size(); ++i)
    seen.deepstack[i].slot->add(seed("deepstack." + std::to_string(i)));
  tape.backward(seen.merged, seed("merged"));
}

std::map<std::string, Tensor> TowerModel::gradients() const {
  std::map<std::string, Tensor> all;
  for (size_t i = 0; i < store_.size(); ++i) {
    int64_t first = 0;
    for (const WeightSource& source : store_.spec(i).sources) {
      const std::string name =
          source.name.starts_with(kScope) ? source.name.substr(kScope.size()) : source.name;
      const GradSlot& slot = *store_[i].grad;
      all[name] = slot.filled()
                      ? checkpoints::to_file(store_.spec(i), slot.grad().narrow(0, first, source.rows))
                      : Tensor();
      first += source.rows;
    }
  }
  return all;
}

}  // namespace temper
