// Passes over sequences whose states lie in pages.
#include <algorithm>

#include "base/error.h"
#include "layers/decoder_modules.h"
#include "layers/forced_balance.h"
#include "tensor/host_inputs.h"

namespace temper::layers {
namespace {

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

int64_t longest(const ops::PagedSequences& sequences) {
  int64_t most = 0;
  for (int64_t s = 0; s < sequences.count(); ++s) most = std::max(most, sequences.length(s));
  return most;
}

}  // namespace

PagedStates Decoder::make_pages(const PageSizes& sizes) const {
  std::vector<std::unique_ptr<MixerPages>> layers;
  for (const Block& block : config_.blocks)
    layers.push_back(
        block.on_tensor_ranks(ranks_.tensor_ranks()).mixer->make_pages(sizes, parameters_.dtype(), device()));
  return {std::move(layers), sizes};
}

bool Decoder::decodes_as_prompts() const {
  return std::all_of(layers_.begin(), layers_.end(),
                     [](const Layer& layer) { return layer.mixer->decodes_as_prompts(); });
}

Var Decoder::forward(Tape& tape, const BatchInput& input, const PagedStates& pages) const {
  invariant(!tape.recording(), "a state is for inference");
  const int64_t tokens = input.ids.numel();
  const PageSizes& sizes = pages.sizes();
  if (input.ids.device().type == DeviceType::kCpu) check_ids(input.ids.values<int32_t>());
  ops::check_paged_sequences("decoder", input.batch.sequences, tokens, sizes.pages, sizes.page_tokens);
  std::optional<HostInputs> inputs;
  std::optional<HostInputs::Scope> scope;
  if (!HostInputs::recording()) scope.emplace(inputs.emplace(device()), false);
  const ops::PagedSequences& sequences = input.batch.sequences;
  Pass pass{
      positions_of(sequences, tokens, device()), rope_.up_to(longest(sequences)), {input.adapters, tokens}};
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
  pass.routers = input.routers;
  pass.stream = input.stream;
  if (pass.routers != nullptr) pass.routers->routers.resize(routers_.count());
  if (config_.routers.balanced && routers_.count() > 0)
    pass.experts = experts_in_turn(*routing_of(config_), tokens, device());
  Stream stream{embed(tape, from_host(input.ids, device()), pass), {}};
  for (size_t i = 0; i < layers_.size(); ++i) stream = through_sharded(tape, i, stream, pass, nullptr, false);
  return ranks_.enter(tape, norm_end(tape, stream, pass), tokens, false);
}

}  // namespace temper::layers
