#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace temper::templates {

struct Token {
  enum class Kind {
    kText,
    kBlockBegin,
    kBlockEnd,
    kOutputBegin,
    kOutputEnd,
    kName,
    kString,
    kInteger,
    kFloat,
    kOperator,
    kEnd
  };
  Kind kind = Kind::kEnd;
  std::string text;  // of strings the value, of all others what stands in the source
  int line = 0;

  bool is(Kind other, std::string_view word) const { return kind == other && text == word; }
  bool is_name(std::string_view word) const { return is(Kind::kName, word); }
  bool is_operator(std::string_view op) const { return is(Kind::kOperator, op); }
};

// Cuts a template into tokens, with trim_blocks and lstrip_blocks on, comments dropped and raw blocks made
// text. Errors are "[where:line] …".
std::vector<Token> tokenize(std::string_view source, std::string_view where);

}  // namespace temper::templates
