#include <array>
#include <cstring>

#include "collectives/hosts.h"
#include "collectives/mpi/header.h"
#include "collectives/mpi/mpi.h"
#include "collectives/mpi/pairs.h"
#include "collectives/sums.h"

namespace temper::collectives {
namespace {

class MpiGroup final : public Group {
 public:
  MpiGroup(Network& network, std::string name, std::vector<int> ranks, int tag)
      : Group(place_of(network.rank(), ranks), static_cast<int>(ranks.size()), std::move(name), ranks),
        network_(network),
        tag_(tag),
        pairs_(*this, network, tag) {}
  Pairs& pairs() override { return pairs_; }

  // From what all ranks know of their machines.
  void find_machine() {
    const std::string machine = this_machine();
    std::vector<std::string> machines = gather_objects("machines", machine);
    OnMachine where{0, 0};
    for (int place = 0; place < size(); ++place) {
      if (machines[static_cast<size_t>(place)] != machine) continue;
      where.place += place < this->rank() ? 1 : 0;
      ++where.ranks;
    }
    for (std::string& each : machines) each.resize(each.find(' '));
    if (where.ranks == size()) machines.clear();
    set_hosts(std::move(machines));
    set_on_machine(where);
  }

 private:
  using Message = Network::Message;

  static int place_of(int rank, const std::vector<int>& ranks) {
    const auto found = std::find(ranks.begin(), ranks.end(), rank);
    invariant(found != ranks.end(), "this rank is in none of the group's places");
    return static_cast<int>(found - ranks.begin());
  }

  // For each of the others, in their order.
  template <class F>
  void for_others(const F& f) const {
    for (int place = 0; place < size(); ++place)
      if (place != this->rank()) f(place, world_ranks()[static_cast<size_t>(place)]);
  }

  std::vector<Header> meet(const Call& call, int64_t bytes = 0) {
    return meet(call, std::vector<int64_t>(static_cast<size_t>(size()), bytes));
  }
  // `bytes` that each of the others gets.
  std::vector<Header> meet(const Call& call, const std::vector<int64_t>& bytes) {
    const auto memory = std::make_shared<std::array<std::vector<Header>, 2>>();
    std::vector<Header>&headers = (*memory)[0], &mine = (*memory)[1];
    headers.resize(static_cast<size_t>(size()));
    for (const int64_t count : bytes) mine.emplace_back(call, count);
    std::vector<Message> sent, received;
    for_others([&](int place, int world) {
      sent.push_back({world, &mine[static_cast<size_t>(place)], sizeof(Header)});
      received.push_back({world, &headers[static_cast<size_t>(place)], sizeof(Header)});
    });
    meet_with_failure(call, [&] { move(call, sent, received, memory); });
    headers[static_cast<size_t>(rank())] = mine[static_cast<size_t>(rank())];
    check_same_calls(call, headers);
    return std::move(headers);
  }

  // Whoever does not come hears of it when this rank ends with its failure.
  template <class F>
  static void meet_with_failure(const Call& call, const F& meet) {
    try {
      meet();
    } catch (const StoppedByAnother&) {
      throw;
    } catch (const GroupBroken&) {
      if (call.failure != nullptr) throw Error(*call.failure);
      throw;
    }
  }

  // A rank that brings a failure ends with it, and tells the others.
  void check_same_calls(const Call& own, const std::vector<Header>& headers) {
    const Call first = headers[0].call();
    for (size_t i = 1; i < headers.size(); ++i) {
      const Call other = headers[i].call();
      if (same(first, other)) continue;
      if (own.failure != nullptr) throw Error(*own.failure);
      for (size_t place = 0; place < headers.size(); ++place)
        if (headers[place].has_failed != 0) network_.receive_stop(world_ranks()[place]);
      throw GroupBroken(
          "[collectives] " + describe_mismatch(to_string(first), static_cast<int>(i), to_string(other)),
          ErrorKind::kDefect);
    }
  }

