#include "tokenizers/models/missing_bytes.h"

#include "base/error.h"
#include "tokenizers/text/byte_level.h"
#include "tokenizers/tokens/byte_tokens.h"

namespace temper::tokenizers {
namespace {

constexpr bool is_in_utf8(size_t byte) { return byte != 0xC0 && byte != 0xC1 && byte < 0xF5; }

}  // namespace

MissingBytes::MissingBytes(const ByteIds& ids, const Vocabulary& vocabulary, const BpeOptions& options,
                           std::string_view where)
    : fuse_unk_(options.fuse_unk) {
  const ByteTokens tokens = options.byte_fallback ? ByteTokens(vocabulary) : ByteTokens();
  bool needs_unk = false;
  for (size_t byte = 0; byte < ids.size(); ++byte) {
    if (ids[byte] != kNoByte || !is_in_utf8(byte)) continue;
    any_ = missing_[byte] = true;
    const std::string spelling = spelling_of_bytes(std::string(1, static_cast<char>(byte)));
    if (tokens.covers(spelling))
      for (const char part : spelling) fallbacks_[byte].push_back(tokens.id(part));
    else
      needs_unk = true;
  }
  if (!needs_unk || options.unk_token.empty()) return;
  const auto id = vocabulary.find(options.unk_token);
  if (!id || !vocabulary.in_model(*id))
    fail("[{}] model.unk_token is '{}', which vocab does not have", where, options.unk_token);
  unk_ = *id;
}

}  // namespace temper::tokenizers
