// The part of the engine that asks a device for captured passes, and for the next one before it has read what
// the last one chose: the device never waits for the host. What such a pass computes for a request that turns
// out to be finished is forgotten.
#include <algorithm>
#include <bit>

#include "rollout/sequence.h"

namespace temper::rollout {
namespace {

constexpr size_t kFewestPages = 16;  // of a pass's rows

}  // namespace

// Whether the host need not look at what the pass computes before all of it is done, and the graph that does
// it is one that other passes use, too.
bool Engine::is_plain_decoding(const std::vector<Part>& parts) const {
  const Request& first = parts.front().sequence->request;
  return captures_ && options_.observer == nullptr &&
         std::all_of(parts.begin(), parts.end(), [&](const Part& part) {
           const Sequence& sequence = *part.sequence;
           const Request& request = sequence.request;
           return part.tokens == 1 && sequence.left() == 1 && !request.record_experts &&
                  request.sampling.repetition_penalty == 1 && request.adapter == first.adapter &&
                  request.log_prob_temperature == first.log_prob_temperature &&
                  std::ssize(sequence.result.ids) >= std::ssize(request.forced);
         });
}

DecodingPass& Engine::pass_for(int64_t rows, size_t pages, const Request& request) {
  const DecodingPass::Shape shape{rows_of_pass(rows),
                                  static_cast<int64_t>(std::bit_ceil(std::max(pages, kFewestPages))),
                                  request.adapter, request.log_prob_temperature};
  const Device device = model_.device();
  if (!arena_) {
    const int64_t most = rows_of_pass(options_.max_running);
    next_ids_ = Tensor::zeros({most}, DType::kI32, MemoryTag::kData, device);
    seen_ = Tensor::empty({most, model_.config().vocab_size}, DType::kU8, MemoryTag::kGraphs, device);
    arena_ = std::make_shared<Arena>(device, MemoryTag::kGraphs);
  }
  std::unique_ptr<DecodingPass>& pass = passes_[shape];
  if (pass == nullptr)
    pass = std::make_unique<DecodingPass>(
        DecodingSetup{model_, states_, static_cast<int32_t>(pool_.size()),
                      static_cast<int32_t>(2 * options_.max_running), next_ids_, seen_, arena_},
        shape);
  return *pass;
}

void Engine::forget_passes() {
  passes_.clear();
  arena_ = nullptr;
  next_ids_ = seen_ = {};
}

// Their next tokens are computed from now on.
Engine::Flight Engine::fly(DecodingPass& pass, std::vector<Sequence*> rows, std::span<const int32_t> ids) {
  std::vector<DecodingPass::Row> all;
  for (Sequence* const sequence : rows) {
    DecodingPass::Row& row = all.emplace_back();
    if (sequence == nullptr) continue;
    row = {static_cast<int32_t>(sequence->computed++), sequence->pages, sequence->slot,
           sequence->request.sampling};
    ++counts_.computed;
  }
  DecodingPass::Chosen chosen = pass.run(all, ids);
  return {&pass, std::move(rows), std::move(chosen)};
}

void Engine::take_off(const std::vector<Part>& parts) {
  size_t pages = 0;
  std::vector<Sequence*> rows;
  std::vector<int32_t> ids;
  for (const Part& part : parts) {
    pages = std::max(pages, part.sequence->pages.size());
    rows.push_back(part.sequence);
    ids.push_back(part.sequence->tokens.back());
  }
  flight_ = fly(pass_for(std::ssize(parts), pages, parts.front().sequence->request), std::move(rows), ids);
}

// The pass behind one that is not read yet, for the same rows less those that are known to end: nothing where
// something else has to be looked at first, or where fewer rows would do.
std::optional<Engine::Flight> Engine::follow(const Flight& flight) {
  if (model_.parameters().version() != model_version_) return {};
  if (!waiting_.empty() && running() < options_.max_running) return {};
  std::vector<Sequence*> rows;
  int64_t going_on = 0, wanted = 0;
  for (Sequence* const sequence : flight.rows) {
    rows.push_back(nullptr);
    if (sequence == nullptr) continue;
    const Request& request = sequence->request;
    if (sequence->adapter_version != Sequence::version_of(request.adapter)) return {};
    const bool ends = std::ssize(sequence->result.ids) + 1 >= request.max_new_tokens ||
                      sequence->length() + 1 >= model_.config().max_positions;
    if (ends && !waiting_.empty()) return {};  // another takes its place
    if (ends) continue;
    rows.back() = sequence;
    ++going_on;
    const bool has_page = sequence->computed < std::ssize(sequence->pages) * options_.page_tokens;
    wanted += has_page ? 0 : 1;
    if (!has_page && std::ssize(sequence->pages) == flight.pass->shape().width) return {};
  }
  if (going_on == 0 || rows_of_pass(going_on) < flight.pass->shape().rows || wanted > pool_.available())
    return {};
  for (Sequence* const sequence : rows)
    if (sequence != nullptr) make_room(*sequence, 1);
  return fly(*flight.pass, std::move(rows), {});
}

// Reads what the pass chose; meanwhile the device computes the next one.
void Engine::land() {
  std::optional<Flight> next = follow(*flight_);
  const Flight flight = *std::exchange(flight_, std::nullopt);
  const std::span<const int32_t> ids = flight.chosen.ids();
  const std::span<const float> log_probs = flight.chosen.log_probs(), kept = flight.chosen.kept();
  for (size_t i = 0; i < flight.rows.size(); ++i) {
    Sequence* const sequence = flight.rows[i];
    if (sequence == nullptr) continue;
    publish(*sequence);
    if (!take(*sequence, {ids[i], log_probs[i], kept[i]}) && next) next->rows[i] = nullptr;
  }
  flight_ = std::move(next);
}

}  // namespace temper::rollout
