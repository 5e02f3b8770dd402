#pragma once
#include "tokenizers/models/bpe.h"
#include "tokenizers/splitting/segmenter.h"
#include "tokenizers/splitting/splitter.h"

namespace temper::tokenizers {

// Byte-level BPE.
class ByteSegmenter : public Segmenter {
 public:
  ByteSegmenter(const Vocabulary& vocabulary, Splitter splitter, const std::vector<Merge>& merges,
                const BpeOptions& options, std::string_view where)
      : vocabulary_(vocabulary),
        splitter_(std::move(splitter)),
        bpe_(vocabulary, merges, options, !splitter_.cuts_characters(), where) {}
  void encode(std::string_view text, const Start& start, std::vector<int32_t>& ids,
              Origins* origins) const override;
  bool cuts_at_words() const override { return splitter_.cuts_at_words(); }

 private:
  void locate(const Piece& piece, std::span<const int32_t> ids, Origins& origins) const;
  const Vocabulary& vocabulary_;
  Splitter splitter_;
  Bpe bpe_;
};

}  // namespace temper::tokenizers
