#include "data/chat/turns.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "data/chat/thinking.h"
#include "data/chat/words.h"

namespace temper::data {
namespace {

// The end of what any message wrote before `end`.
size_t end_of_words(const RenderedChat& chat, size_t end) {
  size_t last = 0;
  for (const Written& part : chat.written)
    if (part.bytes.end <= end) last = part.bytes.end;
  return last;
}

size_t shared_size(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

// Where in `written`, what stands before a turn's words, the generation prompt's `header` ends: behind the
// longest part that both have in common, of whole characters. Where the prompt's last message ends otherwise,
// that is not their beginning.
size_t header_end(std::string_view header, const std::string_view all_written) {
  std::string_view written = all_written;
  const size_t begin = shared_size(header, written);
  if (begin == header.size() || begin == written.size()) return begin;
  constexpr size_t kMost = 2048;  // bytes of each that are compared: headers are short
  const size_t skipped = written.size() - std::min(written.size(), kMost);
  written.remove_prefix(skipped);
  header.remove_prefix(header.size() - std::min(header.size(), kMost));
  std::vector<size_t> before(header.size() + 1), now(header.size() + 1);
  size_t longest = 0, end = 0;
  for (size_t i = 0; i < written.size(); ++i, before.swap(now))
    for (size_t j = 0; j < header.size(); ++j) {
      now[j + 1] = written[i] == header[j] ? before[j] + 1 : 0;
      if (now[j + 1] <= longest) continue;
      longest = now[j + 1];
      end = i + 1;
    }
  end += skipped;
  while (end < all_written.size() && end > 0 && (static_cast<unsigned char>(all_written[end]) & 0xC0) == 0x80)
    --end;
  return end;
}

[[noreturn]] void refuse(size_t turn, std::string_view problem) {
  fail(
      "messages[{}]: the assistant turn {} in the template's text of the conversation, so its tokens cannot "
      "be distinguished from the rest; mark assistant turns in the chat template with {{% generation %}} … "
      "{{% endgeneration %}}, or set loss: all",
      turn, problem);
}

}  // namespace

// A turn as a model meets it.
struct Turn {
  size_t message = 0;
  std::optional<RenderedChat> prompt;     // none where the template refuses one, as before the first message
  RenderedChat until;                     // the conversation that ends with the turn
  bool open = false;                      // with no token that ends it
  std::optional<RenderedChat> continued;  // then: until and the beginning of a turn that follows

  std::optional<ByteSpan> in(const RenderedChat& chat) const;
  ByteSpan in_itself() const;

