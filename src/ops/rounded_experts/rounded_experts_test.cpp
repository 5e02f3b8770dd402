#include "ops/rounded_experts/rounded_experts.h"

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "primitives/primitives.h"
#include "quant/number_format.h"
#include "tests/support/op_testing.h"

namespace temper::ops {
namespace {

using namespace op_testing;
using Amax = RowRounding::Amax;

const RequiredKernels<RoundedExperts> kRoundedExpertsKernels{
    {.hidden = 2048, .width = 768, .experts = 128, .top_k = 8},
    kAll,
    {{"hopper", "hopper", kHopper, kBFloat16,
      [](const RoundedExperts::Signature& s) { return s.hidden % 8 == 0 && s.width % 8 == 0; }},
     {"cuda", "cuda", kGpu, kWide}}};

// By what a value is multiplied or divided, in the arithmetic of ops/fake_quantize, which works in float32.
quant::Factors factors_for(const quant::Format& format, double block, double amax) {
  return format.has_blocks()
             ? quant::factors_of_block(format, static_cast<float>(block), static_cast<float>(amax))
             : quant::factors_of(format, static_cast<float>(amax));
}

double amax_of(const double* values, int64_t count) {
  double amax = 0;
  for (int64_t i = 0; i < count; ++i) amax = std::max(amax, std::fabs(values[i]));
  return amax;
}

double amax_of_block(const quant::Format& format, const double* row, int64_t columns, int64_t i) {
  if (!format.has_blocks()) return 0;
  return amax_of(row + i / format.block * format.block, std::min<int64_t>(format.block, columns));
}

// Of one row: what its values become, and which are clipped.
struct Rounded {
  Doubles values;
  std::vector<bool> clipped;
};
Rounded rounded_row(const RowRounding& how, const double* row, int64_t columns, double amax) {
  Rounded out{Doubles(row, row + columns), std::vector<bool>(static_cast<size_t>(columns))};
  if (!how.rounds) return out;
  if (how.from == Amax::kRows) amax = amax_of(row, columns);
  for (int64_t i = 0; i < columns; ++i) {
    const auto place = static_cast<size_t>(i);
    const quant::Factors factors = factors_for(how.format, amax_of_block(how.format, row, columns, i), amax);
    out.values[place] = quant::dequantized(
        how.format, quant::quantized(how.format, static_cast<float>(row[i]), factors.by), factors.back);
    out.clipped[place] = how.clips() && !(std::fabs(row[i]) <= amax);
  }
  return out;
}

// Whether no value of a row would get another code, or block another scale, a little way off: kernels sum in
// other orders and dtypes. Codes of integers lie so close that values in 16 bits have neighbours' anyway.
bool is_steady(const RowRounding& how, const Doubles& row, double amax) {
  if (!how.rounds) return true;
  const auto columns = static_cast<int64_t>(row.size());
  if (how.from == Amax::kRows) amax = amax_of(row.data(), columns);
  const double margin = how.format.element.integer ? 1e-4 : 0.01;
  for (int64_t i = 0; i < columns; ++i) {
    const double x = row[static_cast<size_t>(i)], block = amax_of_block(how.format, row.data(), columns, i);
    if (how.clips() && std::fabs(std::fabs(x) / amax - 1) < 0.01) return false;
    const quant::Factors factors = factors_for(how.format, block, amax);
    const auto code = [&](double value) {
      return quant::quantized(how.format, static_cast<float>(value), factors.by);
    };
    for (const double by : {1 - margin, 1 + margin})
      if (code(x * by) != code(x)) return false;
    if (how.format.has_blocks())
      for (const double by : {0.99, 1.01})
        if (factors_for(how.format, block * by, amax).back != factors.back) return false;
  }
  return true;
}

struct Sizes {
  int64_t tokens, hidden, width, experts, top_k;
};

// Choices that are spread, and each token's differ.
std::vector<int32_t> spread(const Sizes& n) {
  std::vector<int32_t> ids;
  for (int64_t t = 0; t < n.tokens; ++t)
    for (int64_t j = 0; j < n.top_k; ++j)
      ids.push_back(static_cast<int32_t>((t * 5 + t / 3 + j * (1 + t % 2)) % n.experts));
  return ids;
}

double silu(double x) { return x / (1 + std::exp(-x)); }

// A call whose gate and up have few different values: of a row of x two numbers are not 0, and the matrices
// are 1 and -1. So amax can be found with which no value of swiglu is near where another code begins.
class Call {
 public:
  Call(const Sizes& n, RowRounding in, RowRounding inner) : n_(n), ids_(spread(n)), in_(in), inner_(inner) {
    const Random random(5, RandomPurpose::kData);
    set_x(2.5625);
    for (int64_t i = 0; i < n.experts * 2 * n.width * n.hidden; ++i)
      gate_up_.push_back(random.bits(static_cast<uint64_t>(i)) % 2 == 0 ? 1 : -1);
    if (in_.from == Amax::kExperts)
      for (int64_t e = 0; e < n.experts; ++e)
        of_x_.push_back(e % 3 == 2 ? 2 : 3.5 + static_cast<double>(e) / 2);
    of_inner_.assign(static_cast<size_t>(n.experts), 0);
    keep_swiglu();
    if (inner_.from == Amax::kExperts)
      find_inner_amax();
    else
      for (int step = 1; step < 80 && !is_steady(); ++step) {
        set_x(2.5625 + step / 64.);
        keep_swiglu();
      }
  }

