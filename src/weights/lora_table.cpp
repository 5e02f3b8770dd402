#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "weights/lora_experts.h"

namespace temper {
namespace {

constexpr std::string_view kBaseLayer = ".base_layer";

std::string last_part(const std::string& module) { return module.substr(module.rfind('.') + 1); }
std::string module_of(const std::string& parameter) { return parameter.substr(0, parameter.rfind('.')); }

bool strip_end(std::string& name, std::string_view end) {
  if (!name.ends_with(end)) return false;
  name.resize(name.size() - end.size());
  return true;
}

// What ranks divide of a stacked tensor: each expert's kinds (gate, up) by themselves.
std::vector<WeightSegment> segments_of_experts(const WeightSpec& spec) {
  std::vector<WeightSegment> segments;
  for (const WeightSource& source : spec.sources) segments.push_back({source.rows});
  return segments;
}

// Of a parameter's segments those of some of its rows.
std::vector<WeightSegment> segments_of_rows(const WeightSpec& spec, int64_t first, int64_t rows) {
  std::vector<WeightSegment> found;
  int64_t row = 0;
  for (const WeightSegment& segment : spec.segments) {
    if (row >= first && row + segment.size <= first + rows) found.push_back(segment);
    row += segment.size;
  }
  return found;
}

WeightSpec spec_of_a(const std::vector<LoraTarget>& targets) {
  const WeightSpec& base = *targets.front().spec;
  WeightSpec spec;
  spec.name = lora_a_name(base);
  spec.layer = base.layer;
  if (base.lora == LoraRole::kEmbedding) {
    spec.shape = {base.shape[0], targets.front().rank};
    spec.axes = {base.axes[0], "rank"};
    spec.sources = {{lora_file_names(targets.front()).front().a, base.shape[0]}};
    spec.transposed = true;
    return spec;
  }
  const int64_t experts = std::max<int64_t>(targets.front().experts, 1);
  int64_t ranks = 0;
  for (const LoraTarget& target : targets) ranks += target.rank;
  if (targets.front().stacked()) {
    spec.sources = {{lora_file_names(targets.front()).front().a, experts * ranks}};
  } else {
    std::vector<std::vector<LoraFileNames>> names;
    for (const LoraTarget& target : targets) names.push_back(lora_file_names(target));
    for (size_t e = 0; e < static_cast<size_t>(experts); ++e)
      for (size_t i = 0; i < targets.size(); ++i) spec.sources.push_back({names[i][e].a, targets[i].rank});
  }
  spec.shape = {experts * ranks, base.shape[1]};
  spec.axes = {targets.front().experts > 0 ? WeightAxis::of_experts("experts*rank") : "rank", base.axes[1]};
  spec.experts = targets.front().experts;
  return spec;
}

WeightSpec spec_of_b(const LoraTarget& target) {
  const bool embedding = target.spec->lora == LoraRole::kEmbedding;
  const int64_t rows = embedding ? target.spec->shape[1] : target.rows,
                experts = std::max<int64_t>(target.experts, 1);
  WeightSpec spec;
  spec.name = lora_b_name(target);
  spec.layer = target.spec->layer;
  spec.shape = {experts * rows, target.rank};
  spec.axes = {target.spec->axes[embedding ? 1 : 0], "rank"};
  const std::vector<LoraFileNames> names = lora_file_names(target);
  for (const LoraFileNames& each : names)
    spec.sources.push_back({each.b, experts * rows / static_cast<int64_t>(names.size())});
  spec.experts = target.experts;
  if (target.stacked())
    spec.segments = segments_of_experts(*target.spec);
  else if (target.experts == 0 && !embedding)
    spec.segments = segments_of_rows(*target.spec, target.row, target.rows);
  spec.transposed = target.stacked();
  spec.transposed_rows = target.stacked() ? experts : 0;
  return spec;
}

WeightSpec spec_of_saved(const WeightTable& base, const LoraSaved& saved) {
  const WeightTable::Place place = base.find_target(saved.source);
  WeightSpec spec = *place.spec;
  spec.name = saved_name(saved.source);
  spec.shape[0] = place.rows;
  spec.sources = {{saved.file, place.rows}};
  spec.segments = segments_of_rows(*place.spec, place.row, place.rows);
  spec.lora = LoraRole::kNone;
  return spec;
}

// Sorts the tensors of a file by what they are.
class FileReader {
 public:
  FileReader(const WeightTable& base, const LoraConfig& config)
      : base_(base), config_(config), stacked_(targets_of_parameters(base, config)) {}

