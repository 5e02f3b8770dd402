#pragma once
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "base/files.h"
#include "base/json/json.h"

namespace temper::rollout {

// A file of answers, one JSON object a line, that grows while a job runs and is continued after any end of
// it: a last line that was not written to its end is cut off. Every line has the members `row`, `sample` and
// `key`.
class AnswerFile {
 public:
  // Reads what is there. An Error names a line that is no such object.
  explicit AnswerFile(std::string path);

  int64_t size() const { return std::ssize(found_) + written_; }
  // Whether the answer was there when the file was opened. `key` says what it is an answer to; an Error where
  // the file has another one.
  bool has(int64_t row, int64_t sample, const std::string& key) const;
  void write(int64_t row, int64_t sample, const std::string& key, const Json::Object& rest);
  void close();  // all is on the disk

 private:
  std::string path_;
  std::map<std::pair<int64_t, int64_t>, std::string> found_;  // keys by row and sample
  int64_t written_ = 0;  // of these nothing is kept: a job may write millions
  std::unique_ptr<FileWriter> file_;
};

}  // namespace temper::rollout
