#pragma once
#include <map>
#include <string>
#include <vector>

#include "base/json/json.h"
#include "reports/plot.h"

namespace temper::recipes {

// What metrics.jsonl tells of a whole run, however many processes trained it.
class RunCurves {
 public:
  explicit RunCurves(const std::string& metrics_file);

  // Of a value that is the better the higher it is: {"first": …, "last": …, "best": …, "best_step": …}; null
  // where no line has it.
  Json span_of(const std::string& name) const;
  // The losses and, below each other, what else the run has of rewards, margins and accuracies.
  void draw(const std::string& file, const std::string& title) const;

 private:
  std::map<std::string, std::vector<reports::PlotPoint>> points_;
};

double with_six_digits(double value);  // as many as anybody reads in a summary

}  // namespace temper::recipes
