#include "layers/pass_builder.h"

#include <algorithm>

#include "base/error.h"
#include "layers/decoder_modules.h"
#include "layers/forced_balance.h"
#include "tensor/host_inputs.h"

namespace temper::layers {
namespace {

// Of what rotates the tokens.
int64_t furthest(const Tensor& all) {
  const Tensor positions = rotary_positions(all);
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

int32_t shift_of(const Tensor& shifts, int64_t sequence) {
  return shifts.defined() ? shifts.data<int32_t>()[sequence] : 0;
}

// Behind the tokens that each sequence holds, [tokens], with what is added there.
void write_places(const ops::PagedSequences& sequences, const Tensor& shifts, int32_t* position) {
  for (int64_t s = 0; s < sequences.count(); ++s)
    for (int64_t at = sequences.held_by(s); at < sequences.length(s); ++at)
      *position++ = static_cast<int32_t>(at) + shift_of(shifts, s);
}

// [1 or 4, tokens] int32, as of DecoderInput.
Tensor positions_of(const BatchInput& input, Device device) {
  const ops::PagedSequences& sequences = input.batch.sequences;
  const int64_t tokens = input.ids.numel();
  if (input.media_positions.defined()) {
    const Tensor all = Tensor::empty({4, tokens}, DType::kI32);
    write_places(sequences, {}, all.data<int32_t>());
    all.narrow(0, 1, 3).copy_from(input.media_positions);
    return from_host(all, device);
  }
  const std::string name =
      fmt::format("positions of {} {} {}", name_of(sequences.starts), name_of(sequences.held),
                  input.shifts.defined() ? name_of(input.shifts) : "");
  return from_host(name, {1, tokens}, DType::kI32, device, [sequences, shifts = input.shifts](std::byte* to) {
    write_places(sequences, shifts, reinterpret_cast<int32_t*>(to));
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

// How many positions the tables must have.
int64_t longest(const ops::PagedSequences& sequences, const Tensor& shifts) {
  int64_t most = 0;
  for (int64_t s = 0; s < sequences.count(); ++s)
    most = std::max(most, sequences.length(s) + shift_of(shifts, s));
  return most;
}
int64_t longest(const BatchInput& input) {
  if (!input.media_positions.defined()) return longest(input.batch.sequences, input.shifts);
  const auto values = input.media_positions.values<int32_t>();
  return values.empty() ? 0 : int64_t{*std::max_element(values.begin(), values.end())} + 1;
}

}  // namespace

void PassBuilder::check(const DecoderInput& input, DType dtype) const {
  if (input.ids.numel() == 0) fail("a forward pass needs at least one token");
  check_ids(input.ids.values<int32_t>(), config_.vocab_size);
  check_boundaries(input);
  check_media(input.positions.dim(0) > 1, input.placed, input.ids.numel(), dtype);
}

void PassBuilder::check(const BatchInput& input, DType dtype) const {
  const int64_t tokens = input.ids.numel(), sequences = input.batch.sequences.count();
  const auto check_shape = [](const char* name, const Tensor& given, const Shape& shape) {
    if (given.defined() && given.shape() != shape)
      fail("{} are {}, needs {}", name, to_string(given.shape()), to_string(shape));
  };
  check_shape("shifts of sequences", input.shifts, {sequences});
  check_shape("positions of pictures", input.media_positions, {3, tokens});
  if (input.shifts.defined())
    for (int64_t s = 0; s < sequences; ++s)
      if (input.batch.sequences.held_by(s) + shift_of(input.shifts, s) < 0)
        fail("sequence {} holds {} tokens, but its positions are shifted by {}", s,
             input.batch.sequences.held_by(s), shift_of(input.shifts, s));
  if (input.media_positions.defined())
    for (const int32_t position : input.media_positions.values<int32_t>())
      if (position < 0) fail("a time, height or width is {}, needs 0 or more", position);
  check_media(input.media_positions.defined(), input.placed, tokens, dtype);
}

void PassBuilder::check_media(bool three_positions, const PlacedRows& placed, int64_t tokens,
                              DType dtype) const {
  if (three_positions && !rope_.takes_three_positions())
    fail(
        "tokens have three positions (time, height, width), but the model's rotary takes one: "
        "its config.json has no mrope_section");
  if (!placed.exist()) return;
  check_placed_rows(placed, tokens, config_.hidden_size, dtype);
  const size_t added = placed.after_layers.size(),
               here = ranks_.stages.layers_of(0, config_.blocks.size()).last;
  if (added <= here) return;
  const bool whole = ranks_.stages.num_parts() == 1;
  fail("rows are added behind the first {} layers, and {} has {}: {}", added,
       whole ? "the model" : "the first part of the pipeline", here,
       whole ? "give it the rows of its own tower" : "use fewer stages or chunks");
}

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
  DecoderInput kept = input;
  kept.placed = {};  // rows belong to the tape of this pass
  take_for_granted("seen " + name_of(input.cu_seqlens), [kept, found = starts_k] {
    std::vector<int32_t> now;
    seen_rows(kept, now);
    return now == found;
  });
  pass.cu_seqlens_k = Tensor::from(starts_k);
  pass.continued = Tensor::from(input.continued);
}

Pass PassBuilder::of(const BatchInput& input, const PagedStates& pages) const {
  const int64_t tokens = input.ids.numel();
  const ops::PagedSequences& sequences = input.batch.sequences;
  Pass pass{positions_of(input, device_), rope_.up_to(longest(input)), {input.adapters, tokens}};
  // Tables that are too short are replaced: captured work holds those that it reads.
  take_for_granted("rotary tables of " + name_of(sequences.held),
                   [sequences, shifts = input.shifts, tables = pass.rope] {
                     return std::all_of(tables.begin(), tables.end(), [&](const RopeTables& each) {
                       return longest(sequences, shifts) <= each.cos.dim(0);
                     });
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
