#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "recipes/parts/batch_source.h"

namespace temper::recipes {

// The rows of a learner's next update, and from where in its data a resumed run reads on.
class UpdateRows {
 public:
  void open(std::unique_ptr<BatchSource> source) { source_ = std::move(source); }
  BatchSource& source() const { return *source_; }  // behind open()
  const std::vector<data::PackedRow>& rows() const { return batch_.rows; }
  double epoch() const { return batch_.progress; }      // passes over the data with these rows
  double seconds_waited() const { return data_wait_; }  // for them
  void take(std::vector<data::PackedRow> rows) { batch_.rows = std::move(rows); }  // instead of reading

  // All ranks call it; `is_kept`: so that the batch may be put back. An Error, of the source or of `check`,
  // leaves the rows of before; what `check` refused is put back.
  using Check = std::function<void(const std::vector<data::PackedRow>&)>;
  void read(bool is_kept, const Check& check);
  void put_back() { refused_at_ = read_at_; }  // no update is of this batch before the next checkpoint
  Json position() const { return refused_at_ ? *refused_at_ : source_->state(); }

 private:
  std::unique_ptr<BatchSource> source_;
  data::Batch batch_;
  Json read_at_;  // the source's state before the batch that was read last, where it is kept
  std::optional<Json> refused_at_;  // the same of a batch that was put back
  double data_wait_ = 0;
};

}  // namespace temper::recipes
