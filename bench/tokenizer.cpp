#include <fmt/core.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <limits>
#include <thread>

#include "base/files.h"
#include "base/json/json.h"
#include "base/random.h"
#include "bench/arguments.h"
#include "tokenizers/tokenizer.h"

namespace temper {
namespace {

constexpr const char* kUsage =
    R"(Speed of a tokenizer, one line of JSON for each file and number of threads.
  temper_bench_tokenizer [TOKENIZER_FOLDER FILE...] [--threads N] [--repeats N] [--ids FOLDER]
Without arguments: the tokenizers of tests/goldens and texts made here. Documents are stretches of a file
of 16 KiB and the rest of the line. MB/s are 10^6 bytes of UTF-8 per second of the CPU time of the slowest
thread; every repeat starts with new threads, so with empty caches, and the best counts. --ids writes the
ids for tokenizers_compare.py.
)";

using tokenizers::Tokenizer;

struct Options {
  std::vector<std::string> names;  // the tokenizer, then files
  int64_t threads = 2, repeats = 7;
  std::string ids_folder;
};

struct Text {
  std::string name, bytes;
};

double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

std::vector<std::string_view> documents_of(std::string_view text) {
  constexpr size_t kSize = 16 << 10;
  std::vector<std::string_view> documents;
  while (!text.empty()) {
    const size_t line_end = text.find('\n', kSize);
    documents.push_back(text.substr(0, line_end == std::string_view::npos ? line_end : line_end + 1));
    text.remove_prefix(documents.back().size());
  }
  return documents;
}

// The best CPU time of the slowest thread; `work` is called with each of [0, count) once per repeat.
double measure(size_t count, int64_t num_threads, int64_t repeats, const std::function<void(size_t)>& work) {
  double best = std::numeric_limits<double>::infinity();
  for (int64_t repeat = 0; repeat < repeats; ++repeat) {
    std::vector<double> spent(static_cast<size_t>(num_threads));
    std::vector<std::thread> threads;
    for (size_t t = 0; t < spent.size(); ++t)
      threads.emplace_back([&, t] {
        const double start = thread_seconds();
        for (size_t i = t; i < count; i += spent.size()) work(i);
        spent[t] = thread_seconds() - start;
      });
    for (std::thread& thread : threads) thread.join();
    best = std::min(best, *std::max_element(spent.begin(), spent.end()));
  }
  return best;
}

void run(const Tokenizer& tokenizer, const std::string& name, const Text& text, int64_t threads,
         const Options& options) {
  const auto documents = documents_of(text.bytes);
  std::vector<std::vector<int32_t>> ids(documents.size());
  size_t tokens = 0;
  for (size_t i = 0; i < documents.size(); ++i) tokens += (ids[i] = tokenizer.encode(documents[i])).size();
  const auto seconds = [&](const std::function<void(size_t)>& work) {
    return measure(documents.size(), threads, options.repeats, work);
  };
  const double encode = seconds([&](size_t i) { tokenizer.encode(documents[i]); });
  const double offsets = seconds([&](size_t i) { tokenizer.encode_with_offsets(documents[i]); });
  const double decode = seconds([&](size_t i) { tokenizer.decode(ids[i]); });
  const double megabytes = static_cast<double>(text.bytes.size()) / 1e6;
  fmt::print(
      "{{\"tokenizer\": \"{}\", \"file\": \"{}\", \"threads\": {}, \"bytes\": {}, \"tokens\": {}, "
      "\"encode_mb_s\": {:.1f}, \"offsets_mb_s\": {:.1f}, \"decode_mb_s\": {:.1f}, \"tokens_s\": {:.0f}}}\n",
      name, text.name, threads, text.bytes.size(), tokens, megabytes / encode, megabytes / offsets,
      megabytes / decode, static_cast<double>(tokens) / encode);
  if (options.ids_folder.empty()) return;
  std::string out;
  for (const auto& list : ids)
    for (const int32_t id : list) out += fmt::format("{}\n", id);
  write_file(join_path(options.ids_folder, text.name + ".ids"), out);
}

void run_all(const std::string& folder, const std::vector<Text>& texts, const Options& options) {
  const double start = thread_seconds();
  const Tokenizer tokenizer = Tokenizer::load(folder);
  tokenizer.encode("\u4e00 a");  // tables that are made at the first use
  const std::string name = file_name(folder);
  fmt::print("{{\"tokenizer\": \"{}\", \"vocabulary\": {}, \"load_s\": {:.3f}}}\n", name,
             tokenizer.vocab_size(), thread_seconds() - start);
  for (const Text& text : texts)
    for (int64_t threads = 1; threads <= options.threads;
         threads += std::max<int64_t>(1, options.threads - 1))
      run(tokenizer, name, text, threads, options);
}

// Words in random order; most are among the first.
Text made_text(const std::string& name, const std::vector<std::string>& words) {
  const Random random(1, RandomPurpose::kData, 0);
  Text text{name, ""};
  for (uint64_t i = 0; text.bytes.size() < 2'000'000; ++i) {
    const uint64_t end = 1 + random.below(words.size(), 2 * i);
    text.bytes += words[random.below(end, 2 * i + 1)];
  }
  return text;
}

std::vector<Text> made_texts() {
  return {made_text("english", {"the ", "of ", "and ", "a ", "training ", "model", ", ", "which ", "tokens ",
                                "loss ", "don't ", "it's ", "learning rate ", ".\n", "1024 ", "gradient "}),
          made_text("chinese", {"的", "，", "是", "在", "模型", "训练", "。\n", "数据", "我们", "一个",
                                "可以", "语言", "学习", "参数", "、", "结果"}),
          made_text("code", {"  ", "(", ");\n", "int ", "const ", "std::", "size_t ", "i", " = ", "0",
                             "return ", "// why\n", "for (", "{\n", "}\n\n", "vector<float> "})};
}

Options parse(int argc, char** argv) {
  Options options;
  BenchArguments arguments(argc, argv, options.names);
  while (arguments.next())
    if (!(arguments.take("--threads", options.threads) || arguments.take("--repeats", options.repeats) ||
          arguments.take("--ids", options.ids_folder)))
      arguments.refuse();
  return options;
}

int start(int argc, char** argv) {
  const Options options = parse(argc, argv);
  if (options.names.empty()) {
    for (const char* name : {"tokenizer_qwen", "tokenizer_llama3"})
      run_all(join_path(TEMPER_SOURCE_DIR "/tests/goldens", name), made_texts(), options);
    return 0;
  }
  std::vector<Text> texts;
  for (size_t i = 1; i < options.names.size(); ++i)
    texts.push_back({file_name(options.names[i]), read_file(options.names[i])});
  run_all(options.names[0], texts, options);
  return 0;
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  return temper::run_benchmark("temper_bench_tokenizer", temper::kUsage, temper::start, argc, argv);
}
