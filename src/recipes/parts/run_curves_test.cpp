#include "recipes/parts/run_curves.h"

#include <gtest/gtest.h>

#include "base/files.h"

namespace temper::recipes {
namespace {

RunCurves curves_of(const TemporaryDirectory& folder, const std::string& lines) {
  write_file(folder / "metrics.jsonl", lines);
  return RunCurves(folder / "metrics.jsonl");
}

TEST(RunCurves, RewardsOfARun) {
  const TemporaryDirectory folder;
  const RunCurves curves = curves_of(folder,
                                     "{\"step\": 1, \"loss\": 1e-5, \"reward\": 0.25}\n"
                                     "{\"step\": 2, \"loss\": 2e-5}\n"
                                     "{\"step\": 2, \"eval_reward\": -0.5}\n"
                                     "{\"step\": 3, \"loss\": null, \"reward\": 0.9990234375}\n"
                                     "{\"step\": 4, \"loss\": 1e-5, \"reward\": 0.75}\n");
  EXPECT_EQ(curves.span_of("reward"),
            Json(Json::Object{{"first", 0.25}, {"last", 0.75}, {"best", 0.999023}, {"best_step", 3}}));
  EXPECT_EQ(curves.span_of("eval_reward"),
            Json(Json::Object{{"first", -0.5}, {"last", -0.5}, {"best", -0.5}, {"best_step", 2}}));
  EXPECT_TRUE(curves.span_of("reward_accuracy").is_null());
  curves.draw(folder / "loss.svg", "run");
  const std::string svg = read_file(folder / "loss.svg");
  EXPECT_LT(svg.find(">reward<"), svg.find(">loss<"));
  EXPECT_NE(svg.find("training reward"), std::string::npos);
  EXPECT_NE(svg.find("evaluation reward"), std::string::npos);
  EXPECT_EQ(svg.find(">margin<"), std::string::npos);
}

TEST(RunCurves, MarginsAndAccuraciesOfPreferences) {
  const TemporaryDirectory folder;
  curves_of(folder, "{\"step\": 1, \"loss\": 0.69, \"reward_margin\": 0.1, \"reward_accuracy\": 0.5}\n")
      .draw(folder / "loss.svg", "run");
  const std::string svg = read_file(folder / "loss.svg");
  for (const char* const label : {">loss<", ">margin<", ">accuracy<"})
    EXPECT_NE(svg.find(label), std::string::npos) << label;
  EXPECT_EQ(svg.find(">reward<"), std::string::npos);
}

TEST(RunCurves, NumbersAreAsLongAsAnybodyReads) {
  EXPECT_EQ(Json(with_six_digits(0.00548113789409399)).dump(), "0.00548114");
  EXPECT_EQ(with_six_digits(-12345678), -12345700);
}

}  // namespace
}  // namespace temper::recipes
