#include "tokenizers/tokenizer.h"

#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/text.h"
#include "base/utf8.h"
#include "tokenizers/added_tokens.h"
#include "tokenizers/alignment.h"
#include "tokenizers/bpe.h"
#include "tokenizers/component.h"
#include "tokenizers/model.h"
#include "tokenizers/post_processor.h"
#include "tokenizers/splitter.h"

namespace temper::tokenizers {
namespace {

const Json& component(const Json& file, std::string_view name) {
  static const Json null;
  const Json* found = file.find(name);
  return found ? *found : null;
}

void check_decoder(const Json& decoder, const std::string& where) {
  int byte_levels = 0;
  for_each_component(decoder, "decoders", where, [&](const Json& part, const std::string& place) {
    const std::string& type = component_type(part, place);
    if (type != "ByteLevel") refuse_component(place, type, "ByteLevel, Sequence");
    ++byte_levels;
  });
  if (byte_levels != 1) fail("{} must have one ByteLevel, found {}", where, byte_levels);
}

Vocabulary::Entries entries_of(const std::vector<AddedToken>& tokens) {
  Vocabulary::Entries entries;
  for (const AddedToken& token : tokens) entries.emplace_back(token.content, token.id);
  return entries;
}

}  // namespace

struct Tokenizer::State {
  Vocabulary vocabulary;
  Bpe bpe;
  Normalizer normalizer;
  AddedTokens added;
  Splitter splitter;
  PostProcessor post_processor;

  State(const Json& file, const Json& model, std::vector<AddedToken> tokens, const std::string& where)
      : vocabulary(read_vocabulary(model, "[" + where + "] model"), entries_of(tokens), where),
        bpe(vocabulary, read_merges(model, vocabulary, "[" + where + "] model"),
            bool_option(model, "ignore_merges", false, "[" + where + "] model"), where),
        normalizer(Normalizer::from_json(component(file, "normalizer"), "[" + where + "] normalizer")),
        added(std::move(tokens), normalizer),
        splitter(Splitter::from_json(component(file, "pre_tokenizer"), "[" + where + "] pre_tokenizer")),
        post_processor(
            PostProcessor::from_json(component(file, "post_processor"), "[" + where + "] post_processor")) {}

  void encode_stretch(std::string_view raw, size_t origin, Encoding& out) const;
};

// What stands between two raw tokens; `origin` is where it begins in the text.
void Tokenizer::State::encode_stretch(std::string_view raw, size_t origin, Encoding& out) const {
  std::string buffer;
  const AlignedText normal = normalize_aligned(normalizer, raw, buffer);
  const bool changed = normal.alignment.changed();
  const auto start_of = [&](std::string_view part) {
    return static_cast<size_t>(part.data() - normal.text.data());
  };
  const auto add_span = [&](size_t begin, size_t end) {
    if (changed && end > begin) {
      begin = normal.alignment.source_begin(begin), end = normal.alignment.source_end(end);
    } else if (changed) {
      begin = end = normal.alignment.source_begin(begin);
    }
    out.spans.push_back({origin + begin, origin + end});
  };
  const auto use_piece = [&](const Piece& piece, size_t start) {
    const auto place = [&](size_t at) { return start + (at > piece.added ? at - piece.added : 0); };
    size_t i = out.ids.size(), at = 0;
    bpe.encode(piece.text, out.ids);
    const bool whole = out.ids.size() == i + 1;  // most are; asking for the size would cost a cache miss
    for (; i < out.ids.size(); ++i) {
      const size_t end = whole ? piece.text.size() : at + vocabulary.num_bytes(out.ids[i]);
      add_span(place(at), place(end));
      at = end;
    }
    invariant(at == piece.text.size(), "the tokens of a piece have other bytes than the piece");
  };
  const auto use_part = [&](std::string_view part) {
    splitter.run(part, [&](const Piece& piece) { use_piece(piece, start_of(part) + piece.begin); });
  };
  const auto use_token = [&](int32_t id, std::string_view taken) {
    out.ids.push_back(id);
    add_span(start_of(taken), start_of(taken) + taken.size());
  };
  added.split_normalized(normal.text, {use_part, use_token});
}

Tokenizer::Tokenizer(std::unique_ptr<const State> state) : state_(std::move(state)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Tokenizer Tokenizer::load(const std::string& folder_or_file) {
  const std::string path =
      is_directory(folder_or_file) ? join_path(folder_or_file, "tokenizer.json") : folder_or_file;
  return from_json(read_file(path), path);
}

Tokenizer Tokenizer::from_json(std::string_view text, std::string_view where_view) {
  const std::string where(where_view);
  const Json file = Json::parse(text, where);
  if (!file.is_object()) fail("[{}] must be an object, found {}", where, file.kind_name());
  const Json& model = component(file, "model");
  check_model(model, "[" + where + "] model");
  check_decoder(component(file, "decoder"), "[" + where + "] decoder");
  std::vector<AddedToken> tokens =
      AddedTokens::from_json(component(file, "added_tokens"), "[" + where + "] added_tokens");
  return Tokenizer(std::make_unique<const State>(file, model, std::move(tokens), where));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
  const State& state = *state_;
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 3 + 8);
  if (add_special_tokens) ids = state.post_processor.before;
  std::string clean;
  if (valid_utf8_prefix(text) < text.size()) text = clean = replace_invalid_utf8(text);
  const auto use_piece = [&](const Piece& piece) { state.bpe.encode(piece.text, ids); };
  const auto use_text = [&](std::string_view part) { state.splitter.run(part, use_piece); };
  state.added.split(text, state.normalizer, {use_text, [&](int32_t id, auto) { ids.push_back(id); }});
  if (add_special_tokens)
    ids.insert(ids.end(), state.post_processor.after.begin(), state.post_processor.after.end());
  return ids;
}

Encoding Tokenizer::encode_with_offsets(std::string_view text, bool add_special_tokens) const {
  if (const size_t valid = valid_utf8_prefix(text); valid != text.size())
    fail("[tokenizer] the text is not UTF-8 at byte {}", valid);
  Encoding out;
  out.ids.reserve(text.size() / 3 + 8);
  out.spans.reserve(text.size() / 3 + 8);
  const auto add = [&](int32_t id, ByteSpan span) {
    out.ids.push_back(id);
    out.spans.push_back(span);
  };
  const auto start_of = [&](std::string_view part) { return static_cast<size_t>(part.data() - text.data()); };
  const auto use_token = [&](int32_t id, std::string_view taken) {
    add(id, {start_of(taken), start_of(taken) + taken.size()});
  };
  const auto use_text = [&](std::string_view raw) { state_->encode_stretch(raw, start_of(raw), out); };
  if (add_special_tokens)
    for (const int32_t id : state_->post_processor.before) add(id, {0, 0});
  state_->added.split_raw(text, {use_text, use_token});
  if (add_special_tokens)
    for (const int32_t id : state_->post_processor.after) add(id, {text.size(), text.size()});
  return out;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  std::string bytes;
  for (const int32_t id : ids)
    if (!skip_special_tokens || !is_special(id)) bytes += token_bytes(id);
  return replace_invalid_utf8(bytes);
}

std::optional<int32_t> Tokenizer::token_id(std::string_view spelling) const {
  return state_->vocabulary.find(spelling);
}
std::string_view Tokenizer::token_bytes(int32_t id) const { return state_->vocabulary.bytes(id); }
int32_t Tokenizer::vocab_size() const { return state_->vocabulary.size(); }
bool Tokenizer::is_special(int32_t id) const { return state_->added.is_special(id); }

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
