#include "weights/layout.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace temper {
namespace {

std::vector<WeightSegment> segments_of(const WeightSpec& spec, int dim) {
  if (dim == 0 && !spec.segments.empty()) return spec.segments;
  std::vector<WeightSegment> segments;
  if (dim > 0)
    segments.push_back({spec.shape[dim]});
  else
    for (const WeightSource& source : spec.sources) segments.push_back({source.rows});
  return segments;
}

// Segments of equal sizes belong to one source where the files have them together.
std::string_view name_of(const WeightSpec& spec, int dim, size_t segment) {
  return dim == 0 && spec.segments.empty() ? spec.sources[segment].name : spec.name;
}

Placement::Segment divided(const WeightSpec& spec, int dim, size_t segment, const WeightSegment& given,
                           int ranks) {
  const WeightAxis& axis = spec.axes[static_cast<size_t>(dim)];
  const int64_t unit = given.unit > 0 ? given.unit : axis.unit, units = given.size / unit;
  if (given.size % unit == 0 && units % ranks == 0) return {given.size, 1};
  if (given.shared && given.size % unit == 0 && ranks % units == 0)
    return {given.size, static_cast<int>(ranks / units)};
  fail(
      "[parallel.tensor] '{}' has {} in units of {} on its axis {}, which {} ranks cannot divide equally; "
      "set "
      "tensor to {}",
      name_of(spec, dim, segment), given.size, unit, axis.name, ranks, divisors_text(units));
}

// A rank's place among those that share a state.
int shard_of(const Placement& held, const Mesh& mesh, int rank) {
  const int context = mesh.place(&Mesh::context, rank), shard = mesh.place(&Mesh::shard, rank);
  const int outer = held.is_by_expert() ? shard : mesh.place(&Mesh::expert, rank) + mesh.expert * shard;
  return context + mesh.context * outer;
}

// The large matrices of layers. What tensor ranks have in common stays whole, as their gradients meet first.
bool is_by_layer(const WeightSpec& spec, const Placement& held, const Mesh& mesh, int parts) {
  return mesh.shard_level >= 2 && parts > 1 && !spec.buffer && spec.layer.has_value() &&
         spec.shape.ndim() == 2 && held.can_be_flat(parts) && held.shared_by_tensor().empty();
}

Placement held_part(const WeightSpec& spec, const Mesh& mesh, int rank) {
  Placement::Cut cut;
  cut.by_expert = mesh.expert > 1 && spec.axes.front().divided_by_expert;
  if (cut.by_expert) {
    const int64_t experts = spec.experts;
    if (experts % mesh.expert != 0)
      fail("[parallel.expert] '{}' is of {} experts, which {} ranks cannot divide equally; set expert to {}",
           spec.name, experts, mesh.expert, divisors_text(experts));
  }
  for (size_t dim = 0; dim < spec.axes.size() && mesh.tensor > 1; ++dim) {
    if (spec.axes[dim].unit == 0) continue;
    cut.dim = static_cast<int>(dim);
    const std::vector<WeightSegment> segments = segments_of(spec, cut.dim);
    for (size_t i = 0; i < segments.size(); ++i)
      cut.segments.push_back(divided(spec, cut.dim, i, segments[i], mesh.tensor));
    break;
  }
  return {spec.shape, std::move(cut), mesh, rank};
}

// `slice` as far as it lies in [first, first + count) of what is held; nothing: count is 0.
Slice within(const Slice& slice, int64_t first, int64_t count) {
  const int64_t begin = std::max(first, slice.own), end = std::min(first + count, slice.own + slice.count);
  return {slice.whole + begin - slice.own, begin - first, std::max<int64_t>(end - begin, 0)};
}

}  // namespace

Placement::Placement(const Shape& whole, Cut cut, const Mesh& mesh, int rank)
    : whole_(whole),
      own_(whole),
      cut_(std::move(cut)),
      mesh_(mesh),
      tensor_place_(mesh.place(&Mesh::tensor, rank)) {
  if (is_cut_by_tensor()) part_ = tensor_place_;
  if (cut_.by_expert) part_ += (is_cut_by_tensor() ? mesh_.tensor : 1) * mesh.place(&Mesh::expert, rank);
  own_ = part_shape(part_);
}

int Placement::rank_of(int part) const {
  if (part < 0) return -1;
  const int tensor = is_cut_by_tensor() ? mesh_.tensor : 1, place = part / tensor,
            first = cut_.by_expert ? mesh_.first_rank_of_expert(place) : mesh_.tensor * place;
  return first_rank_.value_or(0) + first + part % tensor;
}

int Stages::other(size_t parameter, int stage) const {
  if (copies.empty() || copies[parameter] < 0) return -1;
  return stage == of[parameter] ? copies[parameter] : of[parameter];
}

