// Merging against the definition: again and again the rule of the lowest rank, where it applies first.
#include "tokenizers/models/bpe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "base/utf8.h"
#include "tokenizers/text/byte_level.h"

namespace temper::tokenizers {
namespace {

using Symbols = std::vector<int32_t>;

// Random rules over the bytes of a few characters. Shuffled, a rule may rank before those that make its
// parts.
struct RandomRules {
  std::mt19937 random;
  std::u32string alphabet;
  std::vector<std::string> tokens;  // by id
  std::vector<Merge> merges;

  RandomRules(uint32_t seed, std::u32string characters, size_t count, bool shuffled)
      : random(seed), alphabet(std::move(characters)) {
    std::map<std::string, int32_t> ids;
    const auto id_of = [&](const std::string& bytes) {
      const auto [entry, fresh] = ids.emplace(bytes, static_cast<int32_t>(tokens.size()));
      if (fresh) tokens.push_back(bytes);
      return entry->second;
    };
    for (int byte = 0; byte < 256; ++byte) id_of(std::string(1, static_cast<char>(byte)));
    std::map<std::pair<int32_t, int32_t>, bool> known;
    for (int tries = 0; merges.size() < count && tries < 2000; ++tries) {
      const Symbols symbols = naive(text(30));
      if (symbols.size() < 2) continue;
      const size_t at = random() % (symbols.size() - 1);
      if (!known.emplace(std::pair(symbols[at], symbols[at + 1]), true).second) continue;
      merges.push_back(
          {symbols[at], symbols[at + 1],
           id_of(tokens[static_cast<size_t>(symbols[at])] + tokens[static_cast<size_t>(symbols[at + 1])])});
    }
    if (shuffled) std::shuffle(merges.begin(), merges.end(), random);
  }

  std::string text(size_t most) {
    std::string out;
    for (size_t left = 1 + random() % most; left > 0; --left)
      append_utf8(out, alphabet[random() % alphabet.size()]);
    return out;
  }

  Symbols naive(std::string_view text) const {
    Symbols symbols;
    for (const char byte : text) symbols.push_back(static_cast<unsigned char>(byte));
    while (true) {
      size_t best = merges.size(), place = 0;
      for (size_t i = 0; i + 1 < symbols.size(); ++i)
        for (size_t rank = 0; rank < best; ++rank)
          if (merges[rank].left == symbols[i] && merges[rank].right == symbols[i + 1]) best = rank, place = i;
      if (best == merges.size()) return symbols;
      symbols[place] = merges[best].result;
      symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(place) + 1);
    }
  }

  Vocabulary vocabulary() const {
    Vocabulary::Entries entries;
    for (const std::string& bytes : tokens)
      entries.emplace_back(spelling_of_bytes(bytes), static_cast<int32_t>(entries.size()));
    return Vocabulary(std::move(entries), {}, bytes_of_spelling, "test");
  }
};

const std::u32string kAlphabets[] = {U"ab", U"abcde ", U"中丰乭一 a",
                                     U"\u00e9\u00e8\u0429a\u4e2d\u4e2e\U0001F600"};

TEST(MergeTable, ShortAndLongPiecesMergeAsDefined) {
  for (uint32_t seed = 0; seed < 24; ++seed) {
    RandomRules rules(seed, kAlphabets[seed % 4], 60, seed % 3 == 0);
    const MergeTable table(rules.merges);
    for (const size_t most : {4, 20, 150})
      for (int i = 0; i < 20; ++i) {
        const std::string text = rules.text(most);
        Symbols symbols;
        for (const char byte : text) symbols.push_back(static_cast<unsigned char>(byte));
        symbols.resize(table.merge(symbols));
        ASSERT_EQ(symbols, rules.naive(text)) << seed << " " << text;
      }
  }
}

TEST(CharacterTokens, StartingFromThemChangesNothing) {
  size_t symbols_saved = 0;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    RandomRules rules(seed, kAlphabets[seed % 4], 80, seed % 3 == 0);
    const Vocabulary vocabulary = rules.vocabulary();
    const MergeTable table(rules.merges);
    ByteIds bytes;
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<int32_t>(i);
    const CharacterTokens characters(table, rules.merges, bytes, vocabulary);
    for (int i = 0; i < 60; ++i) {
      const std::string text = rules.text(30);
      Symbols symbols;
      characters.append(text, symbols);
      symbols_saved += text.size() - symbols.size();
      symbols.resize(table.merge(symbols));
      ASSERT_EQ(symbols, rules.naive(text)) << seed << " " << text;
    }
  }
  EXPECT_GT(symbols_saved, 1000u);
}

TEST(Bpe, RemembersPiecesOfEachTokenizerOnItsOwn) {
  for (uint32_t seed = 0; seed < 12; ++seed) {
    RandomRules first(seed, kAlphabets[seed % 4], 60, false),
        second(seed + 100, kAlphabets[seed % 4], 60, false);
    const Vocabulary one = first.vocabulary(), two = second.vocabulary();
    const Bpe bpe_one(one, first.merges, {}, true, "test"), bpe_two(two, second.merges, {}, true, "test");
    for (int i = 0; i < 40; ++i) {
      const std::string text = first.text(12);
      for (int again = 0; again < 2; ++again) {
        Symbols found{-7};
        bpe_one.encode(text, found);
        bpe_two.encode(text, found);
        Symbols expected{-7};
        for (const int32_t id : first.naive(text)) expected.push_back(id);
        for (const int32_t id : second.naive(text)) expected.push_back(id);
        ASSERT_EQ(found, expected) << text;
      }
    }
  }
}

// More different pieces than fit, each met twice.
TEST(Bpe, AFullCacheForgetsButIsNeverWrong) {
  RandomRules rules(5, U"abcdefgh", 40, false);
  const Vocabulary vocabulary = rules.vocabulary();
  const Bpe bpe(vocabulary, rules.merges, {}, true, "test");
  const MergeTable table(rules.merges);
  std::vector<std::string> pieces;
  for (int i = 0; i < 40'000; ++i) pieces.push_back(rules.text(14));
  for (int again = 0; again < 2; ++again)
    for (const std::string& piece : pieces) {
      Symbols found, expected;
      bpe.encode(piece, found);
      for (const char byte : piece) expected.push_back(static_cast<unsigned char>(byte));
      expected.resize(table.merge(expected));
      ASSERT_EQ(found, expected) << piece;
    }
}

}  // namespace
}  // namespace temper::tokenizers
