#pragma once
#include <string>
#include <string_view>

#include "templates/values/value.h"

// Texts that count as HTML already: what the filters safe and escape make, and what is made of that.
namespace temper::templates {

std::string escape_html(std::string_view text);
Value escaped(const Value& value);  // as markup; markup stays as it is
// Markup when the model is; of the message that the model came from.
Value like(const Value& model, std::string text);
Value markup_like(const Value& model,
                  Value value);  // a text, or the texts in a list, made markup when the model is

}  // namespace temper::templates
