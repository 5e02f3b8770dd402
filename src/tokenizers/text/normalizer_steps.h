#pragma once
#include <memory>
#include <string>

#include "base/json/json.h"
#include "tokenizers/text/normalizer.h"

// The steps of a normalizer that need few words; each maker reads its component, which stands at `place`.
namespace temper::tokenizers {

std::unique_ptr<const NormalizerStep> make_prepend(const Json& component, const std::string& place);
std::unique_ptr<const NormalizerStep> make_replace(const Json& component, const std::string& place);
std::unique_ptr<const NormalizerStep> make_lowercase(const Json& component, const std::string& place);
std::unique_ptr<const NormalizerStep> make_strip(const Json& component, const std::string& place);

}  // namespace temper::tokenizers
