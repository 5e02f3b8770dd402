#include "rollout/passes/token_sampler.h"

#include <algorithm>
#include <cstring>

#include "primitives/primitives.h"

namespace temper::rollout {
namespace {

bool is_penalized(const Sequence& each) { return each.request().sampling.repetition_penalty != 1; }

bool is_forced(const Sequence& each) { return each.result().ids.size() < each.request().forced.size(); }

// The same ids with the tokens that requests force, except where there was no token to choose.
Tensor with_forced(const Tensor& ids, const std::vector<Sequence*>& sequences) {
  if (std::none_of(sequences.begin(), sequences.end(), [](const Sequence* each) { return is_forced(*each); }))
    return ids;
  std::vector<int32_t> all(sequences.size());
  const Tensor host = ids.on({});
  for (size_t i = 0; i < sequences.size(); ++i) {
    all[i] = host.values<int32_t>()[i];
    if (is_forced(*sequences[i]) && all[i] != ops::kNoToken)
      all[i] = sequences[i]->request().forced[sequences[i]->result().ids.size()];
  }
  return Tensor::from(all).on(ids.device(), MemoryTag::kData);
}

}  // namespace

TokenSampler::TokenSampler(const layers::Decoder& model)
    : model_(model),
      sample_(model.ops().at<ops::Sample>("head")),
      log_probs_(model.ops().at<ops::TokenLogProbs>("head")) {}

TokenSampler::Sampled TokenSampler::next_tokens(const std::vector<ScheduledPart>& parts,
                                                const Tensor& hidden) const {
  Sequences ready;
  std::vector<int32_t> rows;
  std::vector<layers::AdapterRows> adapters;
  int32_t end = 0;
  bool adapted = false;
  for (const ScheduledPart& part : parts) {
    end += static_cast<int32_t>(part.tokens);
    if (part.sequence->left() > 0) continue;
    ready.push_back(part.sequence);
    rows.push_back(end - 1);
    adapters.push_back({part.sequence->request().adapter, 1});
    adapted = adapted || part.sequence->request().adapter != nullptr;
  }
  if (ready.empty()) return {};
  if (!adapted) adapters.clear();
  Tape tape(false);
  const primitives::ChosenRows last(Tensor::from(rows), hidden.dim(0), false);
  const Var logits =
      model_.logits(tape, primitives::gather_rows(tape, tape.constant(hidden), last), adapters);
  const ops::Sample op = choose(logits, ready);
  const std::vector<float> log_probs = log_probs_of(tape, logits, with_forced(op.ids, ready), ready);
  const Tensor chosen = with_forced(op.chosen, ready).on({}), kept = op.kept.on({});
  Sampled sampled{{}, logits.value};
  for (size_t i = 0; i < ready.size(); ++i)
    sampled.tokens.push_back(
        {ready[i], {chosen.values<int32_t>()[i], log_probs[i], kept.values<float>()[i]}});
  return sampled;
}

ops::Sample TokenSampler::choose(const Var& logits, const Sequences& sequences) const {
  const Device device = model_.device();
  const auto count = std::ssize(sequences);
  std::vector<int32_t> positions;
  std::vector<ops::SamplingOptions> options;
  for (const Sequence* each : sequences) {
    positions.push_back(static_cast<int32_t>(each->length()) - 1);
    options.push_back(each->request().sampling);
  }
  ops::Sample op;
  op.logits = logits.value.contiguous();
  op.options = Tensor::empty({count, sizeof(ops::SamplingOptions)}, DType::kU8, MemoryTag::kData, device);
  op.options.copy_from_host(options.data(), op.options.bytes());
  op.seen = seen_by(sequences);
  op.positions = Tensor::from(positions).on(device, MemoryTag::kData);
  op.ids = Tensor::empty({count}, DType::kI32, MemoryTag::kData, device);
  op.chosen = Tensor::empty({count}, DType::kI32, MemoryTag::kData, device);
  op.kept = Tensor::empty({count}, DType::kF32, MemoryTag::kData, device);
  ops::choose_tokens(sample_, op);
  return op;
}

// The tokens of each sequence, [sequences, vocab] uint8 on the model's device; where no penalty asks for
// them, anything.
Tensor TokenSampler::seen_by(const Sequences& sequences) const {
  const int64_t vocab = model_.config().vocab_size;
  const auto empty = [&](Device device) {
    return Tensor::empty({std::ssize(sequences), vocab}, DType::kU8, MemoryTag::kData, device);
  };
  if (std::none_of(sequences.begin(), sequences.end(),
                   [](const Sequence* each) { return is_penalized(*each); }))
    return empty(model_.device());
  const Tensor seen = empty({});
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (!is_penalized(*sequences[i])) continue;  // not read
    uint8_t* const marks = seen.data<uint8_t>() + static_cast<int64_t>(i) * vocab;
    std::memset(marks, 0, static_cast<size_t>(vocab));
    for (const int32_t id : sequences[i]->tokens) marks[id] = 1;
  }
  return seen.on(model_.device(), MemoryTag::kData);
}

// Each at its request's temperature; 0 where that is 0.
std::vector<float> TokenSampler::log_probs_of(Tape& tape, const Var& logits, const Tensor& ids,
                                              const Sequences& sequences) const {
  std::vector<float> all;
  for (size_t first = 0; first < sequences.size();) {  // neighbors of one temperature together
    const double temperature = sequences[first]->request().log_prob_temperature;
    size_t end = first + 1;
    while (end < sequences.size() && sequences[end]->request().log_prob_temperature == temperature) ++end;
    const auto from = static_cast<int64_t>(first), count = static_cast<int64_t>(end - first);
    first = end;
    if (temperature == 0) {
      all.resize(end);
      continue;
    }
    const Var some = primitives::narrow(tape, logits, 0, from, count);
    const Tensor own = ops::token_log_probs(tape, log_probs_, some, ids.narrow(0, from, count), temperature)
                           .log_probs.value.on({});
    const auto values = own.values<float>();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

}  // namespace temper::rollout
