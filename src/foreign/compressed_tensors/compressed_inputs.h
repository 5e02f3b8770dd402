#pragma once
#include <optional>
#include <string>
#include <vector>

#include "foreign/forms.h"
#include "tokenizers/text/pattern.h"

namespace temper::foreign {

// What a group of modules in compressed-tensors' configuration says of their inputs ("input_activations").
class CompressedInputs {
 public:
  // An Error "where 're:…': …" for an expression that is none.
  CompressedInputs(const Json& group, const std::string& where);

  // "targets" are names of modules, Python's regular expressions ("re:.*down_proj") that match from the
  // beginning, or kinds of modules, of which those that have codes are "Linear".
  bool is_of(const std::string& module) const;
  bool is_of_a_kind() const { return linears_; }
  bool rounds() const { return !format_.empty() || !unread_.empty(); }
  // Nothing where inputs are read as they are, or as this program cannot round.
  std::optional<RoundedValues> of(const ModelFolder& folder, const QuantizedMatrix& matrix) const;
  const std::string& unread() const { return unread_; }  // RoundedActivations::unread

 private:
  void add_target(const std::string& target, const std::string& where);

  std::vector<std::string> targets_;  // names and kinds
  std::vector<tokenizers::Pattern> patterns_;
  bool linears_ = false;
  std::string format_, unread_;  // "": as they are
  bool by_token_ = false, dynamic_ = false, symmetric_ = true;
};

}  // namespace temper::foreign
