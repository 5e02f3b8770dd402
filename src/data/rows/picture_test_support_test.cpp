#include "data/rows/picture_test_support.h"

#include "base/error.h"
#include "base/files.h"
#include "data/chat/chat_template.h"

namespace temper::data {

const Tokenizer& seeing() {
  static const Tokenizer tokenizer = [] {
    const std::string path = TEMPER_SOURCE_DIR "/tests/goldens/tokenizer_qwen/tokenizer.json";
    Json file = Json::parse(read_file(path), path);
    Json tokens = file.at("added_tokens");
    const Json like = tokens.as_array().front();
    for (const auto& [id, text] : {std::pair(kPad, "<|image_pad|>"), std::pair(kStart, "<|vision_start|>"),
                                   std::pair(kEnd, "<|vision_end|>")}) {
      tokens.as_array().push_back(like);
      tokens.as_array().back().set("id", id);
      tokens.as_array().back().set("content", text);
    }
    file.set("added_tokens", std::move(tokens));
    return Tokenizer::from_parsed(file, path);
  }();
  return tokenizer;
}

ChatRenderer chatml_with_pictures() {
  const std::string text =
      "{% for message in messages %}<|im_start|>{{ message.role }}\n{% if message.content is string %}"
      "{{ message.content }}{% else %}{% for part in message.content %}{% if part.type == 'image' %}"
      "<|vision_start|><|image_pad|><|vision_end|>{% elif 'text' in part %}{{ part.text }}{% endif %}"
      "{% endfor %}{% endif %}<|im_end|>\n{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
  return renderer_of(std::make_shared<templates::ChatTemplate>(
      templates::ChatTemplate{templates::Template::parse(text, "pictures"), Json::Object(), text}));
}

PictureTokens counted_pictures() {
  return {kPad, kStart, kEnd, [](const MediaReference& picture, const std::string& /*folder*/) {
            if (picture.path == "missing.png") fail("{}: [missing.png] is not there", picture.place);
            preprocessing::PictureShape shape;
            shape.tokens = std::stoll(picture.path);
            shape.grid = preprocessing::Grid{1, 2, 2 * shape.tokens};
            return shape;
          }};
}

}  // namespace temper::data
