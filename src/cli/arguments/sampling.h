#pragma once
#include <memory>
#include <string>
#include <vector>

#include "cli/arguments/program.h"
#include "models/model.h"
#include "rollout/requests/request.h"

namespace temper::cli {

// The options that generate, chat and batch share. What is not given comes from the model's
// generation_config.json.
struct SamplingArguments {
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int64_t> top_k, max_new_tokens;
  int64_t seed = 0, threads = 0;
  bool greedy = false, strict_kernels = false;
  std::vector<std::string> stops;
  std::string dtype, base_dtype, device = "cpu";

  void declare(Options& options);
  rollout::Request apply(rollout::Request defaults) const;
};

std::unique_ptr<models::Model> load_for_inference(const std::string& folder,
                                                  const SamplingArguments& arguments,
                                                  const ops::OpsConfig& ops = {},
                                                  const quantizers::QuantizeOptions& quantize = {});

}  // namespace temper::cli
