#include "models/read_quantizers.h"

#include <algorithm>
#include <map>
#include <span>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "checkpoints/hf_folder.h"

namespace temper::models {
namespace {

using checkpoints::RoundedActivations;
using checkpoints::RoundedValues;
using quantizers::QuantizerKind;

QuantizerKind input_kind_of(const RoundedValues& values, bool has_factors) {
  return {.format = values.format,
          .sharing = values.by_token ? quantizers::Sharing::kRow : quantizers::Sharing::kTensor,
          .dynamic = values.dynamic,
          .symmetric = values.symmetric,
          .has_factors = has_factors};
}

// What one source of a weight says.
struct ReadSource {
  std::string name;
  RoundedActivations found;

  QuantizerKind kind() const {
    return found.input ? input_kind_of(*found.input, found.pre_quant_scale.defined()) : QuantizerKind{};
  }
};

std::vector<ReadSource> activations_of(const checkpoints::ModelFolder& folder, const WeightSpec& spec) {
  std::vector<ReadSource> sources;
  for (const WeightSource& source :
       WeightTable::sources_in_files(spec, folder.find(spec.stacked) != nullptr)) {
    const auto matrix = checkpoints::quantized_matrix(folder, spec, source);
    sources.push_back(
        {source.name, matrix ? folder.form()->activations(folder, *matrix) : RoundedActivations{}});
  }
  return sources;
}

// What is fused here reads one input.
void check_inputs_alike(const checkpoints::ModelFolder& folder, const std::vector<ReadSource>& sources) {
  const ReadSource& first = sources.front();
  for (const ReadSource& other : sources)
    if (!(other.kind() == first.kind()))
      fail(
          "[{}] the inputs of '{}' and '{}' are rounded in different ways, but are one input of one module "
          "here; give all of them one format",
          folder.path(), first.name, other.name);
}

class ActivationReader {
 public:
  ActivationReader(const WeightSpec& spec, const std::vector<ReadSource>& sources)
      : module_(spec.name.substr(0, spec.name.rfind(".weight"))),
        experts_(spec.lora == LoraRole::kExperts ? spec.stacked_shape[0] : 0),
        sources_(sources) {}

  const std::string& module() const { return module_; }

  void read_inputs(std::map<std::string, Tensor>& state) const {
    const RoundedValues& first = *sources_.front().found.input;
    if (!first.dynamic) {
      put(state, first.symmetric ? "_amax" : "_high",
          [](const RoundedActivations& each) { return each.input->amax; });
      if (!first.symmetric)
        put(state, "_low", [](const RoundedActivations& each) { return each.input->low; });
    }
    if (!sources_.front().found.pre_quant_scale.defined()) return;
    for (int64_t e = 0; e < std::max<int64_t>(1, experts_); ++e)
      state[name("_pre_quant_scale", e, experts_ > 0)] = of_expert(e).front().found.pre_quant_scale;
  }

  // Of [query, key, value]: those that attention keeps.
  bool read_kept(std::map<std::string, Tensor>& state) const {
    if (sources_.size() != 3 || !sources_[1].found.kept || !sources_[2].found.kept) return false;
    const std::string attention = module_.substr(0, module_.rfind('.'));
    for (const auto& [what, source] : {std::pair{".k_bmm_quantizer._amax", 1}, {".v_bmm_quantizer._amax", 2}})
      state[attention + what] = Tensor::from<float>(
          std::vector<float>{sources_[static_cast<size_t>(source)].found.kept->amax}, {1, 1});
    return true;
  }

 private:
  std::span<const ReadSource> of_expert(int64_t expert) const {
    const size_t each = sources_.size() / static_cast<size_t>(std::max<int64_t>(1, experts_));
    return std::span(sources_).subspan(static_cast<size_t>(expert) * each, each);
  }
  std::string name(const char* what, int64_t expert, bool is_numbered) const {
    return is_numbered ? fmt::format("{}.input_quantizer.{}.{}", module_, expert, what)
                       : fmt::format("{}.input_quantizer.{}", module_, what);
  }
  // The value with the largest magnitude of what is fused, as servers take it.
  template <class Of>
  void put(std::map<std::string, Tensor>& state, const char* what, const Of& of) const {
    for (int64_t e = 0; e < std::max<int64_t>(1, experts_); ++e) {
      float farthest = 0;
      for (const ReadSource& source : of_expert(e))
        if (const float value = of(source.found); std::abs(value) > std::abs(farthest)) farthest = value;
      const Shape shape = experts_ > 0 ? Shape{1, 1, 1} : Shape{1, 1};
      state[name(what, e, experts_ > 1)] = Tensor::from<float>(std::vector<float>{farthest}, shape);
    }
  }

