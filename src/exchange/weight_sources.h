#pragma once
#include <map>
#include <string>
#include <vector>

#include "checkpoints/hf_folder.h"
#include "exchange/sender.h"

// Where weights that are sent come from. Each sends everything between Sender::begin() and finish().
namespace temper::exchange {

// A model folder's tensors: by the folder's own names as its files have them, or as parameters of this
// program, of which some rows at a time are in memory. An Error names weights that do not fit (packed), that
// are NaN or infinite, or that are codes and no numbers (checkpoint).
void send_folder(Sender& sender, const checkpoints::ModelFolder& folder, const WeightTable& table,
                 Names names);

// What one rank owns of parameters, whatever part of them it holds: all elements that no rank before it
// holds. By the names of this program.
void send_owned(Sender& sender, const std::vector<PlacedTensor>& parameters, int rank);

// What a receiver whose parameters have these dtypes (as in its hashes) holds once it has taken a folder. One
// parameter at a time is in memory.
std::map<std::string, ParameterHash> hashes_of_folder(const checkpoints::ModelFolder& folder,
                                                      const WeightTable& table,
                                                      const std::map<std::string, ParameterHash>& received);

}  // namespace temper::exchange
