#include "collectives/local/local.h"

#include "base/registry.h"
#include "collectives/launch.h"

namespace temper::collectives {
namespace {

class Alone final : public Group {
 public:
  Alone() : Group(0, 1, "local", {0}) {}

 private:
  void do_all_reduce(const Call&, const Tensor&) override {}
  void do_all_gather(const Call&, const Tensor&, const Tensor&) override {}
  void do_reduce_scatter(const Call&, const Tensor&, const Tensor&) override {}
  void do_broadcast(const Call&, const Tensor&) override {}
  std::vector<std::string> do_gather_objects(const Call&, std::string mine) override {
    return {std::move(mine)};
  }
  void do_set_deadline(double) override {}
  std::unique_ptr<Group> do_part(std::string, std::vector<int>, int) override {
    return std::make_unique<Alone>();
  }
};

void launch_here(const LaunchOptions& options, const Body& body) {
  if (options.ranks != 1) fail("[collectives] local has one rank, and {} are asked for", options.ranks);
  body(alone());
}

}  // namespace

Group& alone() {
  static Alone group;
  return group;
}

void register_local() { registry<Launch>().add("local", launch_here); }

}  // namespace temper::collectives
