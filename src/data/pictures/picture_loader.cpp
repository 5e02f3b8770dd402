#include "data/pictures/picture_loader.h"

#include <optional>

#include "base/error.h"
#include "preprocessing/pixel_values.h"

namespace temper::data {
namespace {

// What `read` returns; its Errors name the picture's place in the row.
auto at_place(const MediaReference& picture, const auto& read) {
  try {
    return read();
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", picture.place, error.what()), error.kind());
  }
}

}  // namespace

PictureLoader::PictureLoader(preprocessing::PictureSettings settings, int64_t cache_bytes,
                             media::ReadLimits limits)
    : settings_(std::move(settings)), limits_(limits), cache_(cache_bytes) {}

LoadedPicture PictureLoader::load(const MediaReference& picture, const std::string& folder) const {
  const std::string bytes = content_of(picture, folder);
  return at_place(picture, [&] { return load_file(bytes, picture.name()); });
}

preprocessing::PictureShape PictureLoader::shape(const MediaReference& picture,
                                                 const std::string& folder) const {
  const std::string bytes = content_of(picture, folder);
  return at_place(picture, [&] {
    return preprocessing::shape_of(media::size_of_picture({bytes, picture.name()}, limits_), settings_,
                                   picture.name());
  });
}

LoadedPicture PictureLoader::load_file(std::string_view bytes, const std::string& name) const {
  const media::Encoded file = {bytes, name};
  LoadedPicture loaded;
  loaded.shape = preprocessing::shape_of(media::size_of_picture(file, limits_), settings_, name);
  std::optional<media::Picture> decoded;  // where a part is not in the cache
  const std::string key = media::content_key(bytes);
  for (int64_t part = 0; part <= loaded.shape.crops; ++part)
    loaded.parts.push_back(cache_.get(fmt::format("{}.{}", key, part), [&] {
      if (!decoded) decoded = media::read_picture(file, limits_);
      return preprocessing::resized_part(*decoded, settings_, loaded.shape, part);
    }));
  return loaded;
}

}  // namespace temper::data
