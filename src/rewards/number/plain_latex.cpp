#include <array>

#include "rewards/number/scan_number.h"

namespace temper::rewards {
namespace {

struct Rewritten {
  std::string_view from, to;
};
constexpr std::array<Rewritten, 13> kRewritten{{{"\\displaystyle", ""},
                                                {"\\left", ""},
                                                {"\\right", ""},
                                                {"\\!", ""},
                                                {"\\;", " "},
                                                {"\\:", " "},
                                                {"\\ ", " "},
                                                {"\\quad", " "},
                                                {"\\,", " "},
                                                {"~", " "},
                                                {"\t", " "},
                                                {"\u00a0", " "},
                                                {"\u202f", " "}}};

bool separates_digits(std::string_view text, size_t at, std::string_view separator, const std::string& out) {
  const size_t next = at + separator.size();
  return text.substr(at).starts_with(separator) && !out.empty() && is_digit(out.back()) &&
         next < text.size() && is_digit(text[next]);
}

// A command ends where its letters end: \left is none in \leftarrow.
bool begins_with(std::string_view text, std::string_view part) {
  if (!text.starts_with(part)) return false;
  return !is_letter(part.back()) || text.size() == part.size() || !is_letter(text[part.size()]);
}

}  // namespace

std::string plain_latex(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    if (separates_digits(text, at, "{,}", out) || separates_digits(text, at, "\\,", out)) {
      at += text[at] == '{' ? 3 : 2;
      out += ',';
      continue;
    }
    const Rewritten* found = nullptr;
    for (const Rewritten& candidate : kRewritten)
      if (begins_with(text.substr(at), candidate.from)) {
        found = &candidate;
        break;
      }
    if (found == nullptr) {
      out += text[at++];
    } else {
      out += found->to;
      at += found->from.size();
    }
  }
  return out;
}

}  // namespace temper::rewards
