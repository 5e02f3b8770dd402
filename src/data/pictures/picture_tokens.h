#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/pictures/media_reference.h"
#include "preprocessing/picture_shape.h"

// Pictures as tokens.
namespace temper::data {

// How a model's text holds a picture: a start token, as many pads as the picture has tokens, an end token. In
// texts that chat templates write there is one pad.
struct PictureTokens {
  int32_t pad = 0;    // image_token_id in config.json
  int32_t start = 0;  // vision_start_token_id
  int32_t end = 0;    // vision_end_token_id
  // Of a picture whose relative path begins in `folder`, without decoding it (PictureLoader::shape). Errors
  // name the picture's place in the row. Called from several threads at once.
  std::function<preprocessing::PictureShape(const MediaReference& picture, const std::string& folder)> shape =
      {};
};

// What config.json says, without `shape`. Errors name `where` and the key.
PictureTokens picture_tokens_of(const Json& config, const std::string& where);

// The file of a picture.
struct PictureFile {
  MediaReference reference;
  std::string folder;  // in which relative paths begin: the data file's
};

// A picture among tokens.
struct PlacedPicture {
  int64_t first = 0;                  // of its pads: an index into the ids of an example or of a packed row
  preprocessing::PictureShape shape;  // as many pads as its tokens
  std::shared_ptr<const PictureFile> file;  // shared by all that hold the picture
  int64_t row = 0;                          // of the mixture; known in packed rows

  int64_t end() const { return first + shape.tokens; }
};

}  // namespace temper::data
