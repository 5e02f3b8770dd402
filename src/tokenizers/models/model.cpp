#include "tokenizers/models/model.h"

#include "base/error.h"
#include "tokenizers/models/byte_segmenter.h"
#include "tokenizers/models/character_bpe.h"
#include "tokenizers/models/character_segmenter.h"
#include "tokenizers/models/unigram.h"
#include "tokenizers/text/component.h"

namespace temper::tokenizers {
namespace {

struct Parts {
  std::string_view left, right;
};

// Both spellings: ["a", "b"] and "a b".
Parts parts_of(const Json& merge, std::string_view place, size_t rank) {
  if (merge.is_string()) {
    const std::string_view text = merge.as_string();
    const size_t space = text.find(' ');
    if (space != std::string_view::npos && text.find(' ', space + 1) == std::string_view::npos)
      return {text.substr(0, space), text.substr(space + 1)};
  } else if (merge.is_array() && merge.as_array().size() == 2) {
    const Json &left = merge.as_array()[0], &right = merge.as_array()[1];
    if (left.is_string() && right.is_string()) return {left.as_string(), right.as_string()};
  }
  fail("{}.merges[{}] must be [\"a\", \"b\"] or \"a b\", found {}", place, rank, merge.dump());
}

bool is_unigram(const Json& model, std::string_view where) {
  const Json* type = model.find("type");  // files of early versions have none
  if (!type || type->is_null()) return required(model, "vocab", where).is_array();
  const std::string& name = component_type(model, where);
  if (name != "BPE" && name != "Unigram") refuse_component(where, name, "BPE, Unigram");
  return name == "Unigram";
}

std::vector<Merge> read_merges(const Json& model, const Vocabulary& vocabulary, std::string_view where) {
  const Json& list = required(model, "merges", where);
  if (!list.is_array()) fail("{}.merges must be an array, found {}", where, list.kind_name());
  const auto id_of = [&](std::string_view spelling, size_t rank) {
    const auto id = vocabulary.find(spelling);
    if (!id) fail("{}.merges[{}] needs the token '{}', which vocab does not have", where, rank, spelling);
    return *id;
  };
  std::vector<Merge> merges;
  merges.reserve(list.as_array().size());
  std::string joined;
  for (const Json& merge : list.as_array()) {
    const size_t rank = merges.size();
    const auto [left, right] = parts_of(merge, where, rank);
    joined = left;
    joined += right;
    merges.push_back({id_of(left, rank), id_of(right, rank), id_of(joined, rank)});
  }
  return merges;
}

BpeOptions read_options(const Json& model, std::string_view where) {
  BpeOptions options;
  options.unk_token = string_option(model, "unk_token", "", where);
  options.fuse_unk = bool_option(model, "fuse_unk", false, where);
  options.byte_fallback = bool_option(model, "byte_fallback", false, where);
  options.ignore_merges = bool_option(model, "ignore_merges", false, where);
  return options;
}

std::unique_ptr<const CharacterModel> read_bpe(const Json& model, const Vocabulary& vocabulary,
                                               const std::string& where) {
  const std::string place = "[" + where + "] model";
  return std::make_unique<CharacterBpe>(vocabulary, read_merges(model, vocabulary, place),
                                        read_options(model, place), where);
}

std::unique_ptr<const CharacterModel> read_unigram(const Json& model, const Vocabulary& vocabulary,
                                                   const std::string& where) {
  const std::string place = "[" + where + "] model";
  std::vector<double> scores;
  for (const Json& pair : as_list(required(model, "vocab", place), place + ".vocab"))
    scores.push_back(pair.as_array()[1].as_double());
  const Json* unk = model.find("unk_id");
  std::optional<int32_t> unk_id;
  if (unk && !unk->is_null()) unk_id = as_token_id(*unk, place + ".unk_id");
  return std::make_unique<Unigram>(vocabulary, std::move(scores), unk_id,
                                   bool_option(model, "byte_fallback", false, place), where);
}

// The pairs of a piece and its score; the id is the place in the list.
Vocabulary::Entries read_pieces(const Json& model, std::string_view where) {
  Vocabulary::Entries entries;
  for (const Json& pair : as_list(required(model, "vocab", where), fmt::format("{}.vocab", where))) {
    const bool good = pair.is_array() && pair.as_array().size() == 2 && pair.as_array()[0].is_string() &&
                      pair.as_array()[1].is_number();
    if (!good) fail("{}.vocab[{}] must be [\"piece\", score], found {}", where, entries.size(), pair.dump());
    entries.emplace_back(pair.as_array()[0].as_string(), static_cast<int32_t>(entries.size()));
  }
  return entries;
}

}  // namespace

void check_model(const Json& model, std::string_view where) {
  if (!model.is_object()) fail("{} must be an object, found {}", where, model.kind_name());
  if (is_unigram(model, where)) return;
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (const std::string text = string_option(model, affix, "", where); !text.empty())
      fail("{}.{} is '{}'; only an empty one is supported", where, affix, text);
  const Json* dropout = model.find("dropout");
  if (dropout && dropout->is_number() && dropout->as_double() != 0)
    fail("{}.dropout is {}; only 0 is supported, as encoding must not be random", where, dropout->dump());
}

Vocabulary::Entries read_vocabulary(const Json& model, std::string_view where) {
  if (is_unigram(model, where)) return read_pieces(model, where);
  const Json& vocabulary = required(model, "vocab", where);
  if (!vocabulary.is_object()) fail("{}.vocab must be an object, found {}", where, vocabulary.kind_name());
  Vocabulary::Entries entries;
  entries.reserve(vocabulary.as_object().size());
  for (const auto& [spelling, id] : vocabulary.as_object()) {
    if (!id.is_int() || id.as_int() < 0 || id.as_int() > INT32_MAX)
      fail("{}.vocab: token '{}' has the id {}, expected a token id", where, spelling, id.dump());
    entries.emplace_back(spelling, static_cast<int32_t>(id.as_int()));
  }
  return entries;
}

std::unique_ptr<const Segmenter> make_segmenter(const Json& pre_tokenizer, const Json& model,
                                                const Vocabulary& vocabulary, const std::string& where) {
  const std::string place = "[" + where + "] model", splitting = "[" + where + "] pre_tokenizer";
  const bool unigram = is_unigram(model, place);
  if (!has_byte_level(pre_tokenizer, splitting))
    return std::make_unique<CharacterSegmenter>(
        PreTokenizer::from_json(pre_tokenizer, splitting),
        unigram ? read_unigram(model, vocabulary, where) : read_bpe(model, vocabulary, where));
  if (unigram) fail("{}.type is 'Unigram', which is not supported after the pre-tokenizer ByteLevel", place);
  return std::make_unique<ByteSegmenter>(vocabulary, Splitter::from_json(pre_tokenizer, splitting),
                                         read_merges(model, vocabulary, place), read_options(model, place),
                                         where);
}

}  // namespace temper::tokenizers
