#include "data/pictures/row_pictures.h"

#include <gtest/gtest.h>

#include "base/base64.h"
#include "base/files.h"
#include "tests/support/errors.h"

namespace temper::data {
namespace {

Json parse(const std::string& text) { return Json::parse(text, ""); }

// Places and paths of a row's pictures.
std::string found(const std::string& row) {
  std::string text;
  for (const MediaReference& picture : pictures_of_row(parse(row)))
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", picture.place,
                        picture.path.empty() ? picture.bytes : picture.path);
  return text;
}
std::string refusal(const std::string& row) {
  return error_of([&] { pictures_of_row(parse(row)); });
}

TEST(RowPictures, OfLlava) {
  EXPECT_EQ(
      found(R"({"id": "1", "image": "a.jpg", "conversations": [{"from": "human", "value": "<image>\nWhat?"},
                      {"from": "gpt", "value": "A cat."}]})"),
      "image=a.jpg");
}

TEST(RowPictures, OfShareGptInTheOrderOfTheText) {
  EXPECT_EQ(found(R"({"images": ["a.jpg", "b.jpg", "c.jpg"], "conversations": [{"from": "human", "value":
                      "<image><image>Which?"}, {"from": "gpt", "value": "<image>"}]})"),
            "images[0]=a.jpg images[1]=b.jpg images[2]=c.jpg");
}

TEST(RowPictures, OfMessagesWithAListNextToThem) {
  EXPECT_EQ(found(R"({"images": ["a.jpg"], "messages": [{"role": "user", "content": [{"type": "image"},
                      {"type": "text", "text": "An <image> tag?"}]}]})"),
            "images[0]=a.jpg");
  EXPECT_EQ(found(R"({"images": [{"bytes": null, "path": "a.jpg"}], "messages": [{"role": "user", "content": [
                      {"type": "text", "text": "x", "image": null}, {"type": "image", "text": null, "image": null}]}]})"),
            "images[0].path=a.jpg");
}

TEST(RowPictures, OfPartsWithTheirOwnSources) {
  EXPECT_EQ(found(R"({"messages": [{"role": "user", "content": [{"type": "image", "image": "a.jpg"},
                      {"type": "image_url", "image_url": {"url": "data:image/png;base64,UE5H"}},
                      {"type": "image_url", "image_url": "file:///b.jpg"}, {"type": "image", "url": "c.jpg"},
                      {"type": "image", "path": "d.jpg"}, {"type": "image", "base64": "SlBH"},
                      {"type": "image", "image": {"bytes": "V2Vi", "path": "e.webp"}},
                      {"type": "text", "text": "<image>"}]}]})"),
            "messages[0].content[0].image=a.jpg messages[0].content[1].image_url.url=PNG "
            "messages[0].content[2].image_url=/b.jpg messages[0].content[3].url=c.jpg "
            "messages[0].content[4].path=d.jpg "
            "messages[0].content[5].base64=JPG messages[0].content[6].image.bytes=Web");
}

TEST(RowPictures, OfPartsOfBothKindsInTheOrderOfTheText) {
  EXPECT_EQ(
      found(R"({"images": ["list.jpg"], "messages": [{"role": "user", "content": [{"type": "image", "image":
                      "own.jpg"}, {"type": "image"}]}]})"),
      "messages[0].content[0].image=own.jpg images[0]=list.jpg");
}

TEST(RowPictures, OfInstructionsAndPrompts) {
  EXPECT_EQ(found(R"({"images": ["a", "b"], "instruction": "<image>", "input": "<image>", "output": "x"})"),
            "images[0]=a images[1]=b");
  EXPECT_EQ(found(R"({"images": ["a"], "prompt": "<image>?", "completion": "x"})"), "images[0]=a");
}

TEST(RowPictures, TextsWithoutAListAreText) {
  EXPECT_EQ(found(R"({"messages": [{"role": "user", "content": "Write an <image> tag."}]})"), "");
  EXPECT_EQ(found(R"({"images": [], "text": "<image>"})"), "");
  EXPECT_FALSE(names_pictures(parse(R"({"images": null, "image": "", "text": "<image>"})")));
  EXPECT_TRUE(names_pictures(parse(R"({"images": ["a"], "text": ""})")));
  EXPECT_TRUE(names_pictures(parse(R"({"messages": [{"role": "user", "content": [{"type": "image"}]}]})")));
}

