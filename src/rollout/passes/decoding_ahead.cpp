#include "rollout/passes/decoding_ahead.h"

#include <algorithm>

namespace temper::rollout {

DecodingAhead::DecodingAhead(const layers::Decoder& model, SequenceCache& cache, Schedule& schedule,
                             int64_t max_running)
    : model_(model), cache_(cache), schedule_(schedule), passes_(model, cache, max_running) {}

bool DecodingAhead::can_compute(const std::vector<ScheduledPart>& parts) {
  const Request& first = parts.front().sequence->request();
  return std::all_of(parts.begin(), parts.end(), [&](const ScheduledPart& part) {
    const Sequence& sequence = *part.sequence;
    const Request& request = sequence.request();
    return part.tokens == 1 && sequence.left() == 1 && !request.record_experts &&
           request.adapter == first.adapter && request.log_prob_temperature == first.log_prob_temperature &&
           std::ssize(sequence.result().ids) >= std::ssize(request.forced);
  });
}

// The next tokens of these sequences count as computed from now on.
DecodingAhead::Started DecodingAhead::run(DecodingPass& pass, std::vector<Sequence*> rows,
                                          std::span<const int32_t> ids) {
  std::vector<DecodingPass::Row> all;
  for (Sequence* const sequence : rows) {
    DecodingPass::Row& row = all.emplace_back();
    if (sequence == nullptr) continue;
    row = {static_cast<int32_t>(sequence->computed++), sequence->pages, sequence->slot,
           sequence->request().sampling, sequence->tokens};
    ++computed_;
  }
  DecodingPass::Chosen chosen = pass.run(all, ids);
  return {&pass, std::move(rows), std::move(chosen)};
}

void DecodingAhead::start(const std::vector<ScheduledPart>& parts) {
  size_t pages = 0;
  std::vector<Sequence*> rows;
  std::vector<int32_t> ids;
  for (const ScheduledPart& part : parts) {
    pages = std::max(pages, part.sequence->pages.size());
    rows.push_back(part.sequence);
    ids.push_back(part.sequence->tokens.back());
  }
  const Request& first = rows.front()->request();
  DecodingPass& pass = passes_.at(std::ssize(rows), pages, first.adapter, first.log_prob_temperature);
  under_way_ = run(pass, std::move(rows), ids);
}

bool DecodingAhead::ends_with_next_token(const Sequence& sequence) const {
  return std::ssize(sequence.result().ids) + 1 >= sequence.request().max_new_tokens ||
         sequence.length() + 1 >= model_.config().max_positions;
}

// The rows of the pass that follows one whose tokens are not read yet: the same less those that are known to
// end. Nothing where the schedule has to decide first, or where a smaller pass would do.
std::optional<std::vector<Sequence*>> DecodingAhead::rows_after(const Started& before) const {
  const uint64_t model_version = model_.parameters().version();
  if (schedule_.starts_more()) return {};
  std::vector<Sequence*> rows;
  int64_t continuing = 0, new_pages = 0;
  for (Sequence* const sequence : before.rows) {
    rows.push_back(nullptr);
    if (sequence == nullptr) continue;
    if (sequence->versions != WeightVersions::of(model_version, sequence->request().adapter)) return {};
    if (ends_with_next_token(*sequence)) {
      if (schedule_.waiting() > 0) return {};  // another takes its place
      continue;
    }
    rows.back() = sequence;
    ++continuing;
    if (cache_.pages_for(sequence->computed + 1) <= std::ssize(sequence->pages)) continue;
    if (std::ssize(sequence->pages) == before.pass->shape().width) return {};
    ++new_pages;
  }
  if (continuing == 0 || rows_of_pass(continuing) < before.pass->shape().rows ||
      new_pages > cache_.available_pages())
    return {};
  return rows;
}

std::optional<DecodingAhead::Started> DecodingAhead::start_next(const Started& before) {
  std::optional<std::vector<Sequence*>> rows = rows_after(before);
  if (!rows) return {};
  for (Sequence* const sequence : *rows)
    if (sequence != nullptr) schedule_.make_room(*sequence, 1);
  return run(*before.pass, std::move(*rows), {});
}

std::vector<SampledToken> DecodingAhead::read() {
  std::optional<Started> next = start_next(*under_way_);
  const Started read = *std::exchange(under_way_, std::move(next));
  const std::span<const int32_t> ids = read.chosen.ids();
  const std::span<const float> log_probs = read.chosen.log_probs(), kept = read.chosen.kept();
  std::vector<SampledToken> tokens;
  for (size_t i = 0; i < read.rows.size(); ++i) {
    if (read.rows[i] == nullptr) continue;
    cache_.publish(*read.rows[i]);
    tokens.push_back({read.rows[i], {ids[i], log_probs[i], kept[i]}});
  }
  return tokens;
}

void DecodingAhead::drop(Sequence& sequence) {
  if (!under_way_) return;
  for (Sequence*& row : under_way_->rows)
    if (row == &sequence) row = nullptr;
}

}  // namespace temper::rollout
