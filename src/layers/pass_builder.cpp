#include "layers/pass_builder.h"

#include <algorithm>

#include "base/error.h"
#include "layers/decoder_modules.h"
#include "layers/forced_balance.h"
#include "tensor/host_inputs.h"

namespace temper::layers {
namespace {

int64_t furthest(const Tensor& positions) {
  const auto values = positions.values<int32_t>();
  return *std::max_element(values.begin(), values.end());
}

// The rows that each document sees: those of the one it continues, then its own.
primitives::ChosenRows seen_rows(const DecoderInput& input, std::vector<int32_t>& starts_k) {
  const auto starts = input.cu_seqlens.values<int32_t>();
  std::vector<int32_t> seen;
  const auto see = [&](size_t document) {
    for (int32_t row = starts[document]; row < starts[document + 1]; ++row) seen.push_back(row);
  };
  starts_k = {0};
  for (size_t d = 0; d < input.continued.size(); ++d) {
    if (input.continued[d] >= 0) see(static_cast<size_t>(input.continued[d]));
    see(d);
    starts_k.push_back(static_cast<int32_t>(seen.size()));
  }
  return {Tensor::from(seen), input.ids.numel(), true};
}

// Behind the tokens that each sequence holds, [1, tokens] int32.
Tensor positions_of(const ops::PagedSequences& sequences, int64_t tokens, Device device) {
  const std::string name =
      fmt::format("positions of {} {}", name_of(sequences.starts), name_of(sequences.held));
  return from_host(name, {1, tokens}, DType::kI32, device, [sequences](std::byte* to) {
    auto* position = reinterpret_cast<int32_t*>(to);
    for (int64_t s = 0; s < sequences.count(); ++s)
      for (int64_t at = sequences.held_by(s); at < sequences.length(s); ++at)
        *position++ = static_cast<int32_t>(at);
  });
}

// The rank's tokens of each adapter.
AdaptedRows own_rows(const std::vector<AdapterRows>& all, const TokenCut& cut, int64_t tokens) {
  if (cut.is_whole() || all.empty()) return {all, tokens};
  std::vector<AdapterRows> own;
  int64_t first = 0;
  for (const AdapterRows& rows : all) {
    own.push_back(rows.own(cut.part(first, rows.rows)));
    first += rows.rows;
  }
  return {std::move(own), tokens};
}

// How many tokens of each adapter's, or of all, are no padding and this rank's: it comes behind them.
Tensor own_counted(const Tensor& counted, const std::vector<AdapterRows>& adapters, const TokenCut& cut) {
  if (cut.is_whole()) return counted;
  std::vector<int32_t> own;
  int64_t first = 0;
  for (const int32_t count : counted.values<int32_t>()) {
    const TokenCut part = cut.part(first, count);
    own.push_back(static_cast<int32_t>(part.tokens_of(part.place())));
    first += adapters.size() < 2 ? 0 : adapters[own.size() - 1].rows;
  }
  return Tensor::from(own);
}

int64_t longest(const ops::PagedSequences& sequences) {
  int64_t most = 0;
  for (int64_t s = 0; s < sequences.count(); ++s) most = std::max(most, sequences.length(s));
  return most;
}

}  // namespace

void PassBuilder::add_routers(Pass& pass, const std::shared_ptr<RouterTrace>& trace, int64_t tokens) const {
  pass.routers = trace;
  if (pass.routers != nullptr) pass.routers->routers.resize(routers_);
  if (config_.routers.balanced && routers_ > 0)
    pass.experts = experts_in_turn(*routing_of(config_), tokens, device_);
}

Pass PassBuilder::of(const DecoderInput& input, const Decoder::Options& options) const {
  const TokenCut& cut = input.cut;
  const int64_t tokens = cut.is_whole() ? input.ids.numel() : cut.tokens_of(cut.place());
  const std::vector<RopeTables>& rope = rope_.up_to(furthest(input.positions) + 1);
  const int64_t covered = rope.empty() ? config_.max_positions : rope.front().cos.dim(0);
  // With the tables themselves: a longer row may replace those of the decoder.
  take_for_granted("ids " + name_of(input.ids), [vocab_size = config_.vocab_size, ids = input.ids,
                                                 positions = input.positions, rope, covered] {
    check_ids(ids.values<int32_t>(), vocab_size);
    return furthest(positions) < covered;
  });
  Pass pass{from_host(cut.own_of(input.positions, 1), device_), rope,
            own_rows(options.adapters, cut, tokens)};
  pass.adapters.assign(options.all_adapters.begin(), options.all_adapters.end());
  if (pass.adapters.empty() && !options.adapters.empty()) pass.adapters = {options.adapters.front().adapter};
  pass.divides_tokens = ranks_.divides_tokens(true);
  const int64_t own = ranks_.own_tokens(tokens, true);
  pass.stream_rows = pass.divides_tokens ? pass.rows.part(ranks_.tensor_place() * own, own) : pass.rows;
  if (input.counted.defined() && routers_ > 0)
    pass.counted = from_host(own_counted(input.counted, options.adapters, cut), device_);
  if (!cut.is_whole()) pass.context = context_pass(input, options.adapters);
  add_documents(pass, input);
  pass.stream = options.stream;
  add_routers(pass, options.routers, tokens);
  return pass;
}

std::shared_ptr<const ContextPass> PassBuilder::context_pass(const DecoderInput& input,
                                                             const std::vector<AdapterRows>& adapters) const {
  invariant(ranks_.context_groups != nullptr, "tokens are divided between context ranks");
  const TokenCut& cut = input.cut;
  const TokenCut groups = cut.of_groups(context_.members);
  ContextPass pass{.all = {ranks_.context, cut},
                   .heads = {context_.heads, cut.in_group(context_.members)},
                   .keys = {context_.keys, groups},
                   .rows = {adapters, input.ids.numel()}};
  if (!pass.keys.is_alone()) pass.documents = std::make_shared<const ContextDocuments>(input, groups);
  // A document may continue one that is whole on another rank: more states than one would have to pass.
  if (ranks_.mesh.context_method != ContextMethod::kHeads && input.continued.empty())
    pass.spans = context_spans(input);
  return std::make_shared<const ContextPass>(std::move(pass));
}

void PassBuilder::add_documents(Pass& pass, const DecoderInput& input) const {
  pass.cu_seqlens_q = pass.cu_seqlens_k = input.cu_seqlens;
  if (input.continued.empty()) return;
  std::vector<int32_t> starts_k;
  pass.seen = seen_rows(input, starts_k);
  take_for_granted("seen " + name_of(input.cu_seqlens), [input, found = starts_k] {
    std::vector<int32_t> now;
    seen_rows(input, now);
    return now == found;
  });
  pass.cu_seqlens_k = Tensor::from(starts_k);
  pass.continued = Tensor::from(input.continued);
}

Pass PassBuilder::of(const BatchInput& input, const PagedStates& pages) const {
  const int64_t tokens = input.ids.numel();
  const ops::PagedSequences& sequences = input.batch.sequences;
  Pass pass{
      positions_of(sequences, tokens, device_), rope_.up_to(longest(sequences)), {input.adapters, tokens}};
  // Tables that are too short are replaced: captured work holds those that it reads.
  take_for_granted("rotary tables of " + name_of(sequences.held), [sequences, tables = pass.rope] {
    return std::all_of(tables.begin(), tables.end(),
                       [&](const RopeTables& each) { return longest(sequences) <= each.cos.dim(0); });
  });
  pass.stream_rows = pass.rows;
  // Rows of other ranks may come to experts here.
  for (const AdapterRows& rows : input.adapters)
    if (std::find(pass.adapters.begin(), pass.adapters.end(), rows.adapter) == pass.adapters.end())
      pass.adapters.push_back(rows.adapter);
  pass.batch = &input.batch;
  pass.pages = &pages;
  pass.stream = input.stream;
  add_routers(pass, input.routers, tokens);
  return pass;
}

}  // namespace temper::layers
