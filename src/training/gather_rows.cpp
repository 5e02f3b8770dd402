#include "training/gather_rows.h"

#include <bit>
#include <cstring>

#include "collectives/at_root.h"

namespace temper::training {
namespace {

using Words = std::vector<int64_t>;

// Lists of numbers, each behind its length.
template <class T>
void put(Words& words, const std::vector<T>& values) {
  words.push_back(std::ssize(values));
  words.insert(words.end(), values.begin(), values.end());
}

void put(Words& words, const data::PackedRow& row) {
  put(words, row.ids);
  put(words, row.targets);
  put(words, row.document_lengths);
  put(words, row.sources);
  words.push_back(std::ssize(row.answers));
  for (const std::vector<data::Answer>& answers : row.answers) {
    words.push_back(std::ssize(answers));
    for (const data::Answer& answer : answers) words.insert(words.end(), {answer.length, answer.good});
  }
  put(words, row.experts);
  words.push_back(std::ssize(row.sampled));
  for (const data::SampledToken& token : row.sampled)
    for (const float value : {token.advantage, token.old_log_prob, token.reference_log_prob,
                              token.rollout_log_prob, token.old_value, token.value_return})
      words.push_back(std::bit_cast<int32_t>(value));
}

template <class T>
void take(const int64_t*& next, std::vector<T>& values) {
  const int64_t count = *next++;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<T>(*next++));
}

data::PackedRow take_row(const int64_t*& next) {
  data::PackedRow row;
  take(next, row.ids);
  take(next, row.targets);
  take(next, row.document_lengths);
  take(next, row.sources);
  row.answers.resize(static_cast<size_t>(*next++));
  for (std::vector<data::Answer>& answers : row.answers) {
    answers.resize(static_cast<size_t>(*next++));
    for (data::Answer& answer : answers) {
      answer.length = *next++;
      answer.good = *next++ != 0;
    }
  }
  take(next, row.experts);
  row.sampled.resize(static_cast<size_t>(*next++));
  for (data::SampledToken& token : row.sampled)
    for (float* const value : {&token.advantage, &token.old_log_prob, &token.reference_log_prob,
                               &token.rollout_log_prob, &token.old_value, &token.value_return})
      *value = std::bit_cast<float>(static_cast<int32_t>(*next++));
  return row;
}

std::vector<data::PackedRow> take_rows(const int64_t* next, const int64_t* end) {
  std::vector<data::PackedRow> rows;
  while (next != end) rows.push_back(take_row(next));
  return rows;
}

}  // namespace

std::string rows_to_bytes(const std::vector<data::PackedRow>& rows) {
  Words words;
  for (const data::PackedRow& row : rows) put(words, row);
  return {reinterpret_cast<const char*>(words.data()), words.size() * sizeof(int64_t)};
}

std::vector<data::PackedRow> rows_from_bytes(const std::string& bytes) {
  Words words(bytes.size() / sizeof(int64_t));
  std::memcpy(words.data(), bytes.data(), words.size() * sizeof(int64_t));
  return take_rows(words.data(), words.data() + words.size());
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
  Words mine;
  for (const data::PackedRow& row : rows) put(mine, row);
  std::vector<std::vector<data::PackedRow>> all;
  for (const Words& words : ranks.gather("rows", std::span<const int64_t>(mine))) {
    all.push_back(take_rows(words.data(), words.data() + words.size()));
  }
  return all;
}

}  // namespace temper::training
