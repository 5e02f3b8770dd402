#include <cstdio>
#include <memory>

#include "base/console.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoints/adapter_folder.h"
#include "cli/arguments/program.h"
#include "exchange/weight_sources.h"
#include "models/folder_config.h"
#include "models/model.h"

namespace temper::cli {
namespace {

struct SendArguments {
  std::string folder, socket, adapter, base, names = "checkpoint";
  int64_t version = 1, chunk_mib = 64;
  std::optional<double> deadline_seconds;
  bool check_sync = false;
};

exchange::SendOptions options_of(const SendArguments& arguments) {
  if (arguments.socket.empty())
    fail("[weights send] --to is missing; name the socket that 'temper batch --weights-from' listens at");
  if (arguments.names != "checkpoint" && arguments.names != "packed")
    fail("[--names] '{}' is not a kind of names; expected checkpoint or packed", arguments.names);
  if (arguments.version < 1)
    fail("[--as-version] {} is out of range; expected 1 or more (0 is the model that was loaded)",
         arguments.version);
  if (arguments.chunk_mib < 1 || arguments.chunk_mib > 4096)
    fail("[--chunk-mib] {} is out of range; expected 1 to 4096", arguments.chunk_mib);
  exchange::SendOptions options;
  options.names = arguments.names == "packed" ? exchange::Names::kPacked : exchange::Names::kCheckpoint;
  options.chunk_bytes = arguments.chunk_mib << 20;
  options.deadline_seconds = arguments.deadline_seconds.value_or(options.deadline_seconds);
  if (!(options.deadline_seconds > 0 && options.deadline_seconds <= 86400))
    fail("[--deadline] {} is out of range; expected more than 0, at most 86400 seconds",
         options.deadline_seconds);
  return options;
}

void print_result(const exchange::SendResult& result, int64_t version) {
  std::printf("version %lld: %s in %lld chunks, %.0f ms, %.2f GB/s\n", static_cast<long long>(version),
              format_bytes(result.bytes).c_str(), static_cast<long long>(result.chunks), result.seconds * 1e3,
              static_cast<double>(result.bytes) / 1e9 / result.seconds);
  if (result.num_unknown == 0) return;
  const bool more = result.num_unknown > std::ssize(result.unknown);
  log_warning(fmt::format("the receiver does not know {} of the names: {}{}", result.num_unknown,
                          join(result.unknown), more ? ", …" : ""));
}

// 1 where something differs.
int check(exchange::Sender& sender, const checkpoints::ModelFolder& folder, const WeightTable& table,
          const std::optional<std::string>& adapter) {
  const auto received = sender.hashes(adapter);
  const std::vector<std::string> lines =
      exchange::differences(exchange::hashes_of_folder(folder, table, received), received);
  for (const std::string& line : lines) print_line("differs: {}", line);
  if (lines.empty()) std::printf("all %zu parameters and buffers are alike\n", received.size());
  return lines.empty() ? 0 : 1;
}

WeightTable table_of(const Json& config, const std::string& folder) {
  return layers::decoder_weight_table(models::configure(config, folder + "/config.json"));
}

int send_adapter(const SendArguments& arguments, exchange::SendOptions options) {
  std::string base = arguments.base;
  if (base.empty()) base = checkpoints::read_adapter_config(arguments.folder).base_model;
  if (base.empty())
    fail("[{}] does not name the model that it is for; name its folder with --base", arguments.folder);
  options.names = exchange::Names::kPacked;
  const WeightTable model = table_of(models::config_of_folder(base), base);
  const auto folder = checkpoints::ModelFolder::open_adapter(arguments.folder, model);
  const exchange::NotedFolder noted = exchange::note_of(folder, model, arguments.adapter);
  exchange::Sender sender(arguments.socket, model, options);
  sender.begin(arguments.version, noted.note);
  exchange::send_folder(sender, folder, noted.table, options.names);
  print_result(sender.finish(), arguments.version);
  return arguments.check_sync ? check(sender, folder, noted.table, arguments.adapter) : 0;
}

int send(const SendArguments& arguments) {
  const exchange::SendOptions options = options_of(arguments);
  if (!arguments.adapter.empty()) return send_adapter(arguments, options);
  if (!arguments.base.empty()) fail("[--base] is of adapters; name yours with --as-adapter");
  const auto folder = checkpoints::ModelFolder::open(arguments.folder);
  const WeightTable table = table_of(models::config_of_folder(arguments.folder), arguments.folder);
  exchange::Sender sender(arguments.socket, table, options);
  sender.begin(arguments.version);
  exchange::send_folder(sender, folder, table, options.names);
  print_result(sender.finish(), arguments.version);
  return arguments.check_sync ? check(sender, folder, table, {}) : 0;
}

}  // namespace

void add_weights_send(Program& program) {
  program.add("weights send", "Send a folder's weights to a process that answers.", [](Options& options) {
    auto arguments = std::make_shared<SendArguments>();
    options.positional("folder", arguments->folder, "The new weights' folder, in Hugging Face format.");
    options.option("--as-adapter", arguments->adapter, "The folder is an adapter's, awaited by this name.");
    options.option("--base", arguments->base, "Its model's folder. Omitted: as the adapter says.");
    options.option("--to", arguments->socket, "The socket that the other process listens at.");
    options.option("--names", arguments->names, "checkpoint (the default), or packed: Temper's own.");
    options.option("--as-version", arguments->version, "Answers name the weights so. Omitted: 1.");
    options.option("--chunk-mib", arguments->chunk_mib, "The shared memory to send through. Omitted: 64.");
    options.option("--deadline", arguments->deadline_seconds, "Seconds to wait for an answer. Omitted: 60.");
    options.flag("--check-sync", arguments->check_sync,
                 "Compare hashes of all weights; 1 where some differ.");
    options.example("temper weights send runs/law/model --to $XDG_RUNTIME_DIR/weights.sock");
    return [arguments] { return send(*arguments); };
  });
}

}  // namespace temper::cli
