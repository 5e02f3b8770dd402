#include <cstdio>
#include <memory>

#include "base/console.h"
#include "base/error.h"
#include "base/files.h"
#include "cli/arguments/program.h"
#include "recipes/commands/export_run.h"

namespace temper::cli {
namespace {

struct ExportArguments {
  std::string run, output, form;
};

models::ExportForm form_named(const std::string& name) {
  using models::ExportForm;
  if (name.empty()) return ExportForm::kModelopt;
  for (const ExportForm form : {ExportForm::kModelopt, ExportForm::kCompressedTensors})
    if (name == to_string(form)) return form;
  fail("[--form] is '{}'; expected modelopt or compressed-tensors", name);
}

int export_run(const ExportArguments& arguments) {
  if (exists(arguments.output))
    fail("[{}] exists already; choose another folder or remove it", arguments.output);
  const recipes::Exported exported =
      recipes::export_run(arguments.run, arguments.output, form_named(arguments.form));
  print_line("{}: {} quantizers, amax of step {}", arguments.output, exported.quantizers, exported.step);
  return 0;
}

}  // namespace

void add_export(Program& program) {
  program.add("export", "Write the model of a quantized run in its number formats.", [](Options& options) {
    auto arguments = std::make_shared<ExportArguments>();
    options.positional("run", arguments->run, "The folder of a run that was trained with quantize.");
    options.positional("output", arguments->output, "The new model's folder.");
    options.option("--form", arguments->form, "modelopt or compressed-tensors. Omitted: modelopt.");
    options.example("temper export runs/nvfp4 models/law-nvfp4");
    return [arguments] { return export_run(*arguments); };
  });
}

}  // namespace temper::cli
