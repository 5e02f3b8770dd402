#include "recipes/grpo/journal.h"

#include <algorithm>
#include <charconv>

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

void Journal::for_each_line(const std::string& file, const UseLine& use) {
  const std::string text = read_file(file);
  int64_t number = 0;
  for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string_view line = std::string_view(text).substr(begin, end - begin);
    use(line, Json::parse(line, fmt::format("{}:{}", file, ++number)));
  }
}

std::string Journal::own_file() const { return join_path(folder_, name_of(rank_)); }

void Journal::begin_at(int64_t rollout, bool keep) {
  file_.reset();
  found_.clear();
  for (const std::string& file : files_of(folder_)) {
    for_each_line(file, [&](std::string_view, const Json& line) {
      if (!keep || line.at("rollout").as_int() != rollout) return;
      Found& found = found_[{line.at("group").as_int(), line.at("sample").as_int()}];
      if (line.find("scores") != nullptr) {  // behind the sample, of the same rank
        take_scores(line, found.sample);
      } else {
        found.sample = sample_from(line);
        found.key = line.at("key").as_string();
      }
    });
    // Those of ranks that are no more are somebody's, too.
    if (rank_of(file_name(file)) % ranks_ == rank_) cut(file, rollout, keep);
  }
}

void Journal::cut(const std::string& file, int64_t rollout, bool keep) {
  std::string kept;
  for_each_line(file, [&](std::string_view text, const Json& line) {
    const int64_t of = line.at("rollout").as_int();
    if (of < rollout || (keep && of == rollout)) kept.append(text).append("\n");
  });
  if (std::ssize(kept) != file_size(file)) write_file(file, kept);
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
