#include "exchange/sender.h"

#include <algorithm>

#include "base/clock.h"
#include "base/error.h"
#include "base/process.h"
#include "checkpoints/files/element_runs.h"

namespace temper::exchange {
namespace {

constexpr int64_t kAlignment = 64;        // bytes, of pieces in a chunk
constexpr int64_t kSmallestChunk = 4096;  // bytes
constexpr size_t kMostPieces = 4096;      // of a message

int64_t checked_chunk(const SendOptions& options) {
  if (options.chunk_bytes < kSmallestChunk)
    fail("[weights] chunks of {} bytes are too small; expected {} or more", options.chunk_bytes,
         kSmallestChunk);
  return options.chunk_bytes;
}

}  // namespace

Sender::Sender(const std::string& socket, const WeightTable& table, const SendOptions& options)
    : options_(options),
      connection_(connect_to(socket, options.deadline_seconds), "the receiver", options.deadline_seconds) {
  checked_chunk(options);
  check_same_user(connection_.socket(), "the receiver");
  const Json answer = ask(Json::Object{{"type", "hello"},
                                       {"protocol", kProtocol},
                                       {"boot", this_process().boot},
                                       {"process", to_string(this_process())},
                                       {"memory", memory_name(options.memory)},
                                       {"memory_of", device_identity(options.memory)},
                                       {"model", fingerprint_of(table)},
                                       {"rounding", to_json(rounding_of(options.quantizers))}});
  receiver_ = answer.at("process").as_string();
}

Json Sender::ask(const Json& message, const OutgoingChunk* chunk) {
  try {
    connection_.send(message, chunk != nullptr ? chunk->file() : -1);
    if (chunk != nullptr && chunk->block() != nullptr)
      device::send_block(connection_.socket(), *chunk->block());
  } catch (const Error&) {
    // A receiver that has closed the connection may have said why.
    if (failed_) throw;
    failed_ = true;
  }
  Message answer = connection_.receive();
  if (const Json* error = answer.json.find("error"))
    throw Error(error->as_string(), static_cast<ErrorKind>(answer.json.at("kind").as_int()));
  return std::move(answer.json);
}

void Sender::begin(int64_t version, const std::optional<AdapterNote>& adapter) {
  begun_ = seconds_now();
  result_ = {};
  filled_ = 0;
  pieces_.clear();
  if (!chunk_) chunk_ = std::make_unique<OutgoingChunk>(options_.memory, options_.chunk_bytes);
  Json::Object message{{"type", "begin"},
                       {"version", version},
                       {"names", options_.names == Names::kPacked ? "packed" : "checkpoint"},
                       {"rank", options_.rank},
                       {"ranks", options_.ranks},
                       {"chunk_bytes", options_.chunk_bytes}};
  if (adapter) message.emplace_back("adapter", to_json(*adapter));
  ask(std::move(message), chunk_.get());
}

void Sender::add(const std::string& name, const Tensor& tensor) {
  const std::vector<Slice> all{{0, 0, tensor.numel()}};
  add(name, tensor.shape(), all, tensor.contiguous(MemoryTag::kWorkspace).reshape({tensor.numel()}));
}

void Sender::add(const std::string& name, const Shape& whole, std::span<const Slice> runs,
                 const Tensor& elements) {
  invariant(chunk_ != nullptr, "elements are sent before begin()");
  const Tensor here = elements.on(options_.memory, MemoryTag::kWorkspace);
  const int64_t size = size_of(here.dtype());
  size_t next = 0;    // run
  int64_t taken = 0;  // elements of it
  while (next < runs.size()) {
    filled_ = (filled_ + kAlignment - 1) / kAlignment * kAlignment;
    int64_t room = (chunk_->bytes() - filled_) / size;
    if (room <= 0 || pieces_.size() == kMostPieces) {
      flush();
      continue;
    }
    const int64_t at = filled_;
    std::vector<Slice> held;
    Slice together{filled_, runs[next].own + taken, 0};  // elements in a row, which are put at once
    const auto put = [&] { chunk_->put(together.whole, here, together.own, together.count); };
    while (next < runs.size() && room > 0) {
      const Slice& run = runs[next];
      const int64_t count = std::min(room, run.count - taken), own = run.own + taken;
      held.push_back({run.whole + taken, 0, count});
      if (together.own + together.count != own) {
        put();
        together = {filled_, own, 0};
      }
      together.count += count;
      filled_ += count * size;
      room -= count;
      taken += count;
      if (taken < run.count) continue;
      ++next;
      taken = 0;
    }
    put();
    result_.bytes += filled_ - at;
    pieces_.emplace_back(Json::Object{{"name", name},
                                      {"dtype", to_string(here.dtype())},
                                      {"at", at},
                                      {"count", (filled_ - at) / size},
                                      {"elements", checkpoints::format_elements(whole, held)}});
  }
}

void Sender::flush() {
  if (pieces_.empty()) return;
  ask(Json::Object{{"type", "update"},
                   {"bytes", filled_},
                   {"hash", chunk_->checksum(filled_)},
                   {"pieces", std::exchange(pieces_, {})}});
  filled_ = 0;
  ++result_.chunks;
}

SendResult Sender::finish() {
  flush();
  const Json answer = ask(Json::Object{{"type", "finish"}});
  result_.published = answer.at("published").as_bool();
  result_.num_unknown = answer.at("num_unknown").as_int();
  for (const Json& name : answer.at("unknown").as_array()) result_.unknown.push_back(name.as_string());
  result_.seconds = seconds_now() - begun_;
  return std::exchange(result_, {});
}

std::map<std::string, ParameterHash> Sender::hashes(const std::optional<std::string>& adapter) {
  std::map<std::string, ParameterHash> hashes;
  Json message = Json::Object{{"type", "hashes"}};
  if (adapter) message.set("adapter", *adapter);
  const Json answer = ask(message);
  for (const auto& [name, each] : answer.at("parameters").as_object())
    hashes.emplace(name, ParameterHash{each.at("dtype").as_string(), each.at("digest").as_string()});
  return hashes;
}

}  // namespace temper::exchange
