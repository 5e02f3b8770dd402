#pragma once
#include <optional>
#include <string>
#include <vector>

#include "recipes/plans/layout_bounds.h"

namespace temper::recipes {

struct PlanOptions {
  int ranks = 1;
  std::string hardware = {};  // a known machine (costs/known_machines.h); "": the run's device
  std::string times = {};     // a file that was measured (costs/times_file.h); "": published figures
  int ranks_of_host = 0;      // 0: as many as the machine usually has
  int64_t top = 10;           // layouts that are listed
  int64_t rehearsals = 300;   // at most
};

// The layouts of a run that fit and take least time.
struct LayoutPlan {
  PlannedMachine machine;
  UpdateSize update;
  double elements = 0;    // of the model
  bool has_rows = false;  // documents are like those of data.train; otherwise each is as long as a row
  int ranks = 1;
  int64_t limit = 0;  // bytes that a rank may use
  std::vector<LayoutCost> best;

  // What became of all layouts that the program accepts.
  int64_t possible = 0, refused = 0, idle = 0;
  std::string why_refused;          // of one of them
  int64_t cannot_fit = 0;           // as their weights, gradients and states alone need too much
  int64_t fits = 0, too_large = 0;  // that were rehearsed
  int64_t slower = 0;               // than those listed, however well they do; not rehearsed
  int64_t left = 0;                 // not rehearsed either, as there are too many
  std::optional<LayoutCost> smallest_too_large;
  std::optional<RunLayout> least_state;  // of those that cannot fit, with its bytes
  int64_t least_state_bytes = 0;
};

// Layouts are rehearsed in the order in which they are expected to be fast, except those that cannot be among
// the best (layout_bounds.h). Nothing but the model's config.json is needed; where the run names rows to
// train on, some of them are read, for which its tokenizer is needed, too.
//
// Errors: a run that is refused as by the command train; a recipe that learns from the model's own answers;
// hardware that is not known; times of another machine or dtype; no layout that fits.
LayoutPlan plan_layouts(const RunConfig& config, const PlanOptions& options);

}  // namespace temper::recipes
