#pragma once
#include "layers/linear.h"
#include "ops/cross_entropy/cross_entropy.h"
#include "ops/embedding/embedding.h"

// Both ends of a decoder, whose weights may be one.
namespace temper::layers {

struct VocabularySize {
  int64_t tokens = 0, hidden = 0;
  bool tied = false;  // the head's weight is the embedding's
  double logits_divisor = 1;
};
// embedding.weight, whose name in files begins with `source_scope`
void declare_embedding(WeightTable& table, const VocabularySize& size, const std::string& source_scope);
void declare_head(WeightTable& table, const VocabularySize& size);  // head.weight
void name_embedding_ops(OpScope& ops, const VocabularySize& size);
// `tensor`: of how many ranks that divide the vocabulary.
void name_head_ops(OpScope& ops, const VocabularySize& size, int tensor);

class Embedding {
 public:
  Embedding(const Binding& binding, const VocabularySize& size);
  // [tokens, hidden]; of several tensor ranks each gives the rows of its part of the vocabulary, zeros else.
  Var operator()(Tape& tape, const Tensor& ids, const AdaptedRows& rows) const;

 private:
  BoundWeight table_;
  ops::Bound<ops::Embedding> kernel_;
  ops::Bound<ops::Linear> update_;  // of adapters
  int64_t first_ = 0;               // of the ids whose rows are here
};

class Head {
 public:
  Head(const Binding& binding, const VocabularySize& size);
  Var logits(Tape& tape, const Var& hidden, const AdaptedRows& rows) const;  // [tokens, vocab], on all ranks
  // The same of this rank's part of the vocabulary, with its gradient, as loss() has it: that of `hidden` is
  // then a part of a sum over the ranks.
  Var own_logits(Tape& tape, const Var& hidden, const AdaptedRows& rows) const {
    return linear_(tape, divided(tape, hidden), rows);
  }
  const ops::VocabularyRanks& ranks() const { return ranks_; }
  // Of rows that are all of one adapter; see Decoder::loss.
  ops::CrossEntropy::Vars loss(Tape& tape, const Var& hidden, const Tensor& targets,
                               const ops::CrossEntropy::Factors& factors, const AdapterRows& rows) const;
  bool trains(const AdapterRows& rows) const;  // whether loss() adds to gradients of parameters
  bool asks_host() const { return !loss_->repeats; }

 private:
  // What the logits are linear in, divided where they are.
  Var divided(Tape& tape, const Var& hidden) const;

  Linear linear_;
  ops::Bound<ops::CrossEntropy> loss_;
  float factor_;
  ops::VocabularyRanks ranks_;
};

// One number for each token: value = hidden · weight, in float32. New ones are zero.
class ValueHead {
 public:
  static void declare(WeightTable& table, int64_t hidden);  // head.weight [1, hidden]
  explicit ValueHead(const Binding& binding) : weight_(binding.weight("head.weight")) {}
  // [tokens, 1] float32, of rows that are all of one adapter, which may have a copy of the weight.
  Var operator()(Tape& tape, const Var& hidden, const AdapterRows& rows) const;

 private:
  BoundWeight weight_;
};

}  // namespace temper::layers
