#pragma once
#include "weights/weight_table.h"

namespace temper::checkpoints {

// How files hold the parameter "x" of a test, in the words of WeightSpec.
struct ParameterForm {
  Shape shape = {};
  std::vector<WeightSource> sources = {};  // none: "m.x.weight" is all of it
  bool may_be_new = false, transposed = false;
  int64_t transposed_rows = 0, experts_in_files = 0, experts = 0;
  bool alternating = false;
  std::string stacked = {};
  Shape stacked_shape = {};
  bool transposes_stacked = false;
};

inline WeightSpec spec_of(const ParameterForm& form) {
  WeightSpec spec;
  spec.name = "x";
  spec.shape = form.shape;
  spec.axes.assign(static_cast<size_t>(form.shape.ndim()), "any");
  spec.sources = form.sources;
  if (spec.sources.empty()) spec.sources = {{"m.x.weight", form.shape[0]}};
  spec.may_be_new = form.may_be_new;
  spec.transposed = form.transposed;
  spec.alternating = form.alternating;
  spec.transposes_stacked = form.transposes_stacked;
  spec.transposed_rows = form.transposed_rows;
  spec.experts_in_files = form.experts_in_files;
  spec.experts = form.experts;
  spec.stacked = form.stacked;
  spec.stacked_shape = form.stacked_shape;
  return spec;
}

}  // namespace temper::checkpoints
