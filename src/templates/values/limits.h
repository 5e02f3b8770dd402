#pragma once
#include <cstddef>
#include <cstdint>

namespace temper::templates {

// What one rendering may use, so that a hostile template cannot hold up or exhaust the machine. Passing a
// limit is an Error that names it.
struct Limits {
  int64_t steps = 20'000'000;  // statements, expressions, comparisons; 32 bytes or items count as one, too
  size_t bytes = size_t{512} << 20;  // of all texts and lists made
  size_t text = size_t{32} << 20;    // bytes of one text, the output among them
  size_t items = size_t{2} << 20;    // of one list
  double seconds = 5;                // of a processor: a machine that is busy or suspended takes no longer
};

// While it lives, what this thread computes counts against the limits.
class Budget {
 public:
  explicit Budget(const Limits& limits);
  ~Budget();
  Budget(const Budget&) = delete;
  Budget& operator=(const Budget&) = delete;
  int64_t nones() const { return nones_; }  // how often None became the word

 private:
  friend void spend(size_t);
  friend void spend_memory(size_t);
  friend void count_none();
  friend const Limits& limits_at_hand();
  void check_time();

  Limits limits_;
  int64_t steps_ = 0, next_look_ = 0;  // at the clock
  int64_t nones_ = 0;
  size_t bytes_ = 0;
  double end_;  // in the seconds of this thread on a processor
  Budget* around_;
};

const Limits& limits_at_hand();                          // the defaults outside of a rendering
void spend(size_t size = 0);                             // a step that looks at `size` bytes or items
void spend_memory(size_t bytes);                         // for a value about to be kept
void count_none();                                       // None is written as a word
void check_text_size(size_t pieces, size_t bytes_each);  // of a text about to be made
void check_items(size_t count, size_t times);            // of a list about to be made

constexpr int kMostDepth = 600;  // levels of nested lists

}  // namespace temper::templates
