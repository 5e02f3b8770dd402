#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "base/console.h"
#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "checkpoints/adapter_folder.h"
#include "checkpoints/quantized_form.h"
#include "cli/arguments/program.h"
#include "models/adapter.h"
#include "recipes/parts/run_files.h"

namespace temper::cli {
namespace {

struct MergeArguments {
  std::string adapter, output, base;
  int64_t max_shard_mib = 4768;  // 5 GB, as transformers cuts
  bool quantized = false;
};

bool lies_in(const std::string& path, const std::string& folder) {
  const auto whole = std::filesystem::weakly_canonical(path),
             outer = std::filesystem::weakly_canonical(folder);
  return std::mismatch(outer.begin(), outer.end(), whole.begin(), whole.end()).first == outer.end();
}

// The run that an adapter's folder lies in, if it rounded the base below its adapters; "": none.
std::string rounding_run_of(const std::string& adapter) {
  std::filesystem::path folder = std::filesystem::weakly_canonical(adapter);
  for (int up = 0; up < 3; ++up) {  // RUN/adapters/NAME/adapter
    folder = folder.parent_path();
    const recipes::RunFiles files{folder.string()};
    if (exists(files.config()) && is_directory(files.calibration())) return files.folder;
  }
  return "";
}

void warn_of_plain_base(const std::string& adapter, const std::string& base) {
  const std::string run = rounding_run_of(adapter);
  if (run.empty() || checkpoints::quantized_form_of(base) != nullptr) return;
  log_warning(fmt::format(
      "[{}] was trained on a base that quantize rounded, and {} is that base before rounding: for the "
      "model that was trained, write it first (temper export {} FOLDER) and merge with --base FOLDER",
      adapter, base, run));
}

int merge(MergeArguments arguments) {
  arguments.adapter = checkpoints::find_adapter(arguments.adapter);
  if (arguments.max_shard_mib < 1)
    fail("[--max-shard-mib] {} is out of range; expected 1 or more", arguments.max_shard_mib);
  std::string base = arguments.base;
  if (base.empty()) base = checkpoints::read_adapter_config(arguments.adapter).base_model;
  if (!is_directory(base)) {
    if (!arguments.base.empty()) fail("[--base] '{}' is not a folder", base);
    fail("[{}] the adapter's base model '{}' is not a folder on this machine; name its folder with --base",
         arguments.adapter, base);
  }
  if (exists(arguments.output))
    fail("[{}] exists already; choose another folder or remove it", arguments.output);
  for (const std::string& source : {base, arguments.adapter})
    if (lies_in(arguments.output, source))
      fail("[{}] lies in {}, which is read; choose a folder of its own", arguments.output, source);
  warn_of_plain_base(arguments.adapter, base);
  models::merge_adapter(
      arguments.adapter, base, arguments.output, arguments.max_shard_mib << 20,
      arguments.quantized ? checkpoints::MergedForm::kAsBase : checkpoints::MergedForm::kPlain);
  print_line("{}: {} with {}", arguments.output, base, arguments.adapter);
  return 0;
}

}  // namespace

void add_merge(Program& program) {
  program.add("merge", "Write a model with an adapter in its weights.", [](Options& options) {
    auto arguments = std::make_shared<MergeArguments>();
    options.positional("adapter", arguments->adapter, "The adapter's folder, in PEFT's format.");
    options.positional("output", arguments->output, "The new model's folder.");
    options.option("--base", arguments->base, "The model's folder. Omitted: as the adapter says.");
    options.option("--max-shard-mib", arguments->max_shard_mib,
                   "The largest size of a file of weights, in MiB.");
    options.flag("--quantized", arguments->quantized, "Write codes in the form of a quantized base.");
    options.example("temper merge runs/law/adapter models/law");
    return [arguments] { return merge(*arguments); };
  });
}

}  // namespace temper::cli
