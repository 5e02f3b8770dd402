#pragma once
#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "tests/cli/cli_fixture.h"

// Runs of several ranks, as processes that mpirun starts, beside those of one rank.
namespace temper {

class RanksOfARun : public Cli {
 protected:
  static std::string train(std::string name, const std::string& flags) {
    std::replace(name.begin(), name.end(), ' ', '_');
    const std::string out = folder() + "/" + name;
    const Outcome outcome = run("train " + yaml() + " --output " + out + " " + flags);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return out;
  }

  // Losses of all steps and evaluations, and gradient norms, within these relative differences.
  static void expect_same_course(const std::string& found_in, const std::string& expected_in) {
    const std::vector<Json> found = metrics(found_in), expected = metrics(expected_in);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i)
      for (const auto& [key, value] : expected[i].as_object()) {
        if (key.find("seconds") != std::string::npos || key == "tokens_per_second" ||
            key == "peak_fraction" || key == "time")
          continue;
        const Json* const other = found[i].find(key);
        ASSERT_NE(other, nullptr) << key;
        if (!value.is_number()) continue;
        const double limit = key == "grad_norm" ? 2e-5 : i == 0 ? 1e-6 : 1e-5, size = value.as_double();
        EXPECT_NEAR(other->as_double(), size, limit * std::max(0.1, std::abs(size)))
            << key << " of line " << i;
      }
  }

  // What these flags of ranks and meshes train.
  static void expect_on_meshes(const std::string& name, const std::string& flags, const std::string& expected,
                               std::initializer_list<const char*> meshes) {
    for (const char* mesh : meshes) expect_same_course(train(name + " " + mesh, flags + mesh), expected);
  }

  static void expect_same_model(const std::string& a, const std::string& b) {
    EXPECT_EQ(read_file(a + "/model/model.safetensors"), read_file(b + "/model/model.safetensors"));
  }

  static std::string newest_state(const std::string& out) {
    std::string newest;
    if (exists(out + "/checkpoints"))
      for (const std::string& name : list_directory(out + "/checkpoints"))
        if (name.starts_with("step-")) newest = std::max(newest, name);
    return newest;
  }
};

}  // namespace temper
