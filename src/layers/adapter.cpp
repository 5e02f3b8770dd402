#include "layers/adapter.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/random.h"
#include "primitives/primitives.h"

namespace temper::layers {
namespace {

constexpr int kElementBits = 40;  // as of a model's own parameters

// Made on the host: adapters are small, and the same on every device. Numbers belong to elements of the
// whole.
void fill(const ParameterStore& parameters, size_t parameter,
          const std::function<double(uint64_t element)>& number) {
  const Placement& placement = parameters.layout()[parameter];
  const Tensor host = Tensor::empty(placement.whole(), DType::kF32, MemoryTag::kWorkspace);
  float* out = host.data<float>();
  for (int64_t i = 0; i < host.numel(); ++i) out[i] = static_cast<float>(number(static_cast<uint64_t>(i)));
  placement.take_own(host, parameters[parameter].value);
}

// Where ranks divide a model, its adapters are divided like it.
WeightTable checked_table(const ParameterStore& base, const LoraPlan& plan) {
  for (const LoraSaved& saved : plan.saved) {
    const WeightSpec& spec = *base.table().find_target(saved.source).spec;
    if (base.at(spec.name).gathered_on_use)
      fail(
          "[adapters] '{}' is trained in full as a copy of the model's, but with parallel.shard_level 3 no "
          "rank has all of it; use level 1 or 2",
          saved.source);
  }
  return lora_table(base.table(), plan);
}

// Adapters are small: their matrices are always there.
Mesh mesh_of_adapters(const ParameterStore& base) {
  Mesh mesh = base.layout().mesh();
  mesh.shard_level = 1;
  return mesh;
}

// An adapter's matrices are on the stage of the weight that they update or copy.
Stages stages_of(const ParameterStore& base, const LoraPlan& plan, const WeightTable& own) {
  Stages stages = base.layout().stages();
  if (stages.count == 1) return stages;
  std::vector<int> of(own.specs().size());
  const auto put = [&](const std::string& name, std::string_view weight) {
    const size_t parameter = base.index_of(weight);
    const bool tied = base.table().find_tied(weight) != nullptr;  // to one that is on another stage, too
    of[static_cast<size_t>(own.find(name) - own.specs().data())] =
        tied ? stages.other(parameter, stages.of[parameter]) : stages.of[parameter];
  };
  for (const LoraTarget& target : plan.targets) {
    put(lora_a_name(*target.spec), target.spec->name);
    put(lora_b_name(target), target.spec->name);
  }
  for (const LoraSaved& saved : plan.saved)
    put(saved_name(saved.source), base.table().find_target(saved.source).spec->name);
  stages.of = std::move(of);
  stages.copies.clear();
  return stages;
}

ParameterStore own_parameters(const ParameterStore& base, const LoraPlan& plan) {
  WeightTable table = checked_table(base, plan);
  Stages stages = stages_of(base, plan, table);
  return ParameterStore(std::move(table), base.dtype(), base.device(), {}, mesh_of_adapters(base),
                        base.layout().rank(), std::move(stages));
}

// The first of an expert's rows that a target updates, as the store counts an expert's rows: of its kinds
// (gate, up) ranks have equal parts.
int64_t own_row_of_expert(const ParameterStore& base, const LoraTarget& target) {
  const Placement held = base.layout()[base.bound(target.spec->name).id()].unsharded();
  return target.row * held.own()[0] * base.layout().mesh().expert / held.whole()[0];
}

// Of a weight's rows from `first` on the first that the store holds, as it counts them.
int64_t own_row(const ParameterStore& base, const WeightSpec& spec, int64_t first, int64_t rows) {
  const WeightTable::Tied* tied = base.table().find_tied(spec.name);
  const std::string& name = tied != nullptr ? tied->other : spec.name;
  const auto parameter = static_cast<size_t>(base.table().find(name) - base.table().specs().data());
  const std::vector<Slice> slices = base.layout()[parameter].own_rows(first, rows);
  return slices.empty() ? first : slices.front().own;
}

}  // namespace

Adapter::Adapter(const LoraPlan& plan, LoraConfig config, const ParameterStore& base)
    : config_(std::move(config)), plan_(plan), parameters_(own_parameters(base, plan)) {
  updates_.resize(base.table().specs().size() + base.table().tied().size());
  copies_.resize(updates_.size());
  for (const LoraTarget& target : plan_.targets) {
    std::optional<Update>& update = updates_[base.bound(target.spec->name).id()];
    if (!update) update.emplace(Update{parameters_.bound(lora_a_name(*target.spec)).id(), {}});
    update->slices.push_back({target.experts > 0 ? own_row_of_expert(base, target)
                                                 : own_row(base, *target.spec, target.row, target.rows),
                              parameters_.bound(lora_b_name(target)).id(), static_cast<float>(target.scale)});
  }
  for (const LoraSaved& saved : plan_.saved) {
    const WeightTable::Place place = base.table().find_target(saved.source);
    const size_t copy = parameters_.bound(saved_name(saved.source)).id();
    copies_[base.bound(place.spec->name).id()].push_back(
        {own_row(base, *place.spec, place.row, place.rows), parameters_[copy].value.dim(0), copy});
  }
  for (size_t i = 0; i < copies_.size(); ++i) {
    std::vector<Piece>& pieces = copies_[i];
    invariant(pieces.empty() || !updates_[i], "parts of a weight are adapted, others trained whole");
    std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.row < b.row; });
  }
}

