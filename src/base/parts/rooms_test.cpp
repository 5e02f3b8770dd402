#include "base/parts/rooms.h"

#include <gtest/gtest.h>

namespace temper {
namespace {

TEST(Rooms, EveryRoomIsBuiltOrSaysWhyNot) {
  EXPECT_TRUE(is_built("device", "cpu"));
  EXPECT_EQ(why_left_out("device", "cpu"), "");
  EXPECT_FALSE(is_built("device", "abacus"));
  EXPECT_EQ(why_left_out("device", "abacus"), "");
  for (const Room& room : rooms_of_build()) {
    EXPECT_EQ(is_built(room.kind, room.name), room.left_out.empty()) << room.name;
    // What is missing comes with the command that brings it.
    if (!room.left_out.empty()) {
      EXPECT_NE(room.left_out.find("make build"), std::string_view::npos) << room.left_out;
      EXPECT_EQ(why_left_out(room.kind, room.name), fmt::format(" ({})", room.left_out));
    }
  }
}

TEST(Rooms, ThoseOfOneReasonAreOneLine) {
  const std::vector<Room> rooms{{"device", "cuda", "no nvcc"},
                                {"backends", "onednn"},
                                {"backends", "cuda", "no nvcc"},
                                {"formats", "parquet", "no Arrow"}};
  EXPECT_EQ(left_out_lines(rooms),
            (std::vector<std::string>{"device/cuda, backends/cuda: no nvcc", "formats/parquet: no Arrow"}));
  EXPECT_TRUE(left_out_lines({{"backends", "onednn"}}).empty());
}

}  // namespace
}  // namespace temper