  bool is_steady() const {
    for (int64_t c = 0; c < std::ssize(ids_); ++c)
      if (!ops::is_steady(inner_, swiglu_[static_cast<size_t>(c)], inner_amax(c))) return false;
    return true;
  }

  Case make_case(const std::string& name) const {
    Case c;
    c.name = name;
    Doubles weights;
    for (int64_t i = 0; i < n_.tokens * n_.top_k; ++i)
      weights.push_back(0.25 + static_cast<double>(i % 5) / 8);
    const Shape in{n_.experts * 2 * n_.width, n_.hidden}, out{n_.experts * n_.hidden, n_.width};
    c.inputs = {
        {"x", {n_.tokens, n_.hidden}, x_},
        {"weights", {n_.tokens, n_.top_k}, weights},
        {"gate_up", in, gate_up_, Role::kParameter},
        {"down", out, normal(4, out, 1 / std::sqrt(static_cast<double>(n_.width))), Role::kParameter}};
    c.reference = [own = *this](const std::vector<Doubles>& v) { return own.reference(v); };
    c.run = [own = *this](Tape& tape, const BoundOps& ops, const std::vector<Var>& v) {
      const auto there = [&](RowRounding how, const Doubles& amax) {
        if (how.from == Amax::kExperts)
          how.amax = on_device_of(v[0], tensor_of(amax, {std::ssize(amax)}, DType::kF32));
        return how;
      };
      const Tensor ids =
          on_device_of(v[0], Tensor::from(std::span<const int32_t>(own.ids_), {own.n_.tokens, own.n_.top_k}));
      return Result{
          rounded_experts(tape, ops, v[0], ids, primitives::cast(tape, v[1], DType::kF32),
                          {v[2], v[3], there(own.in_, own.of_x_), there(own.inner_, own.of_inner_)}),
          {}};
    };
    c.terms = std::max({n_.tokens, n_.hidden, n_.width}) * n_.top_k;
    // Of x, gate and up, their product, what it becomes, each expert's result, and y; integers' neighbours.
    c.roundings = inner_.format.element.integer ? 12 : 6;
    c.samples = 6;
    return c;
  }

  RoundedExperts::Signature signature() const {
    return {DType::kF32, n_.hidden, n_.width, n_.experts, n_.top_k, in_.format, inner_.format};
  }

