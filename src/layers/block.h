#pragma once
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/json/json.h"
#include "layers/adapted_rows.h"
#include "layers/binding.h"
#include "layers/context_pass.h"
#include "layers/decoder_input.h"
#include "layers/paged_states.h"
#include "layers/router_trace.h"
#include "ops/moe_router/moe_router.h"
#include "primitives/primitives.h"

// A layer is a mixer, which moves information between tokens, and a channel, which works on each token. Rooms
// of src/mixers and src/channels are the kinds; a family lists a model's blocks; the decoder knows neither.
namespace temper::layers {

// What the mixers and channels of one pass read of it. Its tokens are those that this rank computes.
struct Pass {
  Tensor positions;              // [1 or 4, tokens] int32, as of DecoderInput, on the model's device
  std::vector<RopeTables> rope;  // by RopeTableSet::add
  AdaptedRows rows = {};
  AdaptedRows stream_rows = {};  // of the tokens of the residual stream that are here
  // Whose rows other ranks may send here, in the same order on all ranks: those of `rows`, or more.
  std::vector<const Adapter*> adapters = {};
  bool divides_tokens = false;  // tensor ranks have some of the stream's tokens each (ModelRanks)
  // Of sequences whose states are `pages`, which the tokens continue; null: there are none.
  const PagedBatch* batch = nullptr;
  const PagedStates* pages = nullptr;
  // The context ranks that have the other tokens of the documents; null: this rank has all of them.
  std::shared_ptr<const ContextPass> context = {};
  // The documents that follow one another, of all tokens, on the CPU. A document sees its own keys, or the
  // rows that `seen` chooses.
  Tensor cu_seqlens_q = {}, cu_seqlens_k = {};      // [documents + 1] int32
  std::optional<primitives::ChosenRows> seen = {};  // none: all once
  // [documents] int32 on the CPU: the document that each continues, or -1 (ops/documents.h); undefined: none.
  Tensor continued = {};
  std::shared_ptr<RouterTrace> routers = {};  // null: routers are not recorded
  // [parts of the rows] int32, on the model's device: how many tokens of each are no padding; undefined: all.
  Tensor counted = {};
  // [tokens, top_k] int32, on the model's device: experts that routers use instead of choosing; undefined:
  // they choose.
  Tensor experts = {};
  // [tokens, hidden] each: the residual stream before every mixer and every channel, in turn; null: not
  // recorded.
  std::vector<Tensor>* stream = nullptr;
};

// [tokens] int32: the places of a pass's tokens in their documents.
inline Tensor places_of(const Pass& pass) {
  return pass.positions.narrow(0, 0, 1).reshape({pass.positions.dim(1)});
}
// What rotates them: [tokens] int32, their places in their documents, or [3, tokens], time, height and width.
inline Tensor rotated_by(const Pass& pass) { return rotary_positions(pass.positions); }

// A mixer with its kernels and parameters.
class BoundMixer {
 public:
  virtual ~BoundMixer() = default;
  // [tokens, hidden] to the same; of several tensor ranks each gives a part of the sum.
  virtual Var forward(Tape& tape, const Var& x, const Pass& pass) const = 0;
  // The same for the sequences of pass.batch, whose states in this layer are `pages`.
  virtual Var forward_batch(Tape& tape, const Var& x, const Pass& pass, const MixerPages& pages) const = 0;
  // Whether a token leaves behind the same in either form, as one that decodes and as part of a prompt.
  virtual bool decodes_as_prompts() const = 0;
  // Whether forward_batch may be captured where each sequence gets one token: what the host knows comes as
  // tensor/host_inputs.h says.
  virtual bool batches_on_device() const { return false; }
  // The op whose kernel asks the CPU in every step, so that a step cannot be captured; empty where none does.
  virtual std::string_view asks_host() const = 0;
};

class BoundChannel {
 public:
  virtual ~BoundChannel() = default;
  virtual Var forward(Tape& tape, const Var& x, const Pass& pass) const = 0;  // as of mixers
  // Of channels that choose experts: what their choice adds to the scores, [experts] float32; null: nothing.
  virtual const BoundWeight* choice_bias() const { return nullptr; }
  virtual bool batches_on_device() const = 0;  // as of mixers
  virtual std::string_view asks_host() const = 0;
};

// A mixer as a configuration describes it, for any number of layers.
class Mixer {
 public:
  virtual ~Mixer() = default;
  virtual void declare(WeightScope& weights) const = 0;
  // What each of `tensor` ranks, at least 2, has of it: of that ops are named, modules bound and pages made.
  // An Error where it cannot be divided so.
  virtual std::shared_ptr<const Mixer> on_tensor_ranks(int tensor) const = 0;
  // Why this many context ranks, of which groups of `heads` exchange heads of attention, cannot compute it
  // together, as a clause; nothing where they can.
  virtual std::string refuses_context(int ranks, int heads) const = 0;
  virtual void name_ops(OpScope& ops) const = 0;
  virtual std::unique_ptr<BoundMixer> bind(const Binding& binding) const = 0;
  // What sequences leave behind.
  virtual std::unique_ptr<MixerPages> make_pages(const PageSizes& sizes, DType dtype,
                                                 Device device) const = 0;
  // Of the matrix products of one forward pass over documents of these lengths (a multiply-add counts two).
  virtual double flops(std::span<const int32_t> document_lengths) const = 0;
  // All that decides what it computes, as keys of config.json where there is one.
  virtual Json::Object describe() const = 0;
};

// The same of a channel.
class Channel {
 public:
  virtual ~Channel() = default;
  virtual void declare(WeightScope& weights) const = 0;
  virtual std::shared_ptr<const Channel> on_tensor_ranks(int tensor) const = 0;  // as of mixers
  virtual void name_ops(OpScope& ops) const = 0;
  virtual std::unique_ptr<BoundChannel> bind(const Binding& binding) const = 0;
  virtual double flops(int64_t tokens) const = 0;
  virtual const ops::Routing* routing() const { return nullptr; }  // of channels that choose experts
  virtual Json::Object describe() const = 0;
};

struct Block {
  std::shared_ptr<const Mixer> mixer;
  std::shared_ptr<const Channel> channel;

  Block on_tensor_ranks(int tensor) const {
    return tensor == 1 ? *this : Block{mixer->on_tensor_ranks(tensor), channel->on_tensor_ranks(tensor)};
  }
};

}  // namespace temper::layers
