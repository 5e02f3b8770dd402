// Time of sending a model's weights to a second process, which this one starts (docs/weight_exchange.md).
//   temper_bench_weights [SHAPE] [--device D] [--dtype T] [--memory host|device] [--loading staged|direct]
//                        [--chunk-mib N] [--runs N] [--threads N] [--check]
// Prints one line of JSON for each side. `seconds` are those of each run, from begin to the answer to finish;
// the first has to get memory. `--check` compares a hash of every parameter afterwards. No pass runs
// meanwhile.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <thread>

#include "base/clock.h"
#include "base/files.h"
#include "base/threads.h"
#include "bench/arguments.h"
#include "bench/shapes.h"
#include "device/memory.h"
#include "device/transfer.h"
#include "exchange/receiver.h"
#include "exchange/sender.h"
#include "layers/decoder.h"

namespace temper {
namespace {

struct Options {
  std::string shape = "qwen3-8b", device = "cpu", memory, loading = "staged", receive;
  DType dtype = DType::kBF16;
  int64_t chunk_mib = 256, runs = 5, threads = 0;
  bool check = false;
};

Options options_of(int argc, char** argv) {
  Options options;
  BenchArguments arguments(argc, argv, options.shape);
  while (arguments.next())
    if (!(arguments.take("--device", options.device) || arguments.take("--dtype", options.dtype) ||
          arguments.take("--memory", options.memory) || arguments.take("--loading", options.loading) ||
          arguments.take("--chunk-mib", options.chunk_mib) || arguments.take("--runs", options.runs) ||
          arguments.take("--threads", options.threads) || arguments.take_flag("--check", options.check) ||
          arguments.take("--receive", options.receive)))
      arguments.refuse();
  if (options.memory.empty()) options.memory = options.device == "cpu" ? "host" : "device";
  if (options.memory != "host" && options.memory != "device")
    fail("--memory is '{}', expected host or device", options.memory);
  if (options.loading != "staged" && options.loading != "direct")
    fail("--loading is '{}', expected staged or direct", options.loading);
  return options;
}

std::unique_ptr<layers::ParameterStore> store_of(const Options& options, uint64_t seed) {
  const Json config = config_of(bench_shape(options.shape), 4096);
  auto store = std::make_unique<layers::ParameterStore>(
      layers::decoder_weight_table(models::configure(config, options.shape)), options.dtype,
      detect_hardware(options.device).device);
  store->initialize(seed, 0.02);
  synchronize(store->device());
  return store;
}

int64_t workspace(const MemoryUsage& usage) { return usage[static_cast<size_t>(MemoryTag::kWorkspace)].peak; }

// The process that answers, without answers: it waits for what comes until the sender ends it.
int receive(const Options& options) {
  const auto own = store_of(options, 2);
  layers::ParameterStore& store = *own;
  exchange::Receiver receiver(
      options.receive, store,
      {.loading = options.loading == "direct" ? exchange::Loading::kDirect : exchange::Loading::kStaged});
  for (int64_t taken = 0; taken < options.runs;) {
    taken += receiver.take_new() ? 1 : 0;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  std::printf("%s\n", Json(Json::Object{{"side", "receiver"},
                                        {"extra_peak_bytes", workspace(pool(store.device()).usage())},
                                        {"resident_peak_bytes", peak_resident_bytes()}})
                          .dump()
                          .c_str());
  std::fflush(stdout);
  // Hashes may still be asked for.
  for (int64_t i = 0; exists(options.receive + ".more") && i < 6000; ++i) {
    receiver.take_new();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return 0;
}

pid_t start_receiver(char** argv, const std::string& socket) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  std::vector<char*> arguments;
  for (char** each = argv; *each != nullptr; ++each) arguments.push_back(*each);
  std::string name = "--receive", value = socket;
  arguments.push_back(name.data());
  arguments.push_back(value.data());
  arguments.push_back(nullptr);
  ::execv("/proc/self/exe", arguments.data());
  ::_exit(127);
}

void wait_for(const std::string& socket, pid_t receiver) {
  int status = 0;
  while (!exists(socket)) {
    if (::waitpid(receiver, &status, WNOHANG) == receiver) fail("the receiver ended before it listened");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

void send(exchange::Sender& sender, const layers::ParameterStore& store) {
  for (size_t i = 0; i < store.size(); ++i) sender.add(store.spec(i).name, store[i].value);
}

int run(int argc, char** argv) {
  const Options options = options_of(argc, argv);
  set_num_threads(static_cast<int>(options.threads));
  if (!options.receive.empty()) return receive(options);
  const TemporaryDirectory files;
  const std::string socket = files / "weights.sock", more = socket + ".more";
  write_file(more, "");
  const pid_t receiver = start_receiver(argv, socket);  // before this process has a GPU
  const auto own = store_of(options, 1);
  const layers::ParameterStore& store = *own;
  wait_for(socket, receiver);
  Json::Array seconds;
  int64_t bytes = 0, chunks = 0;
  double best = 0;
  bool alike = true;
  {
    exchange::SendOptions send_options;
    send_options.chunk_bytes = options.chunk_mib << 20;
    if (options.memory == "device") send_options.memory = store.device();
    exchange::Sender sender(socket, store.table(), send_options);
    for (int64_t i = 0; i < options.runs; ++i) {
      sender.begin(i + 1);
      send(sender, store);
      const exchange::SendResult result = sender.finish();
      seconds.emplace_back(result.seconds);
      bytes = result.bytes;
      chunks = result.chunks;
      best = i == 0 ? result.seconds : std::min(best, result.seconds);
    }
    if (options.check) alike = exchange::differences(exchange::hashes_of(store), sender.hashes()).empty();
  }
  remove_all(more);
  int status = 0;
  ::waitpid(receiver, &status, 0);
  Json result = Json::Object{{"side", "sender"},
                             {"shape", options.shape},
                             {"dtype", to_string(options.dtype)},
                             {"device", options.device},
                             {"device_name", detect_hardware(options.device).name},
                             {"memory", options.memory},
                             {"loading", options.loading},
                             {"chunk_mib", options.chunk_mib},
                             {"bytes", bytes},
                             {"chunks", chunks},
                             {"seconds", seconds},
                             {"best_gb_per_second", static_cast<double>(bytes) * 1e-9 / best},
                             {"extra_peak_bytes", workspace(pool(store.device()).usage())}};
  if (options.check) result.set("alike", alike);
  std::printf("%s\n", result.dump().c_str());
  return alike && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  return temper::run_benchmark("temper_bench_weights", temper::run, argc, argv);
}
