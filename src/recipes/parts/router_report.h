#pragma once
#include <string>
#include <vector>

#include "base/json/json.h"
#include "reports/tensorboard.h"
#include "training/passes/step_result.h"

// What people want to know of a mixture's routers.
namespace temper::recipes {

// Adds what a step of a mixture tells, by layer: the largest load of an expert over the mean ("expert_load"),
// the entropy of the router in nats ("router_entropy") and how many experts got no token ("idle_experts");
// and the load balancing loss without its factor ("balance_loss"), where there is one.
void add_routers(const training::StepResult& result, double balance_factor, Json::Object& values,
                 reports::TensorBoardWriter::Scalars& scalars);

// Notices experts that get no token for many steps.
class IdleExperts {
 public:
  static constexpr int kSteps = 100;
  // A sentence for each layer with experts that have now been without a token for kSteps steps.
  std::vector<std::string> after(const std::vector<training::RouterLoad>& loads);

 private:
  std::vector<std::vector<int>> steps_;  // without a token, by router and expert
};

}  // namespace temper::recipes
