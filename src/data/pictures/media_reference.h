#pragma once
#include <string>
#include <string_view>

#include "base/json/json.h"

namespace temper::data {

// One picture that a row names.
struct MediaReference {
  std::string place;  // in the row: "images[0]", "messages[1].content[0].image"
  std::string path;   // of a file, as the row has it; empty where the row has its bytes
  std::string bytes;  // the content of the file, where the row has it
  bool operator==(const MediaReference&) const = default;

  std::string name() const;  // for messages: the path, or "bytes in the row"
};

// A path, a data URL, a file:// address, or an object with bytes (in base64) or a path, as the image columns
// of data sets have it. Errors name the place: addresses of the web, and what is none of these.
MediaReference media_reference(const Json& value, const std::string& place);

// The content of the file; relative paths begin in `folder`, the data file's. An Error names place and file.
std::string content_of(const MediaReference& picture, const std::string& folder);

}  // namespace temper::data
