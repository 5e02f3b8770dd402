// The input is an answer or what a row calls right. The number that it is, or ends with, is read.
#include <cstdint>

#include "base/error.h"
#include "rewards/number/read_number.h"

namespace temper::rewards {
namespace {

void check_number(const Number& number) {
  const Rational none{}, one{false, Natural("1")};
  invariant(!number.value.bottom.is_zero(), "a zero is below the line");
  invariant(same_number(number, number, none), "a number is another than itself");
  invariant(!differ_at_most(number.value, number.value + one, none), "a number is its successor");
}

void try_text(const std::string& text) {
  const std::optional<Number> whole = whole_number(text), last = last_number(text);
  if (whole) {
    check_number(*whole);
    const std::optional<Number> again = whole_number(" " + text + "\n");
    invariant(again && same_number(*whole, *again, Rational{}), "white space around it changes a number");
  }
  if (last) check_number(*last);
  const GivenResult given = given_result(text);
  invariant(!(given.text && given.unfinished), "a result is there and unfinished");
  if (given.text) whole_number(*given.text);
}

}  // namespace
}  // namespace temper::rewards

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  temper::rewards::try_text({reinterpret_cast<const char*>(data), size});
  return 0;
}