Placement Placement::on_stage(int first_rank, bool here, bool copy) const {
  Placement placement = *this;
  placement.first_rank_ = first_rank;
  placement.is_copy_ = copy;
  if (here || copy) return placement;
  placement.part_ = -1;
  placement.own_ = is_flat() ? Shape{0} : part_shape(-1);
  return placement;
}

Shape Placement::shape_of_part() const {
  const Shape shape = part_shape(0);
  return is_flat() ? Shape{div_exact(shape.numel(), flat_parts_)} : shape;
}

bool Placement::is_cut_on(const MeshAxis& axis) const {
  return (axis.degree == &Mesh::tensor && is_cut_by_tensor()) ||
         (axis.degree == &Mesh::expert && is_by_expert());
}

Shape Placement::part_shape(int part) const {
  Shape shape = whole_;
  const Part places = held(part);
  shape[0] = 0;
  for (const Slice& slice : places.rows) shape[0] += slice.count;
  if (shape.ndim() > 1) shape[1] = places.columns.count;
  return shape;
}

Placement Placement::flat(int parts, int place) const {
  invariant(!is_flat(), "elements in a row are cut once");
  Placement placement = *this;
  placement.own_ = {div_exact(own_.numel(), parts)};
  placement.flat_parts_ = parts;
  if (is_here()) placement.part_ = part_ + cut_parts() * place;
  return placement;
}

bool Placement::can_be_flat(int parts) const {
  constexpr int64_t kRoundedTogether = 8;  // elements that share random bits (ops/adamw)
  return !is_flat() && part_shape(0).numel() % (kRoundedTogether * parts) == 0;
}

Placement Placement::unsharded() const {
  Placement placement = *this;
  placement.flat_parts_ = 1;
  if (is_here()) placement.part_ = part_ % cut_parts();
  placement.own_ = part_shape(placement.part_);
  return placement;
}

Placement::Part Placement::held(int part) const {
  if (part < 0) return {{}, {0, 0, whole_.ndim() > 1 ? whole_[1] : 1}};
  const int tensor = is_cut_by_tensor() ? mesh_.tensor : 1, place = part % tensor;
  const int experts = cut_.by_expert ? mesh_.expert : 1, expert = part / tensor % experts;
  Part found{{}, {0, 0, whole_.ndim() > 1 ? whole_[1] : 1}};
  if (is_cut_by_tensor() && cut_.dim == 1) {
    const int64_t count = div_exact(whole_[1], tensor);
    found.columns = {place * count, 0, count};
  }
  if (!is_cut_by_tensor() || cut_.dim != 0) {
    const int64_t count = div_exact(whole_[0], experts);
    found.rows = {{expert * count, 0, count}};
    return found;
  }
  const size_t each = cut_.segments.size() / static_cast<size_t>(experts),
               first = each * static_cast<size_t>(expert);
  int64_t whole = 0, own = 0;
  for (size_t i = 0; i < cut_.segments.size(); ++i) {
    const auto& [size, repeats] = cut_.segments[i];
    if (i >= first && i < first + each) {
      const int64_t count = div_exact(size * repeats, tensor);
      found.rows.push_back({whole + place / repeats * count, own, count});
      own += count;
    }
    whole += size;
  }
  return found;
}

std::vector<Slice> Placement::own_rows(int64_t first, int64_t count) const {
  std::vector<Slice> found;
  for (const Slice& slice : held().rows) {
    const int64_t begin = std::max(first, slice.whole),
                  end = std::min(first + count, slice.whole + slice.count);
    if (begin < end) found.push_back({begin, slice.own + begin - slice.whole, end - begin});
  }
  return found;
}

Tensor Placement::own_columns(const Tensor& rows) const {
  if (!is_cut_by_tensor() || cut_.dim != 1) return rows;
  const Slice columns = held().columns;
  return rows.narrow(1, columns.whole, columns.count);
}

Tensor Placement::own_elements(const Tensor& tensor) const {
  return tensor.reshape({tensor.numel()}).narrow(0, first_element(), own_.numel());
}

void Placement::take_own(const Tensor& whole, const Tensor& own) const {
  if (!is_here()) return;
  if (is_flat()) {
    if (cut_parts() == 1) return own.copy_from(own_elements(whole));
    const Tensor part =
        Tensor::empty(part_shape(part_), whole.dtype(), MemoryTag::kWorkspace, whole.device());
    unsharded().take_own(whole, part);
    return own.copy_from(own_elements(part));
  }
  for (const Slice& slice : held().rows)
    own.narrow(0, slice.own, slice.count).copy_from(own_columns(whole.narrow(0, slice.whole, slice.count)));
}

