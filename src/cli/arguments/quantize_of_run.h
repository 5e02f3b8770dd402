#pragma once
#include <string>

#include "quantizers/quantizers.h"

namespace temper::cli {

// The key `quantize` of a run's configuration file (batch --quantize), for a process that answers with what
// the run trains. An Error "[--quantize] …" where the file does not have the key.
quantizers::QuantizeOptions quantize_of_run(const std::string& file);

}  // namespace temper::cli
