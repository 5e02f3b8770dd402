#pragma once
#include <wordexp.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "cli/arguments/run_arguments.h"
#include "collectives/launch.h"
#include "collectives/local/local.h"
#include "config/print.h"
#include "recipes/loop/train.h"
#include "tests/cli/cli_fixture.h"

// Runs of several ranks, compared with those of one rank. They are threads of this process, which start at
// once and sleep while they wait, or, where the processes are the point, what mpirun starts.
namespace temper {

class RanksOfARun : public Cli {
 protected:
  static std::string train(const std::string& name, const std::string& flags) {
    const std::string out = folder_of(name);
    try {
      train_on_threads(yaml() + " --output " + out + " " + flags);
    } catch (const Error& error) {
      ADD_FAILURE() << name << " " << flags << "\n" << error.what();
    }
    return out;
  }
  static std::string train_in_processes(const std::string& name, const std::string& flags) {
    const std::string out = folder_of(name);
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
        if (key.find("seconds") != std::string::npos || key == "tokens_per_second" || key == "mfu" ||
            key == "time" || key.starts_with("pipeline_"))
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

 private:
  static std::string folder_of(std::string name) {
    std::replace(name.begin(), name.end(), ' ', '_');
    return folder() + "/" + name;
  }
  // As `temper train` does, with the words that a shell would make of the arguments.
  static void train_on_threads(const std::string& arguments) {
    wordexp_t words{};
    ASSERT_EQ(::wordexp(arguments.c_str(), &words, WRDE_NOCMD | WRDE_UNDEF), 0) << arguments;
    cli::RunArguments parsed =
        cli::parse_run_arguments({words.we_wordv, words.we_wordv + words.we_wordc}, {});
    ::wordfree(&words);
    const int ranks = std::stoi(parsed.take("--ranks").value_or("1"));
    const auto train = [&](collectives::Group& group) {
      recipes::RunConfig config;
      config::Schema schema = parsed.load(config);
      recipes::train(config, config::dump(schema), {}, group);
    };
    if (ranks == 1)
      train(collectives::alone());
    else
      collectives::launch("threads", {.ranks = ranks, .deadline = 120}, train);
  }
};

}  // namespace temper
