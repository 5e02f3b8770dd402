#include "media/picture_cache.h"

#include <utility>

#include "base/hash.h"

namespace temper::media {

std::string content_key(std::string_view bytes) {
  Hasher hasher;
  hasher.update(bytes.data(), bytes.size());
  return hasher.digest();
}

std::shared_ptr<const Picture> PictureCache::get(const std::string& key,
                                                 const std::function<Picture()>& make) {
  if (auto known = find(key)) return known;
  auto picture = std::make_shared<const Picture>(make());
  keep(key, picture);
  return picture;
}

std::shared_ptr<const Picture> PictureCache::find(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto place = places_.find(key);
  if (place == places_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, place->second);
  return place->second->picture;
}

void PictureCache::keep(const std::string& key, const std::shared_ptr<const Picture>& picture) {
  const std::lock_guard lock(mutex_);
  ++made_;
  if (picture->bytes() > most_bytes_ || places_.contains(key)) return;
  entries_.push_front({key, picture});
  places_[key] = entries_.begin();
  bytes_ += picture->bytes();
  while (bytes_ > most_bytes_) {
    bytes_ -= entries_.back().picture->bytes();
    places_.erase(entries_.back().key);
    entries_.pop_back();
  }
}

int64_t PictureCache::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

int64_t PictureCache::made() const {
  const std::lock_guard lock(mutex_);
  return made_;
}

}  // namespace temper::media
