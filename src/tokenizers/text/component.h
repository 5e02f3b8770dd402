#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/json/json.h"

// Reading the parts of a tokenizer.json: each is null, one component, or a Sequence of components. `place`
// says where a component stands, for example "[tokenizer.json] pre_tokenizer.pretokenizers[1]".
namespace temper::tokenizers {

using ComponentReader = std::function<void(const Json& component, const std::string& place)>;

// Calls `read` for each component, going into Sequences, whose members lie under `members`.
void for_each_component(const Json& json, std::string_view members, std::string_view place,
                        const ComponentReader& read);

const std::string& component_type(const Json& component, std::string_view place);
[[noreturn]] void refuse_component(std::string_view place, std::string_view type, std::string_view supported);

// Options with a default; null counts as absent. A value of another kind is an Error.
bool bool_option(const Json& component, std::string_view key, bool otherwise, std::string_view place);
std::string string_option(const Json& component, std::string_view key, std::string_view otherwise,
                          std::string_view place);
const Json& required(const Json& component, std::string_view key, std::string_view place);

// A value of this kind, standing at `place`, or an Error.
const std::string& as_text(const Json& value, std::string_view place);
const Json::Array& as_list(const Json& value, std::string_view place);
int32_t as_token_id(const Json& value, std::string_view place);

}  // namespace temper::tokenizers
