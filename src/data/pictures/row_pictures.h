#pragma once
#include <vector>

#include "data/pictures/media_reference.h"

namespace temper::data {

// Whether a row has pictures: a list next to its text (images, image), or parts of messages that are some.
bool names_pictures(const Json& row);

// The pictures of a row in the order in which its text names them. The text names the pictures of the fields
// `images` and `image` by parts {"type": "image"} without a source of their own, or where it has none of
// these by "<image>" in texts, as LLaVA's and ShareGPT's data do. Parts with a source are {"type": "image"}
// with image, url, path, bytes or base64, and {"type": "image_url", "image_url": {"url": …}}. Of a preference
// both answers must name the same ones. Errors name the field: more or fewer pictures than the text names,
// videos and sounds.
std::vector<MediaReference> pictures_of_row(const Json& row);

// The row without its lists of pictures and with texts in which each of these pictures is one character
// (chat/picture_parts.h), where the text names it.
Json row_with_marks(Json row);

}  // namespace temper::data
