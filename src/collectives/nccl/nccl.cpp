#include <cstring>
#include <optional>

#include "base/parts/registry.h"
#include "collectives/device_group.h"
#include "collectives/nccl/library.h"
#include "collectives/nccl/narrow_sums.h"
#include "collectives/nccl/pairs.h"
#include "collectives/nccl/streams.h"
#include "collectives/nccl/transfers_under_way.h"
#include "collectives/nccl/watch.h"
#include "device/cuda/driver.h"
#include "device/cuda/stream.h"

namespace temper::collectives {
namespace {

// Of sums that NCCL forms.
ncclDataType_t type_of(const Call& call) {
  invariant(call.dtype == DType::kF32,
            fmt::format("[{}] only floating-point tensors are summed", to_string(call)));
  return ncclFloat32;
}

ncclComm_t connect(Group& hosts, Device gpu) {
  device::stream(gpu);  // makes it current
  ncclUniqueId id{};
  if (hosts.rank() == 0) check(nccl().get_unique_id(&id), "ncclGetUniqueId");
  const std::string sent =
      hosts.broadcast_object("network of GPUs", {reinterpret_cast<const char*>(&id), sizeof id}, 0);
  std::memcpy(&id, sent.data(), sizeof id);
  ncclComm_t network = nullptr;
  check(nccl().comm_init_rank(&network, hosts.size(), id, hosts.rank()), "ncclCommInitRank");
  return network;
}

// Collectives are launched on the stream of the rank's work, and so run in order with it. While they overlap
// with it they are launched on a stream of their own, which waits for the work launched before each of them.
class NcclGroup final : public Group {
 public:
  NcclGroup(Group& hosts, std::unique_ptr<Group> owned, Device gpu)
      : Group(hosts.rank(), hosts.size(), hosts.name(), hosts.world_ranks()),
        hosts_(hosts),
        owned_(std::move(owned)),
        gpu_(gpu),
        narrow_(hosts.rank(), hosts.size(), gpu),
        streams_(gpu),
        pairs_(*this, hosts, gpu,
               {[this] { network(); }, [this](const auto&... of_work) { give(of_work...); },
                [this](const auto&... of_work) { return begin(of_work...); }}) {
    nccl();
    set_on_machine(hosts.on_machine());
    share_deadline(hosts);
  }
  ~NcclGroup() override {
    watch_.reset();
    if (network_ == nullptr) return;
    // Other ranks may be gone where this one ends with an error: then nothing may be waited for.
    if (std::uncaught_exceptions() > 0)
      nccl().comm_abort(network_);
    else
      nccl().comm_destroy(network_);
  }
  Pairs& pairs() override { return pairs_; }

 private:
  // Connected by the first collective: a group that moves no tensors costs nothing on the GPU.
  ncclComm_t network() {
    if (network_ != nullptr) return network_;
    watch_.emplace(gpu_.index, shared_deadline());
    try {
      network_ = connect(hosts_, gpu_);
    } catch (...) {
      watch_.reset();
      throw;
    }
    watch_->made(network_);
    return network_;
  }

  void prepare(const Call& call, const Tensor& tensor) {
    if (tensor.device() != gpu_)
      fail("[{}] the ranks' tensors are on {}, not on {}", to_string(call), to_string(gpu_),
           to_string(tensor.device()));
    if (checks()) meet(call);
    network();
  }

  // `start` gives the collective to the stream.
  template <class Start>
  void run(const Call& call, const Tensor& tensor, const Start& start) {
    prepare(call, tensor);
    const cudaStream_t on = streams_.for_collective();
    check(start(on), call.collective.data());
    last_ = describe(call);
    if (!is_together_) watch(on);
  }

  // Of transfers between some of the ranks.
  void give(const std::string& what, const std::vector<Tensor>& tensors, const NcclPairs::Work& work) {
    transfer(what, work, streams_.for_collective());
    if (streams_.overlaps()) kept_.insert(kept_.end(), tensors.begin(), tensors.end());
  }
  std::unique_ptr<TransfersUnderWay> begin(const std::string& what, std::vector<Tensor> tensors,
                                           const NcclPairs::Work& work) {
    const cudaStream_t on = streams_.for_transfer();
    transfer(what, work, on);
    return std::make_unique<GpuTransfersUnderWay>(on, gpu_, std::move(tensors));
  }
  void transfer(const std::string& what, const NcclPairs::Work& work, cudaStream_t on) {
    invariant(network_ != nullptr, fmt::format("[{}] Pairs::connect() comes before transfers", what));
    check(work(network_, on), "ncclSend");
    last_ = describe(what);
    if (!is_together_) watch(on);
  }

  // Of numbers that NCCL would round after each addition. Together they wait until the others have started.
  template <class Add>
  void run_narrow(const Call& call, const Tensor& tensor, const Add& add) {
    prepare(call, tensor);
    narrow_.take_memory();
    add();
    last_ = describe(call);
    if (!is_together_) start_narrow();
  }
  void start_narrow() {
    const cudaStream_t on = streams_.for_collective();
    check(narrow_.start(network_, on), "ncclSend");
    watch(on);
  }

  // What is captured runs with each launch of its graph, which this group does not see: the hosts' next
  // meeting looks behind those.
  void watch(cudaStream_t on) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check_cuda(cudaStreamIsCapturing(on, &status), "cudaStreamIsCapturing");
    if (status == cudaStreamCaptureStatusNone)
      watch_->add(on, last_);
    else
      captured_ = last_;
  }

