#include <gtest/gtest.h>

#include "startup.h"
#include "tests/support/rank_bodies.h"

int main(int argc, char** argv) {
  temper::register_everything();
  if (const auto code = temper::be_rank(argc, argv)) return *code;
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
