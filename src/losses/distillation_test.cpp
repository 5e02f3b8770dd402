#include "losses/distillation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <numeric>

#include "base/random.h"
#include "collectives/launch.h"
#include "tests/support/op_testing.h"

namespace temper::losses {
namespace {

using Values = std::vector<double>;

constexpr int64_t kTokens = 5, kVocab = 12;
const std::vector<int32_t> kIds{3, 11, 0, 7, 6};

Tensor logits(uint64_t seed) {
  const Random random(seed, RandomPurpose::kData);
  const Tensor values = Tensor::empty({kTokens, kVocab}, DType::kF32);
  for (int64_t i = 0; i < values.numel(); ++i)
    values.data<float>()[i] = static_cast<float>(6 * random.uniform(static_cast<uint64_t>(i)) - 3);
  return values;
}

Values softmax(const Values& row, double temperature) {
  double sum = 0;
  Values all;
  for (const double x : row) all.push_back(std::exp(x / temperature));
  for (const double x : all) sum += x;
  for (double& x : all) x /= sum;
  return all;
}

double relative_entropy(const Values& a, const Values& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * std::log(a[i] / b[i]);
  return sum;
}

// The formula of the header, in double precision.
double loss_of(const Distillation& options, const Values& student, const Values& teacher, int32_t id) {
  const Values p = softmax(teacher, options.temperature), q = softmax(student, options.temperature);
  double divergence =
      options.divergence == Divergence::kForward ? relative_entropy(p, q) : relative_entropy(q, p);
  if (options.divergence == Divergence::kJensenShannon) {
    const double a = options.teacher_share;
    Values m;
    for (size_t i = 0; i < p.size(); ++i) m.push_back(a * p[i] + (1 - a) * q[i]);
    divergence = a * relative_entropy(p, m) + (1 - a) * relative_entropy(q, m);
  }
  const double square = options.temperature * options.temperature;
  return (1 - options.cross_entropy) * square * divergence -
         options.cross_entropy * std::log(softmax(student, 1)[static_cast<size_t>(id)]);
}

// The K largest, and all others as one logit.
Values coarse(const Values& row, const std::vector<int32_t>& kept, double temperature) {
  Values all;
  double rest = 0;
  for (const int32_t id : kept) all.push_back(row[static_cast<size_t>(id)]);
  for (size_t i = 0; i < row.size(); ++i)
    if (std::find(kept.begin(), kept.end(), static_cast<int32_t>(i)) == kept.end())
      rest += std::exp(row[i] / temperature);
  all.push_back(temperature * std::log(rest));
  return all;
}

// The divergence of the kept tokens and the rest, in double precision.
double loss_of_top(const Distillation& options, const Values& student, const Values& teacher,
                   const std::vector<int32_t>& kept, int32_t id) {
  Distillation divergence = options;
  divergence.cross_entropy = 0;
  const Values own = coarse(student, kept, options.temperature),
               theirs = coarse(teacher, kept, options.temperature);
  return (1 - options.cross_entropy) * loss_of(divergence, own, theirs, 0) -
         options.cross_entropy * std::log(softmax(student, 1)[static_cast<size_t>(id)]);
}

Values row_of(const Tensor& logits, int64_t row) {
  const float* const first = logits.data<float>() + row * kVocab;
  return {first, first + kVocab};
}

std::vector<Distillation> distillation_options() {
  std::vector<Distillation> all;
  for (const Divergence divergence : {Divergence::kForward, Divergence::kReverse, Divergence::kJensenShannon})
    for (const double temperature : {0.6, 1.0, 2.5})
      for (const double weight : {0.0, 0.3, 1.0}) all.push_back({divergence, temperature, 0.3, weight});
  return all;
}

struct Found {
  float loss = 0;
  Tensor gradient, divergence, cross_entropy, teacher_entropy, agreement;
};

template <class Teacher>
Found run(const Distillation& options, const Tensor& student, const Teacher& teacher,
          const ops::VocabularyRanks& ranks = {}) {
  Tape tape;
  const Var own = tape.variable(student);
  const DistilledTokens tokens = distill(tape, options, own, teacher, Tensor::from(kIds), 0.25, ranks);
  tape.backward(tokens.loss);
  return {tokens.loss.value.data<float>()[0],
          own.slot->take(),
          tokens.divergence,
          tokens.cross_entropy,
          tokens.teacher_entropy,
          tokens.agreement};
}

TEST(Distillation, IsThatOfTheFormulas) {
  const Tensor student = logits(1), teacher = logits(2);
  for (const Distillation& options : distillation_options()) {
    const Found found = run(options, student, teacher);
    double expected = 0;
    for (int64_t t = 0; t < kTokens; ++t) {
      const Values theirs = row_of(teacher, t);
      Values own = row_of(student, t);
      const int32_t id = kIds[static_cast<size_t>(t)];
      expected += 0.25 * loss_of(options, own, theirs, id);
      for (size_t i = 0; i < own.size(); ++i) {
        const double at = own[i], step = 1e-5;
        own[i] = at + step;
        const double above = loss_of(options, own, theirs, id);
        own[i] = at - step;
        const double slope = 0.25 * (above - loss_of(options, own, theirs, id)) / (2 * step);
        own[i] = at;
        EXPECT_NEAR(found.gradient.data<float>()[t * kVocab + static_cast<int64_t>(i)], slope, 2e-6)
            << options.temperature << " " << options.cross_entropy;
      }
      const Values p = softmax(theirs, options.temperature);
      double entropy = 0;
      for (const double each : p) entropy -= each * std::log(each);
      EXPECT_NEAR(found.teacher_entropy.data<float>()[t], entropy, 2e-6);
      EXPECT_NEAR(found.cross_entropy.data<float>()[t], -std::log(softmax(own, 1)[static_cast<size_t>(id)]),
                  2e-6);
      const auto best = [](const Values& x) { return std::max_element(x.begin(), x.end()) - x.begin(); };
      EXPECT_EQ(found.agreement.data<float>()[t], best(own) == best(theirs) ? 1 : 0);
    }
    EXPECT_NEAR(found.loss, expected, 2e-6 * std::max(1.0, expected));
  }
}

TEST(Distillation, OfEqualDistributionsIsZero) {
  const Tensor same = logits(3);
  for (Distillation options : distillation_options()) {
    if (options.cross_entropy != 0 || options.divergence == Divergence::kJensenShannon) continue;
    const Found found = run(options, same, same.clone());
    EXPECT_EQ(found.loss, 0);
    for (const float each : found.gradient.values<float>()) EXPECT_NEAR(each, 0, 1e-7);
    for (const float each : found.agreement.values<float>()) EXPECT_EQ(each, 1);
  }
}

// Probabilities that are 0 in float32 on either side.
TEST(Distillation, IsFiniteForDistantDistributions) {
  Tensor student = logits(1), teacher = logits(2);
  for (int64_t i = 0; i < student.numel(); ++i) {
    student.data<float>()[i] *= 100;
    teacher.data<float>()[i] *= -100;
  }
  for (const Distillation& options : distillation_options())
    for (const int64_t top_k : {0, 3, 12}) {
      const Found found = top_k == 0 ? run(options, student, teacher)
                                     : run(options, student, top_tokens(teacher, top_k, options.temperature));
      EXPECT_TRUE(std::isfinite(found.loss));
      for (const float each : found.gradient.values<float>()) EXPECT_TRUE(std::isfinite(each));
    }
}

TEST(Distillation, OfADividedVocabularyIsThatOfOneDevice) {
  const Tensor student = logits(1), teacher = logits(2);
  for (const int count : {2, 3})
    for (const Distillation& options : distillation_options()) {
      const Found whole = run(options, student, teacher);
      std::mutex mutex;
      collectives::launch("threads", {.ranks = count}, [&](collectives::Group& ranks) {
        const int64_t own = kVocab / ranks.size(), first = own * ranks.rank();
        const Found part = run(options, student.narrow(1, first, own).contiguous(),
                               teacher.narrow(1, first, own).contiguous(), {&ranks, first});
        const std::lock_guard lock(mutex);
        EXPECT_NEAR(part.loss, whole.loss, 1e-6 * std::max(1.f, whole.loss));
        for (int64_t t = 0; t < kTokens; ++t) {
          EXPECT_NEAR(part.cross_entropy.data<float>()[t], whole.cross_entropy.data<float>()[t], 1e-6);
          EXPECT_EQ(part.agreement.data<float>()[t], whole.agreement.data<float>()[t]);
          for (int64_t i = 0; i < own; ++i)
            EXPECT_NEAR(part.gradient.data<float>()[t * own + i],
                        whole.gradient.data<float>()[t * kVocab + first + i], 1e-6);
        }
      });
    }
}

std::vector<int32_t> kept_of(const Values& row, int64_t top_k) {
  std::vector<int32_t> ids(row.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
    return row[static_cast<size_t>(a)] > row[static_cast<size_t>(b)];
  });
  ids.resize(static_cast<size_t>(top_k));
  return ids;
}

TEST(TopTokens, AreTheLargestAndTheSumOfTheOthers) {
  const Tensor teacher = logits(2);
  teacher.data<float>()[5] = teacher.data<float>()[3] = 7;  // equal ones: the lower id first
  teacher.data<float>()[kVocab + 1] = -0.f;
  for (const double temperature : {0.6, 1.0, 2.5})
    for (const int64_t top_k : {1, 4, 11}) {
      const TopTokens top = top_tokens(teacher, top_k, temperature);
      for (int64_t t = 0; t < kTokens; ++t) {
        const Values row = row_of(teacher, t);
        const std::vector<int32_t> kept = kept_of(row, top_k);
        for (int64_t i = 0; i < top_k; ++i) {
          EXPECT_EQ(top.ids.data<int32_t>()[t * top_k + i], kept[static_cast<size_t>(i)]);
          EXPECT_EQ(top.logits.data<float>()[t * top_k + i],
                    static_cast<float>(row[static_cast<size_t>(kept[static_cast<size_t>(i)])]));
        }
        const double most = row[static_cast<size_t>(kept[0])];
        EXPECT_NEAR(top.rest.data<float>()[t], (coarse(row, kept, temperature).back() - most) / temperature,
                    2e-6);
      }
    }
  EXPECT_LT(top_tokens(teacher, kVocab, 1).rest.data<float>()[0], -1e29f);
  op_testing::expect_error([&] { top_tokens(teacher, kVocab + 1, 1); },
                           "[distill] top_k is 13, but there are 12 logits of each token");
}

// Enough tokens that candidates are cut down several times.
TEST(TopTokens, OfALargeVocabulary) {
  constexpr int64_t kMany = 5000;
  const Random random(9, RandomPurpose::kData);
  const Tensor all = Tensor::empty({2, kMany}, DType::kBF16);
  for (int64_t i = 0; i < all.numel(); ++i)
    all.data<BFloat16>()[i] = BFloat16(static_cast<float>(random.uniform(static_cast<uint64_t>(i))));
  const TopTokens top = top_tokens(all, 7, 1);
  for (int64_t t = 0; t < 2; ++t) {
    const std::vector<int32_t> kept = kept_of(op_testing::values_of(all.narrow(0, t, 1).contiguous()), 7);
    for (int64_t i = 0; i < 7; ++i)
      EXPECT_EQ(top.ids.data<int32_t>()[t * 7 + i], kept[static_cast<size_t>(i)]);
  }
}

TEST(Distillation, OfTheLargestLogitsIsThatOfTheFormulas) {
  const Tensor student = logits(1), teacher = logits(2);
  for (const Distillation& options : distillation_options())
    for (const int64_t top_k : {1, 4, 11}) {
      const TopTokens top = top_tokens(teacher, top_k, options.temperature);
      const Found found = run(options, student, top), whole = run(options, student, teacher);
      double expected = 0;
      for (int64_t t = 0; t < kTokens; ++t) {
        const Values theirs = row_of(teacher, t);
        const std::vector<int32_t> kept = kept_of(theirs, top_k);
        Values own = row_of(student, t);
        const int32_t id = kIds[static_cast<size_t>(t)];
        expected += 0.25 * loss_of_top(options, own, theirs, kept, id);
        for (size_t i = 0; i < own.size(); ++i) {
          const double at = own[i], step = 1e-5;
          own[i] = at + step;
          const double above = loss_of_top(options, own, theirs, kept, id);
          own[i] = at - step;
          const double slope = 0.25 * (above - loss_of_top(options, own, theirs, kept, id)) / (2 * step);
          own[i] = at;
          EXPECT_NEAR(found.gradient.data<float>()[t * kVocab + static_cast<int64_t>(i)], slope, 2e-6);
        }
        const Values p = softmax(coarse(theirs, kept, options.temperature), options.temperature);
        double entropy = 0;
        for (const double each : p) entropy -= each * std::log(each);
        EXPECT_NEAR(found.teacher_entropy.data<float>()[t], entropy, 2e-6);
        EXPECT_LE(found.divergence.data<float>()[t], whole.divergence.data<float>()[t] + 1e-6);
        EXPECT_EQ(found.cross_entropy.data<float>()[t], whole.cross_entropy.data<float>()[t]);
        EXPECT_EQ(found.agreement.data<float>()[t], whole.agreement.data<float>()[t]);
      }
      EXPECT_NEAR(found.loss, expected, 2e-6 * std::max(1.0, expected));
    }
}

TEST(Distillation, OfAllLogitsAsTheLargestIsTheWholeOne) {
  const Tensor student = logits(1), teacher = logits(2);
  for (const Distillation& options : distillation_options()) {
    const Found whole = run(options, student, teacher),
                found = run(options, student, top_tokens(teacher, kVocab, options.temperature));
    EXPECT_NEAR(found.loss, whole.loss, 1e-6 * std::max(1.f, whole.loss));
    for (int64_t i = 0; i < student.numel(); ++i)
      EXPECT_NEAR(found.gradient.data<float>()[i], whole.gradient.data<float>()[i], 1e-6);
    for (int64_t t = 0; t < kTokens; ++t)
      EXPECT_NEAR(found.teacher_entropy.data<float>()[t], whole.teacher_entropy.data<float>()[t], 1e-6);
  }
}

TEST(Distillation, OfTheLargestLogitsOfADividedVocabularyIsThatOfOneDevice) {
  const Tensor student = logits(1), teacher = logits(2);
  for (const int count : {2, 3})
    for (const int64_t top_k : {1, 5, 12})
      for (const Distillation& options : distillation_options()) {
        const TopTokens top = top_tokens(teacher, top_k, options.temperature);
        const Found whole = run(options, student, top);
        std::mutex mutex;
        collectives::launch("threads", {.ranks = count}, [&](collectives::Group& ranks) {
          const int64_t own = kVocab / ranks.size(), first = own * ranks.rank();
          const ops::VocabularyRanks divided{&ranks, first};
          const TopTokens same =
              top_tokens(teacher.narrow(1, first, own).contiguous(), top_k, options.temperature, divided);
          const Found part = run(options, student.narrow(1, first, own).contiguous(), same, divided);
          const std::lock_guard lock(mutex);
          for (int64_t i = 0; i < kTokens * top_k; ++i)
            EXPECT_EQ(same.ids.data<int32_t>()[i], top.ids.data<int32_t>()[i]);
          EXPECT_NEAR(part.loss, whole.loss, 1e-6 * std::max(1.f, whole.loss));
          for (int64_t t = 0; t < kTokens; ++t) {
            EXPECT_EQ(part.agreement.data<float>()[t], whole.agreement.data<float>()[t]);
            for (int64_t i = 0; i < own; ++i)
              EXPECT_NEAR(part.gradient.data<float>()[t * own + i],
                          whole.gradient.data<float>()[t * kVocab + first + i], 1e-6);
          }
        });
      }
}

TEST(Distillation, RefusesATemperatureOfZero) {
  op_testing::expect_error([] { run(Distillation{.temperature = 0}, logits(1), logits(2)); },
                           "[distill] temperature is 0, needs more than 0");
}

}  // namespace
}  // namespace temper::losses
