#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "recipes/keys/run_config.h"

namespace temper::cli {

inline constexpr const char* kStrictKernels = "--strict-kernels";
inline constexpr const char* kStrictKernelsKey = "--model.strict_kernels=true";  // its long form

// Whether it is what a run wrote; a model's folder may have a config.yaml of other programs.
bool is_run_folder(const std::string& path);

// "run.yaml --train.optimizer.lr 2e-5 --dry-run": a configuration file (optional), the command's own flags
// and dotted configuration flags, in any order.
struct RunArguments {
  std::string yaml_file;
  std::vector<std::string> flags;   // dotted, for config::load
  std::vector<std::string> chosen;  // of the command's own flags
  bool has(const std::string& flag) const;
  // Takes the command's own "--name VALUE" or "--name=VALUE" out of `flags`; nothing where it is not there.
  std::optional<std::string> take(const std::string& name);
  std::vector<std::string> take_all(const std::string& name);  // that may be given several times
  // Fills the configuration from the file, the flags and the model; a run's folder means its config.yaml. A
  // data file or another folder in the file's place is an Error that names the key for it. Returns its keys.
  config::Schema load(recipes::RunConfig& config) const;
};
// `own_flags` have no value; neither has --strict-kernels, which sets its key if it is not among them. A flag
// of these given twice, or mistyped, is an error.
RunArguments parse_run_arguments(const std::vector<std::string>& arguments,
                                 const std::vector<std::string>& own_flags);

}  // namespace temper::cli
