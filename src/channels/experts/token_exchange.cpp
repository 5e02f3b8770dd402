#include "channels/experts/token_exchange.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

#include "base/error.h"

namespace temper::channels {
namespace {

namespace p = primitives;

constexpr const char *kTokens = "tokens to experts", *kWeights = "weights of experts",
                     *kBack = "tokens from experts";

// Chosen experts, in the order of tokens, as ranks exchange them. Where memory is only counted there are
// none: the experts take turns.
using Id = uint16_t;
std::vector<Id> ids_on_host(const Tensor& ids, int64_t experts) {
  std::vector<Id> all(static_cast<size_t>(ids.numel()));
  if (only_counts(ids.device())) {
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<Id>(static_cast<int64_t>(i) % experts);
    return all;
  }
  const Tensor seen = ids.on({});
  const auto values = seen.values<int32_t>();
  std::copy(values.begin(), values.end(), all.begin());
  return all;
}

// The kinds of tokens, one after the other.
class KindOfToken {
 public:
  explicit KindOfToken(std::span<const TokenExchange::Kind> kinds) : kinds_(kinds) {}
  size_t next() {
    if (kinds_.empty()) return 0;
    while (at_ + 1 < kinds_.size() && seen_ == kinds_[at_].tokens) {
      ++at_;
      seen_ = 0;
    }
    ++seen_;
    return static_cast<size_t>(kinds_[at_].kind);
  }

 private:
  std::span<const TokenExchange::Kind> kinds_;
  size_t at_ = 0;
  int32_t seen_ = 0;
};

Tensor integers(int64_t count) { return Tensor::empty({count}, DType::kI32, MemoryTag::kData); }

// Until they are known.
p::ChosenRows no_rows() { return {integers(0), 0, false}; }

}  // namespace

int64_t TokenExchange::Counts::sent() const { return std::accumulate(send.begin(), send.end(), int64_t{0}); }
int64_t TokenExchange::Counts::received() const {
  return std::accumulate(receive.begin(), receive.end(), int64_t{0});
}

TokenExchange::TokenExchange(collectives::Group& ranks, const Tensor& ids, int64_t experts,
                             std::span<const Kind> kinds)
    : ranks_(ranks),
      experts_(experts),
      top_k_(ids.dim(1)),
      sent_(no_rows()),
      chosen_(no_rows()),
      expanded_(no_rows()) {
  invariant(experts <= std::numeric_limits<Id>::max() && ranks.size() <= 64, "owners of a token fit a mask");
  for (int64_t expert = 0; expert < experts; ++expert)
    owners_.push_back(static_cast<uint8_t>(expert * ranks.size() / experts));
  const std::vector<Id> own = ids_on_host(ids, experts);
  const auto all = ranks.gather("experts of tokens", std::span<const Id>(own));
  tokens_ = choices_ = {std::vector<int64_t>(all.size()), std::vector<int64_t>(all.size())};
  leave(own, ids.dim(0));
  arrive(all, kinds.empty() ? std::vector<std::vector<Kind>>() : ranks.gather("adapters of tokens", kinds));
  own_ids_ = own_ids_.on(ids.device());
}

// Where this rank's tokens and choices stand among those that it sends, by the rank that they go to.
void TokenExchange::leave(const std::vector<Id>& ids, int64_t tokens) {
  std::vector<uint64_t> owners(static_cast<size_t>(tokens));  // of a token, a bit each
  for (size_t token = 0; token < owners.size(); ++token) {
    for (int64_t j = 0; j < top_k_; ++j) {
      const size_t to = owners_[ids[token * static_cast<size_t>(top_k_) + static_cast<size_t>(j)]];
      ++choices_.send[to];
      owners[token] |= uint64_t{1} << to;
    }
    for (uint64_t left = owners[token]; left != 0; left &= left - 1)
      ++tokens_.send[static_cast<size_t>(std::countr_zero(left))];
  }
  const auto beginnings = [](const std::vector<int64_t>& counts) {
    std::vector<int32_t> at(counts.size());
    for (size_t i = 1; i < at.size(); ++i) at[i] = at[i - 1] + static_cast<int32_t>(counts[i - 1]);
    return at;
  };
  std::vector<int32_t> token_at = beginnings(tokens_.send), choice_at = beginnings(choices_.send);
  const int64_t sent = tokens_.sent(), choices = choices_.sent();
  const Tensor token_ids = integers(sent), starts = integers(tokens + 1), places = integers(sent),
               choice_ids = integers(choices), each = integers(choices + 1),
               choice_places = integers(choices);
  int32_t place = 0;
  for (int64_t token = 0; token < tokens; ++token) {
    starts.data<int32_t>()[token] = place;
    for (uint64_t left = owners[static_cast<size_t>(token)]; left != 0; left &= left - 1) {
      const int32_t at = token_at[static_cast<size_t>(std::countr_zero(left))]++;
      token_ids.data<int32_t>()[at] = static_cast<int32_t>(token);
      places.data<int32_t>()[place++] = at;
    }
    for (int64_t choice = token * top_k_; choice < (token + 1) * top_k_; ++choice) {
      const int32_t at = choice_at[owners_[ids[static_cast<size_t>(choice)]]]++;
      choice_ids.data<int32_t>()[at] = static_cast<int32_t>(choice);
      choice_places.data<int32_t>()[choice] = at;
      each.data<int32_t>()[choice] = static_cast<int32_t>(choice);
    }
  }
  starts.data<int32_t>()[tokens] = place;
  each.data<int32_t>()[choices] = static_cast<int32_t>(choices);
  sent_ = {token_ids, tokens, starts, places};
  chosen_ = {choice_ids, choices, each, choice_places};
}

// What all ranks send here, one after the other: a row for each choice of their tokens that is one of this
// rank's experts.
void TokenExchange::arrive(const std::vector<std::vector<Id>>& all,
                           const std::vector<std::vector<Kind>>& kinds) {
  const int here = ranks_.rank();
  const int64_t first = here * experts_ / ranks_.size();
  std::vector<int32_t> token_of, starts, experts;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const size_t rows_before = token_of.size(), tokens_before = starts.size();
    const std::vector<Id>& ids = all[rank];
    KindOfToken kind_of(kinds.empty() ? std::span<const Kind>() : std::span<const Kind>(kinds[rank]));
    for (size_t begin = 0; begin < ids.size(); begin += static_cast<size_t>(top_k_)) {
      bool comes = false;
      const size_t kind = kind_of.next();
      for (size_t choice = begin; choice < begin + static_cast<size_t>(top_k_); ++choice) {
        if (owners_[ids[choice]] != here) continue;
        if (!comes) starts.push_back(static_cast<int32_t>(token_of.size()));
        comes = true;
        if (!kinds.empty()) {
          if (by_kind_.size() <= kind) by_kind_.resize(kind + 1);
          by_kind_[kind].rows.push_back(static_cast<int32_t>(token_of.size()));
          by_kind_[kind].experts.push_back(static_cast<int32_t>(ids[choice] - first));
        }
        token_of.push_back(static_cast<int32_t>(starts.size()) - 1);
        experts.push_back(static_cast<int32_t>(ids[choice] - first));
      }
    }
    tokens_.receive[rank] = std::ssize(starts) - static_cast<int64_t>(tokens_before);
    choices_.receive[rank] = std::ssize(token_of) - static_cast<int64_t>(rows_before);
  }
  const auto rows = std::ssize(token_of), tokens = std::ssize(starts);
  starts.push_back(static_cast<int32_t>(rows));
  std::vector<int32_t> places(token_of.size());
  std::iota(places.begin(), places.end(), 0);
  expanded_ = {Tensor::from(token_of), tokens, Tensor::from(starts), Tensor::from(places)};
  own_ids_ = Tensor::from(std::span<const int32_t>(experts), {rows, 1});
}

