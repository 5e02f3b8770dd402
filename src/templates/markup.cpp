#include "templates/markup.h"

#include "templates/print.h"

namespace temper::templates {

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
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
  return value.is_markup() ? value : Value::markup(escape_html(to_text(value)));
}

Value like(const Value& model, std::string text) {
  return model.is_markup() ? Value::markup(std::move(text)) : Value(std::move(text));
}

Value markup_like(const Value& model, Value value) {
  if (!model.is_markup()) return value;
  if (value.is_string()) return Value::markup(value.text());
  const bool list = value.is(Value::Kind::kList);
  if (!list && !value.is(Value::Kind::kTuple)) return value;
  List items;
  for (const Value& item : value.items()) items.push_back(markup_like(model, item));
  return list ? Value::list(std::move(items)) : Value::tuple(std::move(items));
}

}  // namespace temper::templates
