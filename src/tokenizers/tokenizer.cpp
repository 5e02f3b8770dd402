#include "tokenizers/tokenizer.h"

#include "base/error.h"
#include "base/files.h"
#include "base/json/json.h"
#include "base/text.h"
#include "base/utf8.h"
#include "tokenizers/decoding/decoder.h"
#include "tokenizers/models/model.h"
#include "tokenizers/splitting/pre_tokenizer.h"
#include "tokenizers/splitting/segmenter.h"
#include "tokenizers/text/alignment.h"
#include "tokenizers/text/component.h"
#include "tokenizers/tokens/added_tokens.h"
#include "tokenizers/tokens/declared_tokens.h"
#include "tokenizers/tokens/post_processor.h"
#include "tokenizers/tokens/settings.h"

namespace temper::tokenizers {
namespace {

const Json& component(const Json& file, std::string_view name) {
  static const Json null;
  const Json* found = file.find(name);
  return found ? *found : null;
}

Vocabulary::Entries entries_of(const std::vector<AddedToken>& tokens) {
  Vocabulary::Entries entries;
  for (const AddedToken& token : tokens) entries.emplace_back(token.content, token.id);
  return entries;
}

}  // namespace

struct Tokenizer::State {
  Decoder decoder;
  Vocabulary vocabulary;
  std::unique_ptr<const Segmenter> segmenter;
  Normalizer normalizer;
  AddedTokens added;
  PostProcessor post_processor;
  struct Printed {
    std::string spelling, bytes;
  };
  std::unordered_map<int32_t, Printed> printed;  // added tokens that are printed as the text they stand for

  State(const Json& file, Vocabulary::Entries entries, const std::vector<AddedToken>& tokens,
        const std::string& where)
      : decoder(Decoder::from_json(component(file, "decoder"), "[" + where + "] decoder")),
        vocabulary(
            std::move(entries), entries_of(tokens),
            [&](std::string_view spelling) { return decoder.token_bytes(spelling); }, where),
        segmenter(
            make_segmenter(component(file, "pre_tokenizer"), component(file, "model"), vocabulary, where)),
        normalizer(Normalizer::from_json(component(file, "normalizer"), "[" + where + "] normalizer")),
        added(tokens, normalizer),
        post_processor(
            PostProcessor::from_json(component(file, "post_processor"), "[" + where + "] post_processor")) {
    check(component(file, "pre_tokenizer"), where);
    for (const AddedToken& token : tokens) {
      if (!token.normalized) continue;
      const std::string normal = normalizer.normalize(token.content);
      if (normal != token.content) printed[token.id] = {normal, decoder.token_bytes(normal)};
    }
  }

  void check(const Json& pre_tokenizer, const std::string& where) const {
    const bool bytes = has_byte_level(pre_tokenizer, "[" + where + "] pre_tokenizer");
    if (bytes != decoder.byte_level())
      fail("[{}] decoder has {}ByteLevel, but pre_tokenizer has {}; both must have it, or neither", where,
           bytes ? "no " : "a ", bytes ? "one" : "none");
    for (const auto* side : {&post_processor.before, &post_processor.after})
      for (const int32_t id : *side)
        if (!vocabulary.has(id)) fail("[{}] post_processor adds the id {}, which no token has", where, id);
  }

  void apply_settings(const Json& settings, const std::string& where) {
    if (auto frame = frame_of_settings(settings, vocabulary, where)) post_processor = std::move(*frame);
  }

