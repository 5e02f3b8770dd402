#include "templates/builtins/predicates.h"

#include <algorithm>

#include "base/error.h"
#include "templates/builtins/filters.h"
#include "templates/builtins/methods.h"
#include "templates/values/operators.h"
#include "templates/values/print.h"

namespace temper::templates {
namespace {

using ValueKind = Value::Kind;

template <ValueKind... kinds>
bool is_kind(const Value& subject, const Arguments&) {
  return (subject.is(kinds) || ...);
}

bool defined(const Value& subject, const Arguments&) { return !subject.is_undefined(); }

template <bool value>
bool is_bool(const Value& subject, const Arguments&) {
  return subject.is(ValueKind::kBool) && (subject.integer() != 0) == value;
}

bool iterable(const Value& subject, const Arguments&) {
  return subject.is_undefined() || subject.is_string() || subject.is_dict() || subject.is(ValueKind::kList) ||
         subject.is(ValueKind::kTuple) || subject.is(ValueKind::kView) || subject.is(ValueKind::kGenerator) ||
         subject.is(ValueKind::kLoop);
}

bool sequence(const Value& subject, const Arguments&) {
  return subject.is_undefined() || subject.is_string() || subject.is_dict() || subject.is(ValueKind::kList) ||
         subject.is(ValueKind::kTuple) || subject.is_range();
}

const Value& only_argument(const Arguments& arguments, std::string_view test) {
  if (arguments.positional.size() != 1 || !arguments.named.empty())
    fail("test '{}' takes one argument", test);
  return arguments.positional[0];
}

int64_t remainder(const Value& subject, const Value& divisor) {
  const Value rest = arithmetic("%", subject, divisor);
  if (!rest.is_number()) fail("this test needs a number, found {}", subject.type_name());
  return rest.number() == 0 ? 0 : rest.number() == 1 ? 1 : 2;
}

bool odd(const Value& subject, const Arguments&) { return remainder(subject, 2) == 1; }
bool even(const Value& subject, const Arguments&) { return remainder(subject, 2) == 0; }
bool divisible_by(const Value& subject, const Arguments& arguments) {
  return remainder(subject, only_argument(arguments, "divisibleby")) == 0;
}

bool eq(const Value& subject, const Arguments& arguments) {
  return equals(subject, only_argument(arguments, "eq"));
}
bool ne(const Value& subject, const Arguments& arguments) {
  return !equals(subject, only_argument(arguments, "ne"));
}
bool lt(const Value& subject, const Arguments& arguments) {
  return less_than(subject, only_argument(arguments, "lt"));
}
bool gt(const Value& subject, const Arguments& arguments) {
  return less_than(only_argument(arguments, "gt"), subject);
}
bool le(const Value& subject, const Arguments& arguments) {
  const Value& other = only_argument(arguments, "le");
  return less_than(subject, other) || equals(subject, other);
}
bool ge(const Value& subject, const Arguments& arguments) {
  const Value& other = only_argument(arguments, "ge");
  return less_than(other, subject) || equals(subject, other);
}

bool in(const Value& subject, const Arguments& arguments) {
  return contains(only_argument(arguments, "in"), subject);
}

bool same_as(const Value& subject, const Arguments& arguments) {
  const Value& other = only_argument(arguments, "sameas");
  return subject.kind() == other.kind() && equals(subject, other);
}

bool call_text_method(const Value& subject, std::string_view method) {
  return is_true(find_method(Value(to_text(subject)), method)->function().call({}));
}
bool is_lower_text(const Value& subject, const Arguments&) { return call_text_method(subject, "islower"); }
bool is_upper_text(const Value& subject, const Arguments&) { return call_text_method(subject, "isupper"); }

bool is_filter(const Value& subject, const Arguments&) {
  return subject.is_string() && find_filter(subject.text());
}
bool is_test(const Value& subject, const Arguments&) {
  return subject.is_string() && find_predicate(subject.text());
}
bool is_escaped(const Value& subject, const Arguments&) { return subject.is_markup(); }

constexpr std::pair<std::string_view, Predicate> kPredicates[] = {
    {"defined", defined},
    {"undefined", is_kind<ValueKind::kUndefined>},
    {"none", is_kind<ValueKind::kNone>},
    {"boolean", is_kind<ValueKind::kBool>},
    {"true", is_bool<true>},
    {"false", is_bool<false>},
    {"integer", is_kind<ValueKind::kInt>},
    {"float", is_kind<ValueKind::kFloat>},
    {"number", is_kind<ValueKind::kInt, ValueKind::kFloat, ValueKind::kBool>},
    {"string", is_kind<ValueKind::kString>},
    {"mapping", is_kind<ValueKind::kDict>},
    {"iterable", iterable},
    {"sequence", sequence},
    {"callable", is_kind<ValueKind::kFunction, ValueKind::kUndefined>},
    {"odd", odd},
    {"even", even},
    {"divisibleby", divisible_by},
    {"eq", eq},
    {"equalto", eq},
    {"==", eq},
    {"ne", ne},
    {"!=", ne},
    {"lt", lt},
    {"lessthan", lt},
    {"<", lt},
    {"gt", gt},
    {"greaterthan", gt},
    {">", gt},
    {"le", le},
    {"<=", le},
    {"ge", ge},
    {">=", ge},
    {"in", in},
    {"sameas", same_as},
    {"lower", is_lower_text},
    {"upper", is_upper_text},
    {"filter", is_filter},
    {"test", is_test},
    {"escaped", is_escaped}};

}  // namespace

Predicate find_predicate(std::string_view name) {
  for (const auto& [known, predicate] : kPredicates)
    if (known == name) return predicate;
  return nullptr;
}

Predicate predicate_named(std::string_view name) {
  const Predicate predicate = find_predicate(name);
  if (!predicate) fail("no test named '{}'", name);
  return predicate;
}

}  // namespace temper::templates
