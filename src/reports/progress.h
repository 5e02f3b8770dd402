#pragma once
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace temper::reports {

// What is known after a step. A value below zero (of memory_bytes: zero) is unknown and left out.
struct StepReport {
  int64_t step = 0;
  int64_t total_steps = 0;
  double loss = 0;    // shown whatever it is
  double epoch = -1;  // passes over the data so far
  double lr = -1;
  double grad_norm = -1;
  double tokens_per_second = -1;
  double mfu = -1;  // model FLOPs utilization (MFU): of the machine's matrix peak, 1 is all of it
  int64_t memory_bytes = 0;
  double seconds_left = -1;
  std::vector<std::pair<std::string, double>> extras = {};  // for example {"reward", 0.31}, behind the loss
};

// "step 12/100 12%  loss 2.3145  lr 2.0e-05  …" in at most `width` columns (0: any): what matters least is
// left out first.
std::string format_step(const StepReport& report, size_t width = 0);

struct ProgressOptions {
  std::FILE* out = stderr;
  bool terminal = false;  // redraw one line
  size_t width = 0;       // of the terminal; 0 asks it before each line
};
ProgressOptions progress_for_stderr();  // a terminal if standard error is one

// Shows the run's progress. On a terminal, log lines clear the live line first, and the next step draws it
// again; the last step's line stays. The log's copy (base/log.h) gets a line as often as what is not a
// terminal does, and the last one.
class Progress {
 public:
  explicit Progress(ProgressOptions options = progress_for_stderr());
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(const StepReport& report);              // now
  void show(const StepReport& report, double now);  // in seconds, never decreasing
  void finish();  // leaves the last line standing; also at the end of its life

 private:
  bool is_due(const StepReport& report, double now) const;
  void print(const StepReport& report);
  void keep_if_due(double now);
  void keep();
  void leave();  // the live line where it stands

  ProgressOptions options_;
  StepReport latest_;
  bool pending_ = false;  // latest_ was not printed
  std::optional<double> printed_at_;
  bool unkept_ = false;  // the log's copy lacks latest_
  double kept_at_ = 0;   // 0: never
  bool live_ = false;    // a line without its end stands on the terminal
};

}  // namespace temper::reports
