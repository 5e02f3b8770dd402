#pragma once
#include <cstdint>
#include <list>
#include <map>
#include <span>
#include <vector>

namespace temper::rollout {

// Who has which page of a cache, and which pages can be found by their tokens (prefix cache). A page
// that is unused keeps what is in it as long as no page is wanted; the one that was given back first goes
// first.
class PagePool {
 public:
  // What a page was made of: a full one, or one that a text ended in. A page's place in the texts that share
  // it is that of the page before it, so that equal keys are equal texts: the whole chain is compared,
  // nothing is hashed away.
  struct Key {
    uint64_t before = 0;              // serial of the page before; of the first page 0
    uint64_t model = 0, adapter = 0;  // versions of the weights (ParameterStore); no adapter: 0
    std::vector<int32_t> tokens = {};
    auto operator<=>(const Key&) const = default;
  };
  struct Found {
    int32_t page;
    uint64_t serial;  // of what is in it; never given twice
  };
  static constexpr int32_t kNone = -1;

  explicit PagePool(int64_t pages);

  int64_t size() const { return std::ssize(pages_); }
  int64_t available() const { return std::ssize(free_) + std::ssize(idle_); }  // that are unused
  int32_t take();           // for one user; kNone where all are in use
  void keep(int32_t page);  // one user more
  void give_back(int32_t page);
  // A page that can be found and is unused gets one user, who may change it: it is found no more.
  void take_over(int32_t page);
  void grow(int64_t pages);  // to this many

  const Found* find(const Key& key) const;  // null: there is none
  // A page can be found from now on; where another has the same key, that one stays. The serial of the
  // key.
  uint64_t publish(int32_t page, const Key& key);
  // Of unused pages, which must be all: what is in them is lost, and none is found any more. Pages are taken
  // in the order of a new pool from now on.
  void forget();
  bool holds(uint64_t serial) const { return serials_.contains(serial); }

 private:
  using Index = std::map<Key, Found>;
  struct Page {
    int64_t users = 0;
    Index::iterator entry;              // end: it cannot be found
    std::list<int32_t>::iterator idle;  // where it is unused
  };
  void free_all();
  void unlist(int32_t page);
  Page& at(int32_t page) { return pages_[static_cast<size_t>(page)]; }

  std::vector<Page> pages_;
  std::vector<int32_t> free_;  // nothing in them
  std::list<int32_t> idle_;    // can be found, unused; the oldest first
  Index index_;
  std::map<uint64_t, int32_t> serials_;
  uint64_t next_serial_ = 1;
};

}  // namespace temper::rollout
