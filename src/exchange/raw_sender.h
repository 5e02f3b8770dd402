#pragma once
#include "base/hash.h"
#include "base/process.h"
#include "exchange/exchange_fixture.h"

namespace temper::exchange {

inline Json hello_message(const WeightTable& table) {
  return Json::Object{{"type", "hello"}, {"protocol", kProtocol}, {"boot", this_process().boot},
                      {"memory", "cpu"}, {"memory_of", ""},       {"model", fingerprint_of(table)}};
}

// A sender by hand, for messages and orders of them that ours does not send.
class RawSender {
 public:
  RawSender(const std::string& socket, const WeightTable& table, int rank = 0, int ranks = 1)
      : connection_(connect_to(socket, 20), "the receiver", 20), chunk_(4096), rank_(rank), ranks_(ranks) {
    ask(hello_message(table));
  }
  Json begin_message(int64_t version = 1, int64_t bytes = 4096) const {
    return Json::Object{{"type", "begin"}, {"version", version}, {"names", "packed"},
                        {"rank", rank_},   {"ranks", ranks_},    {"chunk_bytes", bytes}};
  }
  void begin(int64_t version = 1, int64_t bytes = 4096) { ask(begin_message(version, bytes), chunk_.file()); }
  void finish() { ask(Json::Object{{"type", "finish"}}); }
  void ask(const Json& message, int file = -1) {
    connection_.send(message, file);
    hear();
  }
  // The answer, or the Error that it is.
  Json hear() {
    Json answer = connection_.receive().json;
    if (const Json* error = answer.find("error")) throw Error(error->as_string());
    return answer;
  }
  Json update(const std::string& name, const std::string& elements, int64_t count,
              const std::string& dtype = "float32", int64_t at = 0) {
    Hasher hasher;
    hasher.update(chunk_.data(), 4096);
    return Json::Object{
        {"type", "update"},
        {"bytes", 4096},
        {"hash", hasher.digest()},
        {"pieces",
         Json::Array{Json::Object{
             {"name", name}, {"dtype", dtype}, {"at", at}, {"count", count}, {"elements", elements}}}}};
  }
  // Some elements of the last norm of a tiny model.
  void update_norm(int first, int count) {
    ask(update("norm.weight", fmt::format(R"({{"shape":[32],"runs":[[{},{}]]}})", first, count), count));
  }
  Connection& connection() { return connection_; }

 private:
  Connection connection_;
  SharedMemory chunk_;
  int rank_, ranks_;
};

}  // namespace temper::exchange