 private:
  // The larger of a row's numbers.
  void set_x(double large) {
    x_.assign(static_cast<size_t>(n_.tokens * n_.hidden), 0);
    for (int64_t t = 0; t < n_.tokens; ++t) {
      x_[static_cast<size_t>(t * n_.hidden + t * 3 % n_.hidden)] = 1.28125;
      x_[static_cast<size_t>(t * n_.hidden + (t * 3 + 1 + t % 4) % n_.hidden)] = large;
    }
  }
  double x_amax(int64_t choice) const {
    return of_x_.empty() ? 0 : of_x_[static_cast<size_t>(ids_[static_cast<size_t>(choice)])];
  }
  double inner_amax(int64_t choice) const {
    return of_inner_[static_cast<size_t>(ids_[static_cast<size_t>(choice)])];
  }

  // Rows as the reference moves them: rounding adds to a value what it adds to that of the case, and gives
  // what it clips as it is, so that central differences have the gradients of FakeQuantize.
  static Doubles moved(const RowRounding& how, const Doubles& given, const Doubles& base, double amax) {
    Rounded at = rounded_row(how, base.data(), std::ssize(base), amax);
    for (size_t i = 0; i < given.size(); ++i)
      if (!at.clipped[i]) at.values[i] += given[i] - base[i];
    return at.values;
  }
  static Doubles row_of(const Doubles& matrix, int64_t row, int64_t columns) {
    return {matrix.begin() + row * columns, matrix.begin() + (row + 1) * columns};
  }

  void keep_swiglu() {
    swiglu_.clear();
    for (int64_t c = 0; c < std::ssize(ids_); ++c) swiglu_.push_back(swiglu_of(c, {}));
  }
  // Of a choice, of the case's own values or of moved ones.
  Doubles swiglu_of(int64_t choice, const std::vector<Doubles>& v) const {
    const Doubles base = row_of(x_, choice / n_.top_k, n_.hidden),
                  given = v.empty() ? base : row_of(v[0], choice / n_.top_k, n_.hidden),
                  read = moved(in_, given, base, x_amax(choice));
    const Doubles& gate_up = v.empty() ? gate_up_ : v[2];
    const int64_t e = ids_[static_cast<size_t>(choice)];
    Doubles y;
    for (int64_t f = 0; f < n_.width; ++f) {
      double gate = 0, up = 0;
      for (int64_t i = 0; i < n_.hidden; ++i) {
        gate += read[static_cast<size_t>(i)] *
                gate_up[static_cast<size_t>((e * 2 * n_.width + f) * n_.hidden + i)];
        up += read[static_cast<size_t>(i)] *
              gate_up[static_cast<size_t>((e * 2 * n_.width + n_.width + f) * n_.hidden + i)];
      }
      y.push_back(silu(gate) * up);
    }
    return y;
  }

  // Of each expert, such that some of its values are clipped.
  void find_inner_amax() {
    for (int64_t e = 0; e < n_.experts; ++e)
      for (int step = 0;; ++step) {
        const double amax = 4 + 0.01 * step;
        bool steady = true;
        for (int64_t c = 0; c < std::ssize(ids_) && steady; ++c)
          steady = ids_[static_cast<size_t>(c)] != e ||
                   ops::is_steady(inner_, swiglu_[static_cast<size_t>(c)], amax);
        of_inner_[static_cast<size_t>(e)] = amax;
        if (steady) break;
        ASSERT_LT(step, 2000) << "no amax is far from all values";
      }
  }

  Doubles reference(const std::vector<Doubles>& v) const {
    Doubles y(static_cast<size_t>(n_.tokens * n_.hidden));
    for (int64_t c = 0; c < std::ssize(ids_); ++c) {
      const int64_t e = ids_[static_cast<size_t>(c)], t = c / n_.top_k;
      const Doubles read = moved(inner_, swiglu_of(c, v), swiglu_[static_cast<size_t>(c)], inner_amax(c));
      for (int64_t i = 0; i < n_.hidden; ++i) {
        double sum = 0;
        for (int64_t f = 0; f < n_.width; ++f)
          sum += read[static_cast<size_t>(f)] * v[3][static_cast<size_t>((e * n_.hidden + i) * n_.width + f)];
        y[static_cast<size_t>(t * n_.hidden + i)] += v[1][static_cast<size_t>(c)] * sum;
      }
    }
    return y;
  }

