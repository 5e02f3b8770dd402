#include "templates/template.h"

#include <functional>
#include <set>

#include "base/error.h"
#include "templates/messages.h"
#include "templates/run/interpreter.h"
#include "templates/syntax/lexer.h"
#include "templates/syntax/parser.h"

namespace temper::templates {
namespace {

Variables variables_of(const Json& values) {
  if (!values.is_object()) fail("the values of a template must be an object, found {}", values.kind_name());
  Variables variables;
  for (const auto& [name, value] : values.as_object())
    variables.emplace_back(name, name == "messages" ? traced_messages(value) : Value::from_json(value));
  return variables;
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
  Interpreter interpreter(variables_of(values));
  try {
    interpreter.run(parsed_->block);
  } catch (const Error& error) {
    throw Error(fmt::format("[{}:{}] {}", parsed_->where, interpreter.line(), error.what()), error.kind());
  }
  TracedText& output = interpreter.output();
  return {std::move(output.text()), std::move(interpreter.generation()), std::move(output.origins())};
}

}  // namespace temper::templates
