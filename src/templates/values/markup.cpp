#include "templates/values/markup.h"

#include "base/xml.h"
#include "templates/values/print.h"
#include "templates/values/traced_text.h"

namespace temper::templates {

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (!xml_entity(c).empty())
      out += xml_entity(c);
    else if (c == '"')
      out += "&#34;";
    else if (c == '\'')
      out += "&#39;";
    else
      out += c;
  }
  return out;
}

Value escaped(const Value& value) {
  if (value.is_markup()) return value;
  TracedText text;
  text.add(escape_html(to_text(value)));
  text.mark(0, source_of(value));
  return text.take(true);
}

Value like(const Value& model, std::string text) {
  TracedText traced;
  traced.add(text);
  if (model.is_string()) traced.mark(0, source_of(model));
  return traced.take(model.is_markup());
}

Value markup_like(const Value& model, Value value) {
  if (!model.is_markup()) return value;
  if (value.is_string()) return Value::traced(value.text(), value.origins(), true);
  const bool list = value.is(Value::Kind::kList);
  if (!list && !value.is(Value::Kind::kTuple)) return value;
  List items;
  for (const Value& item : value.items()) items.push_back(markup_like(model, item));
  return list ? Value::list(std::move(items)) : Value::tuple(std::move(items));
}

}  // namespace temper::templates
