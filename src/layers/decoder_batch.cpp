// Passes over sequences whose states lie in pages.
#include <algorithm>

#include "base/error.h"
#include "layers/decoder_modules.h"
#include "layers/forced_balance.h"
#include "tensor/host_inputs.h"

namespace temper::layers {
namespace {

// Behind the tokens that each sequence holds, [tokens] int32.
Tensor positions_of(const ops::PagedSequences& sequences) {
  std::vector<int32_t> positions;
  for (int64_t s = 0; s < sequences.count(); ++s)
    for (int64_t at = sequences.held_by(s); at < sequences.length(s); ++at)
      positions.push_back(static_cast<int32_t>(at));
  return Tensor::from(positions);
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
  check_ids(input.ids.values<int32_t>());
  ops::check_paged_sequences("decoder", input.batch.sequences, tokens, sizes.pages, sizes.page_tokens);
  std::optional<HostInputs> inputs;
  std::optional<HostInputs::Scope> scope;
  if (!HostInputs::recording()) scope.emplace(inputs.emplace(device()), false);
  Pass pass{from_host(positions_of(input.batch.sequences), device()),
            rope_.up_to(longest(input.batch.sequences)),
            {input.adapters, tokens}};
  pass.stream_rows = pass.rows;
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
