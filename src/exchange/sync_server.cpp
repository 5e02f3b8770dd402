#include "exchange/sync_server.h"

#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/process.h"
#include "device/transfer.h"
#include "exchange/fingerprint.h"
#include "exchange/sender.h"

namespace temper::exchange {
namespace {

constexpr size_t kNamed = 10;
constexpr double kBlockSeconds = 3;  // for all of a block, once some of it is here

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

// A piece of a chunk as a tensor.
Tensor tensor_of(const Json& piece, const IncomingChunk& chunk, int64_t bytes) {
  const std::string& name = piece.at("name").as_string();
  const auto dtype = dtype_from_string(piece.at("dtype").as_string());
  if (!dtype || !is_float(*dtype))
    fail("[weights] '{}' is {}, expected float32, bfloat16 or float16", name, piece.at("dtype").as_string());
  const int64_t size = size_of(*dtype), at = number_in(piece, "at", 0, bytes),
                count = number_in(piece, "count", 1, (bytes - at) / size);
  if (at % size != 0) fail("[weights] '{}' lies at byte {} of its chunk, between two elements", name, at);
  return chunk.elements(at, count, *dtype);
}

// An update's pieces, of the session's chunk.
void take_pieces(IncomingWeights& weights, const Session& session, const Json& message) {
  const int64_t bytes = number_in(message, "bytes", 1, session.chunk->bytes());
  const std::string found = session.chunk->checksum(bytes);
  if (const std::string& hash = message.at("hash").as_string(); found != hash)
    fail("[weights] a chunk of {} bytes has the hash {}, expected {}: its bytes changed on the way", bytes,
         found, hash);
  for (const Json& piece : message.at("pieces").as_array()) {
    const Tensor values = tensor_of(piece, *session.chunk, bytes);
    const std::string& name = piece.at("name").as_string();
    checkpoints::HeldElements elements;
    try {
      elements = checkpoints::parse_elements(piece.at("elements").as_string(), values.numel());
    } catch (const Error& error) {
      fail("[weights] '{}': {}", name, error.what());
    }
    weights.take(name, elements, values);
  }
}

}  // namespace

std::optional<Json> SyncServer::answer(Session& session, Message message) {
  const std::string& type = message.json.at("type").as_string();
  if (type == "hello") return hello(session, message.json);
  if (!session.greeted) fail("[weights] '{}' came before hello", type);
  if (session.sync && !session.sync->ended.empty()) throw Error(session.sync->ended, ErrorKind::kResources);
  if (type == "begin" && session.memory.type != DeviceType::kCpu) {
    session.begin = std::move(message.json);
    return {};
  }
  if (type == "begin") {
    if (message.file.get() < 0) fail("[weights] begin came without shared memory");
    session.chunk =
        std::make_unique<IncomingChunk>(std::move(message.file), message.json.at("chunk_bytes").as_int());
    return begin(session, message.json);
  }
  if (type == "hashes") return hashes(message.json);
  if (type != "update" && type != "finish")
    fail("[weights] '{}' is not a message; expected hello, begin, update, finish or hashes", type);
  if (!session.sync) fail("[weights] '{}' came before begin", type);
  return type == "update" ? update(session, message.json) : finish(session);
}

void SyncServer::between_passes(const std::function<void()>& work) {
  const PausedClock::Pause pause(clock_);
  gate_.between_passes(work);
}

Json SyncServer::hello(Session& session, const Json& message) const {
  if (session.greeted) fail("[weights] a second hello came");
  if (const int64_t protocol = message.at("protocol").as_int(); protocol != kProtocol)
    fail("[weights] the sender speaks protocol {}, the receiver {}; use the same program on both sides",
         protocol, kProtocol);
  if (const std::string& boot = message.at("boot").as_string(); boot != this_process().boot)
    fail("[weights] the sender is on another machine (boot {}, here {}); memory is shared on one machine",
         boot, this_process().boot);
  const Device own = parameters_.device();
  if (const std::string& memory = message.at("memory").as_string(); memory != "cpu") {
    const std::string& identity = message.at("memory_of").as_string();
    const bool same = memory == memory_name(own);
    if (!same || !device::sharing_of(own).reaches(own.index, identity))
      fail(
          "[weights] the sender's chunks lie in memory of '{}' ({}), which the receiver's {}{} cannot read; "
          "put both "
          "on one device, or send through the CPU's memory (exchange.memory: host)",
          memory, identity, to_string(own), same ? fmt::format(" ({})", device_identity(own)) : "");
    session.memory = own;
  }
  const std::string model = fingerprint_of(parameters_.table());
  if (const std::string& theirs = message.at("model").as_string(); theirs != model)
    fail(
        "[weights] the sender's model has other names, shapes or dtypes (fingerprint {}, here {}); send the "
        "weights of the model that answers",
        theirs, model);
  const Json* const rounding = message.find("rounding");
  check_same(rounding == nullptr ? Rounding() : rounding_from(*rounding), rounding_of(options_.quantizers));
  session.greeted = true;
  return Json::Object{{"protocol", kProtocol},
                      {"process", to_string(this_process())},
                      {"device", to_string(own)},
                      {"loading", options_.loading == Loading::kDirect ? "direct" : "staged"}};
}

Json SyncServer::begin_on_device(Session& session) {
  const Json message = *std::exchange(session.begin, {});
  const device::SharedBlock block = device::receive_block(session.socket.get(), kBlockSeconds);
  between_passes([&] { session.chunk = std::make_unique<IncomingChunk>(session.memory, block); });
  return begin(session, message);
}

Json SyncServer::begin(Session& session, const Json& message) {
  if (session.sync) fail("[weights] a second begin came before finish");
  const int64_t version = number_in(message, "version", 0, INT64_MAX);
  const int ranks = static_cast<int>(number_in(message, "ranks", 1, 1 << 20)),
            rank = static_cast<int>(number_in(message, "rank", 0, ranks - 1));
  if (sync_ && version < sync_->version)
    fail("[weights] version {} of {} ranks began, but version {} waits for {} of {} ranks", version, ranks,
         sync_->version, sync_->ranks - sync_->finished, sync_->ranks);
  if (!sync_ || sync_->is_replaced_by(version, ranks, rank)) begin_sync(message, version, ranks);
  if (message.at("names").as_string() != sync_->names)
    fail("[weights] rank {} sends {} names, ranks before it sent {} ones", rank,
         message.at("names").as_string(), sync_->names);
  const Json* adapter = message.find("adapter");
  if (const std::string name = adapter != nullptr ? adapter->at("name").as_string() : "";
      name != sync_->name.value_or(""))
    fail("[weights] rank {} sends '{}', ranks before it sent '{}' (an adapter's name, or the model)", rank,
         name, sync_->name.value_or(""));
  sync_->begun.insert(rank);
  sync_->last_message = clock_.now();
  session.sync = sync_;
  return Json::Object{};
}

// In place of one that waits for ranks.
void SyncServer::begin_sync(const Json& message, int64_t version, int ranks) {
  auto sync = std::make_shared<Sync>();
  const Names names = names_in(message);
  sync->version = version;
  sync->ranks = ranks;
  sync->began_at = seconds_now();
  sync->names = message.at("names").as_string();
  const Json* adapter = message.find("adapter");
  sync->direct = adapter == nullptr && options_.loading == Loading::kDirect;
  const auto make = [&] {
    if (adapter == nullptr) {
      sync->weights.emplace(parameters_, names, options_.loading, options_.quantizers);
      return;
    }
    if (options_.adapters == nullptr) fail("[weights] this process takes no adapters");
    const AdapterNote note = adapter_note(*adapter);
    const layers::Adapter* const old = options_.adapters->awaited(note.name);
    sync->adapter = make_adapter(parameters_, note);
    sync->name = note.name;
    if (old != nullptr && !is_alike(*old, *sync->adapter))
      fail(
          "[weights] adapter '{}' here has other targets, ranks or scales than the one that is sent; give "
          "one of them another name",
          note.name);
    sync->weights.emplace(sync->adapter->parameters(), names, Loading::kDirect);
  };
  const auto replace = [&] {
    make();
    if (sync_) {
      const std::shared_ptr<const Sync> old = sync_;
      abandon(version == old->version ? "it began again" : fmt::format("version {} began", version));
      log_warning(fmt::format("{}; {}", old->ended, gate_.what_stays()));
    }
    gate_.begin_sync(sync->direct);  // passes are held from here on, where they have to be
  };
  sync->direct || adapter != nullptr ? between_passes(replace) : replace();
  sync_ = std::move(sync);
}

void SyncServer::abandon(const std::string& why) {
  Sync& sync = *sync_;
  sync.ended = fmt::format("[weights] version {} ended before all of it had come: {}", sync.version, why);
  gate_.abandon_sync(sync.direct && sync.weights->has_overwritten() ? why : "");
  sync.weights.reset();
  sync.adapter.reset();
  sync_.reset();
}

// A device's work is the passes', whose stream it shares; so is memory that passes read.
bool SyncServer::needs_turn(const Sync& sync) const {
  return sync.direct || parameters_.device().type != DeviceType::kCpu;
}

Json SyncServer::update(Session& session, const Json& message) {
  const auto take = [&] {
    take_pieces(*sync_->weights, session, message);
    synchronize(parameters_.device());  // the sender fills the chunk again
  };
  needs_turn(*sync_) ? between_passes(take) : take();
  sync_->last_message = clock_.now();
  return Json::Object{};
}

Json SyncServer::finish(Session& session) {
  const auto& unknown = sync_->weights->unknown();
  Json::Array names;
  for (const std::string& name : unknown)
    if (names.size() < kNamed) names.emplace_back(name);
  Json::Object reply{{"num_unknown", std::ssize(unknown)}, {"unknown", std::move(names)}};
  const bool last = sync_->finished + 1 == sync_->ranks;
  if (last) {
    sync_->weights->check_whole();
    between_passes([&] {
      session.chunk.reset();
      publish();
    });
    sync_.reset();
  } else {
    if (session.memory.type != DeviceType::kCpu) between_passes([&] { session.chunk.reset(); });
    ++sync_->finished;
    sync_->last_message = clock_.now();
  }
  session.sync.reset();
  reply.emplace_back("published", last);
  return reply;
}

// On the thread of the passes: nothing in it can fail.
void SyncServer::publish() {
  Sync& sync = *sync_;
  if (!sync.name) {
    sync.weights->publish();
  } else if (layers::Adapter* const old = options_.adapters->awaited(*sync.name)) {
    for (size_t i = 0; i < old->parameters().size(); ++i)
      old->parameters()[i].value.copy_from(sync.adapter->parameters()[i].value);
    old->parameters().changed();
  } else {
    sync.weights->publish();
    options_.adapters->install(*sync.name, std::move(sync.adapter));
  }
  gate_.publish_sync({sync.version, sync.name, sync.weights->bytes_taken(), seconds_now() - sync.began_at},
                     sync.direct);
}

Json SyncServer::hashes(const Json& message) {
  Json::Object all;
  const auto hash = [&] {
    const layers::ParameterStore* parameters = &parameters_;
    if (const Json* name = message.find("adapter")) {
      if (options_.adapters == nullptr) fail("[weights] this process takes no adapters");
      const layers::Adapter* const adapter = options_.adapters->awaited(name->as_string());
      if (adapter == nullptr) fail("[weights] adapter '{}' has not come yet", name->as_string());
      parameters = &adapter->parameters();
    }
    std::map<std::string, ParameterHash> found = hashes_of(*parameters);
    if (parameters == &parameters_)
      for (const quantizers::NamedScales& each : scales_of(options_.quantizers))
        found.emplace(each.name, hash_of(each.values));
    for (const auto& [name, each] : found)
      all.emplace_back(name, Json::Object{{"dtype", each.dtype}, {"digest", each.digest}});
  };
  // The thread of the passes writes to the store only when this one asks for it.
  parameters_.device().type == DeviceType::kCpu&& message.find("adapter") == nullptr ? hash()
                                                                                     : between_passes(hash);
  return Json::Object{{"parameters", std::move(all)}};
}

}  // namespace temper::exchange
