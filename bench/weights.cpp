#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <thread>

#include "base/clock.h"
#include "base/files.h"
#include "base/threads/threads.h"
#include "bench/arguments.h"
#include "bench/ranks.h"
#include "bench/shapes.h"
#include "checkpoints/states/placed_tensors.h"
#include "collectives/at_root.h"
#include "collectives/device_group.h"
#include "collectives/launch.h"
#include "collectives/launched.h"
#include "device/memory.h"
#include "device/transfer.h"
#include "exchange/receiver.h"
#include "exchange/weight_sources.h"
#include "layers/decoder.h"

namespace temper {
namespace {

constexpr const char* kUsage =
    R"(Time of sending a model's weights to a second process, which this one starts (docs/weight_exchange.md).
  temper_bench_weights [SHAPE] [--device D] [--dtype T] [--memory host|device] [--loading staged|direct]
                       [--chunk-mib N] [--runs N] [--threads N] [--check] [--tensor N] [--expert N]
Prints one line of JSON for each side. `seconds` are those of each run, from begin to the answer to finish;
the first has to get memory. `--check` compares a hash of every parameter afterwards. No pass runs
meanwhile. Started by mpirun, the ranks of a divided model, each on a GPU of its own, send what they own
one after the other to one process on the first rank's GPU; without --tensor and --expert they are
replicas, of which the first sends all.
)";

struct Options {
  std::string shape = "qwen3-8b", device = "cpu", memory, loading = "staged", receive;
  DType dtype = DType::kBF16;
  int64_t chunk_mib = 256, runs = 5, threads = 0, tensor = 1, expert = 1;
  bool check = false;
};

Options options_of(int argc, char** argv) {
  Options options;
  BenchArguments arguments(argc, argv, options.shape);
  while (arguments.next())
    if (!(arguments.take("--device", options.device) || arguments.take("--dtype", options.dtype) ||
          arguments.take("--memory", options.memory) || arguments.take("--loading", options.loading) ||
          arguments.take("--chunk-mib", options.chunk_mib) || arguments.take("--runs", options.runs) ||
          arguments.take("--threads", options.threads) || arguments.take("--tensor", options.tensor) ||
          arguments.take("--expert", options.expert) || arguments.take_flag("--check", options.check) ||
          arguments.take("--receive", options.receive)))
      arguments.refuse();
  if (options.memory.empty()) options.memory = options.device == "cpu" ? "host" : "device";
  if (options.memory != "host" && options.memory != "device")
    fail("--memory is '{}', expected host or device", options.memory);
  if (options.loading != "staged" && options.loading != "direct")
    fail("--loading is '{}', expected staged or direct", options.loading);
  return options;
}

std::unique_ptr<layers::ParameterStore> store_of(const Options& options, uint64_t seed, Device device,
                                                 const Mesh& mesh = {}, int rank = 0) {
  const Json config = config_of(bench_shape(options.shape), 4096);
  auto store = std::make_unique<layers::ParameterStore>(
      layers::decoder_weight_table(models::configure(config, options.shape)), options.dtype, device,
      std::nullopt, mesh, rank);
  store->initialize(seed, 0.02);
  synchronize(store->device());
  return store;
}

int64_t workspace(const MemoryUsage& usage) { return usage[static_cast<size_t>(MemoryTag::kWorkspace)].peak; }

// The process that answers, without answers: it waits for what comes until the sender ends it.
int receive(const Options& options) {
  const auto own = store_of(options, 2, detect_hardware(options.device).device);
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

struct Sent {
  double seconds = 0;
  int64_t bytes = 0, chunks = 0;
};

// One rank after the other, each what it owns, as a run does it; the sum over the ranks.
Sent send(const std::function<exchange::Sender()>& connect, const layers::ParameterStore& store,
          collectives::Group& ranks, int64_t version) {
  exchange::SendResult own;
  for (int rank = 0; rank < ranks.size(); ++rank)
    collectives::made_at_each(ranks, "weights", [&] {
      if (rank != ranks.rank()) return std::string();
      exchange::Sender sender = connect();
      sender.begin(version);
      exchange::send_owned(sender, store.placed(), rank);
      own = sender.finish();
      return std::string();
    });
  return {ranks.sum("seconds", own.seconds), ranks.sum("bytes", own.bytes), ranks.sum("chunks", own.chunks)};
}

// Whether the other process has what the ranks hold together.
bool is_alike(const std::function<exchange::Sender()>& connect, const layers::ParameterStore& store,
              collectives::Group& ranks) {
  const std::vector<PlacedTensor> placed = store.placed();
  bool alike = true;
  checkpoints::with_whole(ranks, placed, [&](const collectives::Root&, const auto& whole) {
    std::map<std::string, exchange::ParameterHash> sent;
    for (size_t i = 0; i < placed.size(); ++i) sent.emplace(placed[i].name, exchange::hash_of(whole(i)));
    alike = exchange::differences(sent, connect().hashes()).empty();
  });
  return alike;
}

int run_sender(const Options& options, collectives::Group& hosts, const std::string& socket) {
  const HardwareFacts facts = hardware_of_rank(options.device, hosts);
  const auto on_devices = collectives::device_group(hosts, facts.device);
  collectives::Group& ranks = on_devices ? *on_devices : hosts;
  const Mesh mesh = mesh_of_ranks({}, options.tensor, options.expert, ranks.size());
  const auto own = store_of(options, 1, facts.device, mesh, ranks.rank());
  const layers::ParameterStore& store = *own;
  exchange::SendOptions send_options;
  send_options.chunk_bytes = options.chunk_mib << 20;
  send_options.rank = ranks.rank();
  send_options.ranks = ranks.size();
  if (options.memory == "device") send_options.memory = store.device();
  const auto connect = [&] { return exchange::Sender(socket, store.table(), send_options); };
  Json::Array seconds;
  Sent sent;
  double best = 0;
  for (int64_t i = 0; i < options.runs; ++i) {
    sent = send(connect, store, ranks, i + 1);
    seconds.emplace_back(sent.seconds);
    best = i == 0 ? sent.seconds : std::min(best, sent.seconds);
  }
  const bool alike = !options.check || is_alike(connect, store, ranks);
  if (ranks.rank() != 0) return 0;
  Json result = Json::Object{{"side", "sender"},
                             {"shape", options.shape},
                             {"dtype", to_string(options.dtype)},
                             {"device", options.device},
                             {"device_name", facts.name},
                             {"ranks", ranks.size()},
                             {"memory", options.memory},
                             {"loading", options.loading},
                             {"chunk_mib", options.chunk_mib},
                             {"bytes", sent.bytes},
                             {"chunks", sent.chunks},
                             {"seconds", seconds},
                             {"best_gb_per_second", static_cast<double>(sent.bytes) * 1e-9 / best},
                             {"extra_peak_bytes", workspace(pool(store.device()).usage())}};
  if (options.check) result.set("alike", alike);
  std::printf("%s\n", result.dump().c_str());
  return alike ? 0 : 1;
}

int run(int argc, char** argv) {
  const Options options = options_of(argc, argv);
  set_num_threads(static_cast<int>(options.threads));
  if (!options.receive.empty()) return receive(options);
  // The first rank starts the other process before it has a GPU, and before it has threads of MPI.
  const auto mine = collectives::launched();
  std::optional<TemporaryDirectory> files;
  std::string socket;
  pid_t receiver = 0;
  if (!mine || mine->rank == 0) {
    files.emplace();
    socket = *files / "weights.sock";
    write_file(socket + ".more", "");
    receiver = start_receiver(argv, socket);
  }
  int code = 0;
  collectives::launch(mine ? "mpi" : "local", {}, [&](collectives::Group& hosts) {
    socket = collectives::made_at_root(hosts, "a receiver", [&] {
      wait_for(socket, receiver);
      return socket;
    });
    code = run_sender(options, hosts, socket);
  });
  if (receiver == 0) return code;
  remove_all(socket + ".more");
  int status = 0;
  ::waitpid(receiver, &status, 0);
  return code != 0 ? code : WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  return temper::run_benchmark("temper_bench_weights", temper::kUsage, temper::run, argc, argv);
}
