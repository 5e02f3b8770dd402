// What a receiver answers to each message (docs/weight_exchange.md).
#include <unistd.h>

#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/process.h"
#include "exchange/fingerprint.h"
#include "exchange/receiver.h"
#include "exchange/sender.h"

namespace temper::exchange {
namespace {

constexpr size_t kNamed = 10;

int64_t number_in(const Json& message, std::string_view key, int64_t least, int64_t most) {
  const int64_t number = message.at(key).as_int();
  if (number < least || number > most)
    fail("[weights] {} is {}, expected {} to {}", key, number, least, most);
  return number;
}

Names names_in(const Json& message) {
  const std::string& names = message.at("names").as_string();
  if (names != "packed" && names != "checkpoint")
    fail("[weights] names are '{}', expected packed or checkpoint", names);
  return names == "packed" ? Names::kPacked : Names::kCheckpoint;
}

// A piece of a chunk as a tensor, a view.
Tensor tensor_of(const Json& piece, const std::shared_ptr<const SharedMemory>& chunk, int64_t bytes) {
  const std::string& name = piece.at("name").as_string();
  const auto dtype = dtype_from_string(piece.at("dtype").as_string());
  if (!dtype || !is_float(*dtype))
    fail("[weights] '{}' is {}, expected float32, bfloat16 or float16", name, piece.at("dtype").as_string());
  const int64_t size = size_of(*dtype), at = number_in(piece, "at", 0, bytes),
                count = number_in(piece, "count", 1, (bytes - at) / size);
  if (at % size != 0) fail("[weights] '{}' lies at byte {} of its chunk, between two elements", name, at);
  return Tensor::borrow(chunk->data() + at, {count}, *dtype, chunk);
}

}  // namespace

Json Receiver::answer(Session& session, Connection::Message& message) {
  const int file = std::exchange(message.file, -1);
  const std::string& type = message.json.at("type").as_string();
  if (type != "begin" && file >= 0) ::close(file);
  if (type == "hello") return hello(session, message.json);
  if (!session.greeted) fail("[weights] '{}' came before hello", type);
  if (type == "begin") {
    message.file = file;
    return begin(session, message);
  }
  if (type == "hashes") return hashes();
  if (type != "update" && type != "finish")
    fail("[weights] '{}' is no message; expected hello, begin, update, finish or hashes", type);
  if (!session.begun) fail("[weights] '{}' came before begin", type);
  return type == "update" ? update(session, message.json) : finish(session);
}

Json Receiver::hello(Session& session, const Json& message) const {
  if (const int64_t protocol = message.at("protocol").as_int(); protocol != kProtocol)
    fail("[weights] the sender speaks protocol {}, the receiver {}; use the same program on both sides",
         protocol, kProtocol);
  if (const std::string& boot = message.at("boot").as_string(); boot != this_process().boot)
    fail("[weights] the sender is on another machine (boot {}, here {}); memory is shared on one machine",
         boot, this_process().boot);
  if (const std::string& memory = message.at("memory").as_string(); memory != "cpu")
    fail("[weights] the sender's chunks lie in memory of '{}', the receiver reads 'cpu'", memory);
  const std::string own = fingerprint_of(parameters_.table());
  if (const std::string& model = message.at("model").as_string(); model != own)
    fail(
        "[weights] the sender's model has other names, shapes or dtypes (fingerprint {}, here {}); send the "
        "weights of the model that answers",
        model, own);
  session.greeted = true;
  return Json::Object{{"protocol", kProtocol}, {"process", to_string(this_process())}, {"device", "cpu"}};
}

Json Receiver::begin(Session& session, Connection::Message& message) {
  const int file = std::exchange(message.file, -1);
  const Json& json = message.json;
  if (file < 0) fail("[weights] begin came without shared memory");
  auto chunk = std::make_shared<const SharedMemory>(file, json.at("chunk_bytes").as_int());
  if (session.begun) fail("[weights] a second begin came before finish");
  const int64_t version = number_in(json, "version", 0, INT64_MAX);
  const int ranks = static_cast<int>(number_in(json, "ranks", 1, 1 << 20)),
            rank = static_cast<int>(number_in(json, "rank", 0, ranks - 1));
  if (sync_ && (sync_->version != version || sync_->ranks != ranks))
    fail("[weights] version {} of {} ranks began, but version {} waits for {} of {} ranks", version, ranks,
         sync_->version, sync_->ranks - std::ssize(sync_->finished), sync_->ranks);
  if (sync_ && sync_->finished.contains(rank))
    fail("[weights] rank {} began again, but has sent its part of version {}", rank, version);
  const Names names = names_in(json);
  if (!sync_) {
    sync_ = std::make_unique<Sync>(parameters_, names);
    sync_->version = version;
    sync_->ranks = ranks;
    sync_->begun = seconds_now();
    sync_->names = json.at("names").as_string();
  }
  if (json.at("names").as_string() != sync_->names)
    fail("[weights] rank {} sends {} names, ranks before it sent {} ones", rank, json.at("names").as_string(),
         sync_->names);
  session.begun = true;
  session.rank = rank;
  session.chunk = std::move(chunk);
  return Json::Object{};
}

Json Receiver::update(const Session& session, const Json& message) {
  const int64_t bytes = number_in(message, "bytes", 1, session.chunk->bytes());
  Hasher hasher;
  hasher.update(session.chunk->data(), static_cast<size_t>(bytes));
  if (const std::string& hash = message.at("hash").as_string(); hasher.digest() != hash)
    fail("[weights] a chunk of {} bytes has the hash {}, expected {}: its bytes changed on the way", bytes,
         hasher.digest(), hash);
  for (const Json& piece : message.at("pieces").as_array()) {
    const Tensor values = tensor_of(piece, session.chunk, bytes);
    const std::string& name = piece.at("name").as_string();
    checkpoints::HeldElements elements;
    try {
      elements = checkpoints::parse_elements(piece.at("elements").as_string(), values.numel());
    } catch (const Error& error) {
      fail("[weights] '{}': {}", name, error.what());
    }
    sync_->weights.take(name, elements, values);
  }
  return Json::Object{};
}

Json Receiver::finish(Session& session) {
  const auto& unknown = sync_->weights.unknown();
  Json::Array names;
  for (const std::string& name : unknown)
    if (names.size() < kNamed) names.emplace_back(name);
  Json::Object reply{{"num_unknown", std::ssize(unknown)}, {"unknown", std::move(names)}};
  session.chunk.reset();
  sync_->finished.insert(session.rank);
  const bool last = std::ssize(sync_->finished) == sync_->ranks;
  if (last) {
    sync_->weights.check_whole();
    if (!publish()) fail_resources("[weights] the receiver ended before it took the weights");
  }
  session.begun = false;
  reply.emplace_back("published", last);
  return reply;
}

// Waits for the thread of the passes; false where that has ended.
bool Receiver::publish() {
  {
    std::unique_lock lock(mutex_);
    hand_ = Hand::kOffered;
    changed_.notify_all();
    changed_.wait(lock, [&] { return hand_ == Hand::kTaken || stopping_; });
    if (std::exchange(hand_, Hand::kEmpty) != Hand::kTaken) return false;
  }
  sync_.reset();
  return true;
}

// The thread of the passes writes to the store only in take_new(), which waits for this one.
Json Receiver::hashes() const {
  Json::Object all;
  for (const auto& [name, hash] : hashes_of(parameters_))
    all.emplace_back(name, Json::Object{{"dtype", hash.dtype}, {"digest", hash.digest}});
  return Json::Object{{"parameters", std::move(all)}};
}

}  // namespace temper::exchange
