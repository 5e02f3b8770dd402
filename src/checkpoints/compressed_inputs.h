#pragma once
#include <optional>
#include <string>
#include <vector>

#include "checkpoints/hf_folder.h"

namespace temper::checkpoints {

// What a group of modules in compressed-tensors' configuration says of their inputs ("input_activations").
class CompressedInputs {
 public:
  explicit CompressedInputs(const Json& group);

  // "targets" are names of modules, regular expressions ("re:.*down_proj") that match from the beginning, or
  // kinds of modules, of which those that have codes are "Linear".
  bool is_of(const std::string& module) const;
  bool is_of_a_kind() const { return linears_; }
  // Nothing where inputs are read as they are, or as this program cannot round.
  std::optional<RoundedValues> of(const ModelFolder& folder, const QuantizedMatrix& matrix) const;
  const std::string& unread() const { return unread_; }  // RoundedActivations::unread

 private:
  std::vector<std::string> targets_;
  bool linears_ = false;
  std::string format_, unread_;  // "": as they are
  bool by_token_ = false, dynamic_ = false, symmetric_ = true;
};

}  // namespace temper::checkpoints
