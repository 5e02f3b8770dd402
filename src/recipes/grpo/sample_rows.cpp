#include "recipes/grpo/sample_rows.h"

#include "base/error.h"

namespace temper::recipes {
namespace {

// A document, and whose passages it has.
struct Piece {
  data::Example example;
  std::vector<std::pair<SampledAnswer*, size_t>> passages;
};

// An answer's own tokens begin with the last of its prompt, which predicts its first.
int64_t own_tokens(const Passage& passage) { return 1 + std::ssize(passage.ids); }

void append_own(data::Example& example, const Passage& passage) {
  example.ids.push_back(passage.prompt.back());
  example.ids.insert(example.ids.end(), passage.ids.begin(), passage.ids.end());
  example.loss_mask.push_back(0);
  example.loss_mask.insert(example.loss_mask.end(), passage.sampled.begin(), passage.sampled.end());
  example.answers.push_back({own_tokens(passage)});
}

Piece piece_of(const Passage& passage) {
  Piece piece;
  piece.example.ids.assign(passage.prompt.begin(), passage.prompt.end() - 1);
  piece.example.loss_mask.assign(piece.example.ids.size(), 0);
  return piece;
}

// Of a document's tokens, in their order; its last tokens' experts are unknown, and unused.
void append_experts(std::vector<int32_t>& experts, const Piece& piece) {
  const Passage& first = piece.passages.front().first->passages[piece.passages.front().second];
  const auto known = static_cast<int64_t>(first.prompt.size() + first.ids.size()) - 1;
  if (first.experts.empty() || known == 0) return;
  const auto width = std::ssize(first.experts) / known, shared = std::ssize(first.prompt) - 1;
  experts.insert(experts.end(), first.experts.begin(), first.experts.begin() + shared * width);
  for (const auto& [answer, index] : piece.passages) {
    const std::vector<int32_t>& own = answer->passages[index].experts;
    experts.insert(experts.end(), own.begin() + shared * width, own.end());
    experts.insert(experts.end(), static_cast<size_t>(width), -1);
  }
}

std::vector<Piece> pieces_of(const std::vector<SampledAnswer*>& samples, int64_t max_tokens,
                             bool share_prompts) {
  std::vector<Piece> pieces;
  const SampledAnswer* before = nullptr;
  for (SampledAnswer* const sample : samples) {
    const bool simple = sample->passages.size() == 1;
    for (size_t i = 0; i < sample->passages.size(); ++i) {
      const Passage& passage = sample->passages[i];
      if (passage.count_sampled() == 0) continue;
      const bool joins = share_prompts && simple && before != nullptr && before->group == sample->group &&
                         before->passages.size() == 1 &&
                         pieces.back().example.size() + own_tokens(passage) <= max_tokens;
      if (!joins) pieces.push_back(piece_of(passage));
      append_own(pieces.back().example, passage);
      pieces.back().passages.emplace_back(sample, i);
      before = sample;
    }
  }
  // One answer is a text like any other.
  for (Piece& piece : pieces)
    if (piece.passages.size() == 1) piece.example.answers.clear();
  return pieces;
}

}  // namespace

SampleRows rows_of(const std::vector<SampledAnswer*>& samples, int64_t max_tokens, data::Packing packing,
                   bool share_prompts) {
  std::vector<Piece> pieces = pieces_of(samples, max_tokens, share_prompts);
  data::Packer packer({packing, max_tokens});
  for (size_t i = 0; i < pieces.size(); ++i)
    packer.add({static_cast<int64_t>(i), 0, 0, std::move(pieces[i].example)});
  packer.flush();
  SampleRows made;
  for (size_t left = packer.closed().size(); left > 0; --left) {
    const data::DocumentGroup group = packer.take();
    made.rows.push_back(data::pack(group));
    for (const data::Document& document : group) {
      append_experts(made.rows.back().experts, pieces[static_cast<size_t>(document.row)]);
      for (const auto& [sample, passage] : pieces[static_cast<size_t>(document.row)].passages) {
        const std::vector<uint8_t>& sampled = sample->passages[passage].sampled;
        for (size_t token = 0; token < sampled.size(); ++token)
          if (sampled[token] != 0) made.targets.push_back({sample, passage, token});
      }
    }
  }
  return made;
}

void SampleRows::take(const std::vector<float>& values,
                      data::TokenColumns::Column data::TokenColumns::*column) const {
  invariant(values.size() == targets.size(), "every sampled token has a value");
  for (size_t i = 0; i < values.size(); ++i) {
    const auto& [sample, index, token] = targets[i];
    Passage& passage = sample->passages[index];
    (passage.columns.*column).resize(passage.ids.size());
    (passage.columns.*column)[token] = values[i];
  }
}

void SampleRows::fill() {
  auto next = targets.begin();
  for (data::PackedRow& row : rows) {
    row.sampled = {};
    for (int64_t count = row.num_targets(); count > 0; --count) {
      const auto& [sample, index, token] = *next++;
      const data::TokenColumns& known = sample->passages[index].columns;
      row.sampled.append(known, token);
      if (known.advantages.empty()) row.sampled.advantages.back() = static_cast<float>(sample->advantage);
    }
  }
}

data::Batch batch_of(std::vector<data::PackedRow> rows) {
  data::Batch batch;
  for (const data::PackedRow& row : rows) {
    batch.tokens += row.size();
    batch.target_tokens += row.num_targets();
  }
  batch.rows = std::move(rows);
  return batch;
}

}  // namespace temper::recipes
