// A backward pass in two parts, as the schedule zb_h1 has them: first the gradients of inputs, then, in the
// second part, those of weight matrices, with the same bits.
#include <gtest/gtest.h>

#include <cstring>

#include "autograd/later_gradients.h"
#include "optimizers/adamw.h"
#include "tests/support/packed_rows.h"
#include "tests/support/tiny_model.h"
#include "training/passes/micro_batch.h"

namespace temper::training {
namespace {

// A model that learns from rows without an optimizer's steps.
class Learning {
 public:
  Learning(const TinyModel& model, const TapeOptions& tape, bool checkpoints)
      : model_(tiny_model(model)),
        optimizer_(model_->decoder.parameters(), model_->decoder.ops(), {}),
        tape_(tape),
        checkpoints_(checkpoints) {}

  const layers::ParameterStore& parameters() const { return model_->decoder.parameters(); }
  // `later`: where the second part is left; null: there is one.
  void pass(uint32_t row, LaterGradients* later) const {
    const layers::Decoder& decoder = model_->decoder;
    const MicroBatch batch = gather({test_row(row, {9, 4 + row % 3})}, 0, 1, form_of(decoder));
    Tape tape(tape_);
    const Var hidden = decoder.forward(tape, batch.input, {.checkpoint_layers = checkpoints_});
    const LaterGradients::Scope scope(later);
    tape.backward(decoder.loss(tape, hidden, batch.own_targets(), {0.1f, 0}).loss);
  }

 private:
  std::unique_ptr<models::Model> model_;
  optimizers::AdamW optimizer_;
  TapeOptions tape_;
  bool checkpoints_;
};

std::vector<std::string> without_gradient(const layers::ParameterStore& parameters) {
  std::vector<std::string> names;
  for (size_t i = 0; i < parameters.size(); ++i)
    if (!parameters.spec(i).buffer && !parameters[i].grad->filled()) names.push_back(parameters.spec(i).name);
  return names;
}

// What linears, experts and the embedding learn. Convolutions are short, and fast kernels form the head's
// gradient with the loss; the eager embedding is a gathering of rows.
std::vector<std::string> left_for_later(const layers::ParameterStore& parameters, bool eager) {
  std::vector<std::string> names;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const WeightSpec& spec = parameters.spec(i);
    const bool matrix = spec.shape.ndim() == 2 && spec.name.find("conv") == std::string::npos;
    if ((matrix && spec.name != (eager ? "embedding.weight" : "head.weight")) || spec.name.ends_with(".bias"))
      names.push_back(spec.name);
  }
  return names;
}

void expect_same_gradients(const layers::ParameterStore& found, const layers::ParameterStore& expected) {
  for (size_t i = 0; i < expected.size(); ++i) {
    if (expected.spec(i).buffer) continue;
    const Tensor &a = found[i].grad->grad(), &b = expected[i].grad->grad();
    ASSERT_EQ(a.dtype(), b.dtype());
    EXPECT_EQ(std::memcmp(a.raw(), b.raw(), static_cast<size_t>(b.bytes())), 0) << expected.spec(i).name;
  }
}

// Several passes whose second parts are late, as of several micro-batches.
void expect_two_parts(TinyModel model, const TapeOptions& tape = {}, bool checkpoints = false) {
  model.sizes.emplace_back("tie_word_embeddings", Json(false));
  const Learning at_once(model, tape, checkpoints), in_parts(model, tape, checkpoints);
  std::vector<LaterGradients> later(3);
  for (uint32_t row = 0; row < 3; ++row) {
    at_once.pass(row, nullptr);
    in_parts.pass(row, &later[row]);
    EXPECT_EQ(without_gradient(in_parts.parameters()),
              left_for_later(in_parts.parameters(), model.ops.fallback == ops::kEager));
  }
  for (LaterGradients& second : later) second.compute();
  EXPECT_TRUE(without_gradient(in_parts.parameters()).empty());
  expect_same_gradients(in_parts.parameters(), at_once.parameters());
}

TEST(SplitBackward, LeavesMatricesAndGivesTheSameBits) {
  const ops::OpsConfig fast = {};
  for (const char* type : {"qwen3", "qwen2", "qwen3_next", "gemma3_text"})
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      SCOPED_TRACE(fmt::format("{}, {}", type, to_string(dtype)));
      expect_two_parts({.type = type, .dtype = dtype, .ops = fast});
    }
  expect_two_parts({});  // eager kernels
  expect_two_parts({.type = "qwen3_moe", .ops = fast});
  expect_two_parts({.type = "qwen3_moe", .dtype = DType::kBF16, .ops = fast});
  expect_two_parts({.type = "deepseek_v3", .ops = fast, .experts = true});
}

// What reads values that are made again is given them in the second part.
TEST(SplitBackward, MakesValuesAgain) {
  for (const char* type : {"qwen3", "qwen3_next"}) {
    expect_two_parts({.type = type, .ops = {}}, {.rematerialize = true});
    expect_two_parts({.type = type, .ops = {}}, {}, true);
  }
}

}  // namespace
}  // namespace temper::training
