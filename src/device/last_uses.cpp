#include "device/last_uses.h"

#include <algorithm>

namespace temper::device {

void LastUses::taken(int64_t offset, int64_t bytes) {
  if (!several()) return;
  const int current = streams_->current();
  const int64_t end = offset + bytes;
  auto piece = left_.upper_bound(offset);
  if (piece != left_.begin() && std::prev(piece)->second.end > offset) --piece;
  while (piece != left_.end() && piece->first < end) {
    const int64_t begin = piece->first;
    for (const auto& [stream, mark] : piece->second.marks)
      if (stream != current) streams_->wait(stream, mark);
    const Left left = std::move(piece->second);
    piece = left_.erase(piece);
    if (begin < offset) left_[begin] = {offset, left.marks};
    if (left.end > end) piece = left_.insert_or_assign(end, Left{left.end, left.marks}).first;
  }
  if (current != 0) users_[offset] = {current};
}

void LastUses::used(int64_t offset) {
  if (!several()) return;
  const int current = streams_->current();
  const auto found = users_.find(offset);
  if (found == users_.end()) {
    if (current != 0) users_[offset] = {0, current};
  } else if (std::find(found->second.begin(), found->second.end(), current) == found->second.end()) {
    found->second.push_back(current);
  }
}

void LastUses::given(int64_t offset, int64_t bytes) noexcept try {
  if (!several()) return;
  Left left{offset + bytes, {}};
  std::vector<int> users{0};
  if (auto found = users_.extract(offset)) users = std::move(found.mapped());
  for (const int stream : users) left.marks.emplace_back(stream, streams_->mark(stream));
  left_[offset] = std::move(left);
} catch (...) {
  streams_->finish();
}

}  // namespace temper::device
