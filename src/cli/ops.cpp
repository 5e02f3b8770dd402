#include <algorithm>
#include <cstdio>

#include "base/console.h"
#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "cli/arguments/key_help.h"
#include "cli/arguments/program.h"
#include "cli/arguments/run_arguments.h"
#include "models/model.h"
#include "ops/measure.h"
#include "ops/report.h"
#include "recipes/plans/run_kernels.h"
#include "recipes/setup/bound_kernels.h"

namespace temper::cli {
namespace {

constexpr const char* kUsage =
    R"(Show the kernel of each op, why it was chosen, and what else there is.

  temper ops [MODEL]                     of a model's folder, or a typical model
  temper ops RUN.yaml [--KEY VALUE ...]  as that run says it, with its exit code

  --device NAME    for a device of this machine: cpu (the default), cuda, cuda:N
  --hardware NAME  for hardware that need not be here
  --dtype NAME     float32 (the default) or bfloat16; a run says its own
  --json           print JSON
  --strict-kernels  an error where a kernel is not the best for that hardware
  --suggest        print a block for model.ops_implementation on that hardware
  --verify         compare each kernel with the composition on this machine
  --bench          the same, timed
  --remember       the same, and keep the order of kernels for new runs
  --op NAME        with one of these three: of this op alone
  --table          print all ops and kernels of this build as Markdown
  --help all, --help KEY   every key of RUN.yaml, or one of them

)";

struct OpsArguments {
  std::string model, device, hardware, dtype, op;
  bool suggest = false, json = false, table = false, verify = false, bench = false, remember = false;
  bool strict = false;  // defaults that are not the best are an error
};

DType dtype_of(const std::string& name) {
  if (name.empty()) return DType::kF32;
  const auto dtype = dtype_from_string(name);
  if (!dtype || !is_float(*dtype)) fail("[--dtype] is '{}', expected float32 or bfloat16", name);
  return *dtype;
}

// By the model_type of a folder's configuration.
std::string family_of(const std::string& folder) {
  const Json config = Json::parse_file(join_path(folder, "config.json"));
  const Json* const type = config.is_object() ? config.find("model_type") : nullptr;
  if (type == nullptr || !type->is_string())
    fail("[{}] model_type is missing; it must be one of [{}]", join_path(folder, "config.json"),
         join(models::supported_model_types()));
  return type->as_string();
}

void refuse_device_as_hardware(const std::string& hardware) {
  if (detectors().find(hardware) != nullptr)
    fail("[--hardware] '{}' is a device of this machine; use --device {}", hardware, hardware);
}

// Of a device that is here, or of hardware that need not be.
HardwareFacts facts_of(const OpsArguments& arguments) {
  const std::string& hardware = arguments.hardware;
  if (hardware.empty()) return detect_hardware(arguments.device.empty() ? "cpu" : arguments.device);
  if (!arguments.device.empty())
    fail(
        "[--hardware] '{}' is for hardware that this machine need not have, --device for its own; give only "
        "one of them",
        hardware);
  refuse_device_as_hardware(hardware);
  return known_hardware(hardware);
}

// Tries the kernels of a device of this machine; the exit code is 1 when one computes something else.
int try_kernels(const OpsArguments& arguments, DType dtype) {
  if (!arguments.hardware.empty() && detectors().find(arguments.hardware) == nullptr)
    fail("[--hardware] kernels run only on this machine's devices; use --device");
  const HardwareFacts facts = facts_of(arguments);
  const bool timed = arguments.bench || arguments.remember;
  const auto measured = ops::measure_kernels(dtype, facts, timed, arguments.op);
  bool correct = true;
  std::printf("%-16s %-10s %-8s %12s%s\n", "op", "kernel", "result", "error", timed ? "           ms" : "");
  for (const ops::Measurement& m : measured) {
    std::printf("%-16s %-10s ", m.op.c_str(), m.provider.c_str());
    if (m.refusal) {
      std::printf("refused: %s\n", m.refusal->c_str());
      continue;
    }
    correct = correct && m.correct();
    if (m.failure) {
      std::printf("FAILED   %s\n", m.failure->c_str());
      continue;
    }
    std::printf("%-8s %12.2e", m.correct() ? "ok" : "WRONG", m.error);
    if (timed) std::printf(" %12.3f", m.milliseconds);
    std::printf("\n");
  }
  if (timed && facts.device.type != DeviceType::kCpu)
    std::printf("\ntimes include copying all results to the CPU\n");
  if (arguments.remember) {
    ops::FieldValues preferred = ops::fastest(measured), all = preferred;
    if (!arguments.op.empty()) all.merge(ops::remembered(facts, dtype));  // of the other ops
    ops::remember(all, facts, dtype);
    std::printf("\n%zu preferences for %s written to %s\n", preferred.size(), facts.name.c_str(),
                ops::preferences_file().c_str());
  }
  return correct ? 0 : 1;
}

bool has_kernels_for(std::string_view hardware) {
  for (const auto& [name, op] : ops::op_infos().entries())
    for (const ops::KernelInfo& kernel : op.kernels())
      if (kernel.hardware == hardware) return true;
  return false;
}

int show_ops(const OpsArguments& arguments) {
  if (arguments.strict &&
      (arguments.table || arguments.suggest || arguments.verify || arguments.bench || arguments.remember))
    fail(
        "[--strict-kernels] is about the kernels that are chosen; leave it out with --table, --suggest, "
        "--verify, --bench and --remember");
  if (arguments.table) {
    std::fputs(ops::kernel_table().c_str(), stdout);
    return 0;
  }
  models::BuildOptions build;
  build.dtype = dtype_of(arguments.dtype);
  if (arguments.verify || arguments.bench || arguments.remember) return try_kernels(arguments, *build.dtype);
  if (!arguments.op.empty()) fail("[--op] belongs to --verify, --bench or --remember; add one of them");
  build.facts = facts_of(arguments);
  const ops::HardwareTable& table = ops::hardware_table(build.facts.hardware);
  if (arguments.suggest) {
    if (!has_kernels_for(build.facts.hardware))
      std::printf("# this build has no kernels for %s: eager is all that it can run there\n",
                  table.label.c_str());
    const std::string family = arguments.model.empty() ? "" : family_of(arguments.model);
    std::printf("# kernels for %s%s\n%s", build.facts.name.c_str(),
                family.empty() ? "" : (", " + family).c_str(),
                ops::suggested_block(build.facts, family).c_str());
    return 0;
  }
  // Where every field must be written nothing is chosen for the user: what runs without a choice is shown.
  const bool must_write = !table.must_be_written.empty();
  build.ops.emplace();
  build.ops->strict = arguments.strict;
  if (must_write) build.ops->fallback = ops::kEager;
  build.ops->preferred = {ops::remembered(build.facts, *build.dtype)};
  const std::string where = join_path(arguments.model, "config.json");
  const Json config = arguments.model.empty() ? models::typical_config() : Json::parse_file(where);
  const ops::BoundOps bound = models::bind_kernels(config, where, build);
  const std::vector<std::string> unread = ops::unread_fields();
  if (arguments.json) {
    Json report = ops::explain_json(bound, build.facts);
    report.as_object().emplace_back("unread_fields", Json::Array(unread.begin(), unread.end()));
    std::printf("%s\n", report.dump(2).c_str());
    return 0;
  }
  print_line("hardware  {} ({})\nmodel     {}, {}\n", build.facts.name, table.label,
             arguments.model.empty() ? "a typical qwen3" : arguments.model, to_string(*build.dtype));
  print_exactly(ops::explain(bound.choices(), build.facts));
  if (!unread.empty()) std::printf("\nno op of this version reads the fields [%s]\n", join(unread).c_str());
  if (must_write)
    std::printf("\non %s every field must be written; 'temper ops --%s --suggest' prints a block\n",
                table.label.c_str(),
                (arguments.hardware.empty() ? "device " + arguments.device : "hardware " + arguments.hardware)
                    .c_str());
  return 0;
}

// For help, on lines of 80 columns.
std::string hardware_names() {
  std::string text("Hardware:");
  size_t width = text.size();
  for (const std::string& name : known_hardware_names()) {
    const bool breaks = width + name.size() > 78;
    text.append(breaks ? "\n  " : " ").append(name);
    width = (breaks ? 2 : width + 1) + name.size();
  }
  return text.append("\n");
}

// A file is a run's, and so is a folder with config.yaml; keys without one are of a run that flags alone
// describe.
bool is_about_a_run(const RunArguments& parsed) {
  const std::string& name = parsed.yaml_file;
  if (!name.empty())
    return name.ends_with(".yaml") || name.ends_with(".yml") || (exists(name) && !is_directory(name)) ||
           is_run_folder(name);
  return std::any_of(parsed.flags.begin(), parsed.flags.end(), [](const std::string& flag) {
    return flag.starts_with("--") && flag.substr(0, flag.find('=')).find('.') != std::string::npos;
  });
}

int show_ops_of_run(RunArguments& parsed) {
  if (parsed.has(kStrictKernels)) parsed.flags.push_back(kStrictKernelsKey);
  for (const std::string& flag : parsed.chosen)
    if (flag != "--json" && flag != kStrictKernels)
      fail("[{}] does not ask about a run; leave it out, or the run", flag);
  const std::string hardware = parsed.take("--hardware").value_or("");
  refuse_device_as_hardware(hardware);
  recipes::RunConfig config;
  parsed.load(config);
  const recipes::KernelsOfRun found = recipes::bind_kernels_of_run(config, hardware);
  if (parsed.has("--json")) {
    std::printf("%s\n", ops::explain_json(found.ops, found.facts).dump(2).c_str());
    return 0;
  }
  std::printf("hardware  %s\n", found.facts.name.c_str());
  if (!has_kernels_for(found.facts.hardware))
    std::printf("this build has no kernels for %s; another build may choose others there\n",
                ops::hardware_table(found.facts.hardware).label.c_str());
  std::printf("%s", recipes::describe_kernels(config, found.ops, found.facts, true).c_str());
  return 0;
}

int ops(const std::vector<std::string>& arguments) {
  if (show_help(arguments, fmt::format("{}{}", kUsage, hardware_names()))) return 0;
  RunArguments parsed = parse_run_arguments(
      arguments, {"--suggest", "--verify", "--bench", "--remember", "--json", "--table", kStrictKernels});
  if (is_about_a_run(parsed)) return show_ops_of_run(parsed);
  OpsArguments own;
  own.suggest = parsed.has("--suggest");
  own.json = parsed.has("--json");
  own.table = parsed.has("--table");
  own.verify = parsed.has("--verify");
  own.bench = parsed.has("--bench");
  own.remember = parsed.has("--remember");
  own.strict = parsed.has(kStrictKernels);
  own.model = parsed.yaml_file;
  own.device = parsed.take("--device").value_or("");
  own.hardware = parsed.take("--hardware").value_or("");
  own.dtype = parsed.take("--dtype").value_or("");
  own.op = parsed.take("--op").value_or("");
  if (!parsed.flags.empty())
    fail("[command line] unknown flag '{}'; see 'temper ops --help'", parsed.flags.front());
  return show_ops(own);
}

}  // namespace

void add_ops(Program& program) {
  program.add_raw("ops", "Show the kernel of each op, the reason, and the alternatives.", ops);
}

}  // namespace temper::cli
