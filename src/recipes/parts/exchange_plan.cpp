#include "recipes/parts/exchange_plan.h"

#include "base/error.h"
#include "base/text.h"
#include "config/schema.h"

namespace temper::recipes {

void check_exchange(const RunConfig& config) {
  const ExchangeConfig& exchange = config.exchange;
  if (exchange.to.empty()) {
    RunConfig defaults;
    RunConfig written = config;
    const config::Schema usual = config::schema_of(defaults.exchange),
                         own = config::schema_of(written.exchange);
    for (const auto& field : own.fields())
      if (const Json value = config::value_of(*field); value != config::value_of(*usual.find(field->name)))
        fail(
            "[exchange.{}] is {}, but exchange.to names no process that gets weights; write its socket, or "
            "leave exchange out",
            field->name, value.dump());
    return;
  }
  if (exchange.memory == ChunkMemory::kDevice && config.device == "cpu")
    fail("[exchange.memory] is device, but the run computes on cpu; write host, or leave it out");
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

}  // namespace temper::recipes
