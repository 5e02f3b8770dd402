#include "checkpoints/stop_tokens.h"

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "base/json/json.h"

namespace temper::checkpoints {
namespace {

constexpr const char* kKey = "eos_token_id";

std::string stops_file(const std::string& folder) { return join_path(folder, "generation_config.json"); }

}  // namespace

std::vector<int32_t> stop_tokens_of(const std::string& folder) {
  const std::string file = stops_file(folder);
  if (!exists(file)) return {};
  const Json config = Json::parse_file(file);
  if (!config.is_object()) fail("[{}] expected an object, found {}", file, config.kind_name());
  const Json* value = config.find(kKey);
  if (value == nullptr || value->is_null()) return {};
  std::vector<int32_t> ids;
  for (const Json& id : value->is_array() ? value->as_array() : Json::Array{*value}) {
    if (!id.is_int())
      fail("[{}] {} has {}, expected an integer or a list of integers", file, kKey, id.dump());
    ids.push_back(static_cast<int32_t>(id.as_int()));
  }
  return ids;
}

void add_stop_tokens(const std::string& folder, const std::vector<int32_t>& ids) {
  const std::vector<int32_t> there = stop_tokens_of(folder);
  Json::Array all;
  for (const int32_t id : there) all.emplace_back(int64_t{id});
  for (const int32_t id : ids)
    if (std::find(there.begin(), there.end(), id) == there.end()) all.emplace_back(int64_t{id});
  if (std::ssize(all) == std::ssize(there)) return;
  const std::string file = stops_file(folder);
  Json config = exists(file) ? Json::parse_file(file) : Json(Json::Object{});
  config.set(kKey, std::move(all));
  write_file(file, config.dump(2, true) + "\n");
}

}  // namespace temper::checkpoints
