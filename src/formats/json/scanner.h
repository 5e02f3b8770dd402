#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace temper::formats {

// Walks over JSON values without reading what is in them: strings, brackets and what may stand between them
// are checked, the rest is the parser's. A step that fails leaves at() on the problem.
class Scanner {
 public:
  explicit Scanner(std::string_view text, size_t at = 0) : text_(text), at_(at) {}

  size_t at() const { return at_; }
  const std::string& problem() const { return problem_; }
  char peek();             // the next character that is no space; 0 at the end
  bool at_end();           // nothing but space follows
  bool take(char wanted);  // steps over it when it is next
  bool skip_value();
  bool skip_string();
  bool fail(std::string problem);  // always false

 private:
  bool skip_nested();

  std::string_view text_;
  size_t at_;
  std::string problem_;
};

}  // namespace temper::formats
