#include "collectives/nccl/narrow_sums.h"

#include "collectives/nccl/add_narrow_numbers.h"
#include "collectives/nccl/library.h"

namespace temper::collectives {
namespace {

constexpr int64_t kReceived = ReceivedNumbers::kBytes;
constexpr int64_t kSmall = int64_t{128} << 10;  // bytes of a tensor that every rank adds up
constexpr int64_t kTogether = 8;                // elements that the GPU reads at once

int64_t rounded_up(int64_t count, int64_t unit) { return (count + unit - 1) / unit * unit; }

}  // namespace

bool NarrowSums::is_small(int64_t count, DType dtype, int ranks) {
  return count * size_of(dtype) <= kSmall &&
         rounded_up(count, kTogether) * size_of(dtype) * ranks <= kReceived;
}

int64_t NarrowSums::Piece::slot() const { return rounded_up(each, kTogether) * size(); }

int64_t NarrowSums::most() const { return kReceived / 2 / ranks_ / kTogether * kTogether; }

std::byte* NarrowSums::received(const Piece& piece, int rank) const {
  return received_.begin() + piece.received + rank * piece.slot();
}

void NarrowSums::add_all_reduce(const Tensor& values) {
  const int64_t count = values.numel();
  Piece piece{.dtype = values.dtype(), .all = static_cast<std::byte*>(values.raw()), .gathers = true};
  if (is_small(count, piece.dtype, ranks_)) {
    piece.each = piece.end = count;
    piece.sums = piece.all;
    piece.is_small = true;
    return pieces_.push_back(piece);
  }
  for (int64_t at = 0; at < count; at += most() * ranks_) {
    const int64_t some = std::min(count - at, most() * ranks_);
    piece.first = at;
    piece.each = piece.stride = rounded_up((some + ranks_ - 1) / ranks_, kTogether);
    piece.end = at + some;
    piece.sums = piece.at(rank_);
    pieces_.push_back(piece);
  }
}

void NarrowSums::add_reduce_scatter(const Tensor& whole, const Tensor& part) {
  const int64_t count = part.numel();
  for (int64_t at = 0; at < count; at += most()) {
    Piece piece{.dtype = whole.dtype(), .all = static_cast<std::byte*>(whole.raw())};
    piece.first = at;
    piece.stride = count;
    piece.each = std::min(most(), count - at);
    piece.end = whole.numel();
    piece.sums = static_cast<std::byte*>(part.raw()) + at * piece.size();
    pieces_.push_back(piece);
  }
}

ncclResult_t NarrowSums::exchange(std::span<const Piece> pieces, ncclComm_t network, cudaStream_t on) const {
  ncclResult_t result = nccl().group_start();
  for (const Piece& piece : pieces) {
    const auto bytes = [&](int rank) { return static_cast<size_t>(piece.count(rank) * piece.size()); };
    for (int other = 0; other < ranks_ && result == ncclSuccess; ++other) {
      if (other == rank_) continue;
      if (bytes(other) > 0)
        result = nccl().send(piece.at(other), bytes(other), ncclUint8, other, network, on);
      if (bytes(rank_) > 0 && result == ncclSuccess)
        result = nccl().receive(received(piece, other), bytes(rank_), ncclUint8, other, network, on);
    }
  }
  const ncclResult_t ended = nccl().group_end();
  return result == ncclSuccess ? ended : result;
}

ncclResult_t NarrowSums::gather(std::span<const Piece> pieces, ncclComm_t network, cudaStream_t on) const {
  ncclResult_t result = nccl().group_start();
  for (const Piece& piece : pieces) {
    if (!piece.gathers || piece.is_small) continue;
    const auto bytes = [&](int rank) { return static_cast<size_t>(piece.count(rank) * piece.size()); };
    for (int other = 0; other < ranks_ && result == ncclSuccess; ++other) {
      if (other == rank_) continue;
      if (bytes(rank_) > 0) result = nccl().send(piece.sums, bytes(rank_), ncclUint8, other, network, on);
      if (bytes(other) > 0 && result == ncclSuccess)
        result = nccl().receive(piece.at(other), bytes(other), ncclUint8, other, network, on);
    }
  }
  const ncclResult_t ended = nccl().group_end();
  return result == ncclSuccess ? ended : result;
}

ncclResult_t NarrowSums::start(ncclComm_t network, cudaStream_t on) {
  ncclResult_t result = ncclSuccess;
  for (size_t begin = 0, end = 0; begin < pieces_.size() && result == ncclSuccess; begin = end) {
    for (int64_t held = 0; end < pieces_.size(); ++end) {
      const int64_t bytes = pieces_[end].slot() * ranks_;
      if (end > begin && held + bytes > kReceived) break;
      pieces_[end].received = held;
      held += bytes;
    }
    const auto some = std::span<const Piece>(pieces_).subspan(begin, end - begin);
    result = exchange(some, network, on);
    if (result != ncclSuccess) break;
    for (const Piece& piece : some)
      if (piece.count(rank_) > 0)
        add_narrow_numbers({piece.dtype, piece.at(rank_), received(piece, 0), piece.slot(),
                            piece.count(rank_), rank_, ranks_},
                           piece.sums, gpu_, on);
    if (std::ranges::any_of(some, [](const Piece& piece) { return piece.gathers && !piece.is_small; }))
      result = gather(some, network, on);
  }
  pieces_.clear();
  return result;
}

}  // namespace temper::collectives
