#include <algorithm>
#include <ctime>
#include <functional>
#include <limits>

#include "base/files.h"
#include "bench/arguments.h"
#include "media/open_picture.h"
#include "preprocessing/pixel_values.h"

namespace temper {
namespace {

constexpr const char* kUsage =
    R"(Speed of decoding, resizing and cutting pictures into patches, one line of JSON for each file.
  temper_bench_pictures FOLDER FILE... [--repeats N] [--values FOLDER]
FOLDER has a preprocessor_config.json. Milliseconds are CPU time of one thread, the best of N repeats.
--values writes pixel_values for pictures_compare.py.
)";

struct Options {
  std::vector<std::string> names;  // the folder, then files
  int64_t repeats = 7;
  std::string values_folder;
};

double thread_milliseconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return 1e3 * static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_nsec);
}

double best_milliseconds(int64_t repeats, const std::function<void()>& work) {
  double best = std::numeric_limits<double>::infinity();
  for (int64_t repeat = 0; repeat < repeats; ++repeat) {
    const double start = thread_milliseconds();
    work();
    best = std::min(best, thread_milliseconds() - start);
  }
  return best;
}

void run(const std::string& path, const preprocessing::PictureSettings& settings, const Options& options) {
  const auto decoded = [&] { return media::read_picture({media::read_picture_file(path), path}); };
  const media::Picture picture = decoded();
  const auto shape = preprocessing::shape_of(picture.size(), settings, path);
  const auto resized = preprocessing::resized_part(picture, settings, shape, 0);
  std::vector<float> values(static_cast<size_t>(shape.rows * shape.columns));
  const double decode = best_milliseconds(options.repeats, decoded);
  const double resize =
      best_milliseconds(options.repeats, [&] { preprocessing::resized_part(picture, settings, shape, 0); });
  const double write = best_milliseconds(
      options.repeats, [&] { preprocessing::write_pixel_values(resized, settings, values); });
  const double all =
      best_milliseconds(options.repeats, [&] { preprocessing::prepare(decoded(), settings, path); });
  fmt::print(
      "{{\"file\": \"{}\", \"width\": {}, \"height\": {}, \"resized\": [{}, {}], \"tokens\": {}, "
      "\"decode_ms\": {:.3f}, "
      "\"resize_ms\": {:.3f}, \"patches_ms\": {:.3f}, \"all_ms\": {:.3f}}}\n",
      file_name(path), picture.width(), picture.height(), shape.resized.width, shape.resized.height,
      shape.tokens, decode, resize, write, all);
  if (options.values_folder.empty()) return;
  write_file(join_path(options.values_folder, file_name(path) + ".f32"),
             {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
}

int start(int argc, char** argv) {
  Options options;
  BenchArguments arguments(argc, argv, options.names);
  while (arguments.next())
    if (!(arguments.take("--repeats", options.repeats) || arguments.take("--values", options.values_folder)))
      arguments.refuse();
  if (options.names.size() < 2)
    fail("expected a folder with a preprocessor_config.json, and pictures; --help");
  const auto settings = preprocessing::read_picture_settings(options.names[0]);
  for (size_t i = 1; i < options.names.size(); ++i) run(options.names[i], settings, options);
  return 0;
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  return temper::run_benchmark("temper_bench_pictures", temper::kUsage, temper::start, argc, argv);
}
