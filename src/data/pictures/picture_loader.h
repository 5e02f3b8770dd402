#pragma once
#include <memory>
#include <string>
#include <vector>

#include "data/pictures/media_reference.h"
#include "media/open_picture.h"
#include "media/picture_cache.h"
#include "preprocessing/picture_shape.h"

namespace temper::data {

// A picture of a row as a model's tower reads it.
struct LoadedPicture {
  preprocessing::PictureShape shape;
  std::vector<std::shared_ptr<const media::Picture>> parts;  // of shape.resized: the whole, then its crops
};

// Opens and resizes the pictures of rows, and keeps resized ones by the hash of the file's content: at most
// `cache_bytes` of them. Thread-safe.
class PictureLoader {
 public:
  PictureLoader(preprocessing::PictureSettings settings, int64_t cache_bytes, media::ReadLimits limits = {});

  // Relative paths begin in `folder`, the data file's. Errors name the picture's place in the row, and its
  // file.
  LoadedPicture load(const MediaReference& picture, const std::string& folder) const;

  // What it will have, from the file's header alone, without decoding it. The same errors.
  preprocessing::PictureShape shape(const MediaReference& picture, const std::string& folder) const;

  const preprocessing::PictureSettings& settings() const { return settings_; }
  const media::PictureCache& cache() const { return cache_; }

 private:
  LoadedPicture load_file(std::string_view bytes, const std::string& name) const;

  preprocessing::PictureSettings settings_;
  media::ReadLimits limits_;
  mutable media::PictureCache cache_;
};

}  // namespace temper::data
