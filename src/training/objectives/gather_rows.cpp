#include "training/objectives/gather_rows.h"

#include <tuple>

#include "collectives/at_root.h"
#include "collectives/fields.h"

namespace temper::training {
namespace {

template <class Row>
auto fields_of(Row& row) {
  auto& [ids, targets, document_lengths, sources, answers, sampled, experts] = row;
  return std::tuple_cat(std::tie(ids, targets, document_lengths, sources, answers),
                        data::TokenColumns::all_of(sampled), std::tie(experts));
}

}  // namespace

std::string rows_to_bytes(const std::vector<data::PackedRow>& rows) {
  std::string bytes;
  for (const data::PackedRow& row : rows) collectives::put_fields(bytes, fields_of(row));
  return bytes;
}

std::vector<data::PackedRow> rows_from_bytes(std::string_view bytes) {
  std::vector<data::PackedRow> rows;
  while (!bytes.empty()) collectives::take_fields(bytes, fields_of(rows.emplace_back()));
  return rows;
}

std::vector<data::PackedRow> rows_of_rank(const std::vector<data::PackedRow>& rows, int rank, int ranks) {
  int64_t all = 0;
  for (const data::PackedRow& row : rows) all += row.size();
  std::vector<data::PackedRow> mine;
  int64_t before = 0;
  for (const data::PackedRow& row : rows) {
    // The rank in whose share of the tokens the middle of the row lies.
    if ((2 * before + row.size()) * ranks / (2 * all) == rank) mine.push_back(row);
    before += row.size();
  }
  return mine;
}

std::vector<data::PackedRow> shared_rows(collectives::Group& ranks, const collectives::Group& parts,
                                         std::string_view name,
                                         const std::function<std::vector<data::PackedRow>()>& read) {
  if (ranks.is_alone()) return read();
  const std::string rows = collectives::made_at_root(ranks, name, [&] { return rows_to_bytes(read()); });
  return rows_of_rank(rows_from_bytes(rows), parts.rank(), parts.size());
}

std::vector<std::vector<data::PackedRow>> gather_rows(collectives::Group& ranks,
                                                      const std::vector<data::PackedRow>& rows) {
  if (ranks.is_alone()) return {rows};
  std::vector<std::vector<data::PackedRow>> all;
  for (const std::string& bytes : ranks.gather_objects("rows", rows_to_bytes(rows)))
    all.push_back(rows_from_bytes(bytes));
  return all;
}

}  // namespace temper::training
