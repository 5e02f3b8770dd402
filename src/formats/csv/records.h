#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace temper::formats {

// Fields of RFC 4180: between separators, those in quotes may hold separators, line ends and quotes written
// twice. Line ends are \n or \r\n. A quote inside a field that does not begin with one is a character.
class Records {
 public:
  explicit Records(char separator) : separator_(separator) {}

  // Where the record that begins at `at` ends: behind its line end, or at the end of the text. npos where a
  // quoted field does not end as it should; then problem() and problem_at() say why and where.
  size_t skip(std::string_view text, size_t at);

  // Its fields; skip() has found it sound.
  std::vector<std::string> read(std::string_view text, size_t at) const;

  // Where a quote may be text after all: it opens a field that holds line ends, and without quotes each line
  // of the record that begins at `at` and ends with the text is blank or one of `columns` fields. npos where
  // none is.
  size_t unclear_quote(std::string_view text, size_t at, size_t columns) const;

  const std::string& problem() const { return problem_; }
  size_t problem_at() const { return problem_at_; }

 private:
  size_t fail(std::string problem, size_t at);

  char separator_;
  std::string problem_;
  size_t problem_at_ = 0;
};

// The one of comma, semicolon and tab that the first record has most of outside of quotes.
char separator_of(std::string_view text);

}  // namespace temper::formats
