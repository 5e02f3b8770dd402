#pragma once
#include <memory>
#include <string>
#include <vector>

#include "data/sources/reader.h"

namespace temper::data {

// Rows that share a name, a weight and a way of being read.
struct Member {
  std::string name;
  double weight = 1;
  std::shared_ptr<const Source> source;
  std::shared_ptr<const RowEncoder> encoder;
  bool all_rows = true;
  std::vector<int64_t> rows = {};  // of the source, ascending, unless all_rows

  int64_t size() const { return all_rows ? source->size() : static_cast<int64_t>(rows.size()); }
  int64_t row(int64_t index) const { return all_rows ? index : rows[static_cast<size_t>(index)]; }
};

// Several sources as one: their rows are counted through. Reading is thread-safe.
class Mixture {
 public:
  explicit Mixture(std::vector<Member> members);  // at least one; every one with a row

  Mixture with_goal(Goal goal) const;  // the same rows, read for something else

  int64_t size() const { return ends_.back(); }
  const std::vector<Member>& members() const { return members_; }
  std::vector<int64_t> sizes() const;
  std::vector<double> weights() const;
  size_t member_of(int64_t row) const;
  ReadRow read(int64_t row) const;
  ReadRow read_first_of_file(int64_t row) const;  // of the file that the row is in
  Json json(int64_t row) const;                   // as it stands in its file
  std::string place(int64_t row) const;           // "file:LINE"
  std::string path(int64_t row) const;            // of its file

  std::string describe() const;  // the sources' names

  // Rows, bytes and a hash of all sources and of what was taken out of them; not the files' names.
  Json fingerprint() const;

 private:
  std::pair<const Member*, int64_t> find(int64_t row) const;  // and the row's number in its source
  std::vector<Member> members_;
  std::vector<int64_t> ends_;
};

// Takes a fraction of every source's rows out, drawn by the seed: at least one, never all. The fraction is
// between 0 and 1. An Error when a source has fewer than two rows.
struct HeldOut {
  std::vector<Member> rest, held_out;
};
HeldOut hold_out(const std::vector<Member>& members, double fraction, uint64_t seed);

}  // namespace temper::data
