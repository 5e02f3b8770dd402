#include "layers/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/threads/threads.h"

namespace temper::layers {
namespace {

double llama3_frequency(const RopeConfig& config, double frequency) {
  const auto context = static_cast<double>(config.original_max_position_embeddings);
  const double wavelength = 2 * std::numbers::pi / frequency;
  if (wavelength < context / config.high_freq_factor) return frequency;
  if (wavelength > context / config.low_freq_factor) return frequency / config.factor;
  const double smooth =
      (context / wavelength - config.low_freq_factor) / (config.high_freq_factor - config.low_freq_factor);
  return (1 - smooth) * frequency / config.factor + smooth * frequency;
}

// The (fractional) index of the frequency that turns `rotations` times over the original context.
double yarn_correction_dim(const RopeConfig& config, double rotations, int64_t head_dim) {
  const auto context = static_cast<double>(config.original_max_position_embeddings);
  return static_cast<double>(head_dim) * std::log(context / (rotations * 2 * std::numbers::pi)) /
         (2 * std::log(config.theta));
}

void yarn_frequencies(const RopeConfig& config, int64_t head_dim, std::vector<double>& frequencies) {
  double low = yarn_correction_dim(config, config.beta_fast, head_dim);
  double high = yarn_correction_dim(config, config.beta_slow, head_dim);
  if (config.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(head_dim - 1));
  if (low == high) high += 0.001;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double interpolated = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    frequencies[i] = frequencies[i] / config.factor * interpolated + frequencies[i] * (1 - interpolated);
  }
}

double yarn_mscale(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

}  // namespace

Json::Object describe(const RopeConfig& c) {
  static constexpr const char* kNames[] = {"default", "linear", "llama3", "yarn"};
  const auto known = [](const std::optional<double>& value) { return value ? Json(*value) : Json(); };
  Json::Object all{{"rope_type", kNames[static_cast<size_t>(c.type)]}, {"rope_theta", c.theta}};
  if (c.partial_rotary_factor != 1) all.emplace_back("partial_rotary_factor", c.partial_rotary_factor);
  if (c.sections.exist()) {
    const auto& [time, height, width] = c.sections.pairs;
    all.emplace_back("mrope_section", Json::Array{int64_t{time}, int64_t{height}, int64_t{width}});
    all.emplace_back("mrope_interleaved", c.sections.interleaved);
  }
  if (c.type == RopeType::kDefault) return all;
  all.emplace_back("rope factor", c.factor);
  if (c.type == RopeType::kLinear) return all;
  all.emplace_back("rope original_max_position_embeddings", c.original_max_position_embeddings);
  if (c.type == RopeType::kLlama3) {
    all.emplace_back("rope low_freq_factor", c.low_freq_factor);
    all.emplace_back("rope high_freq_factor", c.high_freq_factor);
    return all;
  }
  all.emplace_back("rope beta_fast", c.beta_fast);
  all.emplace_back("rope beta_slow", c.beta_slow);
  all.emplace_back("rope attention_factor", known(c.attention_factor));
  all.emplace_back("rope mscale", known(c.mscale));
  all.emplace_back("rope mscale_all_dim", known(c.mscale_all_dim));
  all.emplace_back("rope truncate", c.truncate);
  return all;
}

int64_t rotated_width(const RopeConfig& config, int64_t head_dim) {
  return static_cast<int64_t>(static_cast<double>(head_dim) * config.partial_rotary_factor);
}

std::vector<float> rope_inverse_frequencies(const RopeConfig& config, int64_t head_dim) {
  std::vector<double> frequencies(static_cast<size_t>(head_dim / 2));
  for (size_t i = 0; i < frequencies.size(); ++i)
    frequencies[i] = std::pow(config.theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
  switch (config.type) {
    case RopeType::kDefault:
      break;
    case RopeType::kLinear:
      for (double& frequency : frequencies) frequency /= config.factor;
      break;
    case RopeType::kLlama3:
      for (double& frequency : frequencies) frequency = llama3_frequency(config, frequency);
      break;
    case RopeType::kYarn:
      yarn_frequencies(config, head_dim, frequencies);
      break;
  }
  return {frequencies.begin(), frequencies.end()};
}

double rope_attention_scaling(const RopeConfig& config) {
  if (config.type != RopeType::kYarn) return 1;
  if (config.attention_factor) return *config.attention_factor;
  if (config.mscale.value_or(0) != 0 && config.mscale_all_dim.value_or(0) != 0)
    return yarn_mscale(config.factor, *config.mscale) / yarn_mscale(config.factor, *config.mscale_all_dim);
  return yarn_mscale(config.factor, 1);
}

double rope_softmax_scaling(const RopeConfig& config) {
  if (config.type != RopeType::kYarn) return 1;
  const double factor = yarn_mscale(config.factor, config.mscale_all_dim.value_or(0));
  return factor * factor;
}

RopeTables make_rope_tables(const RopeConfig& config, int64_t head_dim, int64_t positions) {
  const std::vector<float> frequencies = rope_inverse_frequencies(config, head_dim);
  const double scaling = rope_attention_scaling(config);
  const int64_t half = head_dim / 2;
  RopeTables tables{Tensor::empty({positions, half}, DType::kF32, MemoryTag::kWeights),
                    Tensor::empty({positions, half}, DType::kF32, MemoryTag::kWeights)};
  float *cos = tables.cos.data<float>(), *sin = tables.sin.data<float>();
  parallel_ranges(positions, 256, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p)
      for (int64_t i = 0; i < half; ++i) {
        // The product is rounded to float32 first: models were trained with that angle.
        const float angle = static_cast<float>(p) * frequencies[static_cast<size_t>(i)];
        cos[p * half + i] = static_cast<float>(std::cos(double{angle}) * scaling);
        sin[p * half + i] = static_cast<float>(std::sin(double{angle}) * scaling);
      }
  });
  return tables;
}

}  // namespace temper::layers
