#pragma once
#include <string>

// Which program this is. The commit is known to the program alone (src/main.cpp), so that a new one compiles
// one file.
namespace temper {

std::string version();  // "0.1.0"
void set_commit(const std::string& commit);
const std::string& commit();    // "" where the source was no git checkout
std::string program_version();  // "0.1.0 (commit ff3d2910cafe)"

}  // namespace temper
