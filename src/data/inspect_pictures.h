#pragma once
#include <string>

#include "base/json/json.h"

namespace temper::data {

// A line for each picture that a row names: its place and name, its size, and where the model's folder says
// how pictures are read (preprocessing/picture_settings.h) the size, grid and tokens that it gets. What is
// wrong with one is its line. Nothing for rows without pictures. `data_file`: the row's; paths begin in its
// folder.
std::string describe_pictures(const Json& row, const std::string& data_file, const std::string& model_folder);

}  // namespace temper::data
