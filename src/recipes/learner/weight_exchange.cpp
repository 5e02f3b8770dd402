#include "recipes/learner/weight_exchange.h"

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoints/states/placed_tensors.h"
#include "collectives/at_root.h"
#include "exchange/weight_sources.h"
#include "training/rounded_weights.h"

namespace temper::recipes {

WeightExchange::WeightExchange(const RunSetup& setup) : setup_(setup), config_(setup.config.exchange) {}

exchange::SendOptions WeightExchange::options() const {
  exchange::SendOptions options;
  options.chunk_bytes = config_.chunk_mib << 20;
  options.deadline_seconds = config_.deadline_seconds;
  options.rank = setup_.ranks.rank();
  options.ranks = setup_.ranks.size();
  options.quantizers = &setup_.model->decoder.quantizers();
  if (config_.memory.value_or(ChunkMemory::kDevice) == ChunkMemory::kDevice)
    options.memory = setup_.facts.device;
  return options;
}

void WeightExchange::check_receivers() const {
  if (!is_on()) return;
  // Each rank may be on a device of its own.
  collectives::at_each(setup_.ranks, "memory for weights that are sent",
                       [&] { exchange::OutgoingChunk(options().memory, options().chunk_bytes); });
  for (int rank = 0; rank < setup_.ranks.size(); ++rank)
    collectives::at_each(setup_.ranks, "whether weights are taken", [&] {
      if (setup_.ranks.rank() == rank)
        exchange::Sender(config_.to, setup_.model->decoder.parameters().table(), options());
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

exchange::SendResult WeightExchange::send_own(const WeightUpdate& update) const {
  exchange::Sender sender(config_.to, setup_.model->decoder.parameters().table(), options());
  std::optional<exchange::AdapterNote> note;
  if (update.adapter != nullptr) note = exchange::note_of(*update.adapter, update.name);
  sender.begin(update.version, note);
  exchange::send_owned(sender, update.parameters, setup_.ranks.rank());
  return sender.finish();
}

void WeightExchange::send(const WeightUpdate& update, bool log) const {
  exchange::SendResult own;
  for (int rank = 0; rank < setup_.ranks.size(); ++rank)
    collectives::at_each(setup_.ranks, "weights that are sent", [&] {
      if (setup_.ranks.rank() == rank) own = send_own(update);
    });
  const auto bytes = setup_.ranks.sum("bytes of weights that were sent", own.bytes);
  const double seconds = setup_.ranks.sum("seconds of sending weights", own.seconds);
  if (config_.check_sync) check(update);
  const std::string line = fmt::format(
      "exchange: sent {} of update {}, {} in {:.0f} ms{}", update.called, update.version, format_bytes(bytes),
      seconds * 1e3,
      config_.check_sync ? fmt::format("; all {} parameters and buffers are alike", update.parameters.size())
                         : "");
  log ? log_info(line) : log_quietly(line);
}

std::vector<PlacedTensor> WeightExchange::model_as_it_computes() {
  layers::Decoder& model = setup_.model->decoder;
  std::vector<PlacedTensor> all = training::rounded_parameters(model);
  const std::vector<quantizers::NamedScales> scales = exchange::scales_of(&model.quantizers());
  if (whole_scales_.empty())
    for (const quantizers::NamedScales& each : scales) whole_scales_.emplace_back(each.values.shape());
  for (size_t i = 0; i < scales.size(); ++i)
    all.push_back({scales[i].name, scales[i].values.contiguous(), &whole_scales_[i]});
  return all;
}

// The other process loaded the base as it was before quantizers rounded it here.
void WeightExchange::send_base(int64_t version) {
  if (setup_.model->decoder.quantizers().empty()) return;
  const std::string receiver = collectives::made_at_root(setup_.ranks, "who takes weights", [&] {
    return exchange::Sender(config_.to, setup_.model->decoder.parameters().table(), options()).receiver();
  });
  if (receiver == has_base_) return;
  send({"the rounded base", nullptr, {}, model_as_it_computes(), version}, true);
  has_base_ = receiver;
}

void WeightExchange::send(const Learner& learner) {
  const layers::Adapter* const adapter = learner.trained().adapter();
  if (adapter != nullptr) send_base(learner.step());
  send(
      {adapter == nullptr ? "weights" : fmt::format("adapter {}", learner.name()), adapter, learner.name(),
       adapter == nullptr ? model_as_it_computes() : learner.trained().parameters().placed(), learner.step()},
      learner.is_done());
  sent_[learner.name()] = learner.step();
}

// Rank 0 puts every parameter together, in the dtype in which the other process has it.
void WeightExchange::check(const WeightUpdate& update) const {
  const std::vector<PlacedTensor>& placed = update.parameters;
  checkpoints::with_whole(setup_.ranks, placed, [&](const collectives::Root&, const auto& whole) {
    exchange::Sender sender(config_.to, setup_.model->decoder.parameters().table(), options());
    const auto received =
        sender.hashes(update.adapter != nullptr ? std::optional(update.name) : std::optional<std::string>());
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
                      update.version, lines.size(), sent.size(), join(lines, "\n  ")),
          ErrorKind::kDefect);
  });
}

}  // namespace temper::recipes
