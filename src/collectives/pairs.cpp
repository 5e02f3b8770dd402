#include "collectives/pairs.h"

#include "base/error.h"
#include "base/tracing/trace.h"
#include "collectives/group.h"

namespace temper::collectives {

std::string to_string(const PairCall& call) {
  return fmt::format("transfer {} from rank {} to rank {} of '{}', {} {}", call.number, call.from, call.to,
                     call.name, temper::to_string(call.dtype), temper::to_string(call.shape));
}

bool same(const PairCall& a, const PairCall& b) {
  return a.name == b.name && a.number == b.number && a.from == b.from && a.to == b.to && a.shape == b.shape &&
         a.dtype == b.dtype;
}

std::string describe_mismatch(int from, std::string_view sent, int to, std::string_view received) {
  return fmt::format(
      "ranks meet in different transfers: rank {} sends in {}; rank {} receives in {}. Both ranks must make "
      "the same transfers in the same order",
      from, sent, to, received);
}

void check_on_hosts(const PairCalls& calls) {
  for (const auto* const list : {&calls.sent, &calls.received})
    for (const PairCall& call : *list)
      if (call.tensor.device() != Device{})
        fail("[{}] ranks exchange tensors of the CPU here, not of {}", to_string(call),
             to_string(call.tensor.device()));
}

namespace {

trace::Span span_of(const PairCalls& calls) {
  const std::string_view name = calls.received.empty() ? "send" : calls.sent.empty() ? "receive" : "exchange";
  return trace::Span(name, [&] {
    double bytes = 0;
    for (const auto* const list : {&calls.sent, &calls.received})
      for (const PairCall& call : *list) bytes += static_cast<double>(call.tensor.bytes());
    return trace::OpWork{{.sent = bytes}, {}};
  });
}

}  // namespace

Pairs::Pairs(const Group& group)
    : group_(group), sent_(static_cast<size_t>(group.size())), received_(sent_.size()) {}

void Pairs::check_partner(std::string_view what, int rank) const {
  invariant(rank >= 0 && rank < group_.size() && rank != group_.rank(),
            fmt::format("[{}] rank {} of {} has no transfers with rank {}; expected another rank of group {}",
                        what, group_.rank(), group_.size(), rank, group_.name()));
}

void Pairs::check_transfers(std::span<const Transfer> transfers) const {
  invariant(transfers.size() <= kMostTransfers,
            fmt::format("{} transfers at a time; expected at most {}", transfers.size(), kMostTransfers));
  for (const Transfer& transfer : transfers) {
    check_partner(transfer.name, transfer.rank);
    invariant(transfer.tensor.defined() && transfer.tensor.is_contiguous(),
              fmt::format("[{}] a transfer takes a compact tensor", transfer.name));
  }
}

void Pairs::connect(std::span<const int> partners) {
  for (const int rank : partners) check_partner("connect", rank);
  do_connect({partners.begin(), partners.end()});
}

void Pairs::send(std::string_view name, const Tensor& values, int to) {
  const Transfer transfer{name, values, to};
  exchange({&transfer, 1}, {});
}

void Pairs::receive(std::string_view name, const Tensor& values, int from) {
  const Transfer transfer{name, values, from};
  exchange({}, {&transfer, 1});
}

PairCalls Pairs::numbered(std::span<const Transfer> sent, std::span<const Transfer> received) {
  check_transfers(sent);
  check_transfers(received);
  const int own = group_.rank();
  PairCalls calls;
  const auto call_of = [&](const Transfer& each, std::vector<int64_t>& numbers, int from, int to) {
    const int64_t number = ++numbers[static_cast<size_t>(each.rank)];
    return PairCall{each.name, number, from, to, each.tensor.shape(), each.tensor.dtype(), each.tensor};
  };
  for (const Transfer& each : sent) calls.sent.push_back(call_of(each, sent_, own, each.rank));
  for (const Transfer& each : received) calls.received.push_back(call_of(each, received_, each.rank, own));
  return calls;
}

void Pairs::exchange(std::span<const Transfer> sent, std::span<const Transfer> received) {
  if (sent.empty() && received.empty()) return;
  const PairCalls calls = numbered(sent, received);
  const trace::Span span = span_of(calls);
  do_exchange(calls);
}

std::unique_ptr<TransfersUnderWay> Pairs::begin_exchange(std::span<const Transfer> sent,
                                                         std::span<const Transfer> received) {
  if (sent.empty() && received.empty()) return std::make_unique<TransfersUnderWay>();
  const PairCalls calls = numbered(sent, received);
  const trace::Span span = span_of(calls);
  return do_begin(calls);
}

std::unique_ptr<TransfersUnderWay> Pairs::do_begin(const PairCalls& calls) {
  do_exchange(calls);
  return std::make_unique<TransfersUnderWay>();
}

}  // namespace temper::collectives
