#include "recipes/weight_exchange.h"

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoints/placed_tensors.h"
#include "collectives/at_root.h"
#include "exchange/weight_sources.h"
#include "training/rounded_weights.h"

namespace temper::recipes {

void check_exchange(const RunConfig& config) {
  const ExchangeConfig& exchange = config.exchange;
  if (exchange.to.empty()) return;
  if (exchange.memory == ChunkMemory::kDevice && config.device == "cpu")
    fail("[exchange.memory] is device, but the run computes on cpu; write host, or leave it out");
  if (config.quantize.to_options().any() && !config.adapters.empty())
    fail(
        "[exchange] adapters are sent and not their base, whose weights quantize rounds here alone; leave "
        "out "
        "exchange or quantize");
}

int64_t chunk_on_device(const RunConfig& config) {
  const ExchangeConfig& exchange = config.exchange;
  const bool device =
      config.device != "cpu" && exchange.memory.value_or(ChunkMemory::kDevice) == ChunkMemory::kDevice;
  return exchange.to.empty() || !device ? 0 : exchange.chunk_mib << 20;
}

std::string describe_chunk(const RunConfig& config) {
  if (config.exchange.to.empty()) return "";
  const bool device = chunk_on_device(config) > 0;
  return fmt::format("Weights that go to another process travel through {} (exchange.chunk_mib) of {}.",
                     format_bytes(config.exchange.chunk_mib << 20),
                     device ? "the device's memory, between updates, which the workspace above has room for"
                            : "the CPU's memory, which is not among the above");
}

WeightExchange::WeightExchange(const RunSetup& setup) : setup_(setup), config_(setup.config.exchange) {}

exchange::SendOptions WeightExchange::options() const {
  exchange::SendOptions options;
  options.chunk_bytes = config_.chunk_mib << 20;
  options.deadline_seconds = config_.deadline_seconds;
  options.rank = setup_.ranks.rank();
  options.ranks = setup_.ranks.size();
  if (config_.memory.value_or(ChunkMemory::kDevice) == ChunkMemory::kDevice)
    options.memory = setup_.facts.device;
  return options;
}

// Rounded weights travel as numbers; what rounds values that pass does not.
void WeightExchange::check_quantizers() const {
  for (const layers::Quantizer& each : setup_.model->decoder.quantizers().all())
    if (each.planned.of_input)
      fail(
          "[exchange] {} rounds values that pass, and does not travel: the other process would compute "
          "otherwise than this run; quantize weights alone, or leave out exchange",
          each.planned.name);
}

// What passes compute with.
std::vector<PlacedTensor> WeightExchange::parameters_of(const Learner& learner) const {
  if (learner.adapter() != nullptr) return learner.trained().placed();
  return training::rounded_parameters(setup_.model->decoder);
}

void WeightExchange::greet() const {
  if (!is_on()) return;
  check_quantizers();
  // Each rank may be on a device of its own.
  collectives::made_at_each(setup_.ranks, "memory for weights that are sent", [&] {
    exchange::OutgoingChunk(options().memory, options().chunk_bytes);
    return std::string();
  });
  for (int rank = 0; rank < setup_.ranks.size(); ++rank)
    collectives::made_at_each(setup_.ranks, "whether weights are taken", [&] {
      if (setup_.ranks.rank() == rank)
        exchange::Sender(config_.to, setup_.model->decoder.parameters().table(), options());
      return std::string();
    });
  log_info(fmt::format("exchange: weights go to {} {}", config_.to,
                       config_.every_steps == 0 ? "at the end"
                       : config_.every_steps == 1
                           ? "after each update"
                           : fmt::format("after every {} updates", config_.every_steps)));
}

bool WeightExchange::is_due(const Learner& learner) const {
  if (!is_on() || learner.step() == 0) return false;
  const auto sent = sent_.find(learner.name());
  if (sent != sent_.end() && sent->second == learner.step()) return false;
  return learner.is_done() || (config_.every_steps > 0 && learner.step() % config_.every_steps == 0);
}

void WeightExchange::send_own(const Learner& learner, const std::vector<PlacedTensor>& parameters,
                              exchange::SendResult& result) const {
  exchange::Sender sender(config_.to, setup_.model->decoder.parameters().table(), options());
  std::optional<exchange::AdapterNote> note;
  if (learner.adapter() != nullptr) note = exchange::note_of(*learner.adapter(), learner.name());
  sender.begin(learner.step(), note);
  exchange::send_owned(sender, parameters, setup_.ranks.rank());
  const exchange::SendResult own = sender.finish();
  result.bytes = own.bytes;
  result.seconds = own.seconds;
}

void WeightExchange::send(const Learner& learner) {
  exchange::SendResult own;
  const std::vector<PlacedTensor> parameters = parameters_of(learner);
  for (int rank = 0; rank < setup_.ranks.size(); ++rank)
    collectives::made_at_each(setup_.ranks, "weights that are sent", [&] {
      if (setup_.ranks.rank() == rank) send_own(learner, parameters, own);
      return std::string();
    });
  const auto bytes = setup_.ranks.sum("bytes of weights that were sent", own.bytes);
  const double seconds = setup_.ranks.sum("seconds of sending weights", own.seconds);
  if (config_.check_sync) check(learner, parameters);
  sent_[learner.name()] = learner.step();
  const std::string line = fmt::format(
      "exchange: sent {} of update {}, {} in {:.0f} ms{}",
      learner.name().empty() ? "weights" : fmt::format("adapter {}", learner.name()), learner.step(),
      format_bytes(bytes), seconds * 1e3,
      config_.check_sync ? fmt::format("; all {} parameters and buffers are alike", learner.trained().size())
                         : "");
  learner.is_done() ? log_info(line) : log_quietly(line);
}

// Rank 0 puts every parameter together, in the dtype in which the other process has it.
void WeightExchange::check(const Learner& learner, const std::vector<PlacedTensor>& placed) const {
  checkpoints::with_whole(setup_.ranks, placed, [&](const auto& whole) {
    exchange::Sender sender(config_.to, setup_.model->decoder.parameters().table(), options());
    const bool is_adapter = learner.adapter() != nullptr;
    const auto received =
        sender.hashes(is_adapter ? std::optional(learner.name()) : std::optional<std::string>());
    std::map<std::string, exchange::ParameterHash> sent;
    for (size_t i = 0; i < placed.size(); ++i) {
      const auto found = received.find(placed[i].name);
      const auto dtype = found == received.end() ? std::nullopt : dtype_from_string(found->second.dtype);
      const Tensor value = whole(i).on({}, MemoryTag::kWorkspace);
      sent.emplace(placed[i].name,
                   exchange::hash_of(value.to(dtype.value_or(value.dtype()), MemoryTag::kWorkspace)));
    }
    const std::vector<std::string> lines = exchange::differences(sent, received);
    if (!lines.empty())
      throw Error(
          fmt::format("[exchange.check_sync] after update {} the other process has other values of {} of {} "
                      "parameters and buffers:\n  {}",
                      learner.step(), lines.size(), sent.size(), join(lines, "\n  ")),
          ErrorKind::kDefect);
  });
}

}  // namespace temper::recipes
