#include "recipes/plans/stage_report.h"

#include "base/text.h"

namespace temper::recipes {

std::string describe_stages(const std::vector<StageMemory>& stages) {
  std::string out;
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    std::vector<std::string> has;
    for (const auto& [first, last] : stages[stage].layers)
      has.push_back(last - first == 1 ? fmt::format("layer {}", first)
                                      : fmt::format("layers {} to {}", first, last - 1));
    if (stage == 0) has.emplace_back("embedding");
    if (stage + 1 == stages.size()) has.emplace_back("head");
    out += fmt::format("{:<15}{}; memory about {}\n", fmt::format("stage {}", stage), join(has),
                       format_bytes(stages[stage].total));
  }
  return out;
}

std::string stages_table(const std::vector<StageMemory>& stages) {
  std::string out;
  const auto row = [&](std::string_view name, const auto& text_of) {
    out += fmt::format("{:<12}", name);
    for (size_t stage = 0; stage < stages.size(); ++stage) out += fmt::format(" {:>12}", text_of(stage));
    out += "\n";
  };
  row("planned", [](size_t stage) { return fmt::format("stage {}", stage); });
  for (size_t tag = 0; tag < stages.front().peaks.size(); ++tag)
    row(to_string(static_cast<MemoryTag>(tag)),
        [&](size_t stage) { return format_bytes(stages[stage].peaks[tag]); });
  row("total", [&](size_t stage) { return format_bytes(stages[stage].total); });
  return out;
}

}  // namespace temper::recipes
