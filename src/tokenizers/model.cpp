#include "tokenizers/model.h"

#include "base/error.h"
#include "tokenizers/component.h"

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

}  // namespace

void check_model(const Json& model, std::string_view where) {
  if (!model.is_object()) fail("{} must be an object, found {}", where, model.kind_name());
  const Json* type = model.find("type");  // files of early versions have none
  if (type && !type->is_null() && component_type(model, where) != "BPE")
    refuse_component(where, type->as_string(), "BPE");
  if (bool_option(model, "byte_fallback", false, where))
    fail("{}.byte_fallback is true; only byte-level BPE is supported, which has no fallback", where);
  for (const char* affix : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (!string_option(model, affix, "", where).empty())
      fail("{}.{} is '{}'; only an empty one is supported", where, affix,
           string_option(model, affix, "", where));
  const Json* dropout = model.find("dropout");
  if (dropout && dropout->is_number() && dropout->as_double() != 0)
    fail("{}.dropout is {}; only 0 is supported, as encoding must not be random", where, dropout->dump());
}

Vocabulary::Entries read_vocabulary(const Json& model, std::string_view where) {
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

}  // namespace temper::tokenizers