// Gradients go back the same way: receive()'s closures, which come first in backward, send them, and send()'s
// take them when they have come.
TokenExchange::OnTheirWay TokenExchange::send(Tape& tape, const Var& x, const Var& weights) const {
  const Var flat = p::reshape(tape, weights, {weights.value.numel(), 1}),
            tokens = p::gather_rows(tape, x, sent_), chosen = p::gather_rows(tape, flat, chosen_);
  OnTheirWay sent;
  sent.leaving = {tokens.value.contiguous(), chosen.value.contiguous()};
  sent.back = std::make_shared<std::vector<Tensor>>(2);
  ranks_.begin_overlap();
  const Tensor came = move(kTokens, sent.leaving[0], tokens_),
               weights_came = move(kWeights, sent.leaving[1], choices_);
  const auto take = [&](const Var& from, size_t which) {
    return [&ranks = ranks_, back = sent.back, slot = from.slot, which](const Tensor&) {
      ranks.end_overlap();
      slot->add(std::exchange((*back)[which], {}));
    };
  };
  sent.tokens = tape.record(came, {&tokens}, take(tokens, 0));
  sent.weights = tape.record(weights_came, {&chosen}, take(chosen, 1));
  return sent;
}

TokenExchange::Rows TokenExchange::receive(Tape& tape, const OnTheirWay& sent) const {
  ranks_.end_overlap();
  const auto arrive = [&](const Var& came, const char* name, const Counts& counts, size_t which) {
    return tape.record(
        came.value, {&came},
        [&ranks = ranks_, back = sent.back, slot = came.slot, name, counts, which](const Tensor& grad) {
          const Tensor leaving = grad.contiguous();
          ranks.begin_overlap();
          (*back)[which] = ranks.all_to_all(name, leaving, counts.receive, counts.send);
          slot->add(leaving);  // which is read until it has arrived
        });
  };
  const Var weights = arrive(sent.weights, kWeights, choices_, 1),
            tokens = arrive(sent.tokens, kTokens, tokens_, 0);
  return {p::gather_rows(tape, tokens, expanded_), weights};
}

Var TokenExchange::combine(Tape& tape, const Var& y) const {
  const Var rows = p::sum_rows(tape, y, expanded_);
  const Tensor received = move(kBack, rows.value.contiguous(), tokens_.back());
  const Var own = tape.record(
      received, {&rows}, [&ranks = ranks_, slot = rows.slot, counts = tokens_](const Tensor& grad) {
        slot->add(ranks.all_to_all(kBack, grad.contiguous(), counts.send, counts.receive));
      });
  return p::sum_rows(tape, own, sent_);
}

}  // namespace temper::channels
