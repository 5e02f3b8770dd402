#pragma once
#include <string>
#include <vector>

#include "collectives/group.h"
#include "layers/parameters/parameters.h"
#include "weights/resharding.h"

namespace temper::parallel {

// Copies the parameters of one store into another of the same weight table, which the same ranks divide in
// another way (weights/resharding.h): one all-to-all for each parameter of which something travels, through
// memory for what this rank sends and gets of one parameter. All ranks of `ranks`, which both meshes number,
// make one and call the same functions. The stores must outlive it.
class WeightCopy {
 public:
  WeightCopy(const layers::ParameterStore& from, layers::ParameterStore& to, collectives::Group& ranks);

  void run();
  // Puts every parameter together of what the ranks hold in either way, which no table of moves is needed
  // for, and compares what this rank has with it. An Error (kDefect) names the parameter that is another.
  void check() const;
  int64_t bytes() const;           // that this rank holds afterwards
  int64_t bytes_received() const;  // of these, from others

 private:
  void move(size_t parameter, const Resharding& moves) const;

  const layers::ParameterStore& from_;
  layers::ParameterStore& to_;
  collectives::Group& ranks_;
  std::vector<Resharding> moves_;  // by parameter
};

}  // namespace temper::parallel
