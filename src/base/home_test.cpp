#include "base/home.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.h"

namespace temper {
namespace {

TEST(Home, StandsAtTheBeginningOnly) {
  const std::string before = std::getenv("HOME") != nullptr ? std::getenv("HOME") : "";
  ::setenv("HOME", "/home/ada", 1);
  for (const char* path : {"~/models", "$HOME/models", "${HOME}/models"})
    EXPECT_EQ(expand_home(path), "/home/ada/models") << path;
  EXPECT_EQ(expand_home("~"), "/home/ada");
  for (const char* path : {"", "models", "./~", "~ada/models", "$HOMEWORK/x", "a/~/b", "/x/$HOME"})
    EXPECT_EQ(expand_home(path), path);
  ::unsetenv("HOME");
  EXPECT_THROW(expand_home("~/models"), Error);
  EXPECT_EQ(expand_home("models"), "models");
  ::setenv("HOME", before.c_str(), 1);
}

}  // namespace
}  // namespace temper
