#include "rollout/requests/answer_file.h"

#include "base/error.h"
#include "base/log.h"

namespace temper::rollout {

AnswerFile::AnswerFile(std::string path) : path_(std::move(path)) {
  const std::string text = exists(path_) ? read_file(path_) : std::string();
  const size_t whole = text.rfind('\n') + 1;  // 0 where there is none
  int64_t line = 0;
  for (size_t begin = 0, end; begin < whole; begin = end + 1) {
    end = text.find('\n', begin);
    const std::string where = fmt::format("{}:{}", path_, ++line);
    const Json row = Json::parse(std::string_view(text).substr(begin, end - begin), where);
    for (const char* member : {"row", "sample", "key"})
      if (!row.is_object() || row.find(member) == nullptr)
        fail("[{}] expected an object with row, sample and key, as temper batch writes; name another --out",
             where);
    found_[{row.at("row").as_int(), row.at("sample").as_int()}] = row.at("key").as_string();
  }
  if (whole < text.size()) {
    log_info(fmt::format("[{}] the last line ends in the middle: it is computed again", path_));
    write_file(path_, std::string_view(text).substr(0, whole));
  }
  file_ = std::make_unique<FileWriter>(path_, true);
}

bool AnswerFile::has(int64_t row, int64_t sample, const std::string& key) const {
  const auto found = found_.find({row, sample});
  if (found == found_.end()) return false;
  if (found->second != key)
    fail(
        "[{}] it has an answer to row {} by another model, of another prompt, or with other settings; name "
        "another --out, or "
        "give the same rows and settings",
        path_, row);
  return true;
}

void AnswerFile::write(int64_t row, int64_t sample, const std::string& key, const Json::Object& rest) {
  Json::Object all{{"row", row}, {"sample", sample}, {"key", key}};
  all.insert(all.end(), rest.begin(), rest.end());
  file_->write(Json(all).dump() + "\n");
  ++written_;
}

void AnswerFile::close() { file_->close(); }

}  // namespace temper::rollout
