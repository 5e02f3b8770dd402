#include <cstdio>

#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "cli/program.h"
#include "models/model.h"
#include "ops/report.h"

namespace temper::cli {
namespace {

struct OpsArguments {
  std::string model, hardware, dtype;
  bool suggest = false, json = false, table = false;
};

DType dtype_of(const std::string& name) {
  if (name.empty()) return DType::kF32;
  const auto dtype = dtype_from_string(name);
  if (!dtype || !is_float(*dtype)) fail("[--dtype] is '{}', expected float32 or bfloat16", name);
  return *dtype;
}

// Hardware that need not be here, or a plug-in's device that is.
HardwareFacts facts_of(const std::string& hardware) {
  return detectors().find(hardware) != nullptr ? detect_hardware(hardware) : known_hardware(hardware);
}

int show_ops(const OpsArguments& arguments) {
  if (arguments.table) {
    std::fputs(ops::kernel_table().c_str(), stdout);
    return 0;
  }
  models::BuildOptions build;
  build.dtype = dtype_of(arguments.dtype);
  if (!arguments.hardware.empty()) build.facts = facts_of(arguments.hardware);
  const ops::HardwareTable& table = ops::hardware_table(build.facts.hardware);
  if (arguments.suggest) {
    std::printf("# kernels for %s\n%s", build.facts.name.c_str(), ops::suggested_block(table).c_str());
    return 0;
  }
  // Where every field must be written nothing is chosen for the user: what runs without a choice is shown.
  if (table.strict) build.ops = ops::OpsConfig{.fallback = std::string(ops::kEager)};
  const std::string where = join_path(arguments.model, "config.json");
  const Json config = arguments.model.empty() ? models::typical_config() : Json::parse_file(where);
  const ops::BoundOps bound = models::bind_kernels(config, where, build);
  if (arguments.json) {
    std::printf("%s\n", ops::explain_json(bound, build.facts).dump(2).c_str());
    return 0;
  }
  std::printf("hardware  %s (%s)\nmodel     %s, %s\n\n%s", build.facts.name.c_str(), table.label.c_str(),
              arguments.model.empty() ? "a typical qwen3" : arguments.model.c_str(),
              std::string(to_string(*build.dtype)).c_str(), ops::explain(bound, build.facts).c_str());
  if (table.strict)
    std::printf("\non %s every field must be written; 'temper ops --hardware %s --suggest' prints a block\n",
                table.label.c_str(), arguments.hardware.c_str());
  return 0;
}

}  // namespace

void add_ops(Program& program) {
  program.add("ops", "show the kernel of each op, why, and what else there is", [](Options& options) {
    auto arguments = std::make_shared<OpsArguments>();
    options.positional("model", arguments->model, "model folder; without one, a typical model", false);
    options.option("--hardware", arguments->hardware, "other hardware: " + join(known_hardware_names()));
    options.option("--dtype", arguments->dtype, "float32 (default) or bfloat16");
    options.flag("--suggest", arguments->suggest, "print a block for ops_implementation on that hardware");
    options.flag("--json", arguments->json, "print as JSON");
    options.flag("--table", arguments->table, "print all ops and kernels of this build as Markdown");
    return [arguments] { return show_ops(*arguments); };
  });
}

}  // namespace temper::cli