  void add(const std::string& file) {
    std::string name = file;
    if (!name.starts_with(kAdapterPrefix)) return strangers_.push_back(file);
    name.erase(0, kAdapterPrefix.size());
    if (strip_end(name, ".lora_A.weight") || strip_end(name, ".lora_B.weight") ||
        strip_end(name, ".lora_embedding_A") || strip_end(name, ".lora_embedding_B"))
      return add_target(name, file);
    // With bias: all, PEFT writes the bias of a module that is trained whole twice, and the model's own.
    const bool original = strip_end(name, ".original_module.bias");
    if (original || strip_end(name, ".modules_to_save.bias")) {
      name += ".bias";
      if (base_.find_source(name).spec == nullptr) return strangers_.push_back(file);
      return original ? plan_.repeated.push_back(file) : second_.push_back({name, file});
    }
    const size_t wrapped = name.rfind(kBaseLayer);
    const bool base_layer = wrapped != std::string::npos;
    if (base_layer) name.erase(wrapped, kBaseLayer.size());
    const bool unchanged = base_layer && name.ends_with(".weight");
    // The head's own copy of a tied weight is one only where it is asked for.
    const bool tied = unchanged || ModuleChoice{.names = config_.modules_to_save}.contains(module_of(name));
    if ((tied ? base_.find_target(name) : base_.find_source(name)).spec == nullptr)
      return strangers_.push_back(file);
    if (!unchanged && base_.find_source(name).spec != nullptr &&
        base_.find_source(name).spec->lora == LoraRole::kExperts)
      return strangers_.push_back(file);
    (unchanged ? plan_.unchanged : plan_.saved).push_back({name, file});
  }

  // In the order of the base's table.
  LoraPlan finish(const std::string& where) {
    if (!strangers_.empty()) {
      const size_t shown = std::min<size_t>(strangers_.size(), 5);
      const std::vector<std::string> first(strangers_.begin(),
                                           strangers_.begin() + static_cast<std::ptrdiff_t>(shown));
      fail(
          "[{}] {} tensors belong to no module of this model, or to one that cannot be adapted: {}{}; name "
          "the "
          "adapter's own base model",
          where, strangers_.size(), join(first), shown < strangers_.size() ? ", …" : "");
    }
    for (const LoraSaved& second : second_) add_second(second);
    if (targets_.empty()) fail("[{}] holds no tensor of a LoRA adapter (NAME.lora_A.weight)", where);
    plan_.modules = modules_with_weights(base_);
    for (const WeightSpec& spec : base_.specs()) take_targets(spec, where);
    for (const WeightTable::Tied& tied : base_.tied()) take_targets(tied.spec, where);
    return std::move(plan_);
  }

 private:
  void add_target(const std::string& module, const std::string& file) {
    for (const LoraTarget& target : stacked_)
      if (target.file == module) {
        targets_[target.module] = target;
        return;
      }
    const WeightTable::Place place = base_.find_target(module + ".weight");
    if (place.spec == nullptr || place.spec->lora == LoraRole::kNone) return strangers_.push_back(file);
    targets_[module] = {
        module, place.spec, place.row, place.rows, config_.rank_of(module), config_.scale_of(module)};
  }

  void add_second(const LoraSaved& second) {
    const auto is_same = [&](const LoraSaved& first) { return first.source == second.source; };
    if (std::none_of(plan_.saved.begin(), plan_.saved.end(), is_same))
      plan_.saved.push_back(second);
    else
      plan_.repeated.push_back(second.file);
  }

