#include "parallel/mesh_groups.h"

#include <gtest/gtest.h>

#include <set>

#include "base/text.h"

namespace temper::parallel {
namespace {

using Names = std::set<std::string>;

// A group of a run of several ranks, without the others: records which groups were disconnected.
class RecordingGroup final : public collectives::Group {
 public:
  RecordingGroup(std::string name, int rank, std::vector<int> ranks, Names& disconnected)
      : Group(static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin()),
              static_cast<int>(ranks.size()), std::move(name), ranks),
        own_rank_(rank),
        disconnected_(disconnected) {}
  collectives::Pairs& pairs() override { fail("there are no other ranks"); }

 private:
  using Call = collectives::Call;
  void do_all_reduce(const Call& call, const Tensor&) override { refuse(call); }
  void do_all_gather(const Call& call, const Tensor&, const Tensor&) override { refuse(call); }
  void do_reduce_scatter(const Call& call, const Tensor&, const Tensor&) override { refuse(call); }
  void do_broadcast(const Call& call, const Tensor&) override { refuse(call); }
  void do_all_to_all(const Call& call, const collectives::RowExchange&) override { refuse(call); }
  std::vector<std::string> do_gather_objects(const Call& call, std::string) override {
    refuse(call);
    return {};
  }
  void do_disconnect() override { disconnected_.insert(name()); }
  std::unique_ptr<Group> do_part(std::string name, std::vector<int> ranks, int) override {
    return std::make_unique<RecordingGroup>(std::move(name), own_rank_, std::move(ranks), disconnected_);
  }
  static void refuse(const Call& call) { fail("{} has no other ranks", to_string(call)); }

  const int own_rank_;
  Names& disconnected_;
};

Names disconnected(const Mesh& mesh, int rank, bool all) {
  Names names;
  RecordingGroup ranks("world", rank, collectives::all_ranks(mesh.size()), names);
  MeshGroups(ranks, mesh).disconnect(all);
  return names;
}

// What passes without gradients need stays connected: sums over tensor ranks, experts of other ranks, and
// matrices that are in parts between uses.
TEST(MeshGroups, DisconnectsWhatOnlyUpdatesNeed) {
  for (const int rank : {0, 3}) {
    EXPECT_EQ(disconnected({.replicate = 4}, rank, false), (Names{"world"}));
    EXPECT_EQ(disconnected({.replicate = 2, .tensor = 2}, rank, false), (Names{"data", "world"}));
    EXPECT_EQ(disconnected({.shard = 4, .shard_level = 2}, rank, false), (Names{"shard", "world"}));
    EXPECT_EQ(disconnected({.shard = 4, .shard_level = 3}, rank, false), (Names{"world"}));
    EXPECT_EQ(disconnected({.replicate = 2, .shard = 2, .shard_level = 3}, rank, false),
              (Names{"replicate", "world"}));
    EXPECT_EQ(disconnected({.replicate = 2, .expert = 2}, rank, false),
              (Names{"replicate", "shard", "the same experts", "world"}));
  }
}

// Places are those of tensor, then of context, expert and shard: 5 is rank 1 of tensor on context 0,
// expert 1.
TEST(MeshGroups, HaveTheRanksThatContextRanksShareWorkWith) {
  Names names;
  const Mesh mesh{.shard = 2, .context = 2, .tensor = 2, .expert = 2};
  RecordingGroup ranks("world", 5, collectives::all_ranks(mesh.size()), names);
  const MeshGroups groups(ranks, mesh);
  using Ranks = std::vector<int>;
  EXPECT_EQ(groups.rows().world_ranks(), (Ranks{1, 5, 9, 13}));
  EXPECT_EQ(groups.data().world_ranks(), (Ranks{1, 3, 5, 7, 9, 11, 13, 15}));
  EXPECT_EQ(groups.model().context->world_ranks(), (Ranks{5, 7}));
  EXPECT_EQ(groups.sharing().shard->world_ranks(), groups.data().world_ranks());
  EXPECT_EQ(groups.sharing().expert_shard->world_ranks(), (Ranks{5, 7, 13, 15}));
  EXPECT_EQ(groups.sharing().experts->world_ranks(), (Ranks{5, 7, 13, 15}));
  EXPECT_TRUE(groups.update().counts);
}

TEST(MeshGroups, DisconnectsAllWhereRolloutsHaveGroupsOfTheirOwn) {
  EXPECT_EQ(disconnected({.replicate = 2, .tensor = 2}, 1, true), (Names{"data", "tensor", "world"}));
  EXPECT_EQ(disconnected({.shard = 4, .shard_level = 3}, 1, true), (Names{"shard", "world"}));
}

}  // namespace
}  // namespace temper::parallel