  // Compares the call over the hosts' network: the error says what differs, or which rank does not come.
  void meet(const Call& call) {
    const std::vector<std::string> all = hosts_.gather_objects(call.name, to_string(call));
    for (size_t i = 1; i < all.size(); ++i)
      if (all[i] != all[0])
        throw GroupBroken("[collectives] " + describe_mismatch(all[0], static_cast<int>(i), all[i]),
                          ErrorKind::kDefect);
  }

  void do_all_reduce(const Call& call, const Tensor& values) override {
    if (ReceivedNumbers::are_of(call.dtype))
      return run_narrow(call, values, [&] { narrow_.add_all_reduce(values); });
    run(call, values, [&](cudaStream_t on) {
      return nccl().all_reduce(values.raw(), values.raw(), static_cast<size_t>(values.numel()), type_of(call),
                               ncclSum, network_, on);
    });
  }
  void do_all_gather(const Call& call, const Tensor& part, const Tensor& whole) override {
    run(call, part, [&](cudaStream_t on) {
      return nccl().all_gather(part.raw(), whole.raw(), static_cast<size_t>(part.bytes()), ncclUint8,
                               network_, on);
    });
  }
  void do_reduce_scatter(const Call& call, const Tensor& whole, const Tensor& part) override {
    if (ReceivedNumbers::are_of(call.dtype))
      return run_narrow(call, whole, [&] { narrow_.add_reduce_scatter(whole, part); });
    run(call, whole, [&](cudaStream_t on) {
      return nccl().reduce_scatter(whole.raw(), part.raw(), static_cast<size_t>(part.numel()), type_of(call),
                                   ncclSum, network_, on);
    });
  }
  void do_broadcast(const Call& call, const Tensor& values) override {
    run(call, values, [&](cudaStream_t on) {
      return nccl().broadcast(values.raw(), values.raw(), static_cast<size_t>(values.bytes()), ncclUint8,
                              call.root, network_, on);
    });
  }
  // A GPU sends to itself, too.
  void do_all_to_all(const Call& call, const RowExchange& exchange) override {
    run(call, exchange.rows, [&](cudaStream_t on) {
      const auto* from = static_cast<const std::byte*>(exchange.rows.raw());
      auto* to = static_cast<std::byte*>(exchange.received.raw());
      ncclResult_t result = nccl().group_start();
      for (size_t place = 0; place < exchange.send.size() && result == ncclSuccess; ++place) {
        const auto leaving = static_cast<size_t>(exchange.send[place]),
                   coming = static_cast<size_t>(exchange.receive[place]);
        const int other = static_cast<int>(place);
        if (leaving > 0) result = nccl().send(from, leaving, ncclUint8, other, network_, on);
        if (coming > 0 && result == ncclSuccess)
          result = nccl().receive(to, coming, ncclUint8, other, network_, on);
        from += leaving;
        to += coming;
      }
      const ncclResult_t ended = nccl().group_end();
      return result == ncclSuccess ? ended : result;
    });
  }

  std::vector<std::string> do_gather_objects(const Call& call, std::string mine) override {
    if (!captured_.empty() && watch_)
      watch_->add(device::stream(gpu_), fmt::format("work of a graph, with {}", captured_));
    return hosts_.gather_objects(call.name, std::move(mine), call.failure);
  }

  void do_disconnect() override {
    if (network_ == nullptr) return;
    streams_.synchronize();
    watch_.reset();
    captured_.clear();
    narrow_.give_back();
    check(nccl().comm_destroy(std::exchange(network_, nullptr)), "ncclCommDestroy");
  }

  void do_begin_together() override {
    network();
    check(nccl().group_start(), "ncclGroupStart");
    is_together_ = true;
  }
  void do_end_together() override {
    is_together_ = false;
    check(nccl().group_end(), "ncclGroupEnd");
    start_narrow();
  }

  void do_begin_overlap() override { streams_.begin_overlap(); }
  void do_use_own_stream() override { streams_.use_own(); }
  void do_end_overlap() override {
    if (!streams_.overlaps()) return;
    streams_.end_overlap();
    kept_.clear();
  }

  std::unique_ptr<Group> do_part(std::string name, std::vector<int> ranks, int) override {
    std::vector<int> places;
    for (const int rank : ranks)
      places.push_back(static_cast<int>(std::find(world_ranks().begin(), world_ranks().end(), rank) -
                                        world_ranks().begin()));
    std::unique_ptr<Group> part = hosts_.part(std::move(name), places);
    Group& hosts = *part;
    return std::make_unique<NcclGroup>(hosts, std::move(part), gpu_);
  }

  Group& hosts_;
  const std::unique_ptr<Group> owned_;
  const Device gpu_;
  ncclComm_t network_ = nullptr;
  std::optional<Watch> watch_;  // of the network
  NarrowSums narrow_;
  GroupStreams streams_;
  bool is_together_ = false;
  std::string last_;          // what was asked for last
  std::string captured_;      // the same of what graphs have; empty: none has a collective
  std::vector<Tensor> kept_;  // of transfers that overlap: of any shape
  NcclPairs pairs_;
};

}  // namespace

void register_nccl() {
  registry<MakeDeviceGroup>().add("cuda", [](Group& hosts, Device gpu) -> std::unique_ptr<Group> {
    return std::make_unique<NcclGroup>(hosts, nullptr, gpu);
  });
  registry<LibraryProbe>().add("NCCL", probe_nccl);
}

}  // namespace temper::collectives
