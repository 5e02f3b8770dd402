#include "rollout/scheduling/page_pool.h"

#include "base/error.h"

namespace temper::rollout {

PagePool::PagePool(int64_t pages) {
  pages_.resize(static_cast<size_t>(pages), {0, index_.end(), idle_.end()});
  free_all();
}

int32_t PagePool::take() {
  int32_t page = kNone;
  if (!free_.empty()) {
    page = free_.back();
    free_.pop_back();
  } else if (!idle_.empty()) {
    page = idle_.front();
    idle_.pop_front();
    unlist(page);
  } else {
    return kNone;
  }
  at(page).users = 1;
  return page;
}

// It can be found no more.
void PagePool::unlist(int32_t page) {
  serials_.erase(at(page).entry->second.serial);
  index_.erase(at(page).entry);
  at(page).entry = index_.end();
}

void PagePool::take_over(int32_t page) {
  invariant(at(page).users == 0 && at(page).entry != index_.end(), "a page that is in use stays as it is");
  keep(page);
  unlist(page);
}

void PagePool::grow(int64_t pages) {
  invariant(pages >= size(), "a pool keeps its pages");
  std::vector<int32_t> added;
  for (int64_t page = pages; page > size();) added.push_back(static_cast<int32_t>(--page));
  pages_.resize(static_cast<size_t>(pages), {0, index_.end(), idle_.end()});
  free_.insert(free_.begin(), added.begin(), added.end());  // behind those that were free before
}

void PagePool::keep(int32_t page) {
  if (at(page).users++ == 0) idle_.erase(at(page).idle);
}

void PagePool::give_back(int32_t page) {
  invariant(at(page).users > 0, "a page is given back once");
  if (--at(page).users > 0) return;
  if (at(page).entry == index_.end())
    free_.push_back(page);
  else
    at(page).idle = idle_.insert(idle_.end(), page);
}

const PagePool::Found* PagePool::find(const Key& key) const {
  const auto found = index_.find(key);
  return found == index_.end() ? nullptr : &found->second;
}

uint64_t PagePool::publish(int32_t page, const Key& key) {
  invariant(at(page).entry == index_.end(), "a page is published once");
  const auto [entry, added] = index_.emplace(key, Found{page, next_serial_});
  if (added) {
    at(page).entry = entry;
    serials_[next_serial_++] = page;
  }
  return entry->second.serial;
}

void PagePool::forget() {
  invariant(available() == size(), "a sequence has a page");
  index_.clear();
  serials_.clear();
  idle_.clear();
  free_all();
}

void PagePool::free_all() {
  free_.clear();
  for (int64_t page = size(); page > 0;) {
    free_.push_back(static_cast<int32_t>(--page));
    at(free_.back()).entry = index_.end();
  }
}

}  // namespace temper::rollout