  // `memory` owns what the messages point to.
  void move(const Call& call, const std::vector<Message>& sent, const std::vector<Message>& received,
            std::shared_ptr<const void> memory) {
    const double seconds = call.failure != nullptr ? std::min(deadline(), kFailureWaits) : deadline();
    network_.exchange(tag_, sent, received, std::move(memory), seconds, [&] { return describe(call); });
  }
  static std::shared_ptr<const void> memory_of(std::initializer_list<Tensor> tensors) {
    return std::make_shared<const std::vector<Tensor>>(tensors);
  }

  // Part p of the elements is summed by rank p, into `sums`. Goes through the tensor piece by piece, so that
  // a piece of each other rank is enough memory.
  template <class T>
  void sum_parts(const Call& call, const Tensor& whole, const std::vector<std::pair<int64_t, int64_t>>& parts,
                 T* sums) {
    constexpr int64_t kPiece = int64_t{1} << 18;
    const auto ranks = static_cast<size_t>(size());
    int64_t longest = 0;
    for (const auto& [begin, end] : parts) longest = std::max(longest, end - begin);
    const auto [mine_begin, mine_end] = parts[static_cast<size_t>(rank())];
    const Tensor others = Tensor::empty({size(), std::max<int64_t>(1, std::min(kPiece, longest))}, call.dtype,
                                        MemoryTag::kWorkspace);
    const auto memory = memory_of({whole, others});
    T* const values = whole.data<T>();
    for (int64_t at = 0; at < longest; at += kPiece) {
      std::vector<Message> sent, received;
      std::vector<const T*> from(ranks);
      const int64_t count = std::clamp<int64_t>(mine_end - mine_begin - at, 0, kPiece);
      from[static_cast<size_t>(rank())] = values + mine_begin + at;
      for_others([&](int place, int world) {
        const auto [begin, end] = parts[static_cast<size_t>(place)];
        const int64_t theirs = std::clamp<int64_t>(end - begin - at, 0, kPiece);
        sent.push_back({world, values + begin + at, theirs * int64_t{sizeof(T)}});
        T* const place_here = others.data<T>() + place * others.dim(1);
        received.push_back({world, place_here, count * int64_t{sizeof(T)}});
        from[static_cast<size_t>(place)] = place_here;
      });
      move(call, sent, received, memory);
      sum_elements<T>(from, count, sums + at);
    }
  }

  std::vector<std::pair<int64_t, int64_t>> parts_of(int64_t count) const {
    std::vector<std::pair<int64_t, int64_t>> parts;
    for (int part = 0; part < size(); ++part) parts.push_back(part_of(count, part, size()));
    return parts;
  }

  void do_all_reduce(const Call& call, const Tensor& values) override {
    check_sum(call, values);
    meet(call);
    visit_float(values.dtype(), [&]<class T>() {
      const auto parts = parts_of(values.numel());
      T* const data = values.data<T>();
      const auto [begin, end] = parts[static_cast<size_t>(rank())];
      sum_parts<T>(call, values, parts, data + begin);
      std::vector<Message> sent, received;
      for_others([&, begin = begin, end = end](int place, int world) {
        sent.push_back({world, data + begin, (end - begin) * int64_t{sizeof(T)}});
        const auto [first, last] = parts[static_cast<size_t>(place)];
        received.push_back({world, data + first, (last - first) * int64_t{sizeof(T)}});
      });
      move(call, sent, received, memory_of({values}));
    });
  }

  void do_reduce_scatter(const Call& call, const Tensor& whole, const Tensor& part) override {
    check_sum(call, whole);
    meet(call);
    visit_float(whole.dtype(),
                [&]<class T>() { sum_parts<T>(call, whole, parts_of(whole.numel()), part.data<T>()); });
  }