void Adapter::initialize(const ParameterStore& base, uint64_t seed) {
  const Random random(seed, RandomPurpose::kInitialization);
  for (const LoraTarget& target : plan_.targets) {
    const Update& update = *update_of(base.bound(target.spec->name));
    const bool embedding = target.spec->lora == LoraRole::kEmbedding;
    const double bound = 1 / std::sqrt(static_cast<double>(parameters_.layout()[update.a].whole()[1]));
    const uint64_t first = uint64_t{update.a} << kElementBits;
    fill(parameters_, update.a,
         [&](uint64_t i) { return embedding ? 0 : bound * (2 * random.uniform(first + i) - 1); });
    for (const Slice& slice : update.slices) {
      const uint64_t first_b = uint64_t{slice.b} << kElementBits;
      fill(parameters_, slice.b, [&](uint64_t i) { return embedding ? random.normal(first_b + i) : 0; });
    }
  }
  for (const LoraSaved& saved : plan_.saved) {
    const WeightTable::Place place = base.table().find_target(saved.source);
    const Tensor copy = parameters_.at(saved_name(saved.source)).value;
    if (copy.numel() == 0) continue;  // on another stage
    copy.copy_from(base.value(place.spec->name)
                       .narrow(0, own_row(base, *place.spec, place.row, place.rows), copy.dim(0)));
  }
}

int64_t Adapter::num_update_elements() const {
  int64_t count = 0;
  for (const std::optional<Update>& update : updates_) {
    if (!update) continue;
    const auto add = [&](size_t parameter) { count += parameters_.layout()[parameter].whole().numel(); };
    add(update->a);
    for (const Slice& slice : update->slices) add(slice.b);
  }
  return count;
}

primitives::Matrix Adapter::weight(Tape& tape, const BoundWeight& base) const {
  if (!replaces(base)) return base.matrix(tape);
  std::vector<Var> parts;
  int64_t row = 0;
  Tensor own;  // where rows of it stay: in 8 bits it is widened
  const auto take_own = [&](int64_t until) {
    if (until <= row) return;
    if (!own.defined()) own = base.value();
    parts.push_back(tape.constant(own.narrow(0, row, until - row)));
  };
  for (const Piece& piece : copies_[base.id()]) {
    take_own(piece.row);
    parts.push_back(tape.leaf(parameters_[piece.parameter]));
    row = piece.row + piece.rows;
  }
  take_own(base.parameter().value.dim(0));
  return parts.size() == 1 ? parts.front() : primitives::concat_first(tape, parts);
}

}  // namespace temper::layers
