#include "cli/run_arguments.h"

#include <algorithm>

#include "base/error.h"

namespace temper::cli {

bool RunArguments::has(const std::string& flag) const {
  return std::find(chosen.begin(), chosen.end(), flag) != chosen.end();
}

RunArguments parse_run_arguments(const std::vector<std::string>& arguments,
                                 const std::vector<std::string>& own_flags) {
  RunArguments parsed;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (std::find(own_flags.begin(), own_flags.end(), argument) != own_flags.end()) {
      parsed.chosen.push_back(argument);
    } else if (argument.rfind("--", 0) == 0) {
      parsed.flags.push_back(argument);
      // "--key value": the value belongs to the flag, whatever it looks like, unless it is written with '='.
      if (argument.find('=') == std::string::npos && i + 1 < arguments.size())
        parsed.flags.push_back(arguments[++i]);
    } else if (parsed.yaml_file.empty()) {
      parsed.yaml_file = argument;
    } else {
      fail("unexpected argument '{}' after the configuration file '{}'", argument, parsed.yaml_file);
    }
  }
  return parsed;
}

}  // namespace temper::cli
