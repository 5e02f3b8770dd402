#pragma once
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "data/rows/pack.h"
#include "layers/decoder.h"

namespace temper::training {

// A document of a micro-batch, in which documents follow one another.
struct DocumentSpan {
  int64_t length = 0, target_tokens = 0;
  int32_t source = 0;
  std::vector<data::Answer> answers = {};  // that are compared, at its end; none: trained as plain text

  int64_t shared() const;  // tokens that its answers have in common; all where it has none
};

// Rows that are computed at once, by one rank or by several context ranks; tensors on the CPU.
struct MicroBatch {
  layers::DecoderInput input;
  Tensor targets;  // [tokens] int32
  std::vector<DocumentSpan> documents;
  int64_t tokens = 0;                 // without padding
  std::vector<int32_t> experts = {};  // PackedRow::experts of all tokens, with padding

  // Of the tokens that this rank computes.
  Tensor own_targets() const { return input.cut.own_of(targets); }
};

// What is here of documents that follow one another from token 0: those of which the rank has tokens.
std::vector<DocumentSpan> own_documents(std::span<const DocumentSpan> documents, const Tensor& targets,
                                        const layers::TokenCut& cut);

// What a model asks of its passes: padding, and the context ranks that divide their tokens.
struct PassForm {
  bool padded = false;
  int context_ranks = 1, context_place = 0;
  // Of them those that exchange heads (Decoder::context_heads): groups of this size have pieces of about the
  // same cost of attention where there are several (TokenCut::balanced).
  int context_heads = 1;

  // Of parts of these lengths, whose tokens have these positions (DecoderInput).
  layers::TokenCut cut(std::span<const int64_t> parts, const Tensor& positions) const;

  // Tokens of a pass, or of each adapter's part of it, are a multiple of this.
  int64_t token_step() const;
};
PassForm form_of(const layers::Decoder& model);

// What routers of a pass over this batch record, and the experts that they use where the rows have them
// (router replay). Null if the model has no routers.
std::shared_ptr<layers::RouterTrace> watch_routers(const layers::Decoder& model, const MicroBatch& batch);

// On a GPU rows are padded to a multiple of this number of tokens for each context rank, with documents
// without targets that no other document attends to, and the list of documents is padded with empty ones to a
// power of two. Steps then have few shapes, for each of which matrix multiplications are planned once, and a
// captured graph serves many steps.
inline constexpr int64_t kTokenStep = 128;

inline int64_t padded_tokens(int64_t tokens, const PassForm& form) {
  return (tokens + form.token_step() - 1) / form.token_step() * form.token_step();
}

// Rows [begin, end); if there is none, one dummy token. Where each of the rows has an owner, all of an
// owner's neighbouring rows are padded, and divided between context ranks by themselves.
MicroBatch gather(const std::vector<data::PackedRow>& rows, size_t begin, size_t end,
                  const PassForm& form = {}, std::span<const size_t> owners = {});

bool same_shape(const MicroBatch& a, const MicroBatch& b);
// The tokens and documents of `from`, of the same shape, in the memory of `to`.
void assign(MicroBatch& to, const MicroBatch& from);

// Consecutive rows whose tokens fit the budget (0: no limit); every group has at least one row.
std::vector<std::pair<size_t, size_t>> cut_micro_batches(const std::vector<data::PackedRow>& rows,
                                                         int64_t max_tokens);
// The same for a model of ranks that compute every pass in step (ModelRanks::lockstep_group): one with fewer
// groups gets empty ones at the end. All of them call it.
std::vector<std::pair<size_t, size_t>> cut_micro_batches(const layers::Decoder& model,
                                                         const std::vector<data::PackedRow>& rows,
                                                         int64_t max_tokens);

// Forward passes over rows, without gradients, in micro-batches of up to `max_tokens` tokens: hidden states
// by a model with an adapter or (null) without, whose routers take the experts that rows say. `all`: the
// adapter with every token of the pass. Called equally often on all ranks that compute every pass in step; of
// several stages, all of which call it, the last one has hidden states to use.
using ReadPass = std::function<void(Tape& tape, const Var& hidden, const MicroBatch& batch,
                                    const layers::AdapterRows& all)>;
void for_each_pass(const layers::Decoder& model, const layers::Adapter* adapter,
                   const std::vector<data::PackedRow>& rows, int64_t max_tokens, const ReadPass& use);

}  // namespace temper::training
