#include "data/rows/pack.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "base/error.h"

namespace temper::data {

std::string_view name_of(Packing packing) {
  constexpr std::array<std::string_view, 3> kNames = {"best_fit", "sequential", "none"};
  return kNames[static_cast<size_t>(packing)];
}

int64_t PackedRow::num_targets() const {
  return size() - std::count(targets.begin(), targets.end(), kIgnore);
}

int64_t num_targets(std::span<const PackedRow> rows) {
  int64_t count = 0;
  for (const PackedRow& row : rows) count += row.num_targets();
  return count;
}

int64_t num_tokens(std::span<const Document> documents) {
  return std::accumulate(documents.begin(), documents.end(), int64_t{0},
                         [](int64_t sum, const Document& document) { return sum + document.example.size(); });
}

PackedRow pack(std::span<const Document> documents) {
  PackedRow row;
  row.ids.reserve(static_cast<size_t>(num_tokens(documents)));
  row.targets.reserve(row.ids.capacity());
  for (const Document& document : documents) {
    const Example& example = document.example;
    for (PlacedPicture picture : example.pictures) {
      picture.first += row.size();
      picture.row = document.row;
      row.pictures.push_back(std::move(picture));
    }
    row.ids.insert(row.ids.end(), example.ids.begin(), example.ids.end());
    for (size_t t = 1; t < example.ids.size(); ++t)
      row.targets.push_back(example.loss_mask[t] ? example.ids[t] : kIgnore);
    row.targets.push_back(kIgnore);
    row.document_lengths.push_back(example.size());
    row.sources.push_back(document.source);
    row.answers.push_back(example.answers);
  }
  return row;
}

Packer::Packer(PackOptions options) : options_(options) {
  if (options.packing != Packing::kNone && options.max_tokens <= 0)
    fail("[data] packing needs a max_length of at least 1, found {}", options.max_tokens);
  if (options.packing == Packing::kSequential) options_.window = 1;
  if (options.window <= 0) fail("[data] the packing window is {}, expected at least 1", options.window);
}

void Packer::add(Document document) {
  const int64_t size = document.example.size(), limit = options_.max_tokens;
  invariant(size > 0, "a document without tokens");
  if (limit > 0 && size > limit)
    fail("[data] a document of {} tokens is longer than max_length, {}", size, limit);
  if (options_.packing == Packing::kNone) {
    DocumentGroup alone;
    alone.push_back(std::move(document));
    return put_closed(std::move(alone));
  }
  auto room = open_tokens_.end();
  for (auto at = open_tokens_.begin(); at != open_tokens_.end(); ++at)
    if (*at + size <= limit && (room == open_tokens_.end() || *at > *room)) room = at;
  auto group = static_cast<size_t>(room - open_tokens_.begin());
  if (room == open_tokens_.end()) {
    if (open_.size() == static_cast<size_t>(options_.window))
      close(static_cast<size_t>(std::max_element(open_tokens_.begin(), open_tokens_.end()) -
                                open_tokens_.begin()));
    group = open_.size();
    open_.emplace_back();
    open_tokens_.push_back(0);
  }
  open_[group].push_back(std::move(document));
  open_tokens_[group] += size;
  if (open_tokens_[group] == limit) close(group);
}

void Packer::close(size_t group) {
  const auto at = static_cast<std::ptrdiff_t>(group);
  put_closed(std::move(open_[group]));
  open_.erase(open_.begin() + at);
  open_tokens_.erase(open_tokens_.begin() + at);
}

void Packer::put_closed(DocumentGroup group) {
  closed_tokens_ += num_tokens(group);
  closed_.push_back(std::move(group));
}

DocumentGroup Packer::take() {
  DocumentGroup group = std::move(closed_.front());
  closed_.pop_front();
  closed_tokens_ -= num_tokens(group);
  return group;
}

void Packer::flush() {
  while (!open_.empty()) close(0);
}

void Packer::restore(std::deque<DocumentGroup> closed, std::vector<DocumentGroup> open) {
  closed_.clear();
  closed_tokens_ = 0;
  for (DocumentGroup& group : closed) put_closed(std::move(group));
  open_ = std::move(open);
  open_tokens_.clear();
  for (const DocumentGroup& group : open_) open_tokens_.push_back(num_tokens(group));
}

}  // namespace temper::data
