#pragma once
#include <memory>

#include "tokenizers/models/character_model.h"
#include "tokenizers/splitting/pre_tokenizer.h"
#include "tokenizers/splitting/segmenter.h"

namespace temper::tokenizers {

// SentencePiece's kind: the model sees characters.
class CharacterSegmenter : public Segmenter {
 public:
  CharacterSegmenter(PreTokenizer pre_tokenizer, std::unique_ptr<const CharacterModel> model)
      : pre_tokenizer_(std::move(pre_tokenizer)), model_(std::move(model)) {}
  void encode(std::string_view text, const Start& start, std::vector<int32_t>& ids,
              Origins* origins) const override {
    const Pieces pieces = pre_tokenizer_.run(text, start, origins != nullptr);
    std::vector<ByteSpan>* spans = origins ? &origins->spans : nullptr;
    for (const ByteSpan piece : pieces.spans) {
      const size_t done = spans ? spans->size() : 0;
      model_->encode(pieces.at(piece), ids, spans);
      if (!spans) continue;
      origins->num_dropped += model_->num_dropped(pieces.at(piece));
      for (size_t i = done; i < spans->size(); ++i) {
        ByteSpan& span = (*spans)[i];
        span = pieces.alignments.source({piece.begin + span.begin, piece.begin + span.end});
      }
    }
  }
  bool asks_for_start() const override { return pre_tokenizer_.asks_for_start(); }

 private:
  PreTokenizer pre_tokenizer_;
  std::unique_ptr<const CharacterModel> model_;
};

}  // namespace temper::tokenizers
