#include "layers/adapter.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/random.h"
#include "primitives/primitives.h"

namespace temper::layers {
namespace {

constexpr int kElementBits = 40;  // as of a model's own parameters

// Made on the host: adapters are small, and the same on every device.
void fill(const Tensor& value, const std::function<double(uint64_t element)>& number) {
  const Tensor host = Tensor::empty(value.shape(), DType::kF32, MemoryTag::kWorkspace);
  float* out = host.data<float>();
  for (int64_t i = 0; i < host.numel(); ++i) out[i] = static_cast<float>(number(static_cast<uint64_t>(i)));
  value.copy_from(host);
}

}  // namespace

Adapter::Adapter(const LoraPlan& plan, LoraConfig config, const ParameterStore& base)
    : config_(std::move(config)),
      plan_(plan),
      parameters_(lora_table(base.table(), plan), base.dtype(), base.device()) {
  updates_.resize(base.table().specs().size() + base.table().tied().size());
  copies_.resize(updates_.size());
  for (const LoraTarget& target : plan_.targets) {
    std::optional<Update>& update = updates_[base.bound(target.spec->name).id()];
    if (!update) update.emplace(Update{parameters_.bound(lora_a_name(*target.spec)).id(), {}});
    update->slices.push_back(
        {target.row, parameters_.bound(lora_b_name(target)).id(), static_cast<float>(target.scale)});
  }
  for (const LoraSaved& saved : plan_.saved) {
    const WeightTable::Place place = base.table().find_target(saved.source);
    copies_[base.bound(place.spec->name).id()].push_back(
        {place.row, place.rows, parameters_.bound(saved_name(saved.source)).id()});
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
    const Tensor a = parameters_[update.a].value;
    const bool embedding = target.spec->lora == LoraRole::kEmbedding;
    const double bound = 1 / std::sqrt(static_cast<double>(a.dim(1)));
    const uint64_t first = uint64_t{update.a} << kElementBits;
    fill(a, [&](uint64_t i) { return embedding ? 0 : bound * (2 * random.uniform(first + i) - 1); });
    for (const Slice& slice : update.slices) {
      const uint64_t first_b = uint64_t{slice.b} << kElementBits;
      fill(parameters_[slice.b].value,
           [&](uint64_t i) { return embedding ? random.normal(first_b + i) : 0; });
    }
  }
  for (const LoraSaved& saved : plan_.saved) {
    const WeightTable::Place place = base.table().find_target(saved.source);
    parameters_.at(saved_name(saved.source))
        .value.copy_from(base.value(place.spec->name).narrow(0, place.row, place.rows));
  }
}

int64_t Adapter::num_update_elements() const {
  int64_t count = 0;
  for (const std::optional<Update>& update : updates_) {
    if (!update) continue;
    count += parameters_[update->a].value.numel();
    for (const Slice& slice : update->slices) count += parameters_[slice.b].value.numel();
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
