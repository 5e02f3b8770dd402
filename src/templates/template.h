#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json/json.h"
#include "templates/text/origin.h"
#include "templates/values/limits.h"

namespace temper::templates {

// A rendered template, the byte ranges [begin, end) of the text that stood in {% generation %} blocks, and
// which of its bytes came from which field of which item of the variable `messages` (except the items'
// roles). Blocks inside macros and set blocks have no place in the text, and no range.
struct Rendered {
  std::string text;
  std::vector<std::pair<size_t, size_t>> generation;
  Origins origins;
  std::vector<std::vector<std::string>> unread = {};  // of each message, the fields that were not looked up
  size_t tool_bytes = 0, document_bytes = 0;          // that came from the variables tools and documents
  int64_t nones = 0;                                  // how often None was made a word
};

// A template in the Jinja that model cards use, as transformers sets it up: trim_blocks, lstrip_blocks, loop
// controls, raise_exception, strftime_now, tojson without HTML escapes; values cannot be changed. Errors are
// "[where:line] …". Rendering is a pure function of the values (except for strftime_now), bounded in depth
// and by the limits; one template may render in several threads at once.
class Template {
 public:
  static Template parse(std::string_view source, std::string_view where);
  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;
  ~Template();

  // Whether the name stands in the template, as a name or as the text of a string.
  bool mentions(std::string_view name) const;

  std::string render(const Json& values) const;  // values is an object
  Rendered render_with_generation(const Json& values, const Limits& limits = Limits()) const;

 private:
  struct Parsed;
  explicit Template(std::unique_ptr<const Parsed> parsed);
  std::unique_ptr<const Parsed> parsed_;
};

}  // namespace temper::templates
