#include "rewards/number/read_number.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace temper::rewards {
namespace {

struct Case {
  std::string text, number;  // "": it has none
};

// `number` is read from the text, and none that is a little larger.
void expect_number(const std::optional<Number>& found, const Case& expected) {
  SCOPED_TRACE(expected.text);
  ASSERT_EQ(found.has_value(), !expected.number.empty());
  if (!found) return;
  const std::optional<Number> number = whole_number(expected.number);
  ASSERT_TRUE(number.has_value());
  EXPECT_EQ(found->percent, number->percent);
  EXPECT_TRUE(found->value == number->value);
  const Rational little{false, Natural("1"), Natural::power_of_ten(30)};
  EXPECT_FALSE(found->value == number->value + little);
}

const std::vector<Case> kWhole{
    {"5", "5"},
    {" 5\n", "5"},
    {"-3", "-3"},
    {"+3", "3"},
    {"\u22123", "-3"},
    {"--3", ""},
    {"- 3", ""},
    {"1,234.5", "1234.5"},
    {"1,234,567", "1234567"},
    {"1{,}234", "1234"},
    {"1\\,234", "1234"},
    {"1,\\!234", "1234"},
    {"12,34", ""},
    {"1,2345", ""},
    {"1234,567", ""},
    {"1,23,456", ""},
    {"0,123", ""},
    {",123", ""},
    {"1.234,5", ""},
    {"1,234.567,8", ""},
    {"1.2.3", ""},
    {"1,000", "1000"},
    {"007", "7"},
    {".5", "0.5"},
    {"5.", "5"},
    {"0.50", "1/2"},
    {"0.1", "1/10"},
    {"0.30000000000000004", "0.30000000000000004"},
    {"3/4", "0.75"},
    {"-3/4", "-0.75"},
    {"3 / 4", "0.75"},
    {"6/8", "3/4"},
    {"3/0", ""},
    {"0/5", "0"},
    {"-0", "0"},
    {"1/2/3", ""},
    {"3/-4", ""},
    {"\\frac{3}{4}", "3/4"},
    {"\\dfrac{3}{4}", "3/4"},
    {"\\tfrac34", "3/4"},
    {"\\frac 3 4", "3/4"},
    {"-\\frac{3}{4}", "-3/4"},
    {"\\frac{-3}{4}", "-3/4"},
    {"-\\frac{-3}{-4}", "-3/4"},
    {"\\frac{1.5}{2}", "3/4"},
    {"\\frac{3}{0}", ""},
    {"\\frac{3}{4", ""},
    {"\\frac{3}", ""},
    {"\\frac{x}{4}", ""},
    {"1\\frac{1}{2}", "3/2"},
    {"-1\\frac{1}{2}", "-3/2"},
    {"1 \\frac12", "3/2"},
    {"1 1/2", "3/2"},
    {"-1 1/2", "-3/2"},
    {"1\\frac{-1}{2}", ""},
    {"1.5\\frac{1}{2}", ""},
    {"50%", "50%"},
    {"50\\%", "50%"},
    {"50 percent", "50%"},
    {"50 percentile", "50"},
    {"$5", "5"},
    {"\\$1,250.00", "1250"},
    {"-$5", "-5"},
    {"$-5", "-5"},
    {"5€", "5"},
    {"5 \\$", "5"},
    {"$5$", "5"},
    {"$$\\frac12$$", "1/2"},
    {"\\(5\\)", "5"},
    {"\\[ 5 \\]", "5"},
    {"{5}", "5"},
    {"**5**", "5"},
    {"$\\mathbf{5}$.", "5"},
    {"\\text{5}", "5"},
    {"1e3", "1000"},
    {"1.5E-3", "0.0015"},
    {"1.5 \\times 10^{-3}", "0.0015"},
    {"1.5 \\cdot 10^3", "1500"},
    {"1.5×10^3", "1500"},
    {"3 \\times 10", ""},
    {"1e", ""},
    {"1e1001", ""},
    {"1e-99999999999999999999", ""},
    {"x = 5", "5"},
    {"2x = y = -\\frac{1}{2}", "-1/2"},
    {"x <= 5", ""},
    {"x != 5", ""},
    {"x \\ne 5", ""},
    {"5 = x", ""},
    {"5 cm", "5"},
    {"5 cm^2", "5"},
    {"5 km/h", "5"},
    {"5\\text{ m}^{2}", "5"},
    {"5\\,\\mathrm{cm}^3", "5"},
    {"5 \\text{ apples}", "5"},
    {"5 Äpfel", "5"},
    {"90^\\circ", "90"},
    {"90°", "90"},
    {"20 °C", "20"},
    {"5 x", ""},
    {"5x", ""},
    {"5cm", ""},
    {"5 pi", ""},
    {"5\\pi", ""},
    {"5 million", ""},
    {"5 \\text{ million}", ""},
    {"5 and a half", ""},
    {"5 or 6", ""},
    {"5 apples and 6 pears", ""},
    {"2^3", ""},
    {"\\sqrt{2}", ""},
    {"2\\sqrt{2}", ""},
    {"(1, 2)", ""},
    {"1, 2", ""},
    {"[1, 2)", ""},
    {"{1},{2}", ""},
    {"1+2", ""},
    {"1-2", ""},
    {"five", ""},
    {"inf", ""},
    {"nan", ""},
    {"0x10", ""},
    {"", ""},
    {"-", ""},
    {"$", ""},
    {"%", ""},
    {"=", ""},
};

TEST(ReadNumber, AsAWholeText) {
  for (const Case& expected : kWhole) expect_number(whole_number(expected.text), expected);
}

const std::vector<Case> kLast{
    {"The answer is 5.", "5"},
    {"3 of 4, so 3/4.", "3/4"},
    {"It costs $1,234.50.", "1234.5"},
    {"so x = -4", "-4"},
    {"so x is \u22124!", "-4"},
    {"10-3", "3"},
    {"10 - 3", "3"},
    {"f(x)-3", "3"},
    {"from 10 to -3", "-3"},
    {"(-3)", "-3"},
    {"about 50 %", "50%"},
    {"x1", ""},
    {"5 of H2O", "5"},
    {"a_1 = 7, a_{12}", "7"},
    {"x^2", ""},
    {"it is 2^{10}", ""},
    {"9 cm^2", "9"},
    {"\\sqrt{2}", ""},
    {"an angle of 90^\\circ", "90"},
    {"\\approx5", "5"},
    {"答案是42。", "42"},
    {"it is \\frac{1}{2}", "1/2"},
    {"it is 1\\frac{1}{2} m", "3/2"},
    {"it is \\frac{1}{0}", ""},
    {"4 and then 1,23", ""},
    {"4 in version 1.2.3", ""},
    {"1, 2, 3", "3"},
    {"no number", ""},
    {"", ""},
};

TEST(ReadNumber, AsTheLastOfAText) {
  for (const Case& expected : kLast) expect_number(last_number(expected.text), expected);
}

TEST(ReadNumber, TheGivenResult) {
  const auto result = [](std::string_view text) { return given_result(text).text.value_or("none"); };
  EXPECT_EQ(result("so \\boxed{5}"), "5");
  EXPECT_EQ(result("\\boxed{4}, no: \\boxed{\\frac{1}{2}}."), "\\frac{1}{2}");
  EXPECT_EQ(result("\\boxed {5} as \\boxed says"), "5");
  EXPECT_EQ(result("\\fbox{6} \\boxed{5}"), "5");
  EXPECT_EQ(result("\\boxed{5} \\fbox{6}"), "6");
  EXPECT_EQ(result("\\boxed{\\{1\\}}"), "\\{1\\}");
  EXPECT_EQ(result("\\boxed{5} #### 6"), "5");
  EXPECT_EQ(result("3\n#### 4\n#### 72 \nmore 5"), " 72 ");
  EXPECT_EQ(result("72"), "none");
  EXPECT_EQ(result("\\boxed"), "none");
  EXPECT_TRUE(given_result("\\boxed{4} \\boxed{\\frac{1}{2}").unfinished);
  EXPECT_TRUE(given_result("\\boxed{5\\}").unfinished);
  EXPECT_FALSE(given_result("\\boxed{5}").unfinished);
}

}  // namespace
}  // namespace temper::rewards
