#pragma once
#include <string>

#include "base/json/json.h"

namespace temper::models {

// The config.json of a model's folder, as its weights have it: where it ties the head to the embedding, but
// the files hold a head of other numbers, that head is the model's. Then the result says
// `tie_word_embeddings: false`, as the models do that are saved from it, and a warning says so, once for each
// folder.
Json config_of_folder(const std::string& folder);

}  // namespace temper::models
