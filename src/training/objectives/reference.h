#pragma once
#include <vector>

#include "layers/decoder.h"
#include "training/passes/micro_batch.h"

namespace temper::training {

// An answer of a packed row under some model.
struct AnswerLogp {
  double logp = 0;  // Σ log p over its target tokens
  int64_t tokens = 0;
};

// Of every answer of the rows, in their order, on all stages of a pipeline. `adapter` may be null. Errors: a
// row without answers.
std::vector<AnswerLogp> answer_logps(const layers::Decoder& model, const layers::Adapter* adapter,
                                     const std::vector<data::PackedRow>& rows, int64_t micro_batch_tokens);

// The same of a pass that is done: nll [tokens] float32 on the CPU, of documents that follow one another.
std::vector<AnswerLogp> answer_logps(const Tensor& nll, const Tensor& targets,
                                     std::span<const DocumentSpan> documents);

// What preference learning compares a model with: Σ log p of every answer of the rows, in their order.
class Reference {
 public:
  virtual ~Reference() = default;
  virtual std::vector<double> logps(const std::vector<data::PackedRow>& rows) const = 0;
  // Floating-point operations that logps() costs for such documents.
  virtual double flops(std::span<const DocumentSpan> documents) const = 0;
};

// A model that does not change: one of its own, or the trained one without its adapter.
class ModelReference : public Reference {
 public:
  ModelReference(const layers::Decoder& model, int64_t micro_batch_tokens)
      : model_(model), micro_batch_tokens_(micro_batch_tokens) {}
  std::vector<double> logps(const std::vector<data::PackedRow>& rows) const override;
  double flops(std::span<const DocumentSpan> documents) const override;

 private:
  const layers::Decoder& model_;
  int64_t micro_batch_tokens_;
};

}  // namespace temper::training
