#pragma once
#include <functional>
#include <span>

#include "layers/decoder.h"

// A text whose tokens a model computes in parts, each behind what those before it left in pages.
namespace temper {

class PagedText {
 public:
  explicit PagedText(const layers::Decoder& model, int64_t most_tokens = 64,
                     const layers::Adapter* adapter = nullptr)
      : model_(model),
        adapter_(adapter),
        pages_(model.make_pages({most_tokens / kPageTokens + 1, kPageTokens, 1})) {
    begin();
  }

  int64_t length() const { return length_; }
  // The same pages for another text.
  void begin() {
    length_ = 0;
    pages_.clear_slot(0);
  }
  using Change = std::function<void(layers::BatchInput& input)>;
  // Hidden states of the next tokens, [ids, hidden], computed as part of a prompt; `change`: of what the
  // model is asked.
  Var prompt(Tape& tape, std::span<const int32_t> ids, const Change& change = {}) {
    return next(tape, ids, false, change);
  }
  // Of the next token, [1, hidden], by the form for decoding.
  Var decode(Tape& tape, int32_t id, const Change& change = {}) { return next(tape, {&id, 1}, true, change); }

 private:
  static constexpr int64_t kPageTokens = 4;

  Var next(Tape& tape, std::span<const int32_t> ids, bool decodes, const Change& change) {
    const auto tokens = static_cast<int64_t>(ids.size());
    const int64_t pages = pages_.sizes().pages;
    std::vector<int32_t> table;
    for (int64_t page = pages; page > 0;) table.push_back(static_cast<int32_t>(--page));
    layers::BatchInput input;
    input.ids = Tensor::from(std::vector<int32_t>(ids.begin(), ids.end()));
    input.batch.sequences = {Tensor::from(std::vector<int32_t>{0, static_cast<int32_t>(tokens)}),
                             Tensor::from(std::vector<int32_t>{static_cast<int32_t>(length_)}),
                             Tensor::from(table).reshape({1, pages})};
    input.batch.slots = Tensor::from(std::vector<int32_t>{0});
    input.batch.decoding = decodes ? 1 : 0;
    if (adapter_ != nullptr) input.adapters = {{adapter_, tokens}};
    if (change) change(input);
    length_ += tokens;
    return model_.forward(tape, input, pages_);
  }

  const layers::Decoder& model_;
  const layers::Adapter* adapter_;
  const layers::PagedStates pages_;
  int64_t length_ = 0;
};

}  // namespace temper
