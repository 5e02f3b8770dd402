#include "tokenizers/unicode/nfc.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstdlib>
#include <memory>
#include <random>

#include "base/utf8.h"

namespace temper::tokenizers {
namespace {

// The whole text at once; without the marks that nfc.cpp keeps apart.
std::string all_at_once(const std::string& text) {
  utf8proc_uint8_t* mapped = utf8proc_NFC(reinterpret_cast<const utf8proc_uint8_t*>(text.c_str()));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, &std::free);
  return reinterpret_cast<const char*>(mapped);
}

TEST(Nfc, GroupsGiveWhatTheWholeTextGives) {
  constexpr std::u32string_view kInteresting =
      U"aeo "
      U"e\u0300\u0301\u0323\u0327\u0345\u0308\u00e9\u1e69\u212b\u2126\u0958\u0915\u093c\u0340\u0344\u0374"
      U"\uac00\uac01"
      U"\u1100\u1161\u11a8\u11a7\u3099\u304b\u4e2d\uf900\ufb1d\u05d0\u05b4\u0b47\u0b3e\u0b57\u1025\u102e"
      U"\U0001d15e\U0001d165"
      U"\U0002f800\U00011131\U00011127\U000110a5\U000110ba";
  std::mt19937 random(1);
  size_t changed = 0, kept = 0;
  for (int i = 0; i < 100'000; ++i) {
    std::string text, composed;
    for (uint32_t left = 1 + random() % 8; left > 0; --left)
      append_utf8(text, kInteresting[random() % kInteresting.size()]);
    append_composed(composed, text);
    ASSERT_EQ(composed, all_at_once(text)) << text;
    const size_t prefix = composed_prefix(text);
    ASSERT_EQ(composed.substr(0, prefix), text.substr(0, prefix)) << text;
    changed += composed != text;
    kept += prefix == text.size();
  }
  EXPECT_GT(changed, 10'000u);
  EXPECT_GT(kept, 1'000u);
}

TEST(Nfc, EveryCharacterGivesWhatTheWholeTextGives) {
  for (char32_t c = 1; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    append_utf8(text, c);
    if (composed_prefix(text) < text.size()) continue;
    ASSERT_EQ(all_at_once(text), text) << static_cast<uint32_t>(c);
  }
}

}  // namespace
}  // namespace temper::tokenizers