// A prompt that stands apart, one that both answers begin with, and both.
TEST(RowPictures, OfPreferences) {
  const std::string prompt = R"([{"role": "user", "content": "<image>?"}])";
  const auto answer = [&](const std::string& text) {
    return R"([{"role": "user", "content": "<image>?"}, {"role": "assistant", "content": ")" + text +
           R"("}])";
  };
  const std::string answers = R"("chosen": )" + answer("a") + R"(, "rejected": )" + answer("b") + "}";
  EXPECT_EQ(found(R"({"images": ["a.jpg"], "prompt": "<image>?", "chosen": "a", "rejected": "b"})"),
            "images[0]=a.jpg");
  EXPECT_EQ(found(R"({"images": ["a.jpg"], )" + answers), "images[0]=a.jpg");
  EXPECT_EQ(found(R"({"images": ["a.jpg"], "prompt": )" + prompt + ", " + answers), "images[0]=a.jpg");
  EXPECT_EQ(refusal(R"({"images": ["a.jpg"], "prompt": "<image>?", "chosen": "a", "rejected": "<image>"})"),
            "the number of pictures in images is 1, and the text names 2; write <image> where each of them "
            "belongs, or remove those that "
            "are too many");
  const std::string part = R"([{"role": "assistant", "content": [{"type": "image", "image": "X"}]}])";
  expect_has(refusal(R"({"prompt": "?", "chosen": )" + part +
                     R"(, "rejected": [{"role": "assistant", "content": "b"}]})"),
             "chosen and rejected name different pictures");
}

TEST(RowPictures, MoreOrFewerThanTheTextNamesAreRefused) {
  EXPECT_EQ(refusal(R"({"images": ["a", "b"], "messages": [{"role": "user", "content": "<image>"}]})"),
            "the number of pictures in images is 2, and the text names 1; write <image> where each of them "
            "belongs, or remove those that "
            "are too many");
  expect_has(refusal(R"({"images": ["a"], "messages": [{"role": "user", "content": "<image> <image>"}]})"),
             "the number of pictures in images is 1, and the text names 2");
  expect_has(refusal(R"({"image": "a", "text": "none"})"),
             "the number of pictures in image is 1, and the text names 0");
  EXPECT_EQ(refusal(R"({"messages": [{"role": "user", "content": [{"type": "image"}]}]})"),
            "messages[0].content[0] is a picture without a source, and the row has no field images");
  EXPECT_EQ(refusal(R"({"image": "a", "images": ["b"], "text": "<image>"})"),
            "the row has images and image, expected one of them");
}

TEST(RowPictures, SourcesThatAreNoneAreRefused) {
  const auto of = [](const std::string& source) {
    return refusal(R"({"text": "<image>", "images": [)" + source + "]}");
  };
  EXPECT_EQ(of(R"("")"), "images[0] is empty, expected the path of a picture");
  EXPECT_EQ(of("3"),
            "images[0] is an integer, expected the path of a picture, a data URL, or an object with bytes or "
            "a path");
  EXPECT_EQ(of(R"("https://example.com/a.jpg")"),
            "images[0] is an address, 'https://example.com/a.jpg', and nothing is fetched; download it, and "
            "write its path");
  EXPECT_EQ(of(R"("data:image/png,abc")"),
            "images[0] is 'data:image/png,abc', expected a data URL like data:image/png;base64,…");
  expect_has(of(R"("data:image/png;base64,a*")"), "images[0]: character 2 of the base64 is '*'");
  expect_has(of(R"("data:image/png;base64,")"), "images[0] is a data URL without data");
  expect_has(of(R"({"bytes": 3})"), "images[0].bytes is an integer, expected base64");
  expect_has(of(R"({"bytes": ""})"), "images[0].bytes is empty");
  EXPECT_EQ(of(R"({"file": "a", "bytes": null})"),
            "images[0] has neither bytes nor a path, expected one of them (fields: file, bytes (null))");
}

TEST(RowPictures, VideosAndSoundsAreRefused) {
  EXPECT_EQ(refusal(R"({"videos": ["a.mp4"], "text": ""})"),
            "has videos, which is not read: only text and pictures are");
  expect_has(refusal(R"({"messages": [{"role": "user", "content": [{"type": "video", "video": "a.mp4"}]}]})"),
             "messages[0].content[0] is of type video, which is not read");
}

TEST(RowPictures, PathsBeginInTheDataFilesFolder) {
  const TemporaryDirectory folder;
  make_directories(folder / "pictures");
  write_file(folder / "pictures/a.jpg", "abc");
  const auto content = [&](const std::string& path, const std::string& from) {
    return content_of({"images[0]", path, ""}, from);
  };
  EXPECT_EQ(content("pictures/a.jpg", folder.path()), "abc");
  EXPECT_EQ(content(folder / "pictures/a.jpg", "/nowhere"), "abc");
  expect_has(error_of([&] { content("b.jpg", folder.path()); }), "images[0]: [" + (folder / "b.jpg") + "]");
  EXPECT_EQ(content_of({"images[0]", "", "xyz"}, "/nowhere"), "xyz");
}

}  // namespace
}  // namespace temper::data
