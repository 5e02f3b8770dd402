// Ops that work row by row and are bound by memory: counters are bytes that must move at least once.
#include "bench/ops.h"
#include "ops/embedding/embedding.h"
#include "ops/rms_norm/rms_norm.h"
#include "ops/rotary/rotary.h"
#include "ops/swiglu/swiglu.h"

namespace temper::bench {
namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kBF16};

double bytes_of(int64_t elements, DType dtype) { return static_cast<double>(elements * size_of(dtype)); }

Tensor numbers(int64_t count, int64_t limit) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>(i * 7919 % limit));
  return Tensor::from(ids);
}

// `make` builds the output from the op's input; both passes go through the front door.
using Make = std::function<Var(Tape&, const Var&)>;
void add_pair(const std::string& name, const Shape& shape, DType dtype, double forward_bytes,
              double both_bytes, const Make& make) {
  add(fmt::format("{}/forward/{}", name, to_string(dtype)), [=] {
    return Work{0, forward_bytes, [=, input = filled(shape, dtype)] {
                  Tape tape(false);
                  make(tape, tape.constant(input));
                }};
  });
  add(fmt::format("{}/both/{}", name, to_string(dtype)), [=] {
    Tape probe(false);
    const Tensor input = filled(shape, dtype);
    const Tensor dy = filled(make(probe, probe.constant(input)).shape(), dtype);
    return Work{0, both_bytes, [=] {
                  Tape tape;
                  tape.backward(make(tape, tape.variable(input)), dy);
                }};
  });
}

}  // namespace

void add_rms_norm() {
  using ops::RmsNorm;
  for (const DType dtype : kDTypes)
    for (const Shape shape : {Shape{16, 1024}, Shape{16384, 128}, Shape{1024, 1024}})
      for_each_provider<RmsNorm>(
          {dtype, shape[1]}, shape.numel() < 1 << 18, [&](const auto& provider, const auto& ops) {
            const double pass = bytes_of(shape.numel(), dtype);
            add_pair(fmt::format("rms_norm/{}/{}x{}", provider, shape[0], shape[1]), shape, dtype, 2 * pass,
                     5 * pass, [ops, weight = filled({shape[1]}, dtype), dtype](Tape& tape, const Var& x) {
                       return rms_norm(tape, ops, x,
                                       tape.recording() ? tape.variable(weight) : tape.constant(weight),
                                       1e-6f);
                     });
          });
}

// The usual norm of a residual stream: the sum goes on, its gradient comes back.
void add_residual_norm() {
  using ops::RmsNorm;
  const Shape shape{1024, 1024};
  for (const DType dtype : kDTypes)
    for_each_provider<RmsNorm>({dtype, shape[1]}, false, [&](const auto& provider, const auto& ops) {
      const double pass = bytes_of(shape.numel(), dtype);
      const Tensor residual = filled(shape, dtype), weight = filled({shape[1]}, dtype);
      add_pair(fmt::format("add_rms_norm/{}/1024x1024", provider), shape, dtype, 4 * pass, 8 * pass,
               [=](Tape& tape, const Var& x) {
                 const auto out =
                     add_rms_norm(tape, ops, x, tape.constant(residual),
                                  tape.recording() ? tape.variable(weight) : tape.constant(weight), 1e-6f);
                 if (out.sum.requires_grad()) out.sum.slot->add(residual);
                 return out.y;
               });
    });
}

// Of 1024 tokens with 16 query heads and 8 key heads of 128. All three have gradients.
void add_rotary() {
  using ops::Rotary;
  constexpr int64_t kTokens = 1024, kHeads = 16, kKvHeads = 8, kDim = 128;
  const Shape shape{kTokens, (kHeads + 2 * kKvHeads) * kDim};
  for (const DType dtype : kDTypes)
    for (const bool norm : {false, true})
      for_each_provider<Rotary>({dtype, kDim, norm}, false, [&](const auto& provider, const auto& ops) {
        const double rotated = bytes_of(kTokens * (kHeads + kKvHeads) * kDim, dtype),
                     whole = bytes_of(shape.numel(), dtype);
        const Tensor table = filled({kTokens, kDim / 2}, DType::kF32), positions = numbers(kTokens, kTokens);
        const Tensor weight = filled({kDim}, dtype), dk = filled({kTokens, kKvHeads, kDim}, dtype);
        add_pair(fmt::format("rotary{}/{}/1024x16+8x128", norm ? "_norm" : "", provider), shape, dtype,
                 2 * rotated, 2 * rotated + (norm ? rotated : 0) + 2 * whole, [=](Tape& tape, const Var& x) {
                   const auto head_weight = [&] {
                     if (!norm) return Var{};
                     return tape.recording() ? tape.variable(weight) : tape.constant(weight);
                   };
                   const auto heads = rotary(tape, ops, x, kHeads, kKvHeads, head_weight(), head_weight(),
                                             1e-6f, positions, table, table);
                   for (const Var* other : {&heads.k, &heads.v})
                     if (other->requires_grad()) other->slot->add(dk);
                   return heads.q;
                 });
      });
}

void add_swiglu() {
  using ops::Swiglu;
  for (const DType dtype : kDTypes)
    for (const int64_t rows : {1, 1024})
      for_each_provider<Swiglu>({dtype, 3072}, rows == 1, [&](const auto& provider, const auto& ops) {
        const double pass = bytes_of(rows * 3072, dtype);
        add_pair(fmt::format("swiglu/{}/{}x3072", provider, rows), {rows, 6144}, dtype, 3 * pass, 8 * pass,
                 [=](Tape& tape, const Var& x) { return swiglu(tape, ops, x); });
      });
}

void add_embedding() {
  using ops::Embedding;
  constexpr int64_t kVocab = 50000, kHidden = 1024, kTokens = 1024;
  for (const DType dtype : kDTypes)
    for_each_provider<Embedding>({dtype, kHidden}, false, [&](const auto& provider, const auto& ops) {
      const Tensor ids = numbers(kTokens, kVocab);
      const double pass = bytes_of(kTokens * kHidden, dtype);
      add_pair(fmt::format("embedding/{}/{}x{}", provider, kTokens, kHidden), {kVocab, kHidden}, dtype,
               2 * pass, 3 * pass + bytes_of(kVocab * kHidden, DType::kF32),
               [=](Tape& tape, const Var& table) { return embedding(tape, ops, ids, table); });
    });
}

}  // namespace temper::bench
