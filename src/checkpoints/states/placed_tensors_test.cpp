#include "checkpoints/states/placed_tensors.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "collectives/launch.h"
#include "tests/support/errors.h"

namespace temper::checkpoints {
namespace {

using collectives::Group;

// A matrix whose rows two ranks share, one whose elements they share, and one that both have.
struct Spread {
  explicit Spread(int rank) {
    const Mesh mesh{.tensor = 2};
    placements.emplace_back(Shape{4, 3}, Placement::Cut{.dim = 0, .segments = {{4}}}, mesh, rank);
    placements.push_back(Placement({4, 4}).flat(2, rank));
    placements.emplace_back(Shape{2, 2});
    for (const Placement& each : placements) {
      const Tensor whole = whole_of_numbers(each.whole()), own = Tensor::zeros(each.own(), DType::kF32);
      each.take_own(whole, own);
      tensors.push_back({fmt::format("w{}", tensors.size()), own, &each});
    }
  }
  static Tensor whole_of_numbers(const Shape& shape) {
    const Tensor all = Tensor::empty(shape, DType::kF32);
    for (int64_t i = 0; i < all.numel(); ++i) all.data<float>()[i] = static_cast<float>(i);
    return all;
  }
  std::vector<Placement> placements;
  std::vector<PlacedTensor> tensors;
};

void expect_whole(const Tensor& found) {
  const Tensor want = Spread::whole_of_numbers(found.shape());
  const auto a = found.values<float>(), b = want.values<float>();
  EXPECT_EQ(std::vector<float>(a.begin(), a.end()), std::vector<float>(b.begin(), b.end()));
}

void on_two_ranks(const std::function<void(Group&)>& body) {
  collectives::launch("threads", {.ranks = 2, .deadline = 60}, body);
}

TEST(PlacedTensors, AreWholeOnAllRanks) {
  on_two_ranks([](Group& ranks) {
    const Spread held(ranks.rank());
    for (const PlacedTensor& tensor : held.tensors) {
      const Tensor whole = whole_of(tensor, ranks);
      EXPECT_EQ(whole.shape(), tensor.placement->whole()) << tensor.name;
      expect_whole(whole);
    }
    EXPECT_EQ(whole_of(held.tensors[2], ranks).raw(), held.tensors[2].own.raw())
        << "it is given back as it is";
  });
}

TEST(PlacedTensors, AreGatheredOneByOneForTheFirstRank) {
  on_two_ranks([](Group& ranks) {
    const Spread held(ranks.rank());
    int used = 0;
    with_whole(ranks, held.tensors,
               [&](const collectives::Root&, const std::function<Tensor(size_t)>& whole) {
                 EXPECT_EQ(ranks.rank(), 0);
                 for (const size_t i : {1, 0, 2, 1}) {
                   expect_whole(whole(i));
                   ++used;
                 }
               });
    EXPECT_EQ(used, ranks.rank() == 0 ? 4 : 0);
  });
}

TEST(PlacedTensors, AnErrorOfTheFirstRankIsOneOfAll) {
  on_two_ranks([](Group& ranks) {
    const Spread held(ranks.rank());
    expect_has(error_of([&] {
                 with_whole(ranks, held.tensors,
                            [&](const collectives::Root&, const std::function<Tensor(size_t)>& whole) {
                              expect_whole(whole(0));
                              fail("the disk is full");
                            });
               }),
               "the disk is full");
  });
}

TEST(PlacedTensors, OfMoreRanksThanThereAreIsADefect) {
  const Placement cut(Shape{4, 3}, Placement::Cut{.dim = 0, .segments = {{4}}}, Mesh{.tensor = 2}, 0);
  const PlacedTensor tensor{"w", Tensor::zeros(cut.own(), DType::kF32), &cut};
  collectives::launch("threads", {.ranks = 1, .deadline = 60}, [&](Group& ranks) {
    expect_has(error_of([&] { whole_of(tensor, ranks); }, ErrorKind::kDefect),
               "'w' has 2 parts, but there are 1 ranks");
  });
}

}  // namespace
}  // namespace temper::checkpoints