  void do_all_gather(const Call& call, const Tensor& part, const Tensor& whole) override {
    check_device(call, part);
    meet(call);
    auto* const to = static_cast<std::byte*>(whole.raw());
    std::vector<Message> sent, received;
    for_others([&](int place, int world) {
      sent.push_back({world, part.raw(), part.bytes()});
      received.push_back({world, to + place * part.bytes(), part.bytes()});
    });
    if (std::byte* const own = to + rank() * part.bytes(); own != part.raw())
      std::memcpy(own, part.raw(), static_cast<size_t>(part.bytes()));
    move(call, sent, received, memory_of({part, whole}));
  }

  void do_broadcast(const Call& call, const Tensor& values) override {
    check_device(call, values);
    meet(call);
    std::vector<Message> sent, received;
    if (rank() == call.root)
      for_others([&](int, int world) { sent.push_back({world, values.raw(), values.bytes()}); });
    else
      received.push_back({world_ranks()[static_cast<size_t>(call.root)], values.raw(), values.bytes()});
    move(call, sent, received, memory_of({values}));
  }

  void do_all_to_all(const Call& call, const RowExchange& exchange) override {
    check_device(call, exchange.rows);
    const std::vector<Header> headers = meet(call, exchange.send);
    const auto* from = static_cast<const std::byte*>(exchange.rows.raw());
    auto* to = static_cast<std::byte*>(exchange.received.raw());
    std::vector<Message> sent, received;
    for (size_t place = 0; place < headers.size(); ++place) {
      const int64_t leaving = exchange.send[place], coming = exchange.receive[place];
      if (static_cast<int>(place) == rank()) {
        std::copy_n(from, leaving, to);
      } else {
        if (headers[place].bytes != coming)
          fail_rows(call, static_cast<int>(place), headers[place].bytes / exchange.row_bytes,
                    coming / exchange.row_bytes);
        const int world = world_ranks()[place];
        sent.push_back({world, const_cast<std::byte*>(from), leaving});
        received.push_back({world, to, coming});
      }
      from += leaving;
      to += coming;
    }
    move(call, sent, received, memory_of({exchange.rows, exchange.received}));
  }

  std::vector<std::string> do_gather_objects(const Call& call, std::string mine) override {
    const std::vector<Header> headers = meet(call, std::ssize(mine));
    const auto memory = std::make_shared<std::vector<std::string>>(static_cast<size_t>(size()));
    std::vector<std::string>& objects = *memory;
    objects[static_cast<size_t>(rank())] = std::move(mine);
    std::string& own = objects[static_cast<size_t>(rank())];
    std::vector<Message> sent, received;
    for_others([&](int place, int world) {
      std::string& object = objects[static_cast<size_t>(place)];
      object.resize(static_cast<size_t>(headers[static_cast<size_t>(place)].bytes));
      sent.push_back({world, own.data(), std::ssize(own)});
      received.push_back({world, object.data(), std::ssize(object)});
    });
    move(call, sent, received, memory);
    return std::move(objects);
  }

  // Parts of one number have no rank in common, and may have the same tag.
  std::unique_ptr<Group> do_part(std::string name, std::vector<int> ranks, int number) override {
    constexpr int kMostParts = 64;
    return std::make_unique<MpiGroup>(network_, std::move(name), std::move(ranks),
                                      tag_ * kMostParts + number);
  }

  static void check_device(const Call& call, const Tensor& tensor) {
    if (tensor.device() != Device{})
      fail("[{}] MPI moves tensors of the CPU, not of {}", to_string(call), to_string(tensor.device()));
  }
  static void check_sum(const Call& call, const Tensor& tensor) {
    check_device(call, tensor);
    invariant(is_float(tensor.dtype()),
              fmt::format("[{}] only floating-point tensors are summed", to_string(call)));
  }

  Network& network_;
  const int tag_;
  MpiPairs pairs_;
};

}  // namespace

std::unique_ptr<Group> mpi_world(Network& network) {
  auto world = std::make_unique<MpiGroup>(network, "world", all_ranks(network.size()), 0);
  world->find_machine();
  return world;
}

}  // namespace temper::collectives
