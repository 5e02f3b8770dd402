#include "rewards/number/rational.h"

namespace temper::rewards {

Rational operator+(const Rational& a, const Rational& b) {
  const Natural left = a.top * b.bottom, right = b.top * a.bottom, bottom = a.bottom * b.bottom;
  if (a.negative == b.negative) return {a.negative, left + right, bottom};
  if (left >= right) return {a.negative, left - right, bottom};
  return {b.negative, right - left, bottom};
}

Rational operator*(const Rational& a, const Rational& b) {
  return {a.negative != b.negative, a.top * b.top, a.bottom * b.bottom};
}

Rational operator/(const Rational& a, const Rational& b) {
  return {a.negative != b.negative, a.top * b.bottom, a.bottom * b.top};
}

bool differ_at_most(const Rational& a, const Rational& b, const Rational& tolerance) {
  const Rational difference = a + Rational{!b.negative, b.top, b.bottom};
  return difference.top * tolerance.bottom <= tolerance.top * difference.bottom;
}

bool Rational::operator==(const Rational& other) const { return differ_at_most(*this, other, Rational{}); }

}  // namespace temper::rewards
