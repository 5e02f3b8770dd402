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

TEST(MeshGroups, DisconnectsAllWhereRolloutsHaveGroupsOfTheirOwn) {
  EXPECT_EQ(disconnected({.replicate = 2, .tensor = 2}, 1, true), (Names{"data", "tensor", "world"}));
  EXPECT_EQ(disconnected({.shard = 4, .shard_level = 3}, 1, true), (Names{"shard", "world"}));
}

}  // namespace
}  // namespace temper::parallel
