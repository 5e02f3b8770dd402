#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "config/schema.h"

namespace temper::config {

// Sets the schema's variables from a YAML file and then from the command line's flags, and notes which keys
// were written. `flags` are {"--train.optimizer.lr", "2e-5"} or {"--train.optimizer.lr=2e-5"}; a flag
// given twice is an error; a list is replaced as a whole (--betas [0.9,0.99]), or one key of one of its
// mappings is, by the mapping's number or name: --adapters[0].rank 8, --adapters[law].rank 8. An empty
// `yaml_file` means flags only. Errors name the file and line, the dotted key, what was found and what was
// expected; after one, the variables are in an undefined mixture of old and new values.
void load(Schema& schema, const std::string& yaml_file, const std::vector<std::string>& flags = {});

// The same of a file that dump() wrote: keys may have names of older versions (Field::formerly).
void load_saved(Schema& schema, const std::string& yaml_file, const std::vector<std::string>& flags = {});

// The same from text; messages name `where` in the place of the file.
void load_text(Schema& schema, std::string_view yaml, std::string_view where,
               const std::vector<std::string>& flags = {});

}  // namespace temper::config