 private:
  std::optional<size_t> begin_in(const RenderedChat& chat, const Words& words, bool same_history) const;
};

// Where the turn begins before its words: behind as much of the generation prompt as the template writes
// there.
std::optional<size_t> Turn::begin_in(const RenderedChat& chat, const Words& words, bool same_history) const {
  if (!prompt) return words.around.begin;
  if (chat.text.starts_with(prompt->text)) return prompt->text.size();
  const size_t asked = end_of_words(*prompt, prompt->text.size());
  const size_t before = end_of_words(chat, words.around.begin);
  const std::string_view header = std::string_view(prompt->text).substr(asked);
  const auto written = std::string_view(chat.text).substr(before, words.around.begin - before);
  if (same_history && (asked != before || prompt->text.compare(0, asked, chat.text, 0, before) != 0))
    return std::nullopt;
  return before + header_end(header, written);
}

// In a longer conversation: none where the turn is written otherwise there.
std::optional<ByteSpan> Turn::in(const RenderedChat& chat) const {
  if (prompt && chat.text.starts_with(prompt->text) && chat.text.starts_with(until.text) &&
      until.text.size() >= prompt->text.size())
    return ByteSpan{prompt->text.size(), until.text.size()};
  const std::optional<Words> words = words_of(chat, message), own = words_of(until, message);
  if (!words || !own || words->text != own->text) return std::nullopt;
  const std::optional<size_t> begin = begin_in(chat, *words, true);
  const auto ending = std::string_view(until.text).substr(own->around.end);
  const auto behind = std::string_view(chat.text).substr(words->around.end);
  if (!begin || (trim(ending).empty() && !open) || !behind.starts_with(ending)) return std::nullopt;
  return ByteSpan{*begin, words->around.end + ending.size()};
}

ByteSpan Turn::in_itself() const {
  if (prompt && until.text.starts_with(prompt->text)) return {prompt->text.size(), until.text.size()};
  const std::optional<Words> words = words_of(until, message);
  if (!words) refuse(message, "has no word of its own");
  return {*begin_in(until, *words, false), until.text.size()};
}

Json::Array first_messages(const Json::Array& messages, size_t count) {
  return {messages.begin(), messages.begin() + static_cast<Json::Array::difference_type>(count)};
}

Turn TurnFinder::meet(size_t message, const RenderedChat& whole) const {
  Turn turn;
  turn.message = message;
  try {
    turn.prompt = render_(first_messages(messages_, message), true, extra_);
  } catch (const Error&) {
    if (message > 0) throw;
  }
  const bool last = message + 1 == messages_.size();
  turn.until = last ? whole : render_(first_messages(messages_, message + 1), false, extra_);
  if (turn.prompt)
    if (auto whole = with_left_out_thinking(messages_[message], *turn.prompt, turn.until, message))
      turn.until = std::move(*whole);
  const std::optional<Words> words = words_of(turn.until, message);
  turn.open = words && !has_end_(std::string_view(turn.until.text).substr(words->around.end));
  if (turn.open) turn.continued = continued(turn);
  return turn;
}

// With what the template writes between the turn and the first word of the message behind it, or of a user's
// where it is the last.
std::optional<RenderedChat> TurnFinder::continued(const Turn& turn) const {
  Json::Array more = first_messages(messages_, std::min(turn.message + 2, messages_.size()));
  if (more.size() == turn.message + 1) more.push_back(Json::Object{{"role", "user"}, {"content", "Go on."}});
  RenderedChat chat;
  try {
    chat = render_(std::move(more), false, extra_);
  } catch (const Error&) {
    return std::nullopt;
  }
  const std::optional<Words> own = words_of(turn.until, turn.message), words = words_of(chat, turn.message),
                             next = words_of(chat, turn.message + 1);
  if (!own || !words || !next || next->around.begin < words->around.end) return std::nullopt;
  const auto ending = std::string_view(turn.until.text).substr(own->around.end);
  auto between =
      std::string_view(chat.text).substr(words->around.end, next->around.begin - words->around.end);
  if (!between.starts_with(ending)) return std::nullopt;
  RenderedChat longer = turn.until;
  longer.text += between.substr(ending.size());
  return longer;
}

std::vector<ChatText> TurnFinder::texts_of(const std::vector<size_t>& turns,
                                           const RenderedChat& whole) const {
  std::vector<ChatText> texts;
  RenderedChat last = whole;  // the text that turns are looked for in, from the last to the first
  ChatText found;
  const auto close = [&] {
    if (found.assistant.empty()) return;
    std::reverse(found.assistant.begin(), found.assistant.end());
    found.text = std::move(last.text);
    texts.push_back(std::exchange(found, {}));
  };
  for (auto message = turns.rbegin(); message != turns.rend(); ++message) {
    Turn turn = meet(*message, whole);
    std::optional<ByteSpan> span;
    if (!turn.continued || *message + 1 < messages_.size()) span = turn.in(last);
    if (span && !found.assistant.empty() && span->end > found.assistant.back().bytes.begin) span.reset();
    if (!span) {
      span = turn.in_itself();
      close();
      found.continued = turn.continued.has_value();
      last = std::move(turn.continued ? *turn.continued : turn.until);
    }
    found.assistant.push_back({*span, turn.open});
  }
  close();
  std::reverse(texts.begin(), texts.end());
  return texts;
}

}  // namespace temper::data
