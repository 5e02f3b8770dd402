#include "recipes/grpo/answers/journal.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "base/text.h"

namespace temper::recipes {
namespace {

constexpr std::string_view kStem = "rollouts", kEnd = ".jsonl";

// "rollouts.3.jsonl" is of rank 3; -1: no such file.
int rank_of(std::string_view name) {
  if (!name.starts_with(kStem) || !name.ends_with(kEnd)) return -1;
  const std::string_view middle = name.substr(kStem.size(), name.size() - kStem.size() - kEnd.size());
  if (middle.empty()) return 0;
  int rank = -1;
  std::from_chars(middle.data() + 1, middle.data() + middle.size(), rank);
  return middle.front() == '.' ? rank : -1;
}

std::string name_of(int rank) {
  return rank == 0 ? fmt::format("{}{}", kStem, kEnd) : fmt::format("{}.{}{}", kStem, rank, kEnd);
}

}  // namespace

std::vector<std::string> Journal::files_of(const std::string& folder) {
  std::vector<std::pair<int, std::string>> found;
  if (is_directory(folder))
    for (const std::string& name : list_directory(folder))
      if (const int rank = rank_of(name); rank >= 0) found.emplace_back(rank, join_path(folder, name));
  std::sort(found.begin(), found.end());
  std::vector<std::string> files;
  for (auto& [rank, file] : found) files.push_back(std::move(file));
  return files;
}

void Journal::for_each_line(const std::string& file, const std::function<void(const Line&)>& use) {
  const MappedFile mapped(file);
  const std::string_view text = mapped.text();
  int64_t number = 0;
  for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string place = fmt::format("[{}:{}", file, ++number);
    try {
      use({text.substr(begin, end - begin), file, number});
    } catch (const Error& error) {
      const bool names_it = std::string_view(error.what()).starts_with(place);
      throw Error(
          fmt::format("{}{}; the line is damaged: remove it, and its answer is sampled again where a run "
                      "needs it",
                      names_it ? "" : place + "] ", error.what()),
          error.kind());
    }
  }
}

Json Journal::Line::parse() const { return Json::parse(text, fmt::format("{}:{}", file, number)); }

// Which all lines that we wrote begin with.
int64_t Journal::Line::rollout() const {
  constexpr std::string_view kBegin = R"({"rollout": )";
  int64_t rollout = 0;
  if (text.starts_with(kBegin)) {
    const char* const end = text.data() + text.size();
    const auto [at, error] = std::from_chars(text.data() + kBegin.size(), end, rollout);
    if (error == std::errc() && at != end && *at == ',') return rollout;
  }
  return parse().at("rollout").as_int();
}

std::string Journal::own_file() const { return join_path(folder_, name_of(rank_)); }

void Journal::begin_at(int64_t rollout, bool keep) {
  file_.reset();
  found_.clear();
  for (const std::string& file : files_of(folder_)) {
    for_each_line(file, [&](const Line& each) {
      if (!keep || each.rollout() != rollout) return;
      const Json line = each.parse();
      Found& found = found_[{line.at("group").as_int(), line.at("sample").as_int()}];
      if (line.find("scores") != nullptr) {  // behind the sample, of the same rank
        take_scores(line, found.sample);
      } else {
        found.sample = sample_from(line);
        found.key = line.at("key").as_string();
      }
    });
    // Those of ranks that are no more are cut by the others.
    if (rank_of(file_name(file)) % ranks_ == rank_) cut(file, rollout, keep);
  }
}

void Journal::cut(const std::string& file, int64_t rollout, bool keep) {
  const auto stays = [&](const Line& line) {
    const int64_t of = line.rollout();
    return of < rollout || (keep && of == rollout);
  };
  int64_t bytes = 0;
  for_each_line(file, [&](const Line& line) { bytes += stays(line) ? std::ssize(line.text) + 1 : 0; });
  if (bytes == file_size(file)) return;
  std::string kept;
  kept.reserve(static_cast<size_t>(bytes));
  for_each_line(file, [&](const Line& line) {
    if (stays(line)) kept.append(line.text).append("\n");
  });
  write_file(file, kept);
}

Journal::Found* Journal::find(int64_t group, int64_t number) {
  const auto found = found_.find({group, number});
  return found == found_.end() ? nullptr : &found->second;
}

void Journal::write_line(const Json& line) {
  if (!file_) file_ = std::make_unique<FileWriter>(own_file(), true);
  file_->write(line.dump() + "\n");
}

void Journal::write(const SampledAnswer& sample, const Prompt& prompt,
                    const std::vector<std::string>& reward_names, const std::string& key) {
  write_line(to_json(sample, prompt, reward_names, key));
}

void Journal::write_scores(const Json& scores) { write_line(scores); }

void Journal::sync() {
  if (file_) file_->close();
  file_.reset();
}

}  // namespace temper::recipes
