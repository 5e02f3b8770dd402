// The one file that includes PCRE2.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenizers/text/pattern.h"

#include <pcre2.h>

#include "base/error.h"
#include "base/threads/per_thread.h"

namespace temper::tokenizers {
template <auto Free>
struct Deleter {
  template <class T>
  void operator()(T* handle) const {
    Free(handle);
  }
};
template <class T, auto Free>
using Handle = std::unique_ptr<T, Deleter<Free>>;

namespace {

constexpr uint32_t kGroups = 16;  // that a match tells about
constexpr size_t kStackStart = 64 << 10, kStackMost = 32 << 20;

// What matching writes to; one for each thread.
struct Scratch {
  Handle<pcre2_match_data, pcre2_match_data_free> data{pcre2_match_data_create(kGroups, nullptr)};
  Handle<pcre2_match_context, pcre2_match_context_free> context{pcre2_match_context_create(nullptr)};
  Handle<pcre2_jit_stack, pcre2_jit_stack_free> stack{
      pcre2_jit_stack_create(kStackStart, kStackMost, nullptr)};
  Scratch() { pcre2_jit_stack_assign(context.get(), nullptr, stack.get()); }
};

std::string error_text(int code) {
  PCRE2_UCHAR buffer[256];
  pcre2_get_error_message(code, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

PCRE2_SPTR units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

}  // namespace

struct Pattern::Code {
  Handle<pcre2_code, pcre2_code_free> compiled;
  bool jit = false;
  std::string source, where;
};

Pattern::Pattern(std::unique_ptr<const Code> code) : code_(std::move(code)) {}
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;
Pattern::~Pattern() = default;

Pattern Pattern::compile(std::string_view pattern, std::string_view written, unsigned options,
                         std::string_view where) {
  const Handle<pcre2_compile_context, pcre2_compile_context_free> context{
      pcre2_compile_context_create(nullptr)};
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto code = std::make_unique<Code>();
  code->compiled.reset(
      pcre2_compile(units(pattern), pattern.size(), options, &error, &offset, context.get()));
  if (!code->compiled)
    fail("{}: pattern '{}' cannot be compiled: {}{}", where, written, error_text(error),
         pattern == written ? fmt::format(" (at byte {})", offset) : "");
  code->jit = pcre2_jit_compile(code->compiled.get(), PCRE2_JIT_COMPLETE) == 0;
  code->source = written;
  code->where = where;
  return Pattern(std::move(code));
}

Pattern Pattern::regex(std::string_view pattern, std::string_view where) {
  // Oniguruma's ^ and $ always match at lines.
  return compile(rewrite_pattern(pattern, where), pattern, PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, where);
}

Pattern Pattern::literal(std::string_view text, std::string_view where) {
  return compile(text, text, PCRE2_UTF | PCRE2_LITERAL, where);
}

std::optional<Pattern::Match> Pattern::find(std::string_view text, size_t from) const {
  static const PerThread<Scratch> scratches;
  const Scratch& scratch = scratches.get();
  pcre2_code* code = code_->compiled.get();
  pcre2_match_data* data = scratch.data.get();
  int found = PCRE2_ERROR_JIT_STACKLIMIT;
  if (code_->jit)
    found = pcre2_jit_match(code, units(text), text.size(), from, PCRE2_NO_UTF_CHECK, data,
                            scratch.context.get());
  if (found == PCRE2_ERROR_JIT_STACKLIMIT)
    found =
        pcre2_match(code, units(text), text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data, nullptr);
  if (found == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (found < 0)
    fail("{}: pattern '{}' failed on a text of {} bytes: {}", code_->where, code_->source, text.size(),
         error_text(found));
  const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(data);
  return Match{offsets[0], offsets[1], found > 0 ? found - 1 : 0};
}

}  // namespace temper::tokenizers