  std::string module_;
  int64_t experts_;
  const std::vector<ReadSource>& sources_;
};

struct ReadQuantizers {
  quantizers::QuantizeOptions options;  // of inputs, keys and values alone
  std::map<std::string, Tensor> state;  // by names of quantizers::Quantizers::state(), on the CPU
  int64_t modules = 0;                  // of the table whose inputs are rounded
  std::string unread = {};              // inputs that cannot be rounded as files say, for example; "": none
};

ReadQuantizers read_quantizers(const checkpoints::ModelFolder& folder, const WeightTable& table) {
  ReadQuantizers read;
  if (folder.form() == nullptr) return read;
  for (const WeightSpec& spec : table.specs()) {
    if (spec.shape.ndim() != 2) continue;
    const std::vector<ReadSource> sources = activations_of(folder, spec);
    const RoundedActivations& first = sources.front().found;
    if (!first.unread.empty())
      read.unread = fmt::format("'{}' in {}", sources.front().name, first.unread);
    else if (!spec.quantize && first.input)
      read.unread = fmt::format("'{}' in {}", sources.front().name, first.input->format);
    if (!spec.quantize) continue;
    check_inputs_alike(folder, sources);
    const ActivationReader reader(spec, sources);
    quantizers::QuantizerRule rule{reader.module(), QuantizerKind{}, sources.front().kind()};
    const bool rounds = !rule.inputs->format.empty();
    if (rounds) reader.read_inputs(read.state);
    read.modules += rounds ? 1 : 0;
    if (reader.read_kept(read.state)) rule.kv_cache = QuantizerKind{"fp8"};
    if (rounds || rule.kv_cache) read.options.rules.push_back(std::move(rule));
  }
  return read;
}

void set_read_state(const ReadQuantizers& read, quantizers::Quantizers& quantizers) {
  for (const quantizers::NamedScales& each : quantizers.state()) {
    const auto found = read.state.find(each.name);
    invariant(found != read.state.end(), "the folder has what a quantizer keeps: " + each.name);
    each.values.copy_from(found->second.reshape(each.values.shape()));
  }
  quantizers.take_own();
  quantizers.set_ready();
}

void report_inputs(const std::string& folder, const ReadQuantizers& read) {
  const bool kept =
      std::ranges::any_of(read.options.rules, [](const auto& rule) { return rule.kv_cache.has_value(); });
  if (read.options.any())
    log_info(fmt::format("[{}] inputs of {} modules are rounded as the folder says{}", folder, read.modules,
                         kept ? ", and so are keys and values" : ""));
  if (!read.unread.empty())
    log_warning(fmt::format(
        "[{}] the folder has inputs of {}, which are not rounded so here: they are read as they are", folder,
        read.unread));
}

}  // namespace

std::unique_ptr<Model> load_as_quantized(const std::string& folder, const BuildOptions& given) {
  if (!is_directory(folder)) return load_model(folder, given);
  const auto files = checkpoints::ModelFolder::open(folder);
  if (files.form() == nullptr) return load_model(folder, given);
  const WeightTable table =
      layers::decoder_weight_table(configure(files.config(), join_path(folder, "config.json")));
  checkpoints::check_weights(files, table);
  const ReadQuantizers read = read_quantizers(files, table);
  BuildOptions options = given;
  options.quantize = read.options;
  options.quantized_as_read = true;
  auto model = load_model(folder, options);
  report_inputs(folder, read);
  if (read.options.any()) set_read_state(read, model->decoder.quantizers());
  return model;
}

}  // namespace temper::models
