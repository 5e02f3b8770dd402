#pragma once
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "media/picture.h"

namespace temper::media {

// Names a file by its content, wherever it lies: 32 hexadecimal digits.
std::string content_key(std::string_view bytes);

// Pictures that were made lately, of at most a number of bytes together; those that were not asked for the
// longest go first. Thread-safe.
class PictureCache {
 public:
  explicit PictureCache(int64_t most_bytes) : most_bytes_(most_bytes) {}

  // The picture of this key, from make() where it is not here. Its key says everything that the picture
  // depends on: content_key, and what was done with it. Two threads may make the same picture at a time. One
  // that is larger than the cache is not kept.
  std::shared_ptr<const Picture> get(const std::string& key, const std::function<Picture()>& make);

  int64_t bytes() const;
  int64_t made() const;  // pictures that make() made

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<const Picture> picture;
  };
  std::shared_ptr<const Picture> find(const std::string& key);
  void keep(const std::string& key, const std::shared_ptr<const Picture>& picture);

  const int64_t most_bytes_;
  mutable std::mutex mutex_;
  std::list<Entry> entries_;  // the one that was asked for last is first
  std::unordered_map<std::string, std::list<Entry>::iterator> places_;
  int64_t bytes_ = 0, made_ = 0;
};

}  // namespace temper::media
