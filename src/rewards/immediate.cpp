#include "rewards/immediate.h"

namespace temper::rewards {
namespace {

class Immediate final : public Reward {
 public:
  explicit Immediate(std::function<Verdict(const Sample&)> judge) : judge_(std::move(judge)) {}
  void submit(int64_t id, const Sample& sample) override { done_.emplace_back(id, judge_(sample)); }
  std::vector<std::pair<int64_t, Verdict>> take(double) override { return std::exchange(done_, {}); }

 private:
  std::function<Verdict(const Sample&)> judge_;
  std::vector<std::pair<int64_t, Verdict>> done_;
};

}  // namespace

std::unique_ptr<Reward> immediate(std::function<Verdict(const Sample&)> judge) {
  return std::make_unique<Immediate>(std::move(judge));
}

}  // namespace temper::rewards
