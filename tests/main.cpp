#include <gtest/gtest.h>

#include "startup.h"

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  temper::register_everything();
  return RUN_ALL_TESTS();
}
