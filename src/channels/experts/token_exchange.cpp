#include "channels/experts/token_exchange.h"

#include <numeric>

namespace temper::channels {
namespace {

namespace p = primitives;

// What one rank sends another: tokens, and for each of their choices there the place of the token among them
// and the expert, as the other counts its own.
struct Parcel {
  std::vector<int32_t> tokens, choices;
  std::vector<int32_t> labels;  // place and expert, one after the other
};

// Where memory is only counted there are no ids: the experts take turns.
std::vector<Parcel> pack(const Tensor& ids, int64_t experts, int ranks) {
  const bool counted = only_counts(ids.device());
  const Tensor seen = counted ? Tensor() : ids.on({});
  const int64_t tokens = ids.dim(0), top_k = ids.dim(1), each = experts / ranks;
  std::vector<Parcel> parcels(static_cast<size_t>(ranks));
  for (int64_t token = 0; token < tokens; ++token)
    for (int64_t choice = token * top_k; choice < (token + 1) * top_k; ++choice) {
      const int64_t expert = counted ? choice % experts : seen.data<int32_t>()[choice];
      Parcel& parcel = parcels[static_cast<size_t>(expert / each)];
      if (parcel.tokens.empty() || parcel.tokens.back() != token)
        parcel.tokens.push_back(static_cast<int32_t>(token));
      parcel.choices.push_back(static_cast<int32_t>(choice));
      parcel.labels.push_back(static_cast<int32_t>(std::ssize(parcel.tokens)) - 1);
      parcel.labels.push_back(static_cast<int32_t>(expert % each));
    }
  return parcels;
}

template <class Member>
Tensor joined(const std::vector<Parcel>& parcels, Member member) {
  std::vector<int32_t> all;
  for (const Parcel& parcel : parcels)
    all.insert(all.end(), (parcel.*member).begin(), (parcel.*member).end());
  return Tensor::from(all);
}

// Until they are known.
p::ChosenRows no_rows() { return {Tensor::zeros({0}, DType::kI32), 0, false}; }

}  // namespace

int64_t TokenExchange::Counts::received() const {
  return std::accumulate(receive.begin(), receive.end(), int64_t{0});
}

TokenExchange::TokenExchange(collectives::Group& ranks, const Tensor& ids, int64_t experts)
    : ranks_(ranks), sent_(no_rows()), chosen_(no_rows()), expanded_(no_rows()) {
  const std::vector<Parcel> parcels = pack(ids, experts, ranks.size());
  std::vector<int64_t> counts;
  for (const Parcel& parcel : parcels) {
    counts.push_back(std::ssize(parcel.tokens));
    counts.push_back(std::ssize(parcel.choices));
  }
  const auto own = static_cast<size_t>(ranks.rank());
  const auto all = ranks.gather("tokens for experts", std::span<const int64_t>(counts));
  for (size_t rank = 0; rank < all.size(); ++rank) {
    tokens_.send.push_back(counts[2 * rank]);
    choices_.send.push_back(counts[2 * rank + 1]);
    tokens_.receive.push_back(all[rank][2 * own]);
    choices_.receive.push_back(all[rank][2 * own + 1]);
  }
  sent_ = {joined(parcels, &Parcel::tokens), ids.dim(0), true};
  chosen_ = {joined(parcels, &Parcel::choices), ids.numel(), true};

  const Tensor labels = joined(parcels, &Parcel::labels);
  const Tensor theirs =
      ranks.all_to_all("experts of tokens", labels.reshape({labels.numel() / 2, 2}).on(ids.device()),
                       choices_.send, choices_.receive);
  const int64_t rows = choices_.received();
  const Tensor places = Tensor::zeros({rows}, DType::kI32), own_ids = Tensor::zeros({rows, 1}, DType::kI32);
  if (!only_counts(ids.device())) {
    const Tensor here = theirs.on({});
    int64_t row = 0, first = 0;
    for (size_t rank = 0; rank < all.size(); ++rank) {
      for (const int64_t end = row + choices_.receive[rank]; row < end; ++row) {
        places.data<int32_t>()[row] = static_cast<int32_t>(first) + here.data<int32_t>()[2 * row];
        own_ids.data<int32_t>()[row] = here.data<int32_t>()[2 * row + 1];
      }
      first += tokens_.receive[rank];
    }
  }
  expanded_ = {places, tokens_.received(), true};
  own_ids_ = own_ids.on(ids.device());
}

Var TokenExchange::exchange(Tape& tape, const char* name, const Var& rows, const Counts& counts) const {
  const Tensor received = ranks_.all_to_all(name, rows.value.contiguous(), counts.send, counts.receive);
  return tape.record(received, {&rows},
                     [&ranks = ranks_, name, slot = rows.slot, counts](const Tensor& grad) {
                       slot->add(ranks.all_to_all(name, grad.contiguous(), counts.receive, counts.send));
                     });
}

Var TokenExchange::dispatch(Tape& tape, const Var& x) const {
  const Var rows = exchange(tape, "tokens to experts", p::gather_rows(tape, x, sent_), tokens_);
  return p::gather_rows(tape, rows, expanded_);
}

Var TokenExchange::weights(Tape& tape, const Var& weights) const {
  const Var flat = p::reshape(tape, weights, {weights.value.numel(), 1});
  return exchange(tape, "weights of experts", p::gather_rows(tape, flat, chosen_), choices_);
}

Var TokenExchange::combine(Tape& tape, const Var& y) const {
  const Var rows = exchange(tape, "tokens from experts", p::sum_rows(tape, y, expanded_), tokens_.back());
  return p::sum_rows(tape, rows, sent_);
}

}  // namespace temper::channels
