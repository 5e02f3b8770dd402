#pragma once
#include <functional>
#include <map>
#include <string>

#include "layers/parameters/parameters.h"
#include "layers/tower.h"
#include "ops/ops_config.h"

namespace temper {

// The rows of several matrices of float32, one after the other.
Tensor rows_together(const std::vector<Tensor>& parts);

// A tower by itself, with the parameters and kernels that it has of its own.
class TowerModel {
 public:
  // `folder`: has a config.json. No fallback: the fast kernels.
  TowerModel(const std::string& folder, const ops::OpsConfig& ops, DType dtype = DType::kF32);
  explicit TowerModel(std::shared_ptr<const layers::Tower> description, const ops::OpsConfig& ops = {},
                      DType dtype = DType::kF32);

  // Of a file that has them as published; every parameter must be there.
  void load(const std::string& file);
  const layers::BoundTower& tower() const { return *tower_; }
  layers::ParameterStore& store() { return store_; }
  // From all results at once, by the gradients "merged" and "deepstack.K".
  void backward(Tape& tape, const layers::SeenRows& seen,
                const std::function<Tensor(const std::string& what)>& seed) const;
  // Of every parameter, by the names of files, without "visual.".
  std::map<std::string, Tensor> gradients() const;

 private:
  std::shared_ptr<const layers::Tower> description_;
  layers::ParameterStore store_;
  ops::BoundOps ops_;
  layers::RopeTableSet rope_;
  layers::RouterSet routers_;
  std::unique_ptr<layers::BoundTower> tower_;
};

}  // namespace temper
