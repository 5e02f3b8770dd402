#include "cli/arguments/quantize_of_run.h"

#include "base/error.h"
#include "cli/arguments/run_arguments.h"

namespace temper::cli {

quantizers::QuantizeOptions quantize_of_run(const std::string& file) {
  recipes::RunConfig config;
  RunArguments arguments;
  arguments.yaml_file = file;
  arguments.load(config);
  const quantizers::QuantizeOptions options = config.quantize.to_options();
  if (!options.any())
    fail("[--quantize] {} quantizes nothing; give the configuration of the run that sends, or leave it out",
         file);
  return options;
}

}  // namespace temper::cli
