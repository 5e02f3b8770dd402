#include "cli/arguments/sampling.h"

#include <algorithm>

#include "base/error.h"
#include "base/threads/max_threads.h"
#include "base/threads/threads.h"

namespace temper::cli {

void SamplingArguments::declare(Options& options) {
  options.option("-t,--temperature", temperature, "Sample at this temperature; 0 is greedy.");
  options.option("--top-k", top_k, "Sample from the N likeliest tokens; 0 is from all.");
  options.option("--top-p", top_p, "Sample from the likeliest tokens that make up X.");
  options.option("--min-p", min_p, "Leave out tokens below X times the likeliest one.");
  options.option("--repetition-penalty", repetition_penalty, "Above 1 makes tokens seen before less likely.");
  options.option("-n,--max-new-tokens", max_new_tokens, "Stop after N new tokens.");
  options.option("--stop", stops, "A text or token that ends an answer; repeatable.");
  options.option("--seed", seed, "The seed of the random numbers. Omitted: 0.");
  options.flag("--greedy", greedy, "Always take the likeliest token.");
  options.option("--threads", threads, "Compute with N threads. Omitted: one per core.");
  options.option("--device", device, "cpu (the default), cuda, or cuda:N for another GPU.");
  options.option("--dtype", dtype, "float32 or bfloat16. Omitted: the model's own.");
  options.flag("--strict-kernels", strict_kernels, "");  // docs/kernels.md
  options.option("--base-dtype", base_dtype, "Linear layers in float8_e4m3fn, nf4 or nf4_double.");
}

rollout::Request SamplingArguments::apply(rollout::Request options) const {
  const auto check = [](const char* name, double value, double lowest, double highest) {
    if (!(value >= lowest && value <= highest))
      fail("[{}] {} is out of range; expected {} to {}", name, value, lowest, highest);
  };
  if (std::find(stops.begin(), stops.end(), "") != stops.end())
    fail("[--stop] is empty, which would end every answer at its first token; leave it out");
  if (temperature) options.sampling.temperature = *temperature;
  // Asking for sampling implies a temperature.
  else if ((top_k || top_p || min_p) && options.sampling.temperature == 0)
    options.sampling.temperature = 1;
  if (greedy) options.sampling.temperature = 0;
  if (top_k) options.sampling.top_k = *top_k;
  if (top_p) options.sampling.top_p = *top_p;
  if (min_p) options.sampling.min_p = *min_p;
  if (repetition_penalty) options.sampling.repetition_penalty = *repetition_penalty;
  if (max_new_tokens) options.max_new_tokens = *max_new_tokens;
  options.stop_strings = stops;
  options.sampling.seed = static_cast<uint64_t>(seed);
  check("--temperature", options.sampling.temperature, 0, 1e6);
  check("--top-p", options.sampling.top_p, 1e-9, 1);
  check("--min-p", options.sampling.min_p, 0, 1);
  check("--top-k", static_cast<double>(options.sampling.top_k), 0, 1e9);
  check("--repetition-penalty", options.sampling.repetition_penalty, 1e-6, 1e6);
  check("--max-new-tokens", static_cast<double>(options.max_new_tokens), 1, 1e9);
  return options;
}

std::unique_ptr<models::Model> load_for_inference(const std::string& folder,
                                                  const SamplingArguments& arguments,
                                                  const ops::OpsConfig& ops,
                                                  const quantizers::QuantizeOptions& quantize) {
  if (arguments.threads < 0 || arguments.threads > kMaxThreads)
    fail("[--threads] {} is out of range; expected 0 to {}", arguments.threads, kMaxThreads);
  if (arguments.threads > 0) set_num_threads(static_cast<int>(arguments.threads));
  models::BuildOptions options;
  options.ops = ops;
  options.ops->strict = arguments.strict_kernels;
  options.quantize = quantize;
  options.facts = detect_hardware(arguments.device);
  if (!arguments.dtype.empty()) {
    options.dtype = dtype_from_string(arguments.dtype);
    if (!options.dtype || !is_float(*options.dtype))
      fail("[--dtype] '{}' is not supported; use float32 or bfloat16", arguments.dtype);
  }
  if (!arguments.base_dtype.empty()) {
    options.base_dtype = primitives::frozen_format_from_string(arguments.base_dtype);
    if (!options.base_dtype)
      fail("[--base-dtype] '{}' is not supported; use float8_e4m3fn, nf4 or nf4_double, or leave it out",
           arguments.base_dtype);
  }
  return models::load_model(folder, options);
}

}  // namespace temper::cli
