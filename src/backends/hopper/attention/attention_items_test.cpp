// What needs no GPU of the kernel of attention: that every tile's gradient is added up once by everyone who
// meets it, in an order that can be kept.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>

#include "backends/hopper/attention/attention_items.h"

namespace temper::backends::hopper {
namespace {

// A block of keys meets a tile of queries of one head.
struct Meeting {
  int head, tile, turn;
};

// In the order in which an item has them.
std::vector<Meeting> meetings(const Document& d, int heads, int tile, int window, const Item& item) {
  const int blocks = (d.keys + kBlock - 1) / kBlock, tiles = (d.queries + tile - 1) / tile;
  const Paired paired{blocks, tiles, heads, kBlock / tile};
  std::vector<Meeting> all;
  for (const bool second : {false, true}) {
    const int block = second ? item.second : item.first;
    if (block < 0) continue;
    const Range range = tiles_of(d, block, tile, window);
    for (int head = 0; head < heads; ++head)
      for (int i = 0; i < range.size(); ++i) {
        const int t = second ? range.end - 1 - i : range.begin + i;
        all.push_back(
            {head, t,
             d.paired != 0 ? paired.turn(head, t, item.first, second) : single_turn(d, t, tile, block)});
      }
  }
  return all;
}

std::vector<Item> items(const Document& d) {
  const int blocks = (d.keys + kBlock - 1) / kBlock;
  std::vector<Item> all;
  if (d.paired != 0)
    for (int i = 0; i < (blocks + 1) / 2; ++i)
      all.push_back({0, 0, i, blocks - 1 - i > i ? blocks - 1 - i : -1});
  else
    for (int block = blocks - 1; block >= 0; --block) all.push_back({0, 0, block, -1});
  return all;
}

// Runs all items side by side, each as far as turns allow: whether all come to their end, and after how many
// rounds.
int rounds(const Document& d, int heads, int tile, int window) {
  std::vector<std::vector<Meeting>> work;
  for (const Item& item : items(d)) work.push_back(meetings(d, heads, tile, window, item));
  std::vector<size_t> done(work.size());
  std::map<std::pair<int, int>, int> turns;
  for (int round = 0;; ++round) {
    const auto before = turns;
    bool moved = false, left = false;
    for (size_t i = 0; i < work.size(); ++i) {
      if (done[i] == work[i].size()) continue;
      left = true;
      const Meeting& next = work[i][done[i]];
      const auto found = before.find({next.head, next.tile});
      if ((found == before.end() ? 0 : found->second) != next.turn) continue;
      ++turns[{next.head, next.tile}];
      ++done[i];
      moved = true;
    }
    if (!left) return round;
    if (!moved) return -1;
  }
}

// Which queries see which keys, the long way.
bool sees(const Document& d, int query, int key, int window) {
  const int distance = query + d.keys - d.queries - key;
  return distance >= 0 && (window == 0 || distance < window);
}

TEST(HopperSchedule, EveryTileMeetsTheBlocksThatItSeesOnceAndInTurn) {
  for (const int tile : {64, 128})
    for (const auto& [queries, keys, window] : std::vector<std::array<int, 3>>{{1, 1, 0},
                                                                               {64, 64, 0},
                                                                               {65, 65, 0},
                                                                               {500, 500, 0},
                                                                               {300, 700, 0},
                                                                               {7, 300, 0},
                                                                               {700, 700, 100},
                                                                               {400, 900, 130}}) {
      const Document d{0, queries, 0, keys, 0, queries == keys && window == 0};
      std::map<std::pair<int, int>, std::vector<int>> turns;  // by head and tile
      for (const Item& item : items(d))
        for (const Meeting& m : meetings(d, 2, tile, window, item)) turns[{m.head, m.tile}].push_back(m.turn);
      for (int t = 0; t * tile < queries; ++t) {
        int seen = 0;
        for (int block = 0; block * kBlock < keys; ++block) {
          bool any = false;
          for (int q = t * tile; q < std::min(queries, (t + 1) * tile); ++q)
            for (int k = block * kBlock; k < std::min(keys, (block + 1) * kBlock); ++k)
              any = any || sees(d, q, k, window);
          seen += any;
        }
        for (int head = 0; head < 2; ++head) {
          std::vector<int>& got = turns[{head, t}];
          std::sort(got.begin(), got.end());
          ASSERT_EQ(static_cast<int>(got.size()), seen) << queries << " " << keys << " " << window;
          for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], static_cast<int>(i));
        }
      }
      ASSERT_GE(rounds(d, 2, tile, window), 0) << queries << " " << keys << " " << window;
    }
}

