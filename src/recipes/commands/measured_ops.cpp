#include "recipes/commands/measured_ops.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>

#include "base/clock.h"
#include "base/random.h"
#include "device/transfer.h"
#include "models/model.h"
#include "training/trainer.h"

namespace temper::recipes {
namespace {

struct Trial {
  Json model;
  std::vector<int64_t> lengths;
};

Json dense(int64_t vocabulary, int64_t hidden, int64_t width, int64_t heads, int64_t kv_heads) {
  return Json::Object{
      {"model_type", "qwen3"},           {"vocab_size", vocabulary}, {"hidden_size", hidden},
      {"intermediate_size", width},      {"num_hidden_layers", 2},   {"num_attention_heads", heads},
      {"num_key_value_heads", kv_heads}, {"head_dim", 128},          {"max_position_embeddings", 1 << 20}};
}

Json hybrid_mixture(int64_t vocabulary, int64_t hidden, int64_t experts, int64_t width, int64_t delta_heads) {
  Json model = dense(vocabulary, hidden, width, hidden / 128, std::max<int64_t>(1, hidden / 1024));
  for (const auto& [key, value] : Json::Object{{"model_type", "qwen3_next"},
                                               {"linear_conv_kernel_dim", 4},
                                               {"linear_key_head_dim", 128},
                                               {"linear_value_head_dim", 128},
                                               {"linear_num_key_heads", delta_heads / 2},
                                               {"linear_num_value_heads", delta_heads},
                                               {"full_attention_interval", 2},
                                               {"decoder_sparse_step", 1},
                                               {"num_experts", experts},
                                               {"num_experts_per_tok", 8},
                                               {"moe_intermediate_size", width},
                                               {"shared_expert_intermediate_size", width},
                                               {"norm_topk_prob", true}})
    model.set(key, value);
  return model;
}

// As large as what runs on such devices, and lengths whose activations fit.
std::vector<Trial> trials_of(const HardwareFacts& facts) {
  if (facts.hardware == hardware::kCpu)
    return {{dense(4096, 512, 1536, 4, 2), {64, 512}}, {hybrid_mixture(2048, 256, 16, 128, 4), {256}}};
  std::vector<int64_t> lengths{512, 2048, 8192};
  if (facts.memory_bytes > int64_t{70} << 30) lengths.push_back(32768);
  return {{dense(65536, 4096, 12288, 32, 8), lengths},
          {hybrid_mixture(65536, 2048, 64, 768, 32), {1024, 8192}}};
}

std::vector<data::PackedRow> row_of(int64_t length, int64_t vocabulary) {
  const Random random(7, RandomPurpose::kData);
  data::PackedRow row;
  for (int64_t i = 0; i < length; ++i)
    row.ids.push_back(
        static_cast<int32_t>(random.uniform(static_cast<uint64_t>(i)) * static_cast<double>(vocabulary - 1)));
  row.targets.assign(row.ids.begin() + 1, row.ids.end());
  row.targets.push_back(data::kIgnore);
  row.document_lengths = {length};
  row.sources = {0};
  return {row};
}

// Calls of one op whose amounts differ by less than a factor of two.
struct Calls {
  std::vector<double> amounts, seconds;

  double amount() const {
    double sum = 0;
    for (const double each : amounts) sum += each;
    return sum / static_cast<double>(amounts.size());
  }
  // The median: something else delays some calls.
  double speed() const {
    std::vector<double> speeds;
    for (size_t i = 0; i < amounts.size(); ++i) speeds.push_back(amounts[i] / seconds[i]);
    std::ranges::sort(speeds);
    return speeds[speeds.size() / 2];
  }
};

class Collected {
 public:
  void add(const std::vector<trace::Event>& events) {
    for (const trace::Event& event : events) {
      const bool multiplies = event.work.flops > 0;
      const double amount = multiplies ? event.work.flops : event.work.bytes;
      if (amount <= 0 || event.self <= 0) continue;
      add(event.name, multiplies, amount, event.self);
      if (!multiplies) add(std::string(Machine::kMoves), false, amount, event.self);
      if (event.name.starts_with("linear")) add(std::string(Machine::kProducts), true, amount, event.self);
      shortest_ = std::min(shortest_, event.self);
    }
  }
  std::map<std::string, OpSpeed, std::less<>> ops() const {
    std::map<std::string, OpSpeed, std::less<>> ops;
    for (const auto& [key, calls] : calls_) {
      const auto& [name, multiplies, size] = key;
      OpSpeed& op = ops[name];
      op.of_flops = multiplies;
      op.curve.points.push_back({calls.amount(), calls.speed()});
    }
    return ops;
  }
  double shortest() const { return shortest_; }