std::vector<Slice> Placement::runs(int part) const {
  const Part places = held(part);
  const int64_t wide = whole_[0] == 0 ? 0 : whole_.numel() / whole_[0];
  const int64_t of_column = whole_.ndim() > 1 && whole_[1] > 0 ? wide / whole_[1] : 1;
  const int64_t count = places.columns.count * of_column;  // of one row
  std::vector<Slice> all;
  for (const Slice& slice : places.rows) {
    if (count == wide) {
      all.push_back({slice.whole * wide, slice.own * wide, slice.count * wide});
      continue;
    }
    for (int64_t row = 0; row < slice.count; ++row)
      all.push_back(
          {(slice.whole + row) * wide + places.columns.whole * of_column, (slice.own + row) * count, count});
  }
  if (!is_flat()) return all;
  const int64_t elements = shape_of_part().numel();
  std::vector<Slice> own;
  for (const Slice& run : all)
    if (const Slice found = within(run, part / cut_parts() * elements, elements); found.count > 0)
      own.push_back(found);
  return own;
}

std::vector<Placement::Shared> Placement::shared_by_tensor() const {
  if (mesh_.tensor == 1 || !is_here()) return {};
  if (!is_cut_by_tensor()) return {{0, part_shape(part_).numel(), mesh_.tensor, tensor_place_ == 0}};
  std::vector<Shared> all;
  if (cut_.dim != 0) return all;
  const std::vector<Slice> rows = held().rows;
  const int64_t wide = whole_.numel() / whole_[0];
  // Segments of one expert are like those of another.
  for (size_t i = 0; i < rows.size(); ++i)
    if (const int repeats = cut_.segments[i].repeats; repeats > 1)
      all.push_back({rows[i].own * wide, rows[i].count * wide, repeats, tensor_place_ % repeats == 0});
  return all;
}

std::vector<Slice> owned_runs(const Placement& placement) {
  std::vector<Slice> all = placement.runs(placement.part());
  for (const Placement::Shared& shared : placement.shared_by_tensor()) {
    if (shared.is_first) continue;
    const int64_t first = shared.first - placement.first_element(), end = first + shared.count;
    std::vector<Slice> left;
    for (const Slice& run : all) {
      const int64_t last = run.own + run.count, until = std::clamp(first, run.own, last),
                    from = std::clamp(end, run.own, last);
      if (until > run.own) left.push_back({run.whole, run.own, until - run.own});
      if (last > from) left.push_back({run.whole + from - run.own, from, last - from});
    }
    all = std::move(left);
  }
  return all;
}

void put_part(const Placement& placement, const Tensor& held, int part, const Tensor& whole) {
  if (placement.is_flat()) {
    const Tensor to = whole.reshape({whole.numel()}), from = held.reshape({held.numel()});
    for (const Slice& run : placement.runs(part))
      to.narrow(0, run.whole, run.count).copy_from(from.narrow(0, run.own, run.count));
    return;
  }
  const auto [rows, columns] = placement.held(part);
  const bool all_columns = whole.shape().ndim() == 1 || columns.count == whole.dim(1);
  for (const Slice& slice : rows) {
    const Tensor to = whole.narrow(0, slice.whole, slice.count);
    (all_columns ? to : to.narrow(1, columns.whole, columns.count))
        .copy_from(held.narrow(0, slice.own, slice.count));
  }
}

// Those that share the states of other weights than experts are on the expert axis, too.
int Layout::shards_of(const Placement& held, const Mesh& mesh) {
  return mesh.shard * mesh.context * (held.is_by_expert() ? 1 : mesh.expert);
}

Layout::Layout(const WeightTable& table, const Mesh& mesh, int rank, Stages stages)
    : mesh_(mesh), stages_(std::move(stages)), rank_(rank) {
  invariant(stages_.count == 1 || stages_.of.size() == table.specs().size(), "every parameter is on a stage");
  const int ranks = mesh.size(), place = rank % ranks;
  for (const WeightSpec& spec : table.specs()) {
    const Placement held = held_part(spec, mesh, place);
    const bool by_layer = is_by_layer(spec, held, mesh, shards_of(held, mesh));
    Placement& placement = placements_.emplace_back(
        by_layer && mesh.shard_level == 3 ? held.flat(shards_of(held, mesh), shard_of(held, mesh, place))
                                          : held);
    if (stages_.count > 1) {
      const size_t parameter = placements_.size() - 1;
      const int stage = stages_.of[parameter], own = rank / ranks;
      placement = placement.on_stage(stage * ranks, stage == own,
                                     !stages_.copies.empty() && stages_.copies[parameter] == own);
    }
    by_layer_.push_back(by_layer && placement.is_here());
  }
}

}  // namespace temper
