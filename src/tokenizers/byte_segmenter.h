#pragma once
#include "tokenizers/bpe.h"
#include "tokenizers/segmenter.h"
#include "tokenizers/splitter.h"

namespace temper::tokenizers {

// Byte-level BPE.
class ByteSegmenter : public Segmenter {
 public:
  ByteSegmenter(const Vocabulary& vocabulary, Splitter splitter, const std::vector<Merge>& merges,
                bool ignore_merges, std::string_view where)
      : vocabulary_(vocabulary),
        splitter_(std::move(splitter)),
        bpe_(vocabulary, merges, ignore_merges, where) {}
  void encode(std::string_view text, const AtStart& at_start, std::vector<int32_t>& ids,
              std::vector<ByteSpan>* spans) const override;

 private:
  const Vocabulary& vocabulary_;
  Splitter splitter_;
  Bpe bpe_;
};

}  // namespace temper::tokenizers
