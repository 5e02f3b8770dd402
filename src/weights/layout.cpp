#include "weights/layout.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace temper {
namespace {

constexpr std::array<std::string_view, 3> kOnTensorAxis = {"vocab", "heads*head_dim", "intermediate"};

Placement place(const WeightTable& table, const WeightSpec& spec, const Mesh& mesh, int rank) {
  if (mesh.tensor == 1) return Placement(spec.shape);
  for (size_t dim = 0; dim < spec.axes.size(); ++dim) {
    const std::string& axis = spec.axes[dim];
    if (std::find(kOnTensorAxis.begin(), kOnTensorAxis.end(), axis) == kOnTensorAxis.end()) continue;
    std::vector<int64_t> segments;
    if (dim == 0)
      for (const WeightSource& source : spec.sources) segments.push_back(source.rows);
    else
      segments.push_back(spec.shape[static_cast<int>(dim)]);
    const int64_t unit = table.unit_of(axis);
    for (size_t i = 0; i < segments.size(); ++i)
      if (segments[i] % (unit * mesh.tensor) != 0)
        fail(
            "[{}] axis {} has {} in units of {}, which {} ranks cannot divide equally; choose a number of "
            "ranks "
            "that divides {}",
            dim == 0 ? spec.sources[i].name : spec.name, axis, segments[i], unit, mesh.tensor,
            segments[i] / unit);
    return Placement(spec.shape, static_cast<int>(dim), std::move(segments), mesh.tensor, rank % mesh.tensor);
  }
  return Placement(spec.shape);
}

}  // namespace

Placement::Placement(const Shape& whole, int dim, std::vector<int64_t> segments, int parts, int part)
    : whole_(whole), own_(whole), dim_(dim), parts_(parts), part_(part), segments_(std::move(segments)) {
  own_[dim] = div_exact(whole[dim], parts);
}

Placement Placement::flat(const Shape& whole, int parts, int part) {
  Placement placement(whole);
  placement.own_ = {div_exact(whole.numel(), parts)};
  placement.parts_ = parts;
  placement.part_ = part;
  placement.flat_ = true;
  return placement;
}

std::vector<Slice> Placement::slices(int part) const {
  invariant(!flat_, "elements in a row have no slices of rows");
  if (is_whole()) return {{0, 0, whole_[0]}};
  std::vector<Slice> slices;
  int64_t whole = 0, own = 0;
  for (const int64_t segment : segments_) {
    const int64_t count = div_exact(segment, parts_);
    slices.push_back({whole + part * count, own, count});
    whole += segment;
    own += count;
  }
  return slices;
}

std::vector<Slice> Placement::own_rows(int64_t first, int64_t count) const {
  if (is_whole() || dim_ != 0) return {{first, first, count}};
  std::vector<Slice> found;
  for (const Slice& slice : slices()) {
    const int64_t begin = std::max(first, slice.whole),
                  end = std::min(first + count, slice.whole + slice.count);
    if (begin < end) found.push_back({begin, slice.own + begin - slice.whole, end - begin});
  }
  return found;
}

Tensor Placement::own_columns(const Tensor& rows) const {
  if (is_whole() || dim_ == 0) return rows;
  const std::vector<Slice> one = slices();
  return rows.narrow(dim_, one.front().whole, one.front().count);
}

Tensor Placement::elements(const Tensor& whole, int part) const {
  return whole.reshape({whole_.numel()}).narrow(0, part * own_.numel(), own_.numel());
}

void Placement::take_own(const Tensor& whole, const Tensor& own) const {
  if (flat_) return own.copy_from(own_elements(whole));
  for (const Slice& slice : slices())
    own.narrow(dim_, slice.own, slice.count).copy_from(whole.narrow(dim_, slice.whole, slice.count));
}

void Placement::put_part(const Tensor& held, int part, const Tensor& whole) const {
  if (flat_) return elements(whole, part).copy_from(held);
  for (const Slice& slice : slices(part))
    whole.narrow(dim_, slice.whole, slice.count).copy_from(held.narrow(dim_, slice.own, slice.count));
}

Layout::Layout(const WeightTable& table, const Mesh& mesh, int rank) {
  for (const WeightSpec& spec : table.specs()) placements_.push_back(place(table, spec, mesh, rank));
}

}  // namespace temper