  void take_targets(const WeightSpec& spec, const std::string& where) {
    if (spec.lora == LoraRole::kExperts) return take_experts(spec, where);
    for (const WeightSource& source : spec.sources)
      if (const auto found = targets_.find(module_of(source.name));
          found != targets_.end() && found->second.spec == &spec)
        plan_.targets.push_back(found->second);
  }

  void take_experts(const WeightSpec& spec, const std::string& where) {
    if (const auto found = targets_.find(spec.stacked); found != targets_.end())
      return plan_.targets.push_back(found->second);
    const auto present = [&](const std::string& module) { return targets_.contains(module); };
    for (LoraTarget& target : targets_of_modules(spec, present, config_, where))
      plan_.targets.push_back(std::move(target));
  }

  const WeightTable& base_;
  const LoraConfig& config_;
  std::vector<LoraTarget> stacked_;  // that the configuration names
  LoraPlan plan_;
  std::vector<LoraSaved> second_;  // which count where there is no first
  std::map<std::string, LoraTarget> targets_;
  std::vector<std::string> strangers_;
};

}  // namespace

std::vector<LoraFileNames> lora_file_names(const LoraTarget& target) {
  const std::string prefix(kAdapterPrefix);
  const auto pair = [&](const std::string& module) {
    return LoraFileNames{prefix + module + ".lora_A.weight", prefix + module + ".lora_B.weight"};
  };
  if (target.spec->lora == LoraRole::kEmbedding)
    return {{prefix + target.module + ".lora_embedding_A", prefix + target.module + ".lora_embedding_B"}};
  std::vector<LoraFileNames> all;
  for (const std::string& module : target.each) all.push_back(pair(module));
  if (all.empty()) all.push_back(pair(target.stacked() ? target.file : target.module));
  return all;
}

std::string lora_a_name(const WeightSpec& spec) { return module_of(spec.name) + ".lora_A"; }
std::string lora_b_name(const LoraTarget& target) {
  return module_of(target.spec->name) + ".lora_B." + last_part(target.module);
}
std::string saved_name(const std::string& source) { return "saved." + source; }

LoraPlan plan_lora_of(const WeightTable& base, const LoraConfig& config,
                      const std::vector<std::string>& names, const std::string& where) {
  FileReader reader(base, config);
  for (const std::string& name : names) reader.add(name);
  return reader.finish(where);
}

void check_products(const WeightTable& base, const LoraPlan& plan, const std::string& where) {
  for (const LoraSaved& first : plan.saved) {
    const WeightSpec* product = base.find_target(first.source).spec;
    std::vector<std::string> adapted, whole, all;
    for (const LoraTarget& target : plan.targets)
      if (target.spec == product) adapted.push_back(last_part(target.module));
    if (adapted.empty()) continue;
    for (const LoraSaved& saved : plan.saved)
      if (base.find_target(saved.source).spec == product) whole.push_back(last_part(module_of(saved.source)));
    for (const WeightSource& source : product->sources) all.push_back(last_part(module_of(source.name)));
    const std::string module = module_of(first.source);
    fail(
        "[{}] of {}, {} would be trained in full and {} adapted, but {} are one matrix multiplication in "
        "Temper; adapt {} as well, or train {} in full as well",
        where, module_of(module), join(whole), join(adapted), join(all), join(whole), join(adapted));
  }
}

WeightTable lora_table(const WeightTable& base, const LoraPlan& plan) {
  WeightTable table;
  for (size_t i = 0; i < plan.targets.size();) {
    std::vector<LoraTarget> together;
    for (const WeightSpec* spec = plan.targets[i].spec;
         i < plan.targets.size() && plan.targets[i].spec == spec; ++i)
      together.push_back(plan.targets[i]);
    table.add(spec_of_a(together));
    for (const LoraTarget& target : together) table.add(spec_of_b(target));
  }
  for (const LoraSaved& saved : plan.saved) table.add(spec_of_saved(base, saved));
  for (const LoraSaved& copy : plan.unchanged) table.ignore(copy.file, "a copy of the model's own weight");
  for (const std::string& file : plan.repeated) table.ignore(file, "said by another tensor");
  return table;
}

}  // namespace temper
