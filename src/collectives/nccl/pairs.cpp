#include "collectives/nccl/pairs.h"

#include <algorithm>

namespace temper::collectives {
namespace {

constexpr int64_t kFirstMessage = int64_t{4} << 20;  // bytes, which NCCL sends as it sends large ones
constexpr int64_t kText = 512;                       // bytes of a call as the ranks compare it

// All of them progress together. Those without bytes are left out on both sides.
ncclResult_t start(const PairCalls& calls, ncclComm_t network, cudaStream_t on) {
  ncclResult_t result = nccl().group_start();
  for (const PairCall& call : calls.sent)
    if (const auto bytes = static_cast<size_t>(call.tensor.bytes()); bytes > 0 && result == ncclSuccess)
      result = nccl().send(call.tensor.raw(), bytes, ncclUint8, call.to, network, on);
  for (const PairCall& call : calls.received)
    if (const auto bytes = static_cast<size_t>(call.tensor.bytes()); bytes > 0 && result == ncclSuccess)
      result = nccl().receive(call.tensor.raw(), bytes, ncclUint8, call.from, network, on);
  const ncclResult_t ended = nccl().group_end();
  return result == ncclSuccess ? ended : result;
}

std::vector<Tensor> tensors_of(const PairCalls& calls) {
  std::vector<Tensor> tensors;
  for (const auto* const list : {&calls.sent, &calls.received})
    for (const PairCall& call : *list) tensors.push_back(call.tensor);
  return tensors;
}

std::string first_of(const PairCalls& calls) {
  return to_string(calls.received.empty() ? calls.sent.front() : calls.received.front());
}

}  // namespace

// The first transfer of two GPUs makes their way, for which their hosts wait for each other: all are made
// here, at once, so that no order of later transfers can lock.
void NcclPairs::do_connect(const std::vector<int>& partners) {
  door_.connect();
  const auto memory = [&] { return Tensor::empty({kFirstMessage}, DType::kU8, MemoryTag::kWorkspace, gpu_); };
  PairCalls calls;
  if (partners.empty()) return;
  const Tensor sent = memory();
  for (const int other : partners) {
    const auto call = [&](int from, int to, const Tensor& tensor) {
      return PairCall{"first message", 0, from, to, tensor.shape(), tensor.dtype(), tensor};
    };
    calls.sent.push_back(call(group().rank(), other, sent));
    calls.received.push_back(call(other, group().rank(), memory()));
  }
  give(calls);
}

void NcclPairs::do_exchange(const PairCalls& calls) {
  check(calls);
  give(calls);
}

std::unique_ptr<TransfersUnderWay> NcclPairs::do_begin(const PairCalls& calls) {
  check(calls);
  return door_.begin(first_of(calls), tensors_of(calls),
                     [&](ncclComm_t network, cudaStream_t on) { return start(calls, network, on); });
}

void NcclPairs::check(const PairCalls& calls) const {
  for (const auto* const list : {&calls.sent, &calls.received})
    for (const PairCall& call : *list)
      if (call.tensor.device() != gpu_)
        fail("[{}] the ranks' tensors are on {}, not on {}", to_string(call), to_string(gpu_),
             to_string(call.tensor.device()));
  if (group().checks()) compare(calls);
}

void NcclPairs::give(const PairCalls& calls) const {
  door_.give(first_of(calls), tensors_of(calls),
             [&](ncclComm_t network, cudaStream_t on) { return start(calls, network, on); });
}

// The sender's text travels over the hosts' network: the receiver's error says what differs, or the deadline
// which rank does not come.
void NcclPairs::compare(const PairCalls& calls) const {
  constexpr std::string_view kName = "call of GPUs";
  std::vector<Transfer> sent, received;
  for (const PairCall& call : calls.sent) {
    const std::string text = to_string(call);
    const Tensor bytes = Tensor::zeros({kText}, DType::kU8, MemoryTag::kWorkspace);
    std::copy_n(text.data(), std::min(std::ssize(text), kText - 1), static_cast<char*>(bytes.raw()));
    sent.push_back({kName, bytes, call.to});
  }
  for (const PairCall& call : calls.received)
    received.push_back({kName, Tensor::zeros({kText}, DType::kU8, MemoryTag::kWorkspace), call.from});
  hosts_.pairs().exchange(sent, received);
  for (size_t i = 0; i < received.size(); ++i) {
    const PairCall& call = calls.received[i];
    const std::string found = static_cast<const char*>(received[i].tensor.raw());
    const std::string wanted = to_string(call).substr(0, kText - 1);
    if (found != wanted)
      throw GroupBroken("[collectives] " + describe_mismatch(call.from, found, call.to, wanted),
                        ErrorKind::kDefect);
  }
}

}  // namespace temper::collectives
