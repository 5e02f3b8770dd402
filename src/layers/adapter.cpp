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

size_t index_of(const ParameterStore& parameters, const std::string& name) {
  const WeightSpec* spec = parameters.table().find(name);
  invariant(spec != nullptr, fmt::format("the adapter's table has no {}", name));
  return static_cast<size_t>(spec - parameters.table().specs().data());
}

}  // namespace

Adapter::Adapter(const LoraPlan& plan, LoraConfig config, const ParameterStore& base)
    : config_(std::move(config)),
      plan_(plan),
      parameters_(lora_table(base.table(), plan), base.dtype(), base.device()) {
  for (const LoraTarget& target : plan_.targets) {
    Update& update = updates_[target.spec->name];
    update.a = index_of(parameters_, lora_a_name(*target.spec));
    update.slices.push_back(
        {target.row, index_of(parameters_, lora_b_name(target)), static_cast<float>(target.scale)});
  }
  for (const LoraSaved& saved : plan_.saved) {
    const WeightTable::Place place = base.table().find_target(saved.source);
    copies_[place.spec->name].push_back(
        {place.row, place.rows, index_of(parameters_, saved_name(saved.source))});
  }
  for (auto& [name, pieces] : copies_) {
    invariant(!updates_.contains(name), fmt::format("parts of {} are adapted, others trained whole", name));
    std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.row < b.row; });
  }
}

void Adapter::initialize(const ParameterStore& base, uint64_t seed) {
  const Random random(seed, RandomPurpose::kInitialization);
  for (const LoraTarget& target : plan_.targets) {
    const Update& update = updates_.at(target.spec->name);
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
  for (const auto& [name, pieces] : copies_) {
    const Tensor own = base.value(name);
    for (const Piece& piece : pieces)
      parameters_[piece.parameter].value.copy_from(own.narrow(0, piece.row, piece.rows));
  }
}

const Adapter::Update* Adapter::update_of(std::string_view weight) const {
  const auto found = updates_.find(weight);
  return found == updates_.end() ? nullptr : &found->second;
}

int64_t Adapter::num_update_elements() const {
  int64_t count = 0;
  for (const auto& [name, update] : updates_) {
    count += parameters_[update.a].value.numel();
    for (const Slice& slice : update.slices) count += parameters_[slice.b].value.numel();
  }
  return count;
}

Var Adapter::weight(Tape& tape, const ParameterStore& base, const std::string& name) const {
  const auto found = copies_.find(name);
  if (found == copies_.end()) return base.leaf(tape, name);
  std::vector<Var> parts;
  int64_t row = 0;
  Tensor own;  // where rows of it stay: in 8 bits it is widened
  const auto take_own = [&](int64_t until) {
    if (until <= row) return;
    if (!own.defined()) own = base.value(name);
    parts.push_back(tape.constant(own.narrow(0, row, until - row)));
  };
  for (const Piece& piece : found->second) {
    take_own(piece.row);
    parts.push_back(tape.leaf(parameters_[piece.parameter]));
    row = piece.row + piece.rows;
  }
  take_own(base.at(name).value.dim(0));
  return parts.size() == 1 ? parts.front() : primitives::concat_first(tape, parts);
}

}  // namespace temper::layers
