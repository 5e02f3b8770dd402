#pragma once
#include <cuda_runtime.h>
#include <nccl.h>

#include <algorithm>
#include <span>
#include <vector>

#include "collectives/received_numbers.h"
#include "tensor/tensor.h"

namespace temper::collectives {

// Sums of bfloat16 and float16 over ranks with a GPU each, as Group promises them; NCCL rounds after each
// addition. Each rank gets what the others have of its part of the elements, adds up in float32 in the order
// of the ranks and rounds once; where all want the sums, each sends the others those of its part. That are as
// many bytes as NCCL moves. Of small tensors each rank gets all and adds up by itself: one meeting instead of
// two.
class NarrowSums {
 public:
  // Whether every rank adds up all of a tensor's elements.
  static bool is_small(int64_t count, DType dtype, int ranks);

  NarrowSums(int rank, int ranks, Device gpu) : rank_(rank), ranks_(ranks), gpu_(gpu) {}

  // Memory for what other ranks send: taken before the stream of start() waits for the work asked for so far,
  // as the memory may wait for some of that itself.
  void take_memory() { received_.take(gpu_); }
  // Gives it back, once all work is done.
  void give_back() { received_.give_back(); }
  // Compact tensors on the GPU, which live until start().
  void add_all_reduce(const Tensor& values);  // in place
  void add_reduce_scatter(const Tensor& whole, const Tensor& part);
  // What was added since the last time. Each call goes to a stream that waits for that of the call before.
  ncclResult_t start(ncclComm_t network, cudaStream_t on);

 private:
  // Elements of which each rank adds up `each`, and fewer, or none, where they end: rank r those from
  // first + r · stride on.
  struct Piece {
    DType dtype = DType::kBF16;
    std::byte* all = nullptr;   // of element 0
    std::byte* sums = nullptr;  // of this rank's first
    int64_t first = 0, stride = 0, each = 0, end = 0;
    bool gathers = false;   // the sums go to all ranks
    bool is_small = false;  // each rank adds up all elements
    int64_t received = 0;   // where what ranks send begins, in bytes

    int64_t size() const { return size_of(dtype); }
    int64_t begin(int rank) const { return first + rank * stride; }
    int64_t count(int rank) const { return std::clamp<int64_t>(end - begin(rank), 0, each); }
    std::byte* at(int rank) const { return all + begin(rank) * size(); }
    int64_t slot() const;  // bytes that one rank sends, rounded up
  };
  int64_t most() const;  // elements that each rank may add up in one piece
  std::byte* received(const Piece& piece, int rank) const;
  // Of pieces whose received numbers have room together.
  ncclResult_t exchange(std::span<const Piece> pieces, ncclComm_t network, cudaStream_t on) const;
  ncclResult_t gather(std::span<const Piece> pieces, ncclComm_t network, cudaStream_t on) const;

  const int rank_, ranks_;
  const Device gpu_;
  std::vector<Piece> pieces_;
  ReceivedNumbers received_;
};

}  // namespace temper::collectives
