#pragma once
#include <string_view>
#include <vector>

#include "tensor/tensor.h"

namespace temper::ops {

// The rows of some slots together, [slots, …], for kernels that do not read slots themselves: where they lie
// if they follow one another, else a copy that store() brings back. The host waits for slots of a device.
class SlotRows {
 public:
  // Of all [rows, …] those that `slots` [slots] int32 name; undefined: all of them.
  SlotRows(const Tensor& all, const Tensor& slots);
  const Tensor& rows() const { return rows_; }
  void store() const;

 private:
  Tensor all_, rows_;
  std::vector<int32_t> copied_;  // slots; empty where rows() is a view
};

// An Error "[op] …" where slots are defined and are not [sequences] int32 on the device of `all`, each a row
// of it.
void check_slots(std::string_view op, const Tensor& slots, int64_t sequences, const Tensor& all);

}  // namespace temper::ops
