#include "templates/template.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "templates/messages.h"
#include "templates/run/interpreter.h"
#include "templates/syntax/lexer.h"
#include "templates/syntax/parser.h"

namespace temper::templates {
namespace {

// The source of texts of variables other than the messages.
constexpr size_t kNoMessage = SIZE_MAX;
constexpr Source kTools{kNoMessage, Field::kToolCalls}, kDocuments{kNoMessage, Field::kContent};

Value traced_variable(const std::string& name, const Json& value) {
  if (name == "messages") return traced_messages(value);
  if (name == "tools") return Value::from_json(value, kTools);
  return name == "documents" ? Value::from_json(value, kDocuments) : Value::from_json(value);
}

Variables variables_of(const Json& values) {
  if (!values.is_object()) fail("the values of a template must be an object, found {}", values.kind_name());
  Variables variables;
  for (const auto& [name, value] : values.as_object())
    variables.emplace_back(name, traced_variable(name, value));
  return variables;
}

// The bytes that came from other variables are counted; those of messages stay.
void sort_out(Rendered& rendered) {
  for (const Origin& origin : rendered.origins) {
    if (origin.source == kTools) rendered.tool_bytes += origin.end - origin.begin;
    if (origin.source == kDocuments) rendered.document_bytes += origin.end - origin.begin;
  }
  std::erase_if(rendered.origins, [](const Origin& each) { return each.source.message == kNoMessage; });
}

std::vector<std::vector<std::string>> unread_fields(const Variables& variables) {
  std::vector<std::vector<std::string>> unread;
  for (const auto& [name, messages] : variables) {
    if (name != "messages" || !messages.is(Value::Kind::kList)) continue;
    for (const Value& message : messages.items()) {
      std::vector<std::string>& names = unread.emplace_back();
      if (message.is_dict())
        for (const Value& key : message.unseen()) names.push_back(key.text());
    }
  }
  return unread;
}

}  // namespace

struct Template::Parsed {
  Block block;
  std::string where;
  std::set<std::string, std::less<>> words;  // names and strings
};

Template::Template(std::unique_ptr<const Parsed> parsed) : parsed_(std::move(parsed)) {}
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;
Template::~Template() = default;

Template Template::parse(std::string_view source, std::string_view where) {
  if (const size_t valid = std::min(valid_utf8_prefix(source), source.find('\0')); valid < source.size())
    fail("[{}:{}] the template is not a text in UTF-8; write the file as UTF-8, or download it again", where,
         1 + std::count(source.begin(), source.begin() + static_cast<std::ptrdiff_t>(valid), '\n'));
  std::vector<Token> tokens = tokenize(source, where);
  std::set<std::string, std::less<>> words;
  for (const Token& token : tokens)
    if (token.kind == Token::Kind::kName || token.kind == Token::Kind::kString) words.insert(token.text);
  Block block = Parser(std::move(tokens), where).parse();
  return Template(
      std::make_unique<const Parsed>(Parsed{std::move(block), std::string(where), std::move(words)}));
}

bool Template::mentions(std::string_view name) const { return parsed_->words.contains(name); }

std::string Template::render(const Json& values) const { return render_with_generation(values).text; }

Rendered Template::render_with_generation(const Json& values, const Limits& limits) const {
  const Budget budget(limits);
  Variables variables = variables_of(values);
  // Others may come in any number, from files and rows.
  std::erase_if(variables,
                [&](const auto& each) { return each.first != "messages" && !mentions(each.first); });
  Interpreter interpreter(variables);
  try {
    interpreter.run(parsed_->block);
  } catch (const Error& error) {
    throw Error(fmt::format("[{}:{}] {}", parsed_->where, interpreter.line(), error.what()), error.kind());
  }
  TracedText& output = interpreter.output();
  Rendered rendered{std::move(output.text()), std::move(interpreter.generation()),
                    std::move(output.origins())};
  sort_out(rendered);
  rendered.unread = unread_fields(variables);
  rendered.nones = budget.nones();
  return rendered;
}

}  // namespace temper::templates
