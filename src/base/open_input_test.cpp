#include "base/open_input.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>

#include "base/error.h"
#include "base/files.h"
#include "base/json/json.h"

namespace temper {
namespace {

template <class Read>
std::string refusal(Read&& read) {
  try {
    read();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    return error.what();
  }
  return "no error";
}

// All end at once, though the pipe has no writer and the device has no end.
TEST(OpenInput, PipesAndDevicesAreNoFiles) {
  const TemporaryDirectory folder;
  const std::string pipe = folder / "config.json", device = folder / "tokenizer.json";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::filesystem::create_symlink("/dev/zero", device);
  const std::string a_pipe = "[" + pipe + "] is a pipe, expected a file; a file can be read more than once: ";
  const std::string a_device = "[" + device + "] is a device, expected a file; ";
  for (const auto& [path, said] : {std::pair(pipe, a_pipe), std::pair(device, a_device)}) {
    EXPECT_EQ(refusal([&] { read_file(path); }).substr(0, said.size()), said);
    EXPECT_EQ(refusal([&] { Json::parse_file(path); }).substr(0, said.size()), said);
    EXPECT_EQ(refusal([&] { const MappedFile file(path); }).substr(0, said.size()), said);
  }
  EXPECT_EQ(refusal([&] { read_stream(pipe); }),
            "[" + pipe + "] is a pipe in a folder, expected a file or a pipe of the shell (/dev/stdin)");
  EXPECT_EQ(refusal([&] { read_stream(device, 1000); }),
            "[" + device + "] has more than 1000 B, and at most 1000 B are read here; is it the right file?");
  EXPECT_EQ(refusal([&] { read_file(folder.path()); }),
            "[" + folder.path() + "] is a folder, expected a file");
}

TEST(OpenInput, APipeOfTheShellIsAStream) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  ASSERT_EQ(::write(ends[1], "text", 4), 4);
  ::close(ends[1]);
  const std::string path = fmt::format("/dev/fd/{}", ends[0]);
  EXPECT_NE(refusal([&] { read_file(path); }).find("is a pipe"), std::string::npos);
  EXPECT_EQ(read_stream(path), "text");
  ::close(ends[0]);
}

// Neither read nor kept in memory; the file takes no space.
TEST(OpenInput, AHugeFileIsNoConfiguration) {
  const TemporaryDirectory folder;
  const std::string path = folder / "config.json";
  write_file(path, "{}");
  std::filesystem::resize_file(path, uintmax_t{10} << 30);
  EXPECT_EQ(refusal([&] { Json::parse_file(path); }),
            "[" + path + "] has 10.00 GiB, and at most 256.00 MiB are read here; is it the right file?");
}

// Files of /proc have no size.
TEST(OpenInput, FilesWithoutASizeAreReadWhole) { EXPECT_FALSE(read_file("/proc/self/stat").empty()); }

}  // namespace
}  // namespace temper
