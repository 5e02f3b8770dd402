#include "data/inspect_pictures.h"

#include <optional>

#include "base/error.h"
#include "base/files.h"
#include "base/shown.h"
#include "data/pictures/row_pictures.h"
#include "media/open_picture.h"
#include "preprocessing/picture_shape.h"

namespace temper::data {
namespace {

using Settings = std::optional<preprocessing::PictureSettings>;

std::string describe_shape(media::Size size, const Settings& settings, const std::string& name) {
  std::string text = fmt::format("{} x {} pixels", size.width, size.height);
  if (!settings) return text;
  const preprocessing::PictureShape shape = preprocessing::shape_of(size, *settings, name);
  text += fmt::format(", resized to {} x {}", shape.resized.width, shape.resized.height);
  if (shape.grid)
    text += fmt::format(", a grid of {} x {} x {} patches", shape.grid->frames, shape.grid->rows,
                        shape.grid->columns);
  if (shape.crops > 0) text += fmt::format(", with {} crops", shape.crops);
  return text + fmt::format(", {} tokens", shape.tokens);
}

std::string describe_one(const MediaReference& picture, const std::string& folder, const Settings& settings) {
  const std::string bytes = content_of(picture, folder), name = picture.name();
  try {
    const media::Picture decoded = media::read_picture({bytes, name});
    return fmt::format("{} ({}): {}", picture.place, name, describe_shape(decoded.size(), settings, name));
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", picture.place, error.what()), error.kind());
  }
}

// The line that `describe` makes, or what is wrong.
template <class Describe>
std::string line_of(const Describe& describe) {
  std::string text;
  try {
    text = describe();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInput) throw;
    text = fmt::format("bad: {}", error.what());
  }
  return fmt::format("  picture {}\n", shown_message(text));
}

}  // namespace

std::string describe_pictures(const Json& row, const std::string& data_file,
                              const std::string& model_folder) {
  std::vector<MediaReference> pictures;
  Settings settings;
  try {
    if (!row.is_object() || !names_pictures(row)) return "";
    pictures = pictures_of_row(row);
    if (preprocessing::has_picture_settings(model_folder))
      settings = preprocessing::read_picture_settings(model_folder);
  } catch (const Error& error) {
    return fmt::format("  pictures: {}\n", shown_message(error.what()));
  }
  std::string out;
  const std::string folder = parent_path(data_file);
  for (const MediaReference& picture : pictures)
    out += line_of([&] { return describe_one(picture, folder, settings); });
  return out;
}

}  // namespace temper::data