 private:
  void add(const std::string& name, bool multiplies, double amount, double seconds) {
    Calls& calls = calls_[{name, multiplies, static_cast<int>(std::floor(std::log2(amount)))}];
    calls.amounts.push_back(amount);
    calls.seconds.push_back(seconds);
  }

  std::map<std::tuple<std::string, bool, int>, Calls> calls_;
  double shortest_ = std::numeric_limits<double>::infinity();
};

// Trains one typical model on this device.
class Trained {
 public:
  Trained(const Machine& machine, const Json& model)
      : machine_(machine), vocabulary_(model.at("vocab_size").as_int()), model_(build(machine, model)) {
    optimizers::AdamWOptions options;
    options.format = format_of(machine);
    optimizer_ =
        std::make_unique<optimizers::AdamW>(model_->decoder.parameters(), model_->decoder.ops(), options);
    trainer_ = std::make_unique<training::Trainer>(
        model_->decoder, *optimizer_, training::TrainerOptions{.cuda_graph = training::CudaGraph::kOff});
  }

  // The first steps of a shape choose algorithms.
  std::vector<trace::Event> traced(int64_t length) {
    const auto rows = row_of(length, vocabulary_);
    for (int i = 0; i < 2; ++i) trainer_->step(rows, kRate);
    const Device device = machine_.facts.device;
    trace::start([device] { synchronize(device); });
    for (int i = 0; i < kSteps; ++i) trainer_->step(rows, kRate);
    return trace::stop();
  }
  double seconds_of_step(int64_t length) {
    const auto rows = row_of(length, vocabulary_);
    trainer_->step(rows, kRate);
    const double begin = seconds_now();
    int steps = 0;
    for (; steps < kSteps || seconds_now() < begin + 1; ++steps) trainer_->step(rows, kRate);
    return (seconds_now() - begin) / steps;
  }

  static constexpr int kSteps = 3;

 private:
  static constexpr double kRate = 1e-6;

  static layers::StateFormat format_of(const Machine& machine) {
    if (machine.dtype == DType::kF32) return {};
    return {.master_weights = false, .gradients = machine.dtype, .moments = machine.dtype};
  }
  static std::unique_ptr<models::Model> build(const Machine& machine, const Json& model) {
    models::BuildOptions build;
    build.dtype = machine.dtype;
    build.ops = ops::OpsConfig();
    build.purpose = models::Purpose::kTraining;
    build.facts = machine.facts;
    build.format = format_of(machine);
    auto built = models::build_model(model, "a typical model", build);
    built->decoder.parameters().initialize(1, 0.02);
    return built;
  }

  const Machine& machine_;
  const int64_t vocabulary_;
  const std::unique_ptr<models::Model> model_;
  std::unique_ptr<optimizers::AdamW> optimizer_;
  std::unique_ptr<training::Trainer> trainer_;
};

double seconds_of(const std::vector<trace::Event>& events) {
  double seconds = 0;
  for (const trace::Event& event : events)
    if (event.work.flops + event.work.bytes > 0) seconds += event.self;
  return seconds / Trained::kSteps;
}

double measured_copy(const HardwareFacts& facts) {
  const int64_t bytes = int64_t{1} << (facts.hardware == hardware::kCpu ? 27 : 30);
  constexpr int kCopies = 10;
  const Tensor from = Tensor::zeros({bytes}, DType::kU8, MemoryTag::kData, facts.device),
               to = Tensor::zeros({bytes}, DType::kU8, MemoryTag::kData, facts.device);
  synchronize(facts.device);
  const double begin = seconds_now();
  for (int i = 0; i < kCopies; ++i) to.copy_from(from);
  synchronize(facts.device);
  return 2.0 * static_cast<double>(bytes) * kCopies / (seconds_now() - begin);
}

}  // namespace

void measure_ops(Machine& machine) {
  Collected collected;
  machine.step_share = 0;
  machine.memory_bandwidth = measured_copy(machine.facts);
  for (const Trial& trial : trials_of(machine.facts)) {
    Trained trained(machine, trial.model);
    for (const int64_t length : trial.lengths) {
      const std::vector<trace::Event> events = trained.traced(length);
      collected.add(events);
      // Of the first model's longest rows: steps of more are not needed.
      if (machine.step_share == 0 && length == trial.lengths.back())
        machine.step_share = seconds_of(events) / trained.seconds_of_step(length);
    }
  }
  machine.ops = collected.ops();
  machine.launch = collected.shortest();
  machine.ops_source = Source::kMeasured;
}

}  // namespace temper::recipes