  Sizes n_;
  std::vector<int32_t> ids_;
  RowRounding in_, inner_;
  Doubles x_, gate_up_, of_x_, of_inner_;
  std::vector<Doubles> swiglu_;  // of each choice, of the case's own values
};

RowRounding by(const std::string& name, Amax from = Amax::kExperts) {
  const quant::Format format = *quant::formats().find(name);
  return {true, format, format.needs_amax() ? from : Amax::kNone, {}};
}

void check(const Sizes& n, const std::string& what, const RowRounding& in, const RowRounding& inner) {
  const Call call(n, in, inner);
  ASSERT_TRUE(call.is_steady()) << what;
  const std::string name = fmt::format("{}, {} tokens of {}, {} of {} experts of {}", what, n.tokens,
                                       n.hidden, n.top_k, n.experts, n.width);
  check_every_kernel<RoundedExperts>(call.make_case(name), call.signature());
}

TEST(RoundedExperts, EveryKernelAgreesInEachFormat) {
  for (const char* format : {"fp8", "int8", "fp8_e5m2", "nvfp4", "mxfp8", "mxint8"})
    for (const Sizes& n : std::vector<Sizes>{{5, 32, 32, 4, 2}, {40, 64, 96, 6, 3}})
      check(n, format, by(format), by(format));
}

TEST(RoundedExperts, EitherMatrixAlone) {
  const Sizes n{12, 32, 64, 4, 2};
  check(n, "fp8 before gate and up", by("fp8"), {});
  check(n, "fp8 before down", {}, by("fp8"));
  check(n, "nothing", {}, {});
}

TEST(RoundedExperts, RowsFindTheirOwnAmax) {
  const Sizes n{24, 32, 40, 4, 2};
  check(n, "fp8 of each row", by("fp8", Amax::kRows), by("fp8", Amax::kRows));
  check(n, "int8 of each row", by("int8", Amax::kRows), by("int8", Amax::kRows));
}

TEST(RoundedExperts, OddSizesAndManyExperts) {
  check({9, 7, 5, 3, 2}, "fp8", by("fp8"), by("fp8"));
  check({4, 16, 17, 4, 3}, "int8", by("int8"), by("int8"));
  check({150, 72, 136, 64, 8}, "fp8", by("fp8"), by("fp8"));
  check({0, 16, 16, 4, 2}, "fp8", by("fp8"), by("fp8"));
}

TEST(RoundedExperts, ChecksAtTheFrontDoor) {
  const quant::Format fp8 = *quant::formats().find("fp8"), nvfp4 = *quant::formats().find("nvfp4");
  const BoundOps ops = bind_kernel<RoundedExperts>("eager", {DType::kF32, 8, 4, 2, 1, fp8, fp8});
  Tape tape;
  const auto f32 = [](const Shape& shape) { return Tensor::zeros(shape, DType::kF32); };
  const auto call = [&](const RowRounding& in, const RowRounding& inner) {
    return [&, in, inner] {
      rounded_experts(tape, ops, tape.constant(f32({3, 8})), Tensor::zeros({3, 1}, DType::kI32),
                      tape.constant(f32({3, 1})),
                      {tape.constant(f32({16, 8})), tape.constant(f32({16, 4})), in, inner});
    };
  };
  expect_error(call({true, fp8, Amax::kNone, {}}, {}),
               "[rounded_experts] in has no amax, and its format needs one");
  expect_error(call({}, {true, nvfp4, Amax::kRows, {}}),
               "[rounded_experts] inner finds amax in rows, which formats with blocks do not take");
  expect_error(call({}, {true, nvfp4, Amax::kExperts, f32({2})}),
               "[rounded_experts] inner has 4 columns, needs blocks of 16");
  expect_error(call({true, fp8, Amax::kExperts, f32({3})}, {}),
               "[rounded_experts] in has 3 amax, needs 1 or 2");
  expect_error(call({true, fp8, Amax::kExperts, Tensor::zeros({2}, DType::kI32)}, {}),
               "[rounded_experts] amax of in is int32, needs float32");
}

}  // namespace
}  // namespace temper::ops
