#include "rewards/number/natural.h"

#include <algorithm>
#include <string>

#include "base/error.h"

namespace temper::rewards {

Natural::Natural(std::string_view digits) {
  for (size_t end = digits.size(); end > 0;) {
    const size_t begin = end > kDigits ? end - kDigits : 0;
    uint32_t limb = 0;
    for (const char digit : digits.substr(begin, end - begin))
      limb = limb * 10 + static_cast<uint32_t>(digit - '0');
    limbs_.push_back(limb);
    end = begin;
  }
  drop_zeros();
}

Natural Natural::power_of_ten(int64_t exponent) {
  std::string digits(static_cast<size_t>(exponent) + 1, '0');
  digits[0] = '1';
  return Natural(digits);
}

void Natural::drop_zeros() {
  while (!limbs_.empty() && limbs_.back() == 0) limbs_.pop_back();
}

std::strong_ordering Natural::operator<=>(const Natural& other) const {
  if (limbs_.size() != other.limbs_.size()) return limbs_.size() <=> other.limbs_.size();
  return std::lexicographical_compare_three_way(limbs_.rbegin(), limbs_.rend(), other.limbs_.rbegin(),
                                                other.limbs_.rend());
}

Natural Natural::operator+(const Natural& other) const {
  Natural sum;
  uint64_t carry = 0;
  for (size_t i = 0; i < std::max(limbs_.size(), other.limbs_.size()) || carry > 0; ++i) {
    if (i < limbs_.size()) carry += limbs_[i];
    if (i < other.limbs_.size()) carry += other.limbs_[i];
    sum.limbs_.push_back(static_cast<uint32_t>(carry % kBase));
    carry /= kBase;
  }
  return sum;
}

Natural Natural::operator-(const Natural& smaller) const {
  invariant(smaller <= *this, "a difference of whole numbers is below 0");
  Natural difference = *this;
  uint64_t borrowed = 0;
  for (size_t i = 0; i < limbs_.size(); ++i) {
    const uint64_t taken = borrowed + (i < smaller.limbs_.size() ? smaller.limbs_[i] : 0);
    borrowed = limbs_[i] < taken ? 1 : 0;
    difference.limbs_[i] = static_cast<uint32_t>(borrowed * kBase + limbs_[i] - taken);
  }
  difference.drop_zeros();
  return difference;
}

Natural Natural::operator*(const Natural& other) const {
  Natural product;
  product.limbs_.resize(limbs_.size() + other.limbs_.size());
  for (size_t i = 0; i < limbs_.size(); ++i) {
    uint64_t carry = 0;
    for (size_t j = 0; j < other.limbs_.size() || carry > 0; ++j) {
      carry += product.limbs_[i + j];
      if (j < other.limbs_.size()) carry += uint64_t{limbs_[i]} * other.limbs_[j];
      product.limbs_[i + j] = static_cast<uint32_t>(carry % kBase);
      carry /= kBase;
    }
  }
  product.drop_zeros();
  return product;
}

}  // namespace temper::rewards
