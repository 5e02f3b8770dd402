#include "recipes/setup/data_sets.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "base/log.h"
#include "data/chat/chat_template.h"
#include "formats/paths.h"
#include "recipes/keys/recipe.h"

namespace temper::recipes {
namespace {

Json parse_kwargs(const std::string& text) {
  if (text.empty()) return Json::Object{};
  Json kwargs = Json::parse(text, "data.template_kwargs");
  if (!kwargs.is_object()) fail("[data.template_kwargs] must be a JSON object, found {}", kwargs.kind_name());
  return kwargs;
}

data::RowOptions row_options(const SourceConfig& source, const RunConfig& run, const rollout::TextFiles& text,
                             const RowsWanted& rows) {
  const DataConfig& config = run.data;
  data::RowOptions options;
  options.loss = config.loss;
  options.max_length = config.max_length;
  options.overflow = config.overflow;
  options.on_empty_answer = config.on_empty_answer;
  options.vocab_size = text.vocab_size;
  // What ends a text is what generation stops at.
  if (!text.generation.stop_ids.empty()) options.eos_id = text.generation.stop_ids.front();
  options.template_extra = parse_kwargs(config.template_kwargs);
  options.format = source.format;
  options.columns = source.columns.to_columns();
  options.labels = source.labels;
  if (text.chat)
    options.template_reads = [chat = text.chat](std::string_view name) { return chat->mentions(name); };
  options.goal = rows.goal;
  options.learn_chosen = source.learn_chosen;
  options.share_prompts = rows.share_prompts;
  return options;
}

class SourceNames {
 public:
  // As the user calls it, or else the shortest that no source before it has.
  std::string name_of(const SourceConfig& source) {
    std::string name = source.name.empty() ? shortest_of(source.path) : source.name;
    if (!taken_.insert(name).second) fail("[data] two sources have the name '{}'", name);
    return name;
  }

 private:
  std::string shortest_of(std::string path) {
    while (path.size() > 1 && path.ends_with('/')) path.pop_back();
    if (const std::string name = file_name(path); !name.empty() && !taken_.contains(name)) return name;
    if (!path.empty() && !taken_.contains(path)) return path;
    int& number = numbers_.try_emplace(path, 2).first->second;
    std::string name;
    do name = fmt::format("{}#{}", path, number++);
    while (taken_.contains(name));
    return name;
  }

  std::unordered_set<std::string> taken_;
  std::unordered_map<std::string, int> numbers_;  // the next one to try, of a path
};

std::vector<data::Member> members_of(const std::vector<SourceConfig>& sources, const RunConfig& config,
                                     const rollout::TextFiles& text, const RowsWanted& rows) {
  std::vector<data::Member> members;
  SourceNames names;
  for (const SourceConfig& source : sources) {
    data::Member member;
    member.name = names.name_of(source);
    member.weight = source.weight;
    member.source = std::make_shared<data::Source>(formats::expand_paths({source.path}));
    member.encoder = std::make_shared<data::RowEncoder>(text.tokenizer, data::renderer_of(text.chat),
                                                        row_options(source, config, text, rows));
    members.push_back(std::move(member));
  }
  return members;
}

void check(const DataConfig& config) {
  if (config.train.empty()) fail("[data.train] is missing; name at least one data file");
  if (config.eval_fraction > 0 && !config.eval.empty())
    fail("[data.eval_fraction] is {}, but data.eval names files; give one of them", config.eval_fraction);
  for (const SourceConfig& source : config.eval)
    if (source.weight != 1)
      fail("[data.eval] '{}' has a weight; all rows of an evaluation count once", source.path);
  for (const SourceConfig& source : config.train)
    if (source.weight != 1 && config.mixing == data::Mixing::kConcatenate)
      fail(
          "[data.train] '{}' has a weight of {}, which data.mixing: concatenate does not use; set "
          "first_exhausted or all_exhausted",
          source.path, source.weight);
}

}  // namespace

DataSets DataSets::load(const RunConfig& config, const rollout::TextFiles& text,
                        std::optional<data::Goal> goal) {
  const DataConfig& data = config.data;
  check(data);
  if (text.chat)
    for (const auto& [name, value] : parse_kwargs(data.template_kwargs).as_object())
      if (!text.chat->mentions(name))
        log_warning(fmt::format("[data.template_kwargs] the chat template reads no '{}'", name));
  RowsWanted rows = recipe_of(config).rows(config);
  if (goal) rows.goal = *goal;
  std::vector<data::Member> train = members_of(data.train, config, text, rows);
  std::vector<data::Member> eval = members_of(data.eval, config, text, rows);
  if (data.eval_fraction > 0) {
    data::HeldOut held = data::hold_out(train, data.eval_fraction, static_cast<uint64_t>(config.train.seed));
    train = std::move(held.rest);
    eval = std::move(held.held_out);
  }
  DataSets sets{data::Mixture(std::move(train)), std::nullopt};
  if (!eval.empty()) sets.eval.emplace(std::move(eval));
  return sets;
}

data::LoaderOptions eval_options(const RunConfig& config) {
  data::LoaderOptions options;
  options.shuffle = false;
  options.packing = config.data.packing;
  options.max_length = row_tokens(config);
  options.rows_per_step = 64;
  options.on_bad_row = config.data.on_bad_row;
  options.threads = 0;
  return options;
}

std::vector<data::PackedRow> read_all(const data::Mixture& mixture, const RunConfig& config) {
  data::Loader loader(mixture, eval_options(config));
  std::vector<data::PackedRow> rows;
  while (auto batch = loader.next())
    for (data::PackedRow& row : batch->rows) rows.push_back(std::move(row));
  return rows;
}

data::LoaderOptions loader_options(const RunConfig& config) {
  data::LoaderOptions options;
  options.seed = static_cast<uint64_t>(config.train.seed);
  options.shuffle = config.data.shuffle;
  options.mixing = config.data.mixing;
  options.packing = config.data.packing;
  options.max_length = row_tokens(config);
  options.tokens_per_step = config.train.tokens_per_step;
  options.rows_per_step = options.tokens_per_step > 0 ? 0 : config.train.rows_per_step;
  options.num_epochs = 0;  // the step count ends the run
  options.on_bad_row = config.data.on_bad_row;
  options.threads = config.data.threads;
  return options;
}

}  // namespace temper::recipes