// The reason for pairs: no block waits, whatever the number of heads.
TEST(HopperSchedule, PairsOfAWholeNumberOfBlocksNeverWait) {
  for (const int heads : {1, 2, 4, 7})
    for (const int blocks : {2, 8, 32}) {
      const Document d{0, blocks * kBlock, 0, blocks * kBlock, 0, 1};
      const auto steps = meetings(d, heads, 64, 0, items(d).front()).size();
      EXPECT_EQ(rounds(d, heads, 64, 0), static_cast<int>(steps))
          << heads << " heads, " << blocks << " blocks";
    }
}

TEST(HopperSchedule, OddLengthsComeToTheirEnd) {
  for (const int tile : {64, 128})
    for (int length = 1; length < 3000; length += 97)
      for (const int heads : {1, 3})
        ASSERT_GE(rounds({0, length, 0, length, 0, 1}, heads, tile, 0), 0) << length;
}

// Every block of keys of every document and key head, by how often items hold it.
using Blocks = std::map<std::array<int, 3>, int>;

Blocks blocks_of(const Schedule& schedule) {
  Blocks blocks;
  for (const Item& item : schedule.items) {
    if (item.document < 0) continue;
    ++blocks[{item.document, item.kv_head, item.first}];
    if (item.second >= 0) ++blocks[{item.document, item.kv_head, item.second}];
  }
  return blocks;
}

Schedule scheduled(const std::vector<int32_t>& q, const std::vector<int32_t>& k, int dim, bool window = false,
                   int at_once = 132) {
  return schedule_of({Tensor::from(q), Tensor::from(k), 4, 2, dim}, window, at_once);
}

TEST(HopperItems, HoldEveryBlockOnce) {
  const std::vector<int32_t> q{0, 300, 300, 1000, 1064}, k{0, 300, 340, 1100, 1164};
  for (const int dim : {64, 128})
    for (const bool window : {false, true}) {
      const Schedule s = scheduled(q, k, dim, window);
      ASSERT_EQ(s.documents.size(), 3u);  // one has no queries
      EXPECT_FALSE(s.whole);
      Blocks expected;
      for (int d = 0; d < 3; ++d)
        for (int head = 0; head < 2; ++head)
          for (int block = 0; block * kBlock < s.documents[static_cast<size_t>(d)].keys; ++block)
            expected[{d, head, block}] = 1;
      EXPECT_EQ(blocks_of(s), expected);
      EXPECT_EQ(s.documents[0].paired, window ? 0 : 1);
      EXPECT_EQ(s.documents[1].paired, 0);  // more keys than queries
    }
}

