#include "reports/progress.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <new>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>

#include "base/log.h"
#include "base/shown.h"
#include "base/text.h"

namespace temper::reports {
namespace {

constexpr const char* kClearLine = "\r\x1b[K";
constexpr size_t kDefaultWidth = 80;
constexpr double kSecondsOfRedrawing = 0.1;  // on a terminal, the shortest time between two lines
constexpr double kSecondsOfLines = 10;       // elsewhere

struct Piece {
  std::string text;
  int rank;  // the highest is left out first
};

// Not a number is known and worth seeing.
bool known(double value) { return !(value < 0); }

std::string format_rate(double value) {
  if (value >= 1e6) return fmt::format("{:.2f}M", value / 1e6);
  if (value >= 1e4) return fmt::format("{:.1f}k", value / 1e3);
  return fmt::format("{:.0f}", value);
}

std::vector<Piece> pieces_of(const StepReport& report) {
  std::vector<Piece> pieces;
  const auto add = [&](int rank, std::string text) { pieces.push_back({std::move(text), rank}); };
  add(0, report.total_steps > 0 ? fmt::format("step {}/{}", report.step, report.total_steps)
                                : fmt::format("step {}", report.step));
  if (known(report.epoch)) add(6, fmt::format("epoch {:.2f}", report.epoch));
  add(1, fmt::format("loss {:.4f}", report.loss));
  for (const auto& [name, value] : report.extras) add(3, fmt::format("{} {:.4g}", shown(name), value));
  if (known(report.lr)) add(6, fmt::format("lr {:.1e}", report.lr));
  if (known(report.grad_norm)) add(4, fmt::format("grad {:.3g}", report.grad_norm));
  if (known(report.tokens_per_second)) add(5, fmt::format("{} tok/s", format_rate(report.tokens_per_second)));
  if (known(report.mfu)) add(7, fmt::format("MFU {:.0f}%", 100 * report.mfu));
  if (report.memory_bytes > 0) add(8, format_bytes(report.memory_bytes));
  if (report.seconds_left >= 0) add(2, fmt::format("{} left", format_duration(report.seconds_left)));
  return pieces;
}

bool is_last(const StepReport& report) { return report.total_steps > 0 && report.step >= report.total_steps; }

std::string join_pieces(const std::vector<Piece>& pieces, const char* gap = "  ") {
  std::string line;
  for (const Piece& piece : pieces) line += (line.empty() ? "" : gap) + piece.text;
  return line;
}

size_t terminal_width(std::FILE* out) {
  winsize size{};
  if (::ioctl(::fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* columns = std::getenv("COLUMNS");
  const long width = columns != nullptr ? std::strtol(columns, nullptr, 10) : 0;
  return width > 0 ? static_cast<size_t>(width) : kDefaultWidth;
}

}  // namespace

std::string format_step(const StepReport& report, size_t width) {
  std::vector<Piece> pieces = pieces_of(report);
  std::string line = join_pieces(pieces);
  if (width == 0) return line;
  if (line.size() > width) line = join_pieces(pieces, " ");
  while (line.size() > width && pieces.size() > 1) {
    // The later of two equal ranks, so that extras vanish from the end.
    const auto worst = std::max_element(pieces.rbegin(), pieces.rend(),
                                        [](const Piece& a, const Piece& b) { return a.rank < b.rank; });
    pieces.erase(std::prev(worst.base()));
    line = join_pieces(pieces, " ");
  }
  return line.substr(0, width);
}

ProgressOptions progress_for_stderr() {
  ProgressOptions options;
  options.terminal = ::isatty(STDERR_FILENO) == 1;
  return options;
}

Progress::Progress(ProgressOptions options) : options_(options) {
  if (options_.terminal) set_log_prefix(kClearLine);
}

Progress::~Progress() {
  try {
    finish();
  } catch (const std::bad_alloc&) {
    // Without memory the last line is not shown.
  }
}

void Progress::show(const StepReport& report) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  show(report, std::chrono::duration<double>(now).count());
}

void Progress::show(const StepReport& report, double now) {
  latest_ = report;
  pending_ = unkept_ = true;
  keep_if_due(now);
  if (!is_due(report, now)) return;
  print(report);
  printed_at_ = now;
}

bool Progress::is_due(const StepReport& report, double now) const {
  if (!printed_at_ || is_last(report)) return true;
  const double passed = now - *printed_at_;
  return passed >= (options_.terminal ? kSecondsOfRedrawing : kSecondsOfLines);
}

void Progress::keep_if_due(double now) {
  if (kept_at_ > 0 && !is_last(latest_) && now - kept_at_ < kSecondsOfLines) return;
  keep();
  kept_at_ = now;
}

void Progress::keep() {
  log_quietly(format_step(latest_));
  unkept_ = false;
}

void Progress::print(const StepReport& report) {
  std::string line;
  if (options_.terminal) {
    // One column stays free: some terminals wrap when the last one is filled.
    const size_t width = options_.width > 0 ? options_.width : terminal_width(options_.out);
    line = kClearLine + format_step(report, std::max<size_t>(width, 2) - 1);
  } else {
    line = format_step(report) + "\n";
  }
  std::fwrite(line.data(), 1, line.size(), options_.out);
  std::fflush(options_.out);
  live_ = options_.terminal;
  pending_ = false;
  if (live_ && is_last(report)) leave();
}

// What is logged from now on is below the line.
void Progress::leave() {
  std::fputs("\n", options_.out);
  std::fflush(options_.out);
  live_ = false;
  set_log_prefix("");
}

void Progress::finish() {
  if (pending_) print(latest_);
  if (unkept_) keep();
  if (live_) leave();
  if (options_.terminal) set_log_prefix("");
}

}  // namespace temper::reports
