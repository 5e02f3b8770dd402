#include "autograd/tape.h"
#include "autograd/later_gradients.h"

#include <gtest/gtest.h>

namespace temper {
namespace {

Tensor scalar(float value) { return Tensor::from(std::vector<float>{value}); }

// y = a * b
Var multiply(Tape& tape, const Var& a, const Var& b) {
  return tape.record(scalar(a.value.item() * b.value.item()), {&a, &b}, [a, b](const Tensor& grad) {
    if (a.requires_grad()) a.slot->add(scalar(grad.item() * b.value.item()));
    if (b.requires_grad()) b.slot->add(scalar(grad.item() * a.value.item()));
  });
}

Parameter parameter(float value) { return {scalar(value), std::make_shared<GradSlot>()}; }

TEST(Tape, AccumulatesOverPathsAndCalls) {
  const Parameter w = parameter(3);
  w.grad->set_buffer(Tensor::empty({1}, DType::kF32));
  for (int call = 1; call <= 2; ++call) {
    Tape tape;
    const Var x = tape.leaf(w);
    tape.backward(multiply(tape, multiply(tape, x, x), x));  // d(w³) = 3w²
    EXPECT_EQ(w.grad->grad().item(), 27.f * static_cast<float>(call));
    EXPECT_EQ(tape.size(), 0u);
  }
  w.grad->reset();
  Tape tape;
  tape.backward(multiply(tape, tape.leaf(w), tape.constant(scalar(5))));
  EXPECT_EQ(w.grad->grad().item(), 5.f);
}

TEST(Tape, SharedGradientsAreNotOverwritten) {
  Tape tape;
  const Var a = tape.variable(scalar(1)), b = tape.variable(scalar(2));
  const Var sum = tape.record(scalar(3), {&a, &b}, [a, b](const Tensor& grad) {
    a.slot->add(grad);
    b.slot->add(grad);
  });
  const Var out = multiply(tape, sum, tape.constant(scalar(1)));
  a.slot->add(scalar(10));
  tape.backward(out);
  EXPECT_EQ(a.slot->grad().item(), 11.f);
  EXPECT_EQ(b.slot->grad().item(), 1.f);
}

TEST(GradSlot, TargetsAreNobodyElsesMemory) {
  const Tensor given = scalar(5);
  GradSlot adopted;
  adopted.add(given);
  const GradTarget target = adopted.target(given);
  EXPECT_TRUE(target.accumulate);
  *target.buffer.data<float>() += 1;
  EXPECT_EQ(given.item(), 5.f);
  EXPECT_EQ(adopted.grad().item(), 6.f);

  GradSlot rounded;  // another op has added a gradient of the value's dtype
  rounded.add(scalar(3).to(DType::kBF16));
  EXPECT_EQ(rounded.target(scalar(0)).buffer.item(), 3.f);
}

TEST(GradSlot, TargetsOfParametersAreTheirBuffers) {
  const Tensor buffer = scalar(5);
  GradSlot slot;
  slot.set_buffer(buffer);
  const GradTarget first = slot.target(buffer), second = slot.target(buffer);
  EXPECT_FALSE(first.accumulate);
  EXPECT_TRUE(second.accumulate);
  EXPECT_EQ(first.buffer.raw(), buffer.raw());
  EXPECT_EQ(second.buffer.raw(), buffer.raw());
  EXPECT_THROW(slot.target(Tensor::zeros({2}, DType::kF32)), Error);
}

TEST(Tape, ScalarsStartWithOnesOfTheirDType) {
  Tape tape;
  const Var x = tape.variable(scalar(2).to(DType::kBF16));
  const Var y = tape.record(x.value, {&x}, [x](const Tensor& grad) { x.slot->add(grad); });
  tape.backward(y);
  EXPECT_EQ(x.slot->grad().dtype(), DType::kBF16);
  EXPECT_EQ(x.slot->grad().item(), 1.f);
}

TEST(Tape, CheckpointGivesTheSameGradients) {
  const Parameter w = parameter(3);
  const auto body = [&w](Tape& tape, const Var& x) {
    return multiply(tape, multiply(tape, x, tape.leaf(w)), x);
  };
  Tape plain;
  const Var x = plain.variable(scalar(2));
  plain.backward(body(plain, x));
  const float dx = x.slot->take().item(), dw = w.grad->take().item();
  Tape saving;
  const Var again = saving.variable(scalar(2));
  const Var out = saving.checkpoint(again, body);
  EXPECT_EQ(saving.size(), 1u);
  EXPECT_EQ(out.value.item(), 12.f);
  saving.backward(out);
  EXPECT_EQ(again.slot->take().item(), dx);
  EXPECT_EQ(w.grad->take().item(), dw);
}

TEST(Tape, FreesWhatClosuresHeldAsItGoes) {
  std::weak_ptr<int> first_alive;
  bool first_freed_before_second = false;
  Tape tape;
  const Var x = tape.variable(scalar(1));
  const Var middle = tape.record(scalar(1), {&x}, [&](const Tensor& grad) {
    first_freed_before_second = first_alive.expired();
    x.slot->add(grad);
  });
  auto token = std::make_shared<int>(1);
  first_alive = token;
  const Var end =
      tape.record(scalar(1), {&middle}, [middle, token](const Tensor& grad) { middle.slot->add(grad); });
  token.reset();
  tape.backward(end);
  EXPECT_TRUE(first_freed_before_second);
}

// The gradient of a parameter may be left, that of another value may not: closures of the tape read it.
TEST(LaterGradients, AreOfParametersAndInOrder) {
  const Parameter w = parameter(3);
  w.grad->set_buffer(Tensor::empty({1}, DType::kF32));
  const Var x = Tape().variable(scalar(2));
  LaterGradients later;
  EXPECT_EQ(LaterGradients::of(w.grad), nullptr);
  {
    const LaterGradients::Scope scope(&later);
    EXPECT_EQ(LaterGradients::of(w.grad), &later);
    EXPECT_EQ(LaterGradients::of(x.slot), nullptr);
    EXPECT_EQ(LaterGradients::of(nullptr), nullptr);
    const LaterGradients::Scope inner(nullptr);
    EXPECT_EQ(LaterGradients::of(w.grad), nullptr);
  }
  EXPECT_EQ(LaterGradients::current(), nullptr);

  std::vector<int> done;
  auto held = std::make_shared<int>(0);
  for (int i = 0; i < 3; ++i) later.leave([&done, i, held] { done.push_back(i); });
  const std::weak_ptr<int> alive = std::exchange(held, nullptr);
  std::vector<bool> freed;
  later.compute([&] { freed.push_back(alive.expired()); });
  EXPECT_EQ(done, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(freed, (std::vector<bool>{false, false, true}));
  later.compute();
  EXPECT_EQ(done.size(), 3u);
}

// What edits a gradient in its place waits for it.
TEST(LaterGradients, AreEditedWhenTheyAreThere) {
  const Parameter w = parameter(3);
  w.grad->set_buffer(Tensor::empty({1}, DType::kF32));
  LaterGradients later;
  {
    Tape tape;
    const Var rounded =
        tape.record_in_place(scalar(3), tape.leaf(w), [](const Tensor& grad) { *grad.data<float>() *= 10; });
    const Var y = tape.record(scalar(6), {&rounded}, [slot = rounded.slot](const Tensor& grad) {
      LaterGradients::leave_or_compute(LaterGradients::of(slot), [slot, grad] { slot->add(grad); });
    });
    const LaterGradients::Scope scope(&later);
    tape.backward(y);
  }
  EXPECT_FALSE(w.grad->filled());
  later.compute();
  EXPECT_EQ(w.grad->grad().item(), 10.f);
}

TEST(Var, SavesAFunctionWhereThereIsOne) {
  int calls = 0;
  Var x{scalar(2), nullptr};
  EXPECT_EQ(x.saved().get().raw(), x.value.raw());
  x.remake = std::make_shared<Remake>([&calls] { return scalar(static_cast<float>(++calls)); });
  const Saved saved = x.saved();
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(saved.get().item(), 1.f);
  EXPECT_EQ(saved.get().item(), 2.f);
}

TEST(Tape, WhoWaitsIsGivenTheValueOnce) {
  const auto make = [] { return scalar(1); };
  Var x{scalar(2), nullptr};
  EXPECT_FALSE(x.saved().comes());
  x.remake = std::make_shared<Remake>(make);
  EXPECT_FALSE(x.saved().comes());
  x.remake = std::make_shared<Remake>(make, true);
  EXPECT_TRUE(x.saved().comes());
  EXPECT_FALSE(x.remake->awaited());
  std::vector<float> given;
  for (int i = 0; i < 2; ++i)
    x.saved().await(
        [&](const Tensor& value) { given.push_back(value.item() + static_cast<float>(given.size())); });
  EXPECT_TRUE(x.remake->awaited());
  x.remake->hand_over(scalar(3));
  EXPECT_FALSE(x.remake->awaited());
  x.remake->hand_over(scalar(4));
  EXPECT_EQ(given, (std::vector<float>{3, 4}));
  EXPECT_EQ(x.saved().get().item(), 1.f);
}

TEST(Tape, RematerializesOnlyWhileRecording) {
  EXPECT_FALSE(Tape().rematerializes());
  EXPECT_TRUE(Tape(TapeOptions{.rematerialize = true}).rematerializes());
  EXPECT_FALSE(Tape(TapeOptions{.recording = false, .rematerialize = true}).rematerializes());
}

TEST(Tape, InferenceRecordsNothing) {
  Tape tape(false);
  const Var x = tape.leaf(parameter(2));
  EXPECT_FALSE(multiply(tape, x, x).requires_grad());
  EXPECT_EQ(tape.size(), 0u);
}

}  // namespace
}  // namespace temper