TEST(HopperItems, TilesHoldEveryQueryOnce) {
  const std::vector<int32_t> starts{0, 300, 301, 700};
  for (const int dim : {64, 128}) {
    const Schedule s = scheduled(starts, starts, dim);
    EXPECT_TRUE(s.whole);
    int next = 0;
    for (const TileRows& tile : s.rows) {
      if (tile.rows == 0) continue;
      EXPECT_EQ(tile.token, next);
      EXPECT_EQ(tile.log, next * 4);  // ragged: [tokens, heads]
      EXPECT_LE(tile.rows, tile_of(dim));
      next += tile.rows;
    }
    EXPECT_EQ(next, 700);
    for (const Document& d : s.documents) EXPECT_EQ(s.rows[static_cast<size_t>(d.tile)].token, d.query);
  }
  const std::vector<int32_t> plain{0, 256, 512};
  const Schedule s = scheduled(plain, plain, 128);
  EXPECT_EQ(s.rows[5].token, 256 + 64);
  EXPECT_EQ(s.rows[5].log, 256 * 4 + 64);  // [documents, heads, length]
}

TEST(HopperItems, PairsThatWouldNotRunAtOnceStandAlone) {
  const std::vector<int32_t> starts{0, 20 * kBlock};
  EXPECT_EQ(scheduled(starts, starts, 128, false, 10).documents[0].paired, 1);
  EXPECT_EQ(scheduled(starts, starts, 128, false, 9).documents[0].paired, 0);
}

// Whether all items come to their end where the device runs `slots` blocks at once, each of which takes the
// next item when it starts.
bool ends(const Schedule& schedule, int tile, int window, size_t slots) {
  struct Running {
    Item item;
    std::vector<Meeting> left;
    size_t done = 0;
  };
  std::map<std::array<int, 4>, int> turns;
  std::vector<Running> running;
  auto next = schedule.items.begin();
  const auto start = [&] {
    for (; running.size() < slots && next != schedule.items.end(); ++next)
      if (next->document >= 0)
        running.push_back({*next, meetings(schedule.documents[static_cast<size_t>(next->document)], 2, tile,
                                           window, *next)});
  };
  for (start(); !running.empty(); start()) {
    bool moved = false;
    for (Running& each : running)
      while (each.done < each.left.size()) {
        const Meeting& meeting = each.left[each.done];
        int& turn = turns[{each.item.document, each.item.kv_head, meeting.head, meeting.tile}];
        if (turn != meeting.turn) break;
        ++turn;
        ++each.done;
        moved = true;
      }
    if (std::erase_if(running, [](const Running& each) { return each.done == each.left.size(); }) == 0 &&
        !moved)
      return false;
  }
  return true;
}

// What the kernel relies on: items begin in their order, and at least `at_once` of them run side by side.
TEST(HopperItems, ComeToTheirEndHoweverFewRunAtOnce) {
  const std::vector<int32_t> q{0, 20 * kBlock, 21 * kBlock, 41 * kBlock - 7, 42 * kBlock, 67 * kBlock};
  std::vector<int32_t> longer = q;
  for (size_t i = 3; i < longer.size(); ++i) longer[i] += 200;
  for (const int dim : {64, 128})
    for (const int at_once : {1, 4, 10, 13, 132}) {
      const auto slots = static_cast<size_t>(at_once);
      EXPECT_TRUE(ends(scheduled(q, q, dim, false, at_once), tile_of(dim), 0, slots)) << at_once;
      EXPECT_TRUE(ends(scheduled(q, longer, dim, false, at_once), tile_of(dim), 0, slots)) << at_once;
      EXPECT_TRUE(ends(scheduled(q, q, dim, true, at_once), tile_of(dim), 300, slots)) << at_once;
    }
  // With fewer, pairs wait forever: no other work may hold on to a part of the device.
  EXPECT_FALSE(ends(scheduled(q, q, 128, false, 10), tile_of(128), 0, 9));
}

TEST(HopperItems, SimilarDocumentsHaveTheSameLaunches) {
  const std::vector<int32_t> a{0, 900, 1800, 2048}, b{0, 700, 1500, 2048};
  const Schedule one = scheduled(a, a, 128), other = scheduled(b, b, 128);
  EXPECT_EQ(one.items.size(), other.items.size());
  EXPECT_EQ(one.rows.size(), other.rows.size());
}

}  // namespace
}  // namespace temper::backends::hopper
