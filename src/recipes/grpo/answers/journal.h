#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/files.h"
#include "recipes/grpo/answers/sampled_answer.h"

namespace temper::recipes {

// The samples of a run, a line each, as they are judged: rollouts.jsonl in the run's folder, and
// rollouts.r.jsonl of rank r > 0. A resumed run takes from them what it has not learned from yet.
class Journal {
 public:
  Journal(std::string folder, int rank, int ranks) : folder_(std::move(folder)), rank_(rank), ranks_(ranks) {}

  // The run continues with this rollout: reads what any rank wrote of it, and takes lines of later ones out
  // of the files, those of this one, too, unless `keep`, and a last line that was not written to its end.
  void begin_at(int64_t rollout, bool keep);

  struct Found {
    SampledAnswer sample;
    std::string key;
  };
  Found* find(int64_t group, int64_t number);  // of that rollout; null: there is none

  void write(const SampledAnswer& sample, const Prompt& prompt, const std::vector<std::string>& reward_names,
             const std::string& key);
  void write_scores(const Json& scores);
  void sync();  // to the disk, before updates stand on it

  // Of all ranks that wrote into a folder, by rank.
  static std::vector<std::string> files_of(const std::string& folder);
  // A line that was written to its end. Files may be larger than memory: most lines are never parsed.
  struct Line {
    std::string_view text;
    const std::string& file;
    int64_t number;  // counted from 1

    int64_t rollout() const;
    Json parse() const;
  };
  // Errors of `use` say which line it was.
  static void for_each_line(const std::string& file, const std::function<void(const Line&)>& use);

 private:
  void cut(const std::string& file, int64_t rollout, bool keep);
  void write_line(const Json& line);
  std::string own_file() const;

  std::string folder_;
  int rank_, ranks_;
  std::map<std::pair<int64_t, int64_t>, Found> found_;
  std::unique_ptr<FileWriter> file_;
};

}  // namespace temper::recipes