  // Where a text, or a stretch of it, begins.
  struct Place {
    size_t origin = 0;       // in the whole text
    bool continued = false;  // the text was cut there
  };
  void encode(std::string_view text, Place place, std::vector<int32_t>& ids, Origins* origins) const;
  void encode_stretch(std::string_view raw, Place place, std::vector<int32_t>& ids, Origins* origins) const;
};

// What stands between two raw tokens.
void Tokenizer::State::encode_stretch(std::string_view raw, Place place, std::vector<int32_t>& ids,
                                      Origins* origins) const {
  const auto [origin, continued] = place;
  std::string normalized;
  Alignments alignments;
  std::string_view normal = raw;
  // What normalization removes in front decides whether a stretch is at the start.
  const bool aligned = origins || (origin == 0 && segmenter->asks_for_start());
  if (!normalizer.keeps(raw)) {
    normalized = normalizer.normalize(raw, continued, aligned ? &alignments : nullptr);
    normal = normalized;
  }
  const auto source = [&, origin = origin](ByteSpan span) {
    const ByteSpan inside = alignments.source(span);
    return ByteSpan{origin + inside.begin, origin + inside.end};
  };
  const auto start_of = [&](std::string_view part) {
    return static_cast<size_t>(part.data() - normal.data());
  };
  const auto use_text = [&, continued = continued](std::string_view part) {
    const size_t start = start_of(part), done = origins ? origins->spans.size() : 0;
    const auto at_start = [&](size_t at) { return source({start + at, start + at + 1}).begin == 0; };
    segmenter->encode(part, {at_start, continued && start == 0}, ids, origins);
    if (!origins) return;
    for (size_t i = done; i < origins->spans.size(); ++i) {
      ByteSpan& span = origins->spans[i];
      span = source({start + span.begin, start + span.end});
    }
  };
  const auto use_token = [&](int32_t id, std::string_view taken) {
    ids.push_back(id);
    if (origins) origins->spans.push_back(source({start_of(taken), start_of(taken) + taken.size()}));
  };
  added.split_normalized(normal, {use_text, use_token});
}

void Tokenizer::State::encode(std::string_view text, Place place, std::vector<int32_t>& ids,
                              Origins* origins) const {
  const auto start_of = [&](std::string_view part) {
    return place.origin + static_cast<size_t>(part.data() - text.data());
  };
  const auto use_text = [&](std::string_view raw) {
    encode_stretch(raw, {start_of(raw), place.continued && raw.data() == text.data()}, ids, origins);
  };
  const auto use_token = [&](int32_t id, std::string_view taken) {
    ids.push_back(id);
    if (origins) origins->spans.push_back({start_of(taken), start_of(taken) + taken.size()});
  };
  added.split_raw(text, {use_text, use_token});
}

Tokenizer::Tokenizer(std::unique_ptr<const State> state) : state_(std::move(state)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::load(const std::string& folder_or_file, int64_t vocab_size) {
  if (!is_directory(folder_or_file))
    return from_json(read_file(folder_or_file, kLongestText), folder_or_file);
  const std::string path = join_path(folder_or_file, "tokenizer.json");
  const TokenFiles files = TokenFiles::read(folder_or_file);
  std::unique_ptr<State> state = read(Json::parse_file(path), path, &files, vocab_size);
  if (!files.settings.is_null())
    state->apply_settings(files.settings, join_path(folder_or_file, "tokenizer_config.json"));
  return Tokenizer(std::move(state));
}

Tokenizer Tokenizer::from_json(std::string_view text, std::string_view where) {
  return from_parsed(Json::parse(text, where), where);
}

Tokenizer Tokenizer::from_parsed(const Json& file, std::string_view where) {
  return Tokenizer(read(file, std::string(where), nullptr, 0));
}

std::unique_ptr<Tokenizer::State> Tokenizer::read(const Json& file, const std::string& where,
                                                  const TokenFiles* files, int64_t vocab_size) {
  if (!file.is_object()) fail("[{}] must be an object, found {}", where, file.kind_name());
  const Json& model = component(file, "model");
  check_model(model, "[" + where + "] model");
  std::vector<AddedToken> tokens =
      AddedTokens::from_json(component(file, "added_tokens"), "[" + where + "] added_tokens");
  Vocabulary::Entries entries = read_vocabulary(model, "[" + where + "] model");
  if (files) tokens = declared_tokens(*files, std::move(tokens), entries, vocab_size);
  return std::make_unique<State>(file, std::move(entries), tokens, where);
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
  const PostProcessor& frame = state_->post_processor;
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 3 + 8);
  if (add_special_tokens) ids = frame.before;
  if (valid_utf8_prefix(text) == text.size())
    state_->encode(text, {}, ids, nullptr);
  else
    state_->encode(replace_invalid_utf8(text), {}, ids, nullptr);
  if (add_special_tokens) ids.insert(ids.end(), frame.after.begin(), frame.after.end());
  return ids;
}

Encoding Tokenizer::encode_with_offsets(std::string_view text, bool add_special_tokens) const {
  return encode_parts(text, {}, add_special_tokens);
}

Encoding Tokenizer::encode_parts(std::string_view text, std::span<const size_t> cuts,
                                 bool add_special_tokens) const {
  const PostProcessor& frame = state_->post_processor;
  if (!add_special_tokens) return traced(text, cuts, {}, {});
  return traced(text, cuts, frame.before, frame.after);
}

Encoding Tokenizer::encode_prompt(std::string_view text) const {
  return traced(text, {}, state_->post_processor.before, {});
}

Encoding Tokenizer::traced(std::string_view text, std::span<const size_t> cuts,
                           std::span<const int32_t> before, std::span<const int32_t> after) const {
  if (const size_t valid = valid_utf8_prefix(text); valid != text.size())
    fail("[tokenizer] the text is not UTF-8 at byte {}", valid);
  Encoding out;
  Origins origins;
  out.ids.reserve(text.size() / 3 + 8);
  origins.spans.reserve(text.size() / 3 + 8);
  out.ids.assign(before.begin(), before.end());
  origins.spans.assign(before.size(), {0, 0});
  size_t done = 0;
  for (size_t i = 0; i <= cuts.size(); ++i) {
    const size_t end = i < cuts.size() ? cuts[i] : text.size();
    state_->encode(text.substr(done, end - done), {done, i > 0}, out.ids, &origins);
    done = end;
  }
  out.spans = std::move(origins.spans);
  out.num_dropped = origins.num_dropped;
  out.ids.insert(out.ids.end(), after.begin(), after.end());
  out.spans.resize(out.ids.size(), {text.size(), text.size()});
  return out;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  std::string out;
  const auto each = [&](const auto& use) {
    for (const int32_t id : ids)
      if (!skip_special_tokens || !is_special(id)) use(id);
  };
  if (decoder().byte_level()) {
    each([&](int32_t id) { out += token_bytes(id); });
    return replace_invalid_utf8(out);
  }
  DecoderState state = decoder().start();
  each([&](int32_t id) {
    if (!spelling(id).empty()) decoder().push(spelling(id), state, out);
  });
  decoder().finish(state, out);
  return out;
}

const Decoder& Tokenizer::decoder() const { return state_->decoder; }
std::string_view Tokenizer::token_bytes(int32_t id) const {
  const auto printed = state_->printed.find(id);
  return printed == state_->printed.end() ? state_->vocabulary.bytes(id) : printed->second.bytes;
}
std::string_view Tokenizer::spelling(int32_t id) const {
  if (const auto printed = state_->printed.find(id); printed != state_->printed.end())
    return printed->second.spelling;
  return state_->vocabulary.has(id) ? std::string_view(state_->vocabulary.spelling(id)) : std::string_view();
}
std::optional<int32_t> Tokenizer::token_id(std::string_view spelling) const {
  return state_->vocabulary.find(spelling);
}
int32_t Tokenizer::vocab_size() const { return state_->vocabulary.size(); }
bool Tokenizer::splits_at_words() const {
  return state_->segmenter->cuts_at_words() && state_->normalizer.keeps_ascii() &&
         !state_->added.looks_around();
}
bool Tokenizer::is_special(int32_t id) const { return state_->added.is_special(id); }

bool is_word_border(std::string_view text, size_t at) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  if (at == 0 || at + 1 >= text.size()) return false;
  if (text[at - 1] == '\n') return text[at] > ' ' && text[at] <= '~' && text[at] != '/';
  return is_letter(text[at - 1]) && text[at] == ' ' && is_letter(text[at + 1]);
}

std::string Tokenizer::token_text(int32_t id) const {
  std::string out;
  for (std::string_view rest = token_bytes(id); !rest.empty();) {
    const Utf8Step step = next_utf8(rest);
    const std::string_view bytes = rest.substr(0, step.size);
    rest.remove_prefix(step.size);
    if (bytes == "\n")
      out += "\\n";
    else if (bytes == "\t")
      out += "\\t";
    else if (bytes == "\r")
      out += "\\r";
    else if (step.kind == Utf8Kind::kValid && step.value >= 0x20 && step.value != 0x7F)
      out += bytes;
    else
      for (const char byte : bytes) out += fmt::format("\\x{:02X}", static_cast<unsigned char>(byte));
  }
  return out;
}

}  // namespace temper::tokenizers
