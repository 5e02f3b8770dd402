#include "collectives/mpi/pairs.h"

#include <deque>
#include <map>
#include <optional>

#include "collectives/group.h"
#include "collectives/mpi/header.h"

namespace temper::collectives {

// What the messages of one exchange point to.
struct MpiPairs::Buffers {
  std::deque<Header> headers;   // which stay where they are
  std::vector<Tensor> tensors;  // of any shape
};
// What one other rank sends in an exchange, one transfer after the other.
class MpiPairs::Incoming {
 public:
  Incoming(Network& network, int world_rank, Buffers& buffers)
      : network_(network), world_rank_(world_rank), buffers_(buffers) {}

  void add(const PairCall& call) { calls_.push_back(&call); }
  // Null: all are there.
  const PairCall* awaited() const { return calls_.empty() ? nullptr : calls_.front(); }

  std::optional<Network::Message> next() {
    if (calls_.empty()) return std::nullopt;
    Header& header = buffers_.headers.emplace_back();
    return Network::Message{world_rank_, &header, sizeof header, [&] { return tensor_behind(header); }};
  }

 private:
  std::optional<Network::Message> tensor_behind(const Header& header) {
    const PairCall& wanted = *calls_.front();
    check(header, wanted);
    const auto end = [this] {
      calls_.pop_front();
      return next();
    };
    if (wanted.tensor.bytes() == 0) return end();
    return Network::Message{world_rank_, wanted.tensor.raw(), wanted.tensor.bytes(), end};
  }

  void check(const Header& header, const PairCall& wanted) {
    const PairCall found = header.pair_call(wanted.from, wanted.to);
    if (header.is_of_transfer() && same(found, Header(wanted).pair_call(wanted.from, wanted.to))) return;
    if (header.has_failed != 0) network_.receive_stop(world_rank_);
    const std::string other = header.is_of_transfer() ? to_string(found) : to_string(header.call());
    throw GroupBroken("[collectives] " + describe_mismatch(wanted.from, other, wanted.to, to_string(wanted)),
                      ErrorKind::kDefect);
  }

  Network& network_;
  const int world_rank_;
  Buffers& buffers_;
  std::deque<const PairCall*> calls_;  // that are not there yet
};

void MpiPairs::do_exchange(const PairCalls& calls) {
  check_on_hosts(calls);
  const auto world = [&](int rank) { return group().world_ranks()[static_cast<size_t>(rank)]; };
  const auto buffers = std::make_shared<Buffers>();
  std::vector<Network::Message> sent, received;
  for (const PairCall& call : calls.sent) {
    buffers->tensors.push_back(call.tensor);
    sent.push_back({world(call.to), &buffers->headers.emplace_back(call), sizeof(Header)});
    sent.push_back({world(call.to), call.tensor.raw(), call.tensor.bytes()});
  }
  std::map<int, Incoming> incoming;  // by rank
  for (const PairCall& call : calls.received) {
    buffers->tensors.push_back(call.tensor);
    incoming.try_emplace(call.from, network_, world(call.from), *buffers).first->second.add(call);
  }
  for (auto& [rank, of_rank] : incoming) received.push_back(*of_rank.next());
  const auto what = [&] {
    for (const auto& [rank, of_rank] : incoming)
      if (of_rank.awaited() != nullptr) return group().describe(to_string(*of_rank.awaited()));
    return group().describe(to_string(calls.sent.empty() ? calls.received.front() : calls.sent.front()));
  };
  network_.exchange(tag_, sent, received, buffers, group().deadline(), what);
}

}  // namespace temper::collectives
