#include "cli/arguments/key_help.h"

#include <algorithm>
#include <cstdio>

#include "base/error.h"
#include "config/print.h"
#include "recipes/keys/run_config.h"

namespace temper::cli {

bool show_help(const std::vector<std::string>& arguments, const std::string& brief) {
  const auto asks = [](const std::string& argument) { return argument == "--help" || argument == "-h"; };
  const auto help = std::find_if(arguments.begin(), arguments.end(), asks);
  if (help == arguments.end()) return false;
  if (std::find_if(std::next(help), arguments.end(), asks) != arguments.end())
    fail("[command line] flag --help is given twice; give it once");
  const auto topic = std::next(help);
  if (topic == arguments.end()) {
    std::fputs(brief.c_str(), stdout);
    return true;
  }
  recipes::RunConfig config;
  const config::Schema schema = config::schema_of(config);
  std::fputs((*topic == "all" ? config::help(schema) : config::help_of(schema, *topic)).c_str(), stdout);
  return true;
}

}  // namespace temper::cli
