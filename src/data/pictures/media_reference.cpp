#include "data/pictures/media_reference.h"

#include "base/base64.h"
#include "base/error.h"
#include "base/files.h"
#include "base/shown.h"
#include "data/chat/fields.h"
#include "media/open_picture.h"

namespace temper::data {
namespace {

constexpr std::string_view kFile = "file://", kData = "data:";

// data:image/png;base64,….
std::string bytes_of_url(std::string_view url, const std::string& place) {
  const size_t comma = url.find(',');
  if (comma == std::string_view::npos || !url.substr(0, comma).ends_with(";base64"))
    fail("{} is '{}', expected a data URL like data:image/png;base64,…", place, shown(shortened(url, 60)));
  return decode_base64(url.substr(comma + 1), place);
}

MediaReference reference_of(std::string_view text, const std::string& place) {
  MediaReference picture;
  picture.place = place;
  if (text.empty()) fail("{} is empty, expected the path of a picture", place);
  if (text.starts_with("http://") || text.starts_with("https://"))
    fail("{} is an address, '{}', and nothing is fetched; download it, and write its path", place,
         shown(shortened(text)));
  if (text.starts_with(kData)) {
    picture.bytes = bytes_of_url(text, place);
    if (picture.bytes.empty()) fail("{} is a data URL without data", place);
    return picture;
  }
  picture.path = text.starts_with(kFile) ? text.substr(kFile.size()) : text;
  return picture;
}

}  // namespace

std::string MediaReference::name() const { return bytes.empty() ? path : "bytes in the row"; }

MediaReference media_reference(const Json& value, const std::string& place) {
  if (value.is_string()) return reference_of(value.as_string(), place);
  if (!value.is_object())
    fail("{} is {}, expected the path of a picture, a data URL, or an object with bytes or a path", place,
         value.kind_name());
  for (const char* key : {"bytes", "base64"})
    if (const Json* bytes = field_of(value, key)) {
      const std::string inner = fmt::format("{}.{}", place, key);
      if (!bytes->is_string()) fail("{} is {}, expected base64 in a string", inner, bytes->kind_name());
      MediaReference picture;
      picture.place = inner;
      picture.bytes = decode_base64(bytes->as_string(), inner);
      if (picture.bytes.empty()) fail("{} is empty, expected a picture", inner);
      return picture;
    }
  for (const char* key : {"path", "url"})
    if (const Json* text = field_of(value, key)) {
      if (!text->is_string()) fail("{}.{} is {}, expected a string", place, key, text->kind_name());
      return reference_of(text->as_string(), fmt::format("{}.{}", place, key));
    }
  fail("{} has neither bytes nor a path, expected one of them (fields: {})", place, fields_of(value));
}

std::string content_of(const MediaReference& picture, const std::string& folder) {
  if (!picture.bytes.empty()) return picture.bytes;
  const bool absolute = picture.path.starts_with('/');
  try {
    return media::read_picture_file(absolute ? picture.path : join_path(folder, picture.path));
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", picture.place, error.what()), error.kind());
  }
}

}  // namespace temper::data
