#include "layers/parameters/nf4_weight.h"

#include <algorithm>

#include "base/error.h"

namespace temper::layers {
namespace {

// The part that a rank holds of a source with `rows` rows, which begin at row `first` of the parameter.
primitives::Nf4Part nf4_part(const Placement& placement, int64_t first, int64_t rows) {
  primitives::Nf4Part part{rows, placement.own_rows(first, rows)};
  for (Slice& slice : part.here) slice.whole -= first;
  return part;
}

primitives::Nf4Matrix empty_nf4(const WeightSpec& spec, const Placement& placement, bool double_quantization,
                                Device device) {
  const Slice columns = placement.held().columns;
  if (columns.whole % 2 != 0 || columns.count % 2 != 0)
    fail("{} has {} columns, of {}: two codes of nf4 share a byte", spec.name, columns.count, spec.shape[1]);
  std::vector<primitives::Nf4Part> parts;
  int64_t first = 0;
  for (const WeightSource& source : spec.sources) {
    parts.push_back(nf4_part(placement, first, source.rows));
    first += source.rows;
  }
  return primitives::empty_nf4(parts, spec.shape[1], columns, double_quantization, device);
}

}  // namespace

Nf4Weight::Nf4Weight(const WeightSpec& spec, const Placement& placement, bool double_quantization,
                     Device device)
    : spec_(&spec),
      placement_(&placement),
      device_(device),
      matrix_(empty_nf4(spec, placement, double_quantization, device)) {
  if (!placement.is_flat()) return;
  matrix_.codes = {};
  part_ = Tensor::empty({placement.own().numel() / 2}, DType::kU8, MemoryTag::kWeights, device);
}

void Nf4Weight::set_rows(int64_t first, const Tensor& rows) {
  const int64_t end = first + rows.dim(0);
  int64_t begin = 0;  // of a source
  for (const WeightSource& source : spec_->sources) {
    const int64_t from = std::max(first, begin), until = std::min(end, begin + source.rows);
    const primitives::Nf4Part here = nf4_part(*placement_, begin, source.rows);
    if (from < until && !here.here.empty()) {
      if (from == begin) filled_ = 0;
      invariant(filled_ == from - begin, "rows of a matrix in nf4 come from the first to the last");
      if (from == begin)
        values_ = Tensor::empty({source.rows, rows.dim(1)}, rows.dtype(), MemoryTag::kWorkspace);
      values_.narrow(0, filled_, until - from).copy_from(rows.narrow(0, from - first, until - from));
      filled_ += until - from;
      if (filled_ == source.rows) {
        set(here, quant::encode_nf4(source.name, values_, matrix_.is_double()));
        values_ = {};
      }
    }
    begin += source.rows;
  }
}

void Nf4Weight::set_encoded(std::string_view name, int64_t first, const quant::Nf4& encoded) {
  const primitives::Nf4Part here = nf4_part(*placement_, first, encoded.codes.dim(0));
  if (!here.here.empty()) set(here, quant::with_magnitudes(name, encoded, matrix_.is_double()));
}

// All magnitudes stay here; of codes that come and go their part does.
void Nf4Weight::set(const primitives::Nf4Part& here, const quant::Nf4& encoded) {
  primitives::Nf4Matrix matrix = matrix_;
  const Slice columns = placement_->held().columns;
  if (placement_->is_flat())
    matrix.codes =
        Tensor::empty({matrix.starts.dim(0), columns.count / 2}, DType::kU8, MemoryTag::kWorkspace, device_);
  primitives::set_nf4(matrix, here, columns, encoded);
  if (!placement_->is_flat()) return;
  for (const Slice& slice : here.here)
    set_part(part_, placement_->first_element() / 2, slice.own,
             matrix.codes.narrow(0, slice.own, slice.count));
}

void set_part(const Tensor& part, int64_t here, int64_t row, const Tensor& rows) {
  const Tensor all = rows.contiguous(MemoryTag::kWorkspace).reshape({rows.numel()});
  const int64_t first = row * (rows.numel() / rows.dim(0));
  const int64_t begin = std::max(first, here), end = std::min(first + all.numel(), here + part.numel());
  if (begin < end)
    part.narrow(0, begin - here, end - begin).copy_from(all.narrow(0, begin - first, end - begin));
}

}  // namespace temper::layers
