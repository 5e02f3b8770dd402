#pragma once
#include "rewards/number/natural.h"

namespace temper::rewards {

// ±top / bottom, exact and not reduced; bottom is not 0.
struct Rational {
  bool negative = false;
  Natural top = {};
  Natural bottom = Natural("1");

  bool operator==(const Rational& other) const;
};

Rational operator+(const Rational& a, const Rational& b);
Rational operator*(const Rational& a, const Rational& b);
Rational operator/(const Rational& a, const Rational& b);  // b is not 0
// Whether |a - b| <= tolerance, which is not negative.
bool differ_at_most(const Rational& a, const Rational& b, const Rational& tolerance);

}  // namespace temper::rewards
