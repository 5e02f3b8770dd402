#include "rollout/requests/answer_text.h"

#include <algorithm>
#include <string_view>

namespace temper::rollout {

std::vector<int32_t> stop_tokens(const std::vector<std::string>& stop_strings,
                                 const tokenizers::Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  for (const std::string& stop : stop_strings)
    if (const auto id = tokenizer.token_id(stop); id && tokenizer.is_special(*id)) ids.push_back(*id);
  return ids;
}

AnswerText::AnswerText(const tokenizers::Tokenizer& tokenizer, std::vector<std::string> stop_strings,
                       bool skip_special_tokens)
    : stream_(tokenizer, skip_special_tokens), stop_strings_(std::move(stop_strings)) {}

std::string AnswerText::push(int32_t id) {
  const size_t before = stream_.text().size();
  stream_.push(id);
  return take(before, false);
}

std::string AnswerText::finish() {
  const size_t before = stream_.text().size();
  stream_.finish();
  return take(before, true);
}

std::string AnswerText::text() const {
  return stream_.text().substr(0, stopped_ ? certain_ : std::string::npos);
}

// What is new behind `before` bytes may complete a stop string.
std::string AnswerText::take(size_t before, bool last) {
  if (stopped_) return {};
  const std::string& all = stream_.text();
  size_t end = std::string::npos;
  for (const std::string& stop : stop_strings_)
    end = std::min(end, all.find(stop, before - std::min(before, stop.size())));
  stopped_ = end != std::string::npos;
  if (!stopped_) end = all.size() - (last ? 0 : held_back());
  const size_t start = std::exchange(certain_, end);
  return all.substr(start, end - start);
}

// The longest end of the text with which a stop string begins.
size_t AnswerText::held_back() const {
  const std::string_view all = stream_.text();
  size_t most = 0;
  for (const std::string_view stop : stop_strings_)
    for (size_t size = std::min(stop.size() - 1, all.size()); size > most; --size)
      if (all.ends_with(stop.substr(0, size))) most = size;
  return most;
}

}  // namespace temper::rollout
