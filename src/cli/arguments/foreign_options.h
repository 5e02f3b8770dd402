#pragma once
#include <string>
#include <vector>

namespace temper::cli {

// What to write instead of an option that a command does not have ("--max-tokens"): what other programs call
// one of `options` ("--max-new-tokens"), or the nearest of them; empty when there is none.
std::string meant_option(const std::string& given, const std::vector<std::string>& options);

// Which command has what an option of `command` asks for ("generate", "--out"): a sentence; empty when none
// has.
std::string other_command(const std::string& command, const std::string& option);

}  // namespace temper::cli
